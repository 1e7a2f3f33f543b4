//! `p4shield-dev bench forward`: packets a second of a P4 switch on one core.
//!
//! Ports are memory, so that the switch with its program is measured without a driver, or two `net_null`
//! devices of DPDK, which `libp4shield_ethdev.so` opens in this process. The first program is that of TEE
//! Time at P4, which peers run, too: with `P4SHIELD_PEERS`, the script `swx/run` in that folder measures them
//! afterwards, over DPDK's `net_null` ports.

mod ports;
mod programs;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4shield_bpf::Object;
use p4shield_dpdk_ports::{DpdkConfig, DpdkPorts};
use p4shield_switch::{PacketIo, PortCounts, Switch, Traits};
use p4shield_traffic::Copy;
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
    /// Entries of its tables.
    pub entries: u32,
    /// eBPF instructions on its longest path.
    pub longest_path: usize,
    /// Million received packets a second: the median round, and how rounds differ.
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
pub const STEPS: usize = 6;

/// Measures the programs over memory, then over DPDK's ports, then the peers if there are scripts.
///
/// A machine without the library for DPDK's ports gets no figures of them.
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
    for case in [&TEE, &MULTICAST] {
        progress(format!("{}, net_null ports", case.program));
        match on_a_core(|| measure(options, "net_null", case, null_ports()?)) {
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

/// Opens two devices that always have packets, and discard what they are sent.
fn null_ports() -> anyhow::Result<DpdkPorts> {
    let devices = ["net_null0", "net_null1"].map(|name| format!("{name},size={PACKET_BYTES}"));
    Ok(DpdkPorts::open(&DpdkConfig { devices: devices.into(), ..DpdkConfig::default() })?)
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

fn measure<I: PacketIo>(
    options: &Options,
    ports: &'static str,
    case: &Case,
    io: I,
) -> anyhow::Result<Forwarding> {
    let mut made = make("forward.p4", case.source, &[])?;
    let facts = &made.compiled.facts;
    let entries = (case.entries)();
    entries.iter().try_for_each(|e| install(&facts.tables, &mut made.jit, e))?;
    let longest_path = facts.longest_path;
    let object = Object::parse(&made.compiled.object)?;
    let traits = Traits {
        architecture: facts.architecture,
        divided: object.is_divided(),
        reads_queues: object.reads_queues(),
    };
    let mut switch = Switch::new(io, vec![0, 1], made.jit, traits)?;
    let copies = (0..case.copies).map(|n| Copy { port: n as u16 % 2, replica: n as u16 });
    switch.pipeline().traffic.groups.set(1, copies.collect())?;
    let length = Duration::from_millis(options.milliseconds.into());
    let rates = (0..options.rounds).map(|_| rate(&mut switch, length)).collect::<Result<Vec<_>, _>>()?;
    // A program that drops takes a shorter path than the measured one.
    let sum = |count: fn(&PortCounts) -> u64| switch.counts().ports.iter().map(count).sum::<u64>();
    let (received, sent) = (sum(|p| p.received), sum(|p| p.sent));
    ensure!(received > 0 && sent == received * u64::from(case.copies), "the measured program drops packets");
    let least_ns = rates.iter().map(|rate| 1e3 / rate).fold(f64::INFINITY, f64::min);
    Ok(Forwarding {
        program: case.program,
        ports,
        entries: entries.len() as u32,
        longest_path,
        million_packets_s: Spread::of(rates),
        least_ns,
    })
}

/// Forwards for a time, and returns million packets a second.
fn rate<I: PacketIo>(switch: &mut Switch<I>, length: Duration) -> Result<f64, I::Error> {
    let (start, mut packets) = (Instant::now(), 0);
    loop {
        for _ in 0..64 {
            packets += switch.round()?;
        }
        let elapsed = start.elapsed();
        if elapsed >= length {
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
        let kinds: Vec<_> = report.programs.iter().map(|p| p.ports).collect();
        assert_eq!(kinds, ["memory", "memory", "memory", "net_null", "net_null"], "{report:?}");
        assert!(report.programs.iter().all(|p| p.least_ns > 0.0), "{report:?}");
    }
}
