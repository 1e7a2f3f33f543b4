//! Horizontal bars with their values written out, whole or in parts.

use plotters::prelude::*;

use crate::{Error, FONT, ceiling, colour, short};

/// A bar chart.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// What the values are, with their unit.
    pub unit: String,
    /// Names and values, from top to bottom.
    pub bars: Vec<(String, f64)>,
}

impl Bars {
    /// Draws it.
    ///
    /// # Errors
    /// If the drawing library refuses.
    pub fn svg(&self) -> Result<String, Error> {
        let row = |(i, (name, value)): (usize, &(String, f64))| {
            let (value, text) = (*value, short(*value));
            Row {
                name: name.clone(),
                text,
                length: value,
                pieces: vec![Piece { from: 0.0, to: value, colour: colour(i) }],
            }
        };
        let rows = self.bars.iter().enumerate().map(row).collect();
        Drawing { title: &self.title, unit: &self.unit, rows }.svg()
    }
}

/// A bar chart whose bars have parts.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// The chart's title.
    pub title: String,
    /// The unit of the values, and what they are.
    pub unit: String,
    /// The names of the parts.
    pub parts: Vec<String>,
    /// Names, and the value of each part, from top to bottom. A part below zero is drawn as none.
    pub bars: Vec<(String, Vec<f64>)>,
}

impl Stacks {
    /// Draws it: a bar's text is its sum, and the first row names the parts.
    ///
    /// # Errors
    /// If the drawing library refuses.
    pub fn svg(&self) -> Result<String, Error> {
        let mut rows: Vec<_> = self.bars.iter().map(|(name, parts)| stack(name, parts)).collect();
        let step = ceiling(rows.iter().map(|row| row.length).fold(0.0, f64::max)) / 3.0;
        for (i, part) in self.parts.iter().enumerate().rev() {
            // A short bar in the part's colour, with its name behind it.
            let piece = Piece { from: 0.0, to: step / 8.0, colour: colour(i) };
            let (name, text) = (String::new(), part.clone());
            rows.insert(0, Row { name, text, length: piece.to, pieces: vec![piece] });
        }
        Drawing { title: &self.title, unit: &self.unit, rows }.svg()
    }
}

fn stack(name: &str, parts: &[f64]) -> Row {
    let (mut pieces, mut end) = (Vec::new(), 0.0);
    for (i, part) in parts.iter().enumerate() {
        let from = end;
        end += part.max(0.0);
        pieces.push(Piece { from, to: end, colour: colour(i) });
    }
    Row { name: name.to_owned(), text: short(parts.iter().sum()), length: end, pieces }
}

/// A piece of a bar.
struct Piece {
    from: f64,
    to: f64,
    colour: RGBColor,
}

/// A bar with the name before it and the text behind it.
struct Row {
    name: String,
    text: String,
    length: f64,
    pieces: Vec<Piece>,
}

/// The drawing of a chart.
struct Drawing<'a> {
    title: &'a str,
    unit: &'a str,
    rows: Vec<Row>,
}

impl Drawing<'_> {
    fn svg(&self) -> Result<String, Error> {
        let mut out = String::new();
        self.draw(&mut out).map_err(|e| Error { title: self.title.to_owned(), reason: e.to_string() })?;
        Ok(out)
    }

    fn draw(&self, out: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let rows = u32::try_from(self.rows.len()).unwrap_or(u32::MAX).clamp(1, 64);
        let root = SVGBackend::with_string(out, (860, 90 + 34 * rows)).into_drawing_area();
        root.fill(&WHITE)?;
        let right = ceiling(self.rows.iter().map(|row| row.length).fold(0.0, f64::max)) * 1.1;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(36)
            .build_cartesian_2d(-right * 0.45..right, 0.0..f64::from(rows))?;
        chart
            .configure_mesh()
            .disable_mesh()
            .disable_y_axis()
            .x_desc(self.unit)
            .x_label_formatter(&|x| if *x < 0.0 { String::new() } else { short(*x) })
            .label_style((FONT, 12))
            .draw()?;
        for (i, row) in self.rows.iter().take(rows as usize).enumerate() {
            let y = f64::from(rows) - i as f64;
            let bar = |p: &Piece| Rectangle::new([(p.from, y - 0.82), (p.to, y - 0.18)], p.colour.filled());
            chart.draw_series(row.pieces.iter().map(bar))?;
            let text = |x: f64, s: String| Text::new(s, (x, y - 0.36), (FONT, 13).into_font());
            chart.draw_series([
                text(-right * 0.44, row.name.clone()),
                text(row.length + right * 0.01, row.text.clone()),
            ])?;
        }
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_carry_name_and_value() {
        let bars = vec![("parse".into(), 3.25), ("tables".into(), 20_000.0)];
        let svg = Bars { title: "t".into(), unit: "ns".into(), bars }.svg().unwrap();
        for word in ["parse", "3.2", "tables", "20 k", "ns"] {
            assert!(svg.contains(word), "{word} is missing");
        }
        Bars::default().svg().unwrap();
    }

    #[test]
    fn stacks_carry_names_of_bars_and_parts_and_the_sum() {
        let bars = vec![("bare".into(), vec![12.5, 3.0]), ("in an enclave".into(), vec![-0.5, 20.0])];
        let parts = vec!["input and output".into(), "processing".into()];
        let svg = Stacks { title: "t".into(), unit: "µs".into(), parts, bars }.svg().unwrap();
        for word in ["bare", "15.5", "in an enclave", "19.5", "input and output", "processing", "µs"] {
            assert!(svg.contains(word), "{word} is missing");
        }
        Stacks::default().svg().unwrap();
    }
}
