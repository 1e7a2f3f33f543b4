//! `p4shield-dev bench tee`: the costs of a batch of packets in a P4 switch, as "TEE Time at P4" models them.
//!
//! Each row is a switch on ports of one kind, with the paper's program. Its ports note of each batch the
//! number of packets and the times to receive, process and send them; the model is fitted to these, and its
//! maximum printed beside the measured one. Where both differ by more than a tenth, the time of 32 packets
//! at full load is divided by the model's assumptions.
//!
//! | module | contents |
//! |---|---|
//! | `options` | what to measure |
//! | `place`, `row`, `rows` | where the program runs; what a row starts; all of them |
//! | `fed`, `veth` | rows by where their batches come from: ports that always have packets, a sender |
//! | `latency` | the time of single packets through a switch on veth |
//! | `sizes` | ports that are asked for batches of all sizes |
//! | `fit` | what follows from the batches |
//! | `report` | the figures |

mod fed;
mod fit;
mod latency;
mod options;
mod place;
mod report;
mod row;
mod rows;
mod sizes;
mod veth;

use std::time::Duration;

use p4shield_batch_model::PUBLISHED;
use p4shield_switch::Ticks;

use self::fit::{Fit, fit};
pub use self::options::{Options, Pair, Ports};
pub use self::report::{
    Assumption, Compared, Costs, Latency, Loaded, Maximum, Missing, Part, Report, Residual, RowFigures,
    RowName, Size,
};
use self::row::{Extent, Group, Row};
use self::rows::groups;
use crate::fixture::forward::on_a_core;
use crate::fixture::opened::{cores_here, lacks_dpdk};

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    groups(options).len()
}

/// Measures; calls `progress` before each row.
///
/// A row that this machine cannot run, or from whose batches no line follows, is listed with the reason.
///
/// # Errors
/// A program does not compile or load, or forwards no packet, which is a bug; DPDK or a port does not start.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let ticks = Ticks::calibrated();
    let length = Duration::from_millis(options.milliseconds.into());
    let interfaces = options.interfaces.as_ref();
    let extent = Extent { rounds: options.rounds, length, ticks: &ticks, interfaces };
    let mut report = Report {
        processor: processor(),
        clock_read: ticks.read_micros(),
        rows: Vec::new(),
        missing: Vec::new(),
        paper: &PUBLISHED,
    };
    for group in groups(options) {
        if let Some(row) = group.rows.first() {
            let name = row.name();
            progress(format!("{}, {} bytes, threads: {}", name.ports, name.bytes, name.threads));
        }
        let fits = measure(&group, &extent)?;
        for (row, fit) in group.rows.iter().zip(fits) {
            match fit {
                Ok(fit) => report.rows.push(figures(row, fit)),
                Err(reason) => report.missing.push(Missing { row: row.name(), reason }),
            }
        }
    }
    Ok(report)
}

/// Measures rows, or returns why this machine cannot.
fn measure(group: &Group, extent: &Extent<'_>) -> anyhow::Result<Vec<Result<Fit, String>>> {
    let rows = &group.rows;
    if let Some(why) = rows.iter().find_map(lacks) {
        return Ok(rows.iter().map(|_| Err(why.clone())).collect());
    }
    match on_a_core(|| (group.start)(rows, extent)) {
        Ok(measured) => {
            let fitted = rows.iter().zip(measured);
            Ok(fitted.map(|(row, m)| fit(m, row.threads).map_err(|why| why.to_string())).collect())
        }
        Err(error) => {
            let why = lacks_dpdk(&error).ok_or(error)?;
            Ok(rows.iter().map(|_| Err(why.clone())).collect())
        }
    }
}

/// Returns what a row needs and this machine lacks.
fn lacks(row: &Row) -> Option<String> {
    if row.threads > cores_here() {
        return Some("this process may use one core only".to_owned());
    }
    (row.ports == Ports::Veth).then(p4shield_testbed::usable)?.err()
}

fn figures(row: &Row, fit: Fit) -> RowFigures {
    let Fit { costs, full_batch, maximum, sizes, residuals, parts, loads, latencies } = fit;
    let (row, program) = (row.name(), row.program().program);
    RowFigures { row, program, costs, full_batch, maximum, residuals, parts, sizes, loads, latencies }
}

/// Returns the name of this machine's processor.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("unknown", |(_, name)| name.trim()).to_owned()
}
