//! The report's figures as rows of tables, and what is said of them.

use p4shield_batch_model::{Estimate, Published};
use p4shield_bench::tee::{Compared, Latency, Loaded, Report, RowFigures, RowName};
use serde::Serialize;

/// The most that a packet's processing may take, in microseconds: the bar for bare rows.
const BAR: f64 = 0.03;
/// The least part of the bare maximum that the whole switch in a compartment may have: its bar.
const PIPELINE_BAR: f64 = 0.95;
/// The same for a function in a compartment.
const EXTERN_BAR: f64 = 0.5;

/// The title of the table of single packets.
pub(super) const LATENCIES: &str = "Single packets over veth, from the sender's call to the receiver's";

/// A row of the model's table.
#[derive(Serialize)]
pub(super) struct CostsRow {
    #[serde(flatten)]
    row: RowName,
    batches: u64,
    a_io: String,
    b_io: String,
    a_p: String,
    b_p: String,
    t_b_32: String,
    io_share: f64,
}

/// A row of the table of maxima.
#[derive(Serialize)]
pub(super) struct MaximumRow {
    #[serde(flatten)]
    row: RowName,
    modelled: f64,
    measured: f64,
    ratio: f64,
    with_notes: f64,
    of_measured: f64,
    core_percent: f64,
    lost_percent: f64,
    p50: f64,
    p90: f64,
    p99: f64,
}

/// A row of the paper.
#[derive(Serialize)]
pub(super) struct PaperRow {
    processor: &'static str,
    placement: &'static str,
    driver: &'static str,
    a_io: f64,
    b_io: f64,
    a_p: f64,
    b_p: f64,
    t_b_32: f64,
    io_share: f64,
    modelled: f64,
    measured: f64,
}

/// A row of the table of rates.
#[derive(Serialize)]
pub(super) struct RateRow {
    placement: &'static str,
    bytes: usize,
    #[serde(flatten)]
    loaded: Loaded,
}

/// A row of the table of single packets.
#[derive(Serialize)]
pub(super) struct LatencyRow {
    placement: &'static str,
    bytes: usize,
    #[serde(flatten)]
    latency: Latency,
}

/// Returns a value with half the width of its interval of 95 %.
fn estimate(e: &Estimate) -> String {
    format!("{:.4} ±{:.4}", e.value, e.half_width)
}

pub(super) fn costs(r: &RowFigures) -> CostsRow {
    let c = &r.costs;
    CostsRow {
        row: r.row.clone(),
        batches: c.batches,
        a_io: estimate(&c.a_io),
        b_io: estimate(&c.b_io),
        a_p: estimate(&c.a_p),
        b_p: estimate(&c.b_p),
        t_b_32: estimate(&r.full_batch),
        io_share: c.io_share,
    }
}

pub(super) fn maximum(r: &RowFigures) -> MaximumRow {
    let m = &r.maximum;
    MaximumRow {
        row: r.row.clone(),
        modelled: m.modelled,
        measured: m.measured.median,
        ratio: m.ratio,
        with_notes: m.noted.median,
        of_measured: m.noted_of_bare,
        core_percent: m.core_percent,
        lost_percent: m.lost_percent,
        p50: m.micros.p50,
        p90: m.micros.p90,
        p99: m.micros.p99,
    }
}

pub(super) fn paper(p: &Published) -> PaperRow {
    let c = p.costs;
    PaperRow {
        processor: p.processor,
        placement: p.placement,
        driver: p.driver,
        a_io: c.a_io,
        b_io: c.b_io,
        a_p: c.a_p,
        b_p: c.b_p,
        t_b_32: c.batch(32),
        io_share: c.io_share(32),
        modelled: p.modelled,
        measured: p.measured,
    }
}

/// Returns the rows of the table of rates.
pub(super) fn rates(r: &Report) -> Vec<RateRow> {
    let of = |row: &RowFigures| {
        let RowName { placement, bytes, .. } = row.row;
        row.loads.iter().map(move |loaded| RateRow { placement, bytes, loaded: *loaded }).collect::<Vec<_>>()
    };
    r.rows.iter().flat_map(of).collect()
}

/// Returns the rows of the table of single packets.
pub(super) fn latencies(r: &Report) -> Vec<LatencyRow> {
    let of = |row: &RowFigures| {
        let RowName { placement, bytes, .. } = row.row;
        let row_of = move |latency: &Latency| LatencyRow { placement, bytes, latency: *latency };
        row.latencies.iter().map(row_of).collect::<Vec<_>>()
    };
    r.rows.iter().flat_map(of).collect()
}

/// Returns the names of a row as a text.
pub(super) fn title_of(row: &RowName) -> String {
    let RowName { placement, ports, bytes, threads } = row;
    format!("{placement}, {ports}, {bytes} bytes, threads: {threads}")
}

/// Returns the assumptions of the model that do not hold in a row, a line for each; nothing if all hold.
pub(super) fn reasons(r: &RowFigures) -> Vec<String> {
    if r.maximum.holds {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{}: the modelled maximum is {:.2} of the measured one. 32 packets take {:.3} µs at full load, \
         not {:.3}; the thread had {:.0} % of its core. Assumptions that do not hold:",
        title_of(&r.row),
        r.maximum.ratio,
        r.parts.iter().map(|part| part.micros).sum::<f64>(),
        r.full_batch.value,
        r.maximum.core_percent,
    )];
    let explains = r.parts.iter().filter(|part| part.explains);
    lines.extend(
        explains.map(|p| format!("  {:+.3} µs, {:+.1} %: {}", p.micros, p.percent, p.assumption.text())),
    );
    let residuals = r.residuals.iter().map(|g| format!("{} to {}: {:+.1} %", g.from, g.to, g.percent));
    lines.push(format!("  beyond the line, by size: {}", residuals.collect::<Vec<_>>().join(", ")));
    lines
}

/// Returns how rows compare with others that were measured beside them, a line for each.
pub(super) fn compared(r: &Report) -> Vec<String> {
    let line = |row: &RowFigures| {
        let Compared { with, measured, of_core } = row.maximum.compared.as_ref()?;
        let bar = match row.row.placement.split(',').next()? {
            "extern" => format!("; {EXTERN_BAR} is the bar"),
            "secure pipeline" => format!("; {PIPELINE_BAR} is the bar"),
            _ => String::new(),
        };
        Some(format!(
            "{}: {:.2} of the measured maximum of {with}, the median of {} rounds side by side ({:.2} to \
             {:.2}); {:.2} of the time in which each had its core ({:.2} to {:.2}){bar}",
            title_of(&row.row),
            measured.median,
            measured.rounds.len(),
            measured.rounds.first()?,
            measured.rounds.last()?,
            of_core.median,
            of_core.rounds.first()?,
            of_core.rounds.last()?,
        ))
    };
    r.rows.iter().filter_map(line).collect()
}

/// Returns whether bare rows keep within the bar.
pub(super) fn bar(r: &Report) -> String {
    let bare = || r.rows.iter().filter(|row| row.row.placement == "bare");
    let most = bare().map(|row| row.costs.b_p.value).fold(f64::NAN, f64::max);
    let kept = bare().filter(|row| row.costs.b_p.value <= BAR).count();
    let all = bare().count();
    format!(
        "b_p, bare: at most {BAR} µs is the bar; {kept} of {all} rows meet it, and the greatest is {most:.4}"
    )
}
