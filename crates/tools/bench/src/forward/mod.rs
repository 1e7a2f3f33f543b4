//! `p4shield-dev bench forward`: packets a second of a P4 switch on one core, or two.
//!
//! Ports are memory, so that the switch with its program is measured without a driver, or two `net_null`
//! devices of DPDK, which `libp4shield_ethdev.so` opens in this process; these also with two threads, which
//! have queues of their own and share the program. The first program is that of TEE
//! Time at P4, which peers run, too: with `P4SHIELD_PEERS`, the script `swx/run` in that folder measures them
//! afterwards, over DPDK's `net_null` ports.

mod ports;
mod programs;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4shield_bpf::{Object, Program};
use p4shield_dpdk_ports::{DpdkConfig, DpdkPorts, FurtherDevices, OpenDevices};
use p4shield_switch::{Bell, Links, PacketIo, PipelineHandle, Seat, Switch, Traits, link};
use p4shield_traffic::{Copy, Groups, Sessions};
use serde::Serialize;

use crate::cores;
use crate::engine::make;
use crate::stats::Spread;
use ports::MemoryPorts;
use programs::{Case, MULTICAST, ROUTER, TEE, install, packets};

/// Bytes of a packet, without the frame check sequence.
const PACKET_BYTES: usize = 64;

/// The variable that names the folder of the peers' scripts.
pub const PEERS: &str = "P4SHIELD_PEERS";

/// Options of a measurement.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// Rounds of each program
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Milliseconds of a round
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub milliseconds: u32,
}

/// A program's speed.
#[derive(Clone, Debug, Serialize)]
pub struct Forwarding {
    /// The program.
    pub program: &'static str,
    /// The kind of its two ports.
    pub ports: &'static str,
    /// Its packet threads, each on a core of its own.
    pub threads: usize,
    /// Entries of its tables.
    pub entries: u32,
    /// eBPF instructions on its longest path.
    pub longest_path: usize,
    /// Million received packets a second of all threads: the median round, and how rounds differ.
    pub million_packets_s: Spread,
    /// Nanoseconds per packet of the fastest round.
    pub least_ns: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes of each packet.
    pub packet_bytes: usize,
    /// By ports and program.
    pub programs: Vec<Forwarding>,
    /// The reason why nothing was measured over DPDK's ports.
    pub without_dpdk: Option<String>,
    /// Lines of the peers' script.
    pub peers: Vec<String>,
}

/// Steps that [`run`] reports.
pub const STEPS: usize = 7;

/// Measures the programs over memory, then over DPDK's ports, then the peers if there are scripts.
///
/// A machine without the library for DPDK's ports gets no figures of them, and one with a single core none of
/// two threads.
///
/// # Errors
/// A program does not compile or load, or forwards no packet, which is a bug; DPDK does not start, or the
/// peers' script fails.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    let mut programs = Vec::new();
    for case in [&TEE, &ROUTER, &MULTICAST] {
        progress(format!("{}, ports in memory", case.program));
        programs.push(on_a_core(|| measure(options, "memory", case, MemoryPorts::new(packets())))?);
    }
    let mut without_dpdk = None;
    // The devices' packets are empty, for which the router has no route.
    for (case, threads) in [(&TEE, 1), (&TEE, 2), (&MULTICAST, 1)] {
        progress(format!("{}, net_null ports, threads: {threads}", case.program));
        if threads > cores_here() {
            continue;
        }
        let measured = || match threads {
            1 => measure(options, "net_null", case, DpdkPorts::open(&null_devices())?),
            _ => measure_two(options, case),
        };
        match on_a_core(measured) {
            Ok(figures) => programs.push(figures),
            Err(error) => match error.downcast_ref() {
                Some(why @ p4shield_dpdk_ports::Error::Load { .. }) => without_dpdk = Some(why.to_string()),
                _ => return Err(error),
            },
        }
    }
    progress("peers".into());
    let peers = std::env::var_os(PEERS).map(|folder| peers(Path::new(&folder))).transpose()?;
    let peers = peers.unwrap_or_default();
    Ok(Report { packet_bytes: PACKET_BYTES, programs, without_dpdk, peers })
}

/// Returns how many of the two cores there are.
fn cores_here() -> usize {
    let [first, second] = cores::two();
    1 + usize::from(first != second)
}

/// Two devices that always have packets, and discard what they are sent.
fn null_devices() -> DpdkConfig {
    let devices = ["net_null0", "net_null1"].map(|name| format!("{name},size={PACKET_BYTES}"));
    DpdkConfig { devices: devices.into(), ..DpdkConfig::default() }
}

/// Measures on a thread of its own, since peers inherit the core of the one that starts them.
fn on_a_core(work: impl FnOnce() -> anyhow::Result<Forwarding> + Send) -> anyhow::Result<Forwarding> {
    let pinned = || {
        cores::pin(cores::two()[0]);
        work()
    };
    let done = std::thread::scope(|scope| scope.spawn(pinned).join());
    done.map_err(|_| anyhow!("the measuring thread panicked")).flatten()
}

/// A program that is measured, with its entries, and what is known of it.
struct Loaded {
    program: Program,
    traits: Traits,
    entries: usize,
    longest_path: usize,
}

impl Loaded {
    fn of(case: &Case) -> anyhow::Result<Self> {
        let mut made = make("forward.p4", case.source, &[])?;
        let facts = &made.compiled.facts;
        let entries = (case.entries)();
        entries.iter().try_for_each(|e| install(&facts.tables, &mut made.jit, e))?;
        let object = Object::parse(&made.compiled.object)?;
        let traits = Traits {
            architecture: facts.architecture,
            divided: object.is_divided(),
            reads_queues: object.reads_queues(),
        };
        let longest_path = facts.longest_path;
        Ok(Self { program: made.jit, traits, entries: entries.len(), longest_path })
    }
}

/// Returns the group of a program's copies.
fn groups(case: &Case) -> anyhow::Result<Groups> {
    let copies = (0..case.copies).map(|n| Copy { port: n as u16 % 2, replica: n as u16 });
    let mut groups = Groups::default();
    groups.set(1, copies.collect())?;
    Ok(groups)
}

/// A switch that is measured, and what is known of its program.
struct Measured<I> {
    switch: Switch<I>,
    entries: usize,
    longest_path: usize,
}

impl<I: PacketIo> Measured<I> {
    fn new(case: &Case, io: I) -> anyhow::Result<Self> {
        let Loaded { program, traits, entries, longest_path } = Loaded::of(case)?;
        let switch = Switch::new(io, vec![0, 1], program, traits)?;
        switch.pipeline().traffic.groups = groups(case)?;
        Ok(Self { switch, entries, longest_path })
    }

    /// Returns million packets a second of each round, with those that another thread counts meanwhile.
    fn rates(&mut self, options: &Options, other: &AtomicU64) -> Result<Vec<f64>, I::Error> {
        let length = Duration::from_millis(options.milliseconds.into());
        (0..options.rounds).map(|_| rate(&mut self.switch, length, other)).collect()
    }

    fn figures(&self, case: &Case, ports: &'static str, threads: usize, rates: Vec<f64>) -> Forwarding {
        Forwarding {
            program: case.program,
            ports,
            threads,
            entries: self.entries as u32,
            longest_path: self.longest_path,
            least_ns: rates.iter().map(|rate| 1e3 / rate).fold(f64::INFINITY, f64::min),
            million_packets_s: Spread::of(rates),
        }
    }
}

fn measure<I: PacketIo>(
    options: &Options,
    ports: &'static str,
    case: &Case,
    io: I,
) -> anyhow::Result<Forwarding> {
    let mut measured = Measured::new(case, io)?;
    let rates = measured.rates(options, &AtomicU64::new(0))?;
    check(case, &measured.switch)?;
    Ok(measured.figures(case, ports, 1, rates))
}

/// The part of a further thread of a measured switch.
struct Second {
    seat: Seat,
    devices: FurtherDevices,
    links: Links,
}

impl Second {
    /// Forwards on the second core until `stop`, and counts received packets.
    fn forward(self, case: &Case, count: &AtomicU64, stop: &AtomicBool) -> anyhow::Result<()> {
        let Self { seat, devices, links } = self;
        cores::pin(cores::two()[1]);
        let ways = devices.ways.clone();
        let ports = devices.into_ports()?.context("a device has two queues")?;
        let mut switch = seat.take(ports)?;
        switch.set_links(links, &ways);
        // The measured programs keep nothing between packets, so that a switch spreads them.
        let Loaded { program, traits, .. } = Loaded::of(case)?;
        let own = PipelineHandle::new(program, traits, groups(case)?, Sessions::default());
        drop(switch.exchange_pipeline(own));
        while !stop.load(Ordering::Relaxed) {
            count.fetch_add(rounds(&mut switch)?, Ordering::Relaxed);
        }
        check(case, &switch)
    }
}

/// Measures two threads of a switch of two DPDK devices, each with the program for itself.
fn measure_two(options: &Options, case: &Case) -> anyhow::Result<Forwarding> {
    let OpenDevices { ports, ways, mut further } = DpdkPorts::open_for(&null_devices(), 2)?;
    let mut measured = Measured::new(case, ports)?;
    // Neither sleeps.
    let bells: [Bell; 2] = [Arc::new(|| ()), Arc::new(|| ())];
    let mut links = link(&bells);
    let (devices, of_second) = further.pop().zip(links.pop()).context("two threads have two parts")?;
    measured.switch.set_links(links.pop().unwrap_or_default(), &ways);
    let second = Second { seat: measured.switch.seat(), devices, links: of_second };
    let (count, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let rates = std::thread::scope(|scope| {
        let (count, stop) = (&count, &stop);
        let second = scope.spawn(move || second.forward(case, count, stop));
        while count.load(Ordering::Relaxed) == 0 && !second.is_finished() {
            std::thread::yield_now();
        }
        let rates = measured.rates(options, count);
        stop.store(true, Ordering::Relaxed);
        second.join().map_err(|_| anyhow!("the second thread panicked")).flatten()?;
        anyhow::Ok(rates?)
    })?;
    check(case, &measured.switch)?;
    Ok(measured.figures(case, "net_null", 2, rates))
}

/// Returns an error if a switch has dropped packets: a program that drops takes a shorter path than the
/// measured one.
fn check<I: PacketIo>(case: &Case, switch: &Switch<I>) -> anyhow::Result<()> {
    let ports = &switch.counts().ports;
    let received = ports.iter().map(|port| port.received).sum::<u64>();
    let sent = ports.iter().map(|port| port.sent).sum::<u64>();
    ensure!(received > 0 && sent == received * u64::from(case.copies), "the measured program drops packets");
    Ok(())
}

/// Forwards for 64 rounds. Returns the number of received packets.
// Both callers share its code: with a round compiled into each, one thread took 4 % longer for two copies of
// a packet.
#[inline(never)]
fn rounds<I: PacketIo>(switch: &mut Switch<I>) -> Result<u64, I::Error> {
    (0..64).try_fold(0, |packets, _| Ok(packets + switch.round()? as u64))
}

/// Forwards for a time, and returns million packets a second, with those that another thread counts
/// meanwhile.
fn rate<I: PacketIo>(switch: &mut Switch<I>, length: Duration, other: &AtomicU64) -> Result<f64, I::Error> {
    let before = other.load(Ordering::Relaxed);
    let (start, mut packets) = (Instant::now(), 0);
    loop {
        packets += rounds(switch)?;
        let elapsed = start.elapsed();
        if elapsed >= length {
            packets += other.load(Ordering::Relaxed) - before;
            return Ok(packets as f64 / elapsed.as_secs_f64() / 1e6);
        }
    }
}

/// Runs the peers' script, which prints a line for each.
fn peers(folder: &Path) -> anyhow::Result<Vec<String>> {
    let script = folder.join("swx/run");
    let failed = || format!("cannot run {}", script.display());
    let ran = Command::new(&script).output().with_context(failed)?;
    let text = String::from_utf8_lossy(&ran.stdout);
    let why = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success(), anyhow!("{}: {}", failed(), why.trim()));
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_forwards_every_packet() {
        let report = run(&Options { rounds: 1, milliseconds: 1 }, |_| ()).unwrap();
        let kinds: Vec<_> = report.programs.iter().map(|p| (p.ports, p.threads)).collect();
        let mut expected =
            vec![("memory", 1), ("memory", 1), ("memory", 1), ("net_null", 1), ("net_null", 1)];
        if cores_here() == 2 {
            expected.insert(4, ("net_null", 2));
        }
        assert_eq!(kinds, expected, "{report:?}");
        assert!(report.programs.iter().all(|p| p.least_ns > 0.0), "{report:?}");
    }
}
