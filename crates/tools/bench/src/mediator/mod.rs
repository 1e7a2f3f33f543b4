//! `p4shield-dev bench mediator`: what a packet costs the switch's thread, submitting it and polling it out again.
//!
//! The P4 VM's end answers `pass` and nothing else, in one of two [`Place`]s: on another core, as in production, so that
//! the cache lines that travel between the cores are paid for; or on the same core off the clock, which leaves the
//! instructions alone and does not depend on how busy the other core is. In two more a real program judges the packets to
//! one VM, with all that belongs to it: in a P4 VM's worker on another core, whose speed is the last column then, and in
//! the mediator's own thread. Each figure is a percentile over bursts, the clock's own time taken off, so that a burst
//! during which the machine did something else counts for nothing.

mod guarded;
mod pool;
mod stage;

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{Error, cores};
use pool::Pool;
use stage::Stage;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Packets submitted together.
    pub bursts: Vec<usize>,
    /// Header bytes handed over at most.
    pub headers: Vec<u32>,
    /// Bytes of a packet.
    pub packet_bytes: usize,
    /// Which traffic.
    pub cases: Vec<Case>,
    /// Where the P4 VM's end runs.
    pub places: Vec<Place>,
    /// How long each figure is measured.
    pub time: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bursts: vec![1, 8, 32],
            headers: vec![64, 128],
            packet_bytes: 64,
            cases: Case::ALL.to_vec(),
            places: Place::ALL.to_vec(),
            time: Duration::from_millis(300),
        }
    }
}

/// Where the P4 VM's end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In between, on the mediator's core and off the clock.
    SameCore,
    /// On a core of its own.
    OtherCore,
    /// On a core of its own, and it is a P4 VM's worker with `tcp_guard.p4`.
    P4vm,
    /// Nowhere: the same program in the mediator's thread.
    Inline,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::SameCore, Self::OtherCore, Self::P4vm, Self::Inline];

    /// The cases that make sense there.
    fn cases(self, of: &[Case]) -> impl Iterator<Item = Case> {
        let all = matches!(self, Self::SameCore | Self::OtherCore);
        of.iter().copied().filter(move |case| all || *case == Case::ToVm)
    }

    /// What it is, for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameCore => "same core",
            Self::OtherCore => "other core",
            Self::P4vm => "P4 VM",
            Self::Inline => "inline",
        }
    }
}

/// Traffic that the mediator treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// No VM's packet, on a port that passes those.
    Nobody,
    /// From the port of a VM to somewhere else: the sender's egress.
    FromVm,
    /// From an uplink to one VM: the receiver's ingress.
    ToVm,
    /// From an uplink to 256 VMs of one tenant by turns.
    ToManyVms,
    /// From the port of a VM to a VM of another tenant: both are asked.
    BetweenTenants,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Nobody, Self::FromVm, Self::ToVm, Self::ToManyVms, Self::BetweenTenants];

    /// What it is, for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "of nobody",
            Self::FromVm => "from a VM's port",
            Self::ToVm => "uplink to one VM",
            Self::ToManyVms => "uplink to 256 VMs",
            Self::BetweenTenants => "between two tenants",
        }
    }
}

/// One figure: nanoseconds a packet in the mediator's thread.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Traffic.
    pub case: Case,
    /// Where the P4 VM's end ran.
    pub place: Place,
    /// Packets submitted together.
    pub burst: usize,
    /// Header bytes handed over at most.
    pub header_bytes: u32,
    /// Submitting, median.
    pub submit_ns: f64,
    /// Polling out, median over polls that brought something.
    pub poll_ns: f64,
    /// Both, 10th percentiles: what remains when nothing else uses the machine.
    pub quiet_ns: f64,
    /// Packets through the mediator a second, millions, all waiting included.
    pub mpps: f64,
}

/// Measures each combination; `progress` is told before each.
///
/// # Errors
/// If shared memory cannot be had.
pub fn run(options: &Options, mut progress: impl FnMut(Case, Place, usize, u32)) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for &place in &options.places {
        for case in place.cases(&options.cases) {
            for &header_bytes in &options.headers {
                for &burst in &options.bursts {
                    progress(case, place, burst, header_bytes);
                    rows.push(measure(options, case, place, burst.clamp(1, MAX_BURST), header_bytes)?);
                }
            }
        }
    }
    Ok(rows)
}

/// The largest burst.
pub const MAX_BURST: usize = 256;

/// Combinations that [`run`] measures.
#[must_use]
pub fn steps(options: &Options) -> usize {
    let cases: usize = options.places.iter().map(|place| place.cases(&options.cases).count()).sum();
    cases * options.headers.len() * options.bursts.len()
}

fn measure(
    options: &Options,
    case: Case,
    place: Place,
    burst: usize,
    header_bytes: u32,
) -> Result<Row, Error> {
    // Enough that the other core always has something to judge, few enough that the caches hold them.
    let bursts = match place {
        Place::SameCore | Place::Inline => 1,
        Place::OtherCore | Place::P4vm => 8_usize.div_ceil(burst).max(4),
    };
    let mut pool = Pool::new(bursts * burst, options.packet_bytes, case);
    let measured = std::thread::scope(|s| {
        let work = || {
            cores::pin(cores::two()[0]);
            let mut stage = Stage::new(case, place, header_bytes)?;
            Ok(stage.run(&mut pool, burst, options.time))
        };
        s.spawn(work).join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    });
    measured.map(|samples| samples.row(case, place, burst, header_bytes))
}

/// Nanoseconds a packet of each burst.
#[derive(Default)]
struct Samples {
    submit: Vec<f64>,
    poll: Vec<f64>,
    packets: u64,
    elapsed: Duration,
}

impl Samples {
    fn row(mut self, case: Case, place: Place, burst: usize, header_bytes: u32) -> Row {
        let clock = clock_ns();
        let figure = |per_packet: &mut Vec<f64>, tenth: usize| {
            per_packet.sort_unstable_by(f64::total_cmp);
            let at = per_packet.len() * tenth / 10;
            per_packet.get(at).map_or(0.0, |ns| (ns - clock / burst as f64).max(0.0))
        };
        let (submit_ns, poll_ns) = (figure(&mut self.submit, 5), figure(&mut self.poll, 5));
        let quiet_ns = figure(&mut self.submit, 1) + figure(&mut self.poll, 1);
        let mpps = self.packets as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE) / 1e6;
        Row { case, place, burst, header_bytes, submit_ns, poll_ns, quiet_ns, mpps }
    }
}

/// What reading the clock twice takes.
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
    fn every_case_is_measured_in_each_place() {
        let options = Options {
            bursts: vec![1, 32],
            headers: vec![128],
            time: Duration::from_millis(5),
            ..Options::default()
        };
        let rows = run(&options, |_, _, _, _| ()).unwrap();
        assert_eq!(rows.len(), steps(&options));
        assert!(rows.iter().all(|r| r.mpps > 0.0), "{rows:?}");
    }
}
