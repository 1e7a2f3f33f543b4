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
//! | `row`, `rows` | what a row starts; all of them |
//! | `fed`, `veth` | rows by where their batches come from: ports that always have packets, a sender |
//! | `sizes`, `filled` | ports that are asked for batches of all sizes; that let packets gather |
//! | `fit` | what follows from the batches |
//! | `report` | the figures |

mod fed;
mod filled;
mod fit;
mod options;
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
    Assumption, Costs, Loaded, Maximum, Missing, Part, Report, Residual, RowFigures, RowName, Size,
};
use self::row::{Extent, Row};
use self::rows::rows;
use crate::fixture::forward::on_a_core;
use crate::fixture::opened::{cores_here, lacks_dpdk};

/// Steps that [`run`] reports.
#[must_use]
pub fn steps(options: &Options) -> usize {
    rows(options).len()
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
    for row in rows(options) {
        let name = row.name();
        progress(format!("{}, {} bytes, threads: {}", name.ports, name.bytes, name.threads));
        match measure(&row, &extent)? {
            Ok(fit) => report.rows.push(figures(&row, fit)),
            Err(reason) => report.missing.push(Missing { row: name, reason }),
        }
    }
    Ok(report)
}

/// Measures a row, or returns why this machine cannot.
fn measure(row: &Row, extent: &Extent<'_>) -> anyhow::Result<Result<Fit, String>> {
    if row.threads > cores_here() {
        return Ok(Err("this process may use one core only".to_owned()));
    }
    if let (Ports::Veth, Err(why)) = (row.ports, p4shield_testbed::usable()) {
        return Ok(Err(why));
    }
    match on_a_core(|| (row.start)(row, extent)) {
        Ok(measured) => Ok(fit(measured, row.threads).map_err(|why| why.to_string())),
        Err(error) => lacks_dpdk(&error).ok_or(error).map(Err),
    }
}

fn figures(row: &Row, fit: Fit) -> RowFigures {
    let Fit { costs, full_batch, maximum, sizes, residuals, parts, loads } = fit;
    let (row, program) = (row.name(), row.program.program);
    RowFigures { row, program, costs, full_batch, maximum, residuals, parts, sizes, loads }
}

/// Returns the name of this machine's processor.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("unknown", |(_, name)| name.trim()).to_owned()
}
