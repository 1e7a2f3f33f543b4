//! SVG charts of timelines and measurements: one look for demo and benchmarks.
//!
//! A chart is data; [`Lines::svg`], [`Bars::svg`] and [`Stacks::svg`] draw it with `plotters`.

#![forbid(unsafe_code)]

mod bars;
mod lines;
pub mod page;

pub use bars::{Bars, Stacks};
pub use lines::{Band, Lines, Series};

use plotters::style::RGBColor;

/// A chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the chart \"{title}\": {reason}")]
pub struct Error {
    /// Its title.
    pub title: String,
    /// What the drawing library said.
    pub reason: String,
}

/// Colours that people with colour-blindness can tell apart (Okabe and Ito's palette).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

const fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

const FONT: &str = "sans-serif";

/// The upper end of an axis that has to show `most`: a little more, and never nothing.
fn ceiling(most: f64) -> f64 {
    if most.is_finite() && most > 0.0 { most * 1.08 } else { 1.0 }
}

/// A number with the unit prefix a person would use: `1.5 M`, `20 k`, `12`.
fn short(v: f64) -> String {
    let (scaled, prefix) = match v.abs() {
        a if a >= 1e9 => (v / 1e9, " G"),
        a if a >= 1e6 => (v / 1e6, " M"),
        a if a >= 1e4 => (v / 1e3, " k"),
        _ => (v, ""),
    };
    let digits = if scaled.fract() == 0.0 || scaled.abs() >= 100.0 { 0 } else { 1 };
    format!("{scaled:.digits$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (v, text) in
            [(0.0, "0"), (12.5, "12.5"), (20_000.0, "20 k"), (1_500_000.0, "1.5 M"), (3e9, "3 G")]
        {
            assert_eq!(short(v), text);
        }
    }

    #[test]
    fn an_empty_axis_still_has_a_length() {
        assert!(ceiling(0.0) > 0.0 && ceiling(f64::NAN) > 0.0);
    }
}
