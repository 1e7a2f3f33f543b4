//! `p4shield-dev bench forward`: packets a second of a P4 switch on one core.
//!
//! Ports are memory: the switch with its program is measured, without a driver. The first program is that of
//! TEE Time at P4, which peers run, too: with `P4SHIELD_PEERS`, the script `swx/run` in that folder measures
//! them afterwards, over DPDK's `net_null` ports.

mod ports;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4shield_bpf::Program;
use p4shield_bpf::maps::UpdateFlag;
use p4shield_switch::{Switch, Traits};
use p4shield_tables::entry::{ActionText, MatchText, Named};
use p4shield_tables::model::{Architecture, TableFacts};
use serde::Serialize;

use crate::cores;
use crate::engine::make;
use crate::stats::Spread;
use ports::MemoryPorts;

const TEE: &str = include_str!("tee.p4");
const ROUTER: &str = include_str!("router.p4");

/// Bytes of a packet, without the frame check sequence.
const PACKET_BYTES: usize = 64;
/// Different packets, as many as do not fit a first-level cache.
const PACKETS: u32 = 4096;
/// Prefixes of the router, and rules of its access list.
const ROUTES: u32 = 10_000;
const RULES: u32 = 1_000;

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
    /// Entries of its tables.
    pub entries: u32,
    /// eBPF instructions on its longest path.
    pub longest_path: usize,
    /// Million packets a second: the median round, and how rounds differ.
    pub million_packets_s: Spread,
    /// Nanoseconds per packet of the fastest round.
    pub least_ns: f64,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes of each packet.
    pub packet_bytes: usize,
    /// By program.
    pub programs: Vec<Forwarding>,
    /// Lines of the peers' script.
    pub peers: Vec<String>,
}

/// Steps that [`run`] reports.
pub const STEPS: usize = 3;

/// Measures both programs, then the peers if there are scripts.
///
/// # Errors
/// A program does not compile or load, or forwards no packet, which is a bug; or the peers' script fails.
pub fn run(options: &Options, mut progress: impl FnMut(String)) -> anyhow::Result<Report> {
    progress("the TEE paper's program".into());
    let tee = on_a_core(|| measure(options, "XOR, add, XOR; one exact table", TEE, tee_entries))?;
    progress("a router with an access list".into());
    let router = on_a_core(|| measure(options, "access list, longest prefix", ROUTER, router_entries))?;
    progress("peers".into());
    let peers = std::env::var_os(PEERS).map(|folder| peers(Path::new(&folder))).transpose()?;
    let programs = vec![tee, router];
    Ok(Report { packet_bytes: PACKET_BYTES, programs, peers: peers.unwrap_or_default() })
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

/// An entry: its table, keys, priority, action and parameters.
struct Entry {
    table: &'static str,
    keys: Vec<String>,
    priority: Option<u32>,
    action: &'static str,
    params: Vec<String>,
}

fn tee_entries() -> Vec<Entry> {
    let port = |from: u32, to: u32| Entry {
        table: "by_port",
        keys: vec![from.to_string()],
        priority: None,
        action: "forward",
        params: vec![to.to_string()],
    };
    vec![port(0, 1), port(1, 0)]
}

/// The network of route number `n`, one of [`ROUTES`].
const fn network(n: u32) -> [u8; 3] {
    [10, (n / 250) as u8, (n % 250) as u8]
}

fn router_entries() -> Vec<Entry> {
    let routes = (0..ROUTES).map(|n| {
        let [a, b, c] = network(n);
        Entry {
            table: "routes",
            keys: vec![format!("{a}.{b}.{c}.0/24")],
            priority: None,
            action: "forward",
            params: vec![format!("02:00:00:00:{b:02x}:{c:02x}"), (n % 2).to_string()],
        }
    });
    // Rules that no packet matches, with masks of four kinds: each packet passes them all.
    let rules = (0..RULES).map(|n| {
        let source = [format!("172.16.{}.0/24", n % 250), format!("192.168.{}.{}", n / 250, n % 250)];
        let port = [(n + 1).to_string(), "_".to_owned()];
        Entry {
            table: "acl",
            keys: vec![
                source[n as usize % 2].clone(),
                "_".into(),
                "6".into(),
                port[n as usize / 2 % 2].clone(),
            ],
            priority: Some(n + 1),
            action: "drop",
            params: Vec::new(),
        }
    });
    routes.chain(rules).collect()
}

/// Returns packets for pseudo-random destinations among the routes.
fn packets() -> Vec<[u8; PACKET_BYTES]> {
    let mut state = 1_u32;
    let mut packet = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut bytes = [0; PACKET_BYTES];
        bytes[..15].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 0, 1, 8, 0, 0x45]);
        (bytes[22], bytes[23]) = (64, 17);
        bytes[26..30].copy_from_slice(&[100, 64, (state >> 24) as u8, 1]);
        bytes[30..33].copy_from_slice(&network((state >> 8) % ROUTES));
        bytes
    };
    (0..PACKETS).map(&mut packet).collect()
}

fn measure(
    options: &Options,
    program: &'static str,
    source: &str,
    entries: fn() -> Vec<Entry>,
) -> anyhow::Result<Forwarding> {
    let mut made = make("forward.p4", source, &[])?;
    let facts = &made.compiled.facts;
    let entries = entries();
    entries.iter().try_for_each(|e| install(&facts.tables, &mut made.jit, e))?;
    let longest_path = facts.longest_path;
    let traits = Traits { architecture: Architecture::V1model, divided: false, reads_queues: false };
    let mut switch = Switch::new(MemoryPorts::new(packets()), vec![0, 1], made.jit, traits)?;
    let length = Duration::from_millis(options.milliseconds.into());
    let rates: Vec<f64> = (0..options.rounds).map(|_| rate(&mut switch, length)).collect();
    // A program that drops takes a shorter path than the measured one.
    let (received, sent) = (switch.counts().ports.iter().map(|p| p.received).sum::<u64>(), switch.io().sent);
    ensure!(sent[0] + sent[1] == received, "the measured program drops its packets");
    let least_ns = rates.iter().map(|rate| 1e3 / rate).fold(f64::INFINITY, f64::min);
    let entries = entries.len() as u32;
    Ok(Forwarding { program, entries, longest_path, million_packets_s: Spread::of(rates), least_ns })
}

fn install(tables: &[TableFacts], program: &mut Program, entry: &Entry) -> anyhow::Result<()> {
    let table = tables.iter().find(|t| t.name.ends_with(entry.table)).context("the program has the table")?;
    let unnamed = |values: &[String]| {
        values.iter().map(|value| Named { name: None, value: value.clone() }).collect::<Vec<_>>()
    };
    let key = table.key_of(&MatchText { keys: unnamed(&entry.keys), priority: entry.priority })?;
    let action = ActionText { name: entry.action.to_owned(), params: unnamed(&entry.params) };
    let value = table.value_of(&action, false)?;
    let map =
        program.maps_mut().and_then(|m| m.get_mut(table.map.as_deref()?)).context("a table has a map")?;
    Ok(map.update(&key, &value, UpdateFlag::NoExist)?)
}

/// Forwards for a time, and returns million packets a second.
fn rate(switch: &mut Switch<MemoryPorts>, length: Duration) -> f64 {
    let (start, mut packets) = (Instant::now(), 0);
    loop {
        for _ in 0..64 {
            packets += switch.round().unwrap_or_else(|never| match never {});
        }
        let elapsed = start.elapsed();
        if elapsed >= length {
            return packets as f64 / elapsed.as_secs_f64() / 1e6;
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
    fn both_programs_forward_every_packet() {
        let report = run(&Options { rounds: 1, milliseconds: 1 }, |_| ()).unwrap();
        assert_eq!(report.programs.len(), 2);
        assert!(report.programs.iter().all(|p| p.least_ns > 0.0), "{report:?}");
    }
}
