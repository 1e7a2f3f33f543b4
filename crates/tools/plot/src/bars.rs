//! Horizontal bars with their values written out.

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
        let mut out = String::new();
        self.draw(&mut out).map_err(|e| Error { title: self.title.clone(), reason: e.to_string() })?;
        Ok(out)
    }

    fn draw(&self, out: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let rows = u32::try_from(self.bars.len()).unwrap_or(u32::MAX).clamp(1, 64);
        let root = SVGBackend::with_string(out, (860, 90 + 34 * rows)).into_drawing_area();
        root.fill(&WHITE)?;
        let right = ceiling(self.bars.iter().map(|b| b.1).fold(0.0, f64::max)) * 1.1;
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(36)
            .build_cartesian_2d(-right * 0.45..right, 0.0..f64::from(rows))?;
        chart
            .configure_mesh()
            .disable_mesh()
            .disable_y_axis()
            .x_desc(&self.unit)
            .x_label_formatter(&|x| if *x < 0.0 { String::new() } else { short(*x) })
            .label_style((FONT, 12))
            .draw()?;
        for (i, (name, value)) in self.bars.iter().take(rows as usize).enumerate() {
            let y = f64::from(rows) - i as f64;
            let bar = Rectangle::new([(0.0, y - 0.82), (*value, y - 0.18)], colour(i).filled());
            chart.draw_series([bar])?;
            let text = |x: f64, s: String| Text::new(s, (x, y - 0.36), (FONT, 13).into_font());
            chart.draw_series([
                text(-right * 0.44, name.clone()),
                text(value + right * 0.01, short(*value)),
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
}
