//! The paper's figures 3 and 4, with this machine's rows above the paper's.
//!
//! Figure 3 has the rows without a trusted environment, figure 4 all. Both show the maximum packet rate, and
//! the time of a full batch with the part of it that is input and output. This machine's rows are those of
//! one thread and of the longest packets that were measured: the paper has 1500 bytes.

use p4shield_batch_model::{BATCH, Published};
use p4shield_bench::tee::{Report, RowFigures};
use p4shield_plot::{Bars, Stacks};

use super::super::Chart;

/// The placement of the paper's and our rows without a trusted environment.
const BARE: &str = "bare";

/// A row of a figure.
struct Point {
    name: String,
    placement: &'static str,
    /// Measured maximum.
    rate: f64,
    /// Times of a full batch: input and output, processing.
    times: Vec<f64>,
}

fn ours(row: &RowFigures) -> Point {
    let (full, io) = (row.full_batch.value, row.costs.io_share);
    Point {
        name: format!("here: {}, {}", row.row.placement, row.row.ports),
        placement: row.row.placement,
        rate: row.maximum.measured.median,
        times: vec![full * io, full * (1.0 - io)],
    }
}

fn published(row: &Published) -> Point {
    let (full, io) = (row.costs.batch(BATCH), row.costs.io(BATCH));
    Point {
        name: format!("paper: {}, {}, {}", row.processor, row.placement, row.driver),
        placement: row.placement,
        rate: row.measured,
        times: vec![io, full - io],
    }
}

/// Returns the length of the packets of this machine's rows.
fn longest(r: &Report) -> usize {
    r.rows.iter().map(|row| row.row.bytes).max().unwrap_or_default()
}

/// Returns the rows of both figures.
fn points(r: &Report) -> Vec<Point> {
    let own = r.rows.iter().filter(|row| row.row.threads == 1 && row.row.bytes == longest(r));
    own.map(ours).chain(r.paper.iter().map(published)).collect()
}

fn rates(title: &str, bytes: usize, points: &[&Point]) -> Bars {
    Bars {
        title: title.into(),
        unit: format!("million packets a second; here with {bytes} bytes"),
        bars: points.iter().map(|p| (p.name.clone(), p.rate)).collect(),
    }
}

fn times(title: &str, bytes: usize, points: &[&Point]) -> Stacks {
    Stacks {
        title: title.into(),
        unit: format!("microseconds of a full batch; here with {bytes} bytes"),
        parts: vec!["input and output".into(), "processing".into()],
        bars: points.iter().map(|p| (p.name.clone(), p.times.clone())).collect(),
    }
}

/// Draws all figures.
pub(super) fn all(r: &Report) -> Vec<Chart> {
    let (points, bytes) = (points(r), longest(r));
    let every: Vec<_> = points.iter().collect();
    let bare: Vec<_> = points.iter().filter(|p| p.placement == BARE).collect();
    vec![
        ("tee-3-rates.svg", rates("Figure 3: maximum packet rates without a TEE", bytes, &bare).svg()),
        ("tee-3-times.svg", times("Figure 3: batches without a TEE", bytes, &bare).svg()),
        (
            "tee-4-rates.svg",
            rates("Figure 4a: maximum packet rates with and without a TEE", bytes, &every).svg(),
        ),
        ("tee-4-times.svg", times("Figure 4b: batches with and without a TEE", bytes, &every).svg()),
    ]
}
