//! `p4shield-dev bench mediator`: the cost of a packet in the switch's thread, for submitting and polling.
//!
//! In two [`Backend`]s the P4 VM's end only answers `pass`: on another core, as in production, where the
//! figures include the transfer of cache lines between the cores; or on the same core off the clock, where
//! they are the instructions alone, whatever the other core does. In two more a real program judges the
//! packets to one VM: in a P4 VM's worker on another core, whose speed the last column then shows, and in the
//! mediator's own thread. Each figure is a percentile over bursts without the clock's own time, so that
//! bursts in which the machine did other work do not count.

mod guarded;
mod pool;
mod stage;

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::args::milliseconds;
use crate::{cores, name};
use pool::Pool;
use stage::Stage;

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Packets submitted together
    #[arg(long = "burst", value_delimiter = ',', default_values_t = [1, 8, 32])]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub bursts: Vec<u16>,
    /// Header bytes handed over at most
    #[arg(long = "header-bytes", value_delimiter = ',', default_values_t = [64, 128])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=9728))]
    pub headers: Vec<u32>,
    /// Bytes of a packet
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(60..=2048))]
    pub packet_bytes: u16,
    /// What judges the packets, and where; `same-core` alone for profiling one thread
    #[arg(long = "backend", value_enum, value_delimiter = ',', default_values_t = Backend::ALL)]
    pub backends: Vec<Backend>,
    /// Milliseconds for each figure
    #[arg(long = "time-ms", value_name = "MS", value_parser = milliseconds, default_value = "300")]
    pub time: Duration,
}

/// What judges the packets, and where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// `pass`, on the mediator's core, off the clock.
    SameCore,
    /// `pass`, on a core of its own.
    OtherCore,
    /// A P4 VM's worker with `tcp_guard.p4`, on a core of its own.
    P4vm,
    /// The same program in the mediator's thread.
    Inline,
}

impl Backend {
    /// All, in the order of the table.
    pub const ALL: [Self; 4] = [Self::SameCore, Self::OtherCore, Self::P4vm, Self::Inline];

    /// Returns the cases that apply to this back end.
    fn cases(self) -> impl Iterator<Item = Case> {
        let all = matches!(self, Self::SameCore | Self::OtherCore);
        Case::ALL.into_iter().filter(move |case| all || *case == Case::ToVm)
    }
}

/// Traffic that the mediator treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Unowned packets, on a port that passes them.
    Unowned,
    /// From a VM's port to no VM: the sender's egress program.
    FromVm,
    /// From an uplink to one VM: the receiver's ingress program.
    ToVm,
    /// From an uplink to 256 VMs of one tenant in turn.
    ToManyVms,
    /// From a VM's port to another tenant's VM: both programs.
    BetweenTenants,
}

impl Case {
    /// All, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Unowned, Self::FromVm, Self::ToVm, Self::ToManyVms, Self::BetweenTenants];
}

/// One figure: nanoseconds per packet in the mediator's thread.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Traffic.
    pub case: Case,
    /// The back end.
    #[serde(rename = "place")]
    pub backend: Backend,
    /// Packets submitted together.
    pub burst: usize,
    /// Most header bytes copied per packet.
    pub header_bytes: u32,
    /// Submitting, median.
    pub submit_ns: f64,
    /// Polling, median over polls that returned packets.
    pub poll_ns: f64,
    /// Both, 10th percentiles: the cost on an otherwise idle machine.
    pub quiet_ns: f64,
    /// Packets per second through the mediator, millions, including all waiting.
    pub mpps: f64,
}

/// Measures each combination; calls `progress` before each.
///
/// # Errors
/// Shared memory cannot be allocated.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for &backend in &options.backends {
        for case in backend.cases() {
            for &header_bytes in &options.headers {
                for &burst in &options.bursts {
                    let (case_name, backend_name) = (name(case), name(backend));
                    progress(format!(
                        "{case_name}, {backend_name}, burst {burst}, {header_bytes} header bytes"
                    ));
                    rows.push(measure(options, case, backend, burst.into(), header_bytes)?);
                }
            }
        }
    }
    Ok(rows)
}

/// Combinations that [`run`] measures.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let cases: usize = options.backends.iter().map(|backend| backend.cases().count()).sum();
    cases * options.headers.len() * options.bursts.len()
}

fn measure(
    options: &Options,
    case: Case,
    backend: Backend,
    burst: usize,
    header_bytes: u32,
) -> anyhow::Result<Row> {
    // Enough to keep the other core busy, few enough for the caches.
    let bursts = match backend {
        Backend::SameCore | Backend::Inline => 1,
        Backend::OtherCore | Backend::P4vm => 8_usize.div_ceil(burst).max(4),
    };
    let mut pool = Pool::new(bursts * burst, options.packet_bytes.into(), case);
    let measured = std::thread::scope(|s| {
        let work = || {
            cores::pin(cores::two()[0]);
            let mut stage = Stage::new(case, backend, header_bytes)?;
            Ok(stage.run(&mut pool, burst, options.time))
        };
        s.spawn(work).join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    });
    measured.map(|samples| samples.row(case, backend, burst, header_bytes))
}

/// Nanoseconds per packet of each burst.
#[derive(Default)]
struct Samples {
    submit: Vec<f64>,
    poll: Vec<f64>,
    packets: u64,
    elapsed: Duration,
}

impl Samples {
    fn row(mut self, case: Case, backend: Backend, burst: usize, header_bytes: u32) -> Row {
        let clock = clock_ns();
        let figure = |per_packet: &mut Vec<f64>, tenth: usize| {
            per_packet.sort_unstable_by(f64::total_cmp);
            let at = per_packet.len() * tenth / 10;
            per_packet.get(at).map_or(0.0, |ns| (ns - clock / burst as f64).max(0.0))
        };
        let (submit_ns, poll_ns) = (figure(&mut self.submit, 5), figure(&mut self.poll, 5));
        let quiet_ns = figure(&mut self.submit, 1) + figure(&mut self.poll, 1);
        let mpps = self.packets as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE) / 1e6;
        Row { case, backend, burst, header_bytes, submit_ns, poll_ns, quiet_ns, mpps }
    }
}

/// Returns the time that reading the clock twice takes.
fn clock_ns() -> f64 {
    let reading = || {
        let start = Instant::now();
        start.elapsed().as_nanos()
    };
    (0..10_000).map(|_| reading()).min().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_with_each_back_end() {
        let options = Options {
            bursts: vec![1, 32],
            headers: vec![128],
            packet_bytes: 64,
            backends: Backend::ALL.to_vec(),
            time: Duration::from_millis(5),
        };
        let rows = run(&options, |_| ()).unwrap();
        assert_eq!(rows.len(), steps(&options));
        assert!(rows.iter().all(|r| r.mpps > 0.0), "{rows:?}");
    }
}
