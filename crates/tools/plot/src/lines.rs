//! Lines over time or size.

use plotters::prelude::*;

use crate::{Error, FONT, ceiling, colour, short};

/// One line.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by increasing x.
    pub points: Vec<(f64, f64)>,
}

/// A shaded stretch of the x axis.
#[derive(Clone, Debug)]
pub struct Band {
    /// Where it starts.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// What it is.
    pub name: String,
}

/// A line chart.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// What x is, with its unit.
    pub x: String,
    /// What y is, with its unit.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Shaded stretches.
    pub bands: Vec<Band>,
    /// Whether x is a size that doubles from point to point.
    pub log_x: bool,
}

impl Lines {
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
        let root = SVGBackend::with_string(out, (860, 320)).into_drawing_area();
        root.fill(&WHITE)?;
        let scale = |x: f64| if self.log_x { x.max(1.0).log2() } else { x };
        let all = || self.series.iter().flat_map(|s| &s.points);
        let left = all().map(|p| scale(p.0)).fold(f64::INFINITY, f64::min);
        let right = all().map(|p| scale(p.0)).fold(f64::NEG_INFINITY, f64::max);
        let (left, right) = if left < right { (left, right) } else { (0.0, 1.0) };
        let top = ceiling(all().map(|p| p.1).fold(0.0, f64::max));
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, (FONT, 17))
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right, 0.0..top)?;
        for (i, b) in self.bands.iter().enumerate() {
            let (from, to) = (scale(b.from).max(left), scale(b.to).min(right));
            let shade = if i % 2 == 0 { RGBColor(244, 241, 232) } else { RGBColor(232, 240, 244) };
            let text =
                Text::new(b.name.clone(), (from, top * 0.985), (FONT, 12).into_font().color(&BLACK.mix(0.6)));
            chart.draw_series([Rectangle::new([(from, 0.0), (to, top)], shade.filled())])?;
            chart.draw_series([text])?;
        }
        let unscale = |x: &f64| short(if self.log_x { x.exp2() } else { *x });
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&unscale)
            .y_label_formatter(&|y| short(*y))
            .label_style((FONT, 12))
            .draw()?;
        for (i, s) in self.series.iter().enumerate() {
            let points = s.points.iter().map(|p| (scale(p.0), p.1));
            chart
                .draw_series(LineSeries::new(points, colour(i).stroke_width(2)))?
                .label(&s.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour(i).stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleRight)
            .background_style(WHITE.mix(0.85))
            .label_font((FONT, 12))
            .draw()?;
        root.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_what_it_shows() {
        let svg = Lines {
            title: "Used <TCP> memory".into(),
            x: "seconds".into(),
            y: "MiB".into(),
            series: vec![Series { name: "used".into(), points: vec![(0.0, 1.0), (1.0, 5.0)] }],
            bands: vec![Band { from: 0.5, to: 9.0, name: "over".into() }],
            log_x: false,
        }
        .svg()
        .unwrap();
        for word in ["Used &lt;TCP&gt; memory", "seconds", "MiB", "used", "over", "<svg", "</svg>"] {
            assert!(svg.contains(word), "{word} is missing");
        }
    }

    #[test]
    fn a_chart_without_points_is_drawn() {
        Lines { series: vec![Series { name: "none".into(), points: vec![] }], ..Lines::default() }
            .svg()
            .unwrap();
        Lines { log_x: true, ..Lines::default() }.svg().unwrap();
    }
}
