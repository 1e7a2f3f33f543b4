//! `p4shield-dev bench p4vm`: a P4 VM by what isolates it: a process, or a virtual machine.
//!
//! There is no switch and no daemon: this process starts the P4 VM, gives it a program and a channel, and
//! plays the mediator with one packet at a time. So the figures are those of the compartment.

mod life;
mod processor;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use p4shield_config::{Compartment, Machine};
use p4shield_qemu::Accelerator;
use serde::Serialize;

use crate::stats::{Percentiles, Spread};
use life::{Case, Mapping, P4Vm};

/// QEMU's program.
const QEMU: &str = "qemu-system-x86_64";
/// Time without a packet after which a P4 VM sleeps.
const PAUSE: Duration = Duration::from_millis(20);
/// Time in which the processor time of an idle P4 VM is counted.
const IDLE: Duration = Duration::from_secs(3);

/// Options of a measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Starts of each P4 VM; all but the first follow the kill of the one before
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub starts: u32,
    /// Timed round trips after each start, without a pause between them
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub round_trips: u32,
    /// Timed round trips after each start, each after 20 ms without a packet
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub wake_ups: u32,
}

/// Figures of a P4 VM.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its isolation: `process`, or `vm` and the accelerator.
    pub compartment: String,
    /// The cache attribute that the guest requests for the channel's memory: decision 038 says what hosts
    /// make of it. `None`: it is the host's own memory.
    pub mapping: Option<String>,
    /// Milliseconds from its start to its first answer to the host.
    pub ready_ms: Spread,
    /// Milliseconds from the kill of the P4 VM before to the first verdict of this one, with verification and
    /// compilation of the program.
    pub restart_ms: Spread,
    /// Microseconds from a packet to its verdict, one after the other.
    pub round_trip_us: Percentiles,
    /// The same after 20 ms without a packet.
    pub wake_up_us: Percentiles,
    /// Processor time without packets, percent of a core, all of its processes together.
    pub idle_percent: Spread,
}

/// Measures each compartment; calls `progress` before each start. `image` is that of virtual machines;
/// without it, a process alone is measured.
///
/// # Errors
/// `p4shield` is missing, a P4 VM does not start, or it gives no verdict.
pub fn run(
    options: &Options,
    image: Option<PathBuf>,
    mut progress: impl FnMut(String),
) -> anyhow::Result<Vec<Row>> {
    let program = life::program()?;
    let process = Case { name: Compartment::Process.name().to_owned(), machine: None, mapping: None };
    let cases = std::iter::once(process).chain(image.into_iter().flat_map(in_machines));
    cases.map(|case| measure(options, &case, &program, &mut progress)).collect()
}

/// Steps that [`run`] reports.
#[must_use]
pub const fn steps(options: &Options, with_machine: bool) -> usize {
    options.starts as usize * if with_machine { 3 } else { 1 }
}

/// Returns virtual machines with each mapping.
fn in_machines(image: PathBuf) -> [Case; 2] {
    let accelerator = Accelerator::probe(QEMU.as_ref()).name();
    let machine = Machine {
        image,
        qemu: QEMU.into(),
        accelerator: Some(accelerator),
        processors: 1,
        firmware: None,
        processor: None,
        quote_service: None,
    };
    let name = format!("{}, {accelerator}", Compartment::Vm.name());
    [Mapping::Uncached, Mapping::WriteCombining].map(|mapping| Case {
        name: name.clone(),
        machine: Some(machine.clone()),
        mapping: Some(mapping),
    })
}

fn measure(
    options: &Options,
    case: &Case,
    program: &[u8],
    progress: &mut impl FnMut(String),
) -> anyhow::Result<Row> {
    let (mut ready, mut restarts, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    let (mut trips, mut wake_ups) = (Vec::new(), Vec::new());
    let mut before: Option<P4Vm> = None;
    for start in 1..=options.starts {
        let mapping = case.mapping.map_or("", Mapping::name);
        progress(format!("{} {mapping}: start {start}", case.name));
        let (restarts_one, begun) = (before.is_some(), Instant::now());
        before.take().into_iter().for_each(P4Vm::kill);
        let mut p4vm = P4Vm::start(case).with_context(|| case.name.clone())?;
        ready.push(millis(p4vm.ready));
        p4vm.load(program)?;
        p4vm.trip()?;
        if restarts_one {
            restarts.push(millis(begun.elapsed()));
        }
        for _ in 0..options.round_trips {
            trips.push(micros(p4vm.trip()?));
        }
        for _ in 0..options.wake_ups {
            std::thread::sleep(PAUSE);
            wake_ups.push(micros(p4vm.trip()?));
        }
        std::thread::sleep(PAUSE);
        idle.push(100.0 * processor::share(p4vm.pid(), IDLE)?);
        before = Some(p4vm);
    }
    before.into_iter().for_each(P4Vm::kill);
    Ok(Row {
        compartment: case.name.clone(),
        mapping: case.mapping.map(|mapping| mapping.name().to_owned()),
        ready_ms: Spread::of(ready),
        restart_ms: Spread::of(restarts),
        round_trip_us: Percentiles::of(&mut trips),
        wake_up_us: Percentiles::of(&mut wake_ups),
        idle_percent: Spread::of(idle),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_testbed::Guest;
    use p4shield_testbed::guest::p4vm_image;

    #[test]
    fn a_process_gives_all_figures() {
        let options = Options { starts: 2, round_trips: 20, wake_ups: 3 };
        let rows = run(&options, None, |_| ()).unwrap();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(row.compartment, "process");
        assert!(row.ready_ms.median > 0.0 && row.restart_ms.median > row.ready_ms.rounds[0], "{row:?}");
        assert!(row.round_trip_us.p50 > 0.0 && row.wake_up_us.p50 > 0.0, "{row:?}");
        assert_eq!((row.ready_ms.rounds.len(), row.restart_ms.rounds.len()), (2, 1));
    }

    #[test]
    fn machines_are_measured_with_each_cache_attribute() {
        if let Err(why) = Guest::usable() {
            return p4shield_need::skip("qemu", why);
        }
        let options = Options { starts: 2, round_trips: 20, wake_ups: 2 };
        let rows = run(&options, Some(p4vm_image().unwrap()), |_| ()).unwrap();
        let mappings: Vec<_> = rows.iter().map(|row| row.mapping.as_deref()).collect();
        assert_eq!(mappings, [None, Some("uncached"), Some("write combining")]);
        assert!(rows.iter().all(|row| row.round_trip_us.p50 > 0.0), "{rows:?}");
    }
}
