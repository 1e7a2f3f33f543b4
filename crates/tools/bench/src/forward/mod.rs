//! `p4shield-dev bench forward`: packets a second of a P4 switch on one core, or two.
//!
//! Ports are memory, so that the switch with its program is measured without a driver, or two `net_null`
//! devices of DPDK, which `libp4shield_ethdev.so` opens in this process; these also with two threads, which
//! have queues of their own and share the program. The first program is that of TEE
//! Time at P4, which peers run, too: with `P4SHIELD_PEERS`, the script `swx/run` in that folder measures them
//! afterwards, over DPDK's `net_null` ports.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use p4shield_switch::PacketIo;
use serde::Serialize;

use crate::fixture::forward::{forward, on_a_core};
use crate::fixture::opened::{Opened, cores_here, in_memory, lacks_dpdk, null_devices};
use crate::fixture::programs::{Case, MULTICAST, ROUTER, TEE};
use crate::stats::Spread;

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
        programs.push(on_a_core(|| measure(options, "memory", case, in_memory(PACKET_BYTES, 1)))?);
    }
    let mut without_dpdk = None;
    // The devices' packets are empty, for which the router has no route.
    for (case, threads) in [(&TEE, 1), (&TEE, 2), (&MULTICAST, 1)] {
        progress(format!("{}, net_null ports, threads: {threads}", case.program));
        if threads > cores_here() {
            continue;
        }
        let measured = || measure(options, "net_null", case, null_devices(PACKET_BYTES, threads)?);
        match on_a_core(measured) {
            Ok(figures) => programs.push(figures),
            Err(error) => without_dpdk = Some(lacks_dpdk(&error).ok_or(error)?),
        }
    }
    progress("peers".into());
    let peers = std::env::var_os(PEERS).map(|folder| peers(Path::new(&folder))).transpose()?;
    let peers = peers.unwrap_or_default();
    Ok(Report { packet_bytes: PACKET_BYTES, programs, without_dpdk, peers })
}

fn measure<I: PacketIo>(
    options: &Options,
    ports: &'static str,
    case: &Case,
    opened: Opened<'_, I>,
) -> anyhow::Result<Forwarding> {
    let threads = 1 + usize::from(opened.second.is_some());
    let length = Duration::from_millis(options.milliseconds.into());
    let forwarded = forward(case, opened, options.rounds, length)?;
    forwarded.check(case)?;
    Ok(Forwarding {
        program: case.program,
        ports,
        threads,
        entries: forwarded.entries as u32,
        longest_path: forwarded.longest_path,
        least_ns: forwarded.rates.iter().map(|rate| 1e3 / rate).fold(f64::INFINITY, f64::min),
        million_packets_s: Spread::of(forwarded.rates),
    })
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
