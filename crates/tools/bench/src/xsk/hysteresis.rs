//! Figure 7 of the TransP4 paper: `load_guard.p4` drops UDP port 9000 when more than 30 % of the user VM's
//! link is in use, and passes it again below 10 %, by the information that the VM's agent publishes; port
//! 8000 keeps its rate.
//!
//! A client sends to both ports at fixed rates. Receivers in the VM count what arrives, and the agent reports
//! the link's utilisation: the number that the program reads.

use std::io::{self, BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context;
use p4shield_abi::info::field;
use p4shield_testbed::NetNs;
use serde::Serialize;
use serde_json::Value;

use super::world::{CLIENT, SERVER, TenantSetup, World};
use super::{Mode, Options};

const PROGRAM: &str = include_str!("../../../../../examples/programs/load_guard.p4");
/// The port that the program always passes, and the port that it sheds.
const PORTS: [u16; 2] = [8000, 9000];
/// Bytes of a datagram, and of the datagram with its headers on the link.
const PAYLOAD: usize = 1200;
const FRAME: u64 = PAYLOAD as u64 + 42;
/// Time between two samples.
const SAMPLE: Duration = Duration::from_millis(100);
/// Time between two bursts of a sender, and the most datagrams of one burst.
const TICK: Duration = Duration::from_millis(1);
const BURST: u64 = 64;
/// Deadline of a held packet. Beside busy processes of other sessions, Linux 6.18 kept a P4 VM waiting for a
/// core for up to 4.2 s.
const DEADLINE: Duration = Duration::from_secs(5);
/// Extra seconds for a run to reach its cycles.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of cycles of shedding and passing to wait for.
const CYCLES: u32 = 3;
/// Share of the link that is sent to each port, percent: together over 30, the first below 10.
const PERCENT: [u64; 2] = [5, 50];

/// A tenth of a second.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Utilisation of the VM's link in percent, as the program reads it; `None`: unknown.
    pub utilisation: Option<f64>,
    /// Traffic received on ports 8000 and 9000, million bits per second on the link.
    pub mbps: [f64; 2],
    /// Whether the program sheds the load, judged by its arrival.
    pub shed: bool,
}

/// The course of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// The link's speed.
    pub link_mbps: u64,
    /// Utilisation at which shedding begins and ends, percent.
    pub thresholds: [f64; 2],
    /// Datagrams sent to ports 8000 and 9000.
    pub sent: [u64; 2],
    /// Datagrams that arrived there.
    pub arrived: [u64; 2],
    /// Cycles of shedding and passing.
    pub cycles: u32,
    /// Every sample.
    pub samples: Vec<Sample>,
}

/// One direction's counters: datagrams sent and arrived, by port.
#[derive(Default)]
struct Counters {
    sent: [AtomicU64; 2],
    arrived: [AtomicU64; 2],
    /// The senders end.
    stop: AtomicBool,
    /// The receivers end.
    over: AtomicBool,
}

impl Counters {
    fn read(counters: &[AtomicU64; 2]) -> [u64; 2] {
        counters.each_ref().map(|c| c.load(Relaxed))
    }
}

/// Runs the scenario.
pub(super) fn play(options: &Options) -> anyhow::Result<Timeline> {
    let interface = format!("eth0:{}", options.link_mbps);
    let tenant =
        TenantSetup { program: PROGRAM, interface: &interface, deadline: DEADLINE, ..TenantSetup::default() };
    let world = World::start(options, Mode::P4vm, &tenant)?;
    let agent = world.shield.as_ref().map(crate::shield::Shield::agent_socket).unwrap_or_default();
    let counters = Counters::default();
    let pairs = sockets(&world.client, &world.server).context("cannot play the hysteresis")?;
    let (samples, cycles) = std::thread::scope(|s| {
        for (n, (client, server)) in pairs.iter().enumerate() {
            let rate = options.link_mbps * 1_000_000 * PERCENT[n] / 100 / (8 * FRAME);
            let counters = &counters;
            s.spawn(move || send(client, rate, &counters.sent[n], &counters.stop));
            s.spawn(move || count(server, &counters.arrived[n], &counters.over));
        }
        let watched = watch(options.seconds, &counters, &agent);
        counters.stop.store(true, Relaxed);
        await_held(&counters);
        counters.over.store(true, Relaxed);
        watched
    });
    Ok(Timeline {
        link_mbps: options.link_mbps,
        thresholds: [30.0, 10.0],
        sent: Counters::read(&counters.sent),
        arrived: Counters::read(&counters.arrived),
        cycles,
        samples,
    })
}

/// A sender and a receiver for each port.
fn sockets(client: &NetNs, server: &NetNs) -> io::Result<[(UdpSocket, UdpSocket); 2]> {
    let pair = |port| {
        let to = server.inside(|| UdpSocket::bind((SERVER, port)))?;
        to.set_read_timeout(Some(SAMPLE))?;
        let from = client.inside(|| UdpSocket::bind((CLIENT, 0)))?;
        from.connect((SERVER, port))?;
        Ok::<_, io::Error>((from, to))
    };
    Ok([pair(PORTS[0])?, pair(PORTS[1])?])
}

/// Sends this many datagrams per second.
fn send(socket: &UdpSocket, rate: u64, sent: &AtomicU64, stop: &AtomicBool) {
    let start = Instant::now();
    let mut due_before = 0;
    while !stop.load(Relaxed) {
        let due = (start.elapsed().as_nanos() * u128::from(rate) / 1_000_000_000) as u64;
        for _ in 0..(due - due_before).min(BURST) {
            sent.fetch_add(u64::from(socket.send(&[0; PAYLOAD]).is_ok()), Relaxed);
        }
        // A sender that was not scheduled in time skips what exceeds a burst.
        due_before = due;
        std::thread::sleep(TICK);
    }
}

fn count(socket: &UdpSocket, arrived: &AtomicU64, stop: &AtomicBool) {
    let mut buffer = [0; PAYLOAD];
    while !stop.load(Relaxed) {
        arrived.fetch_add(u64::from(socket.recv(&mut buffer).is_ok()), Relaxed);
    }
}

/// Waits for the packets that the P4 VM holds still: those of the port that keeps its rate arrive.
fn await_held(counters: &Counters) {
    let start = Instant::now();
    let is_missing = || Counters::read(&counters.arrived)[0] < Counters::read(&counters.sent)[0];
    while is_missing() && start.elapsed() < DEADLINE {
        std::thread::sleep(SAMPLE);
    }
}

/// Takes samples until time and cycles are over.
fn watch(time: Duration, counters: &Counters, agent: &Path) -> (Vec<Sample>, u32) {
    let (start, mut samples, mut load) = (Instant::now(), Vec::new(), Load::default());
    let last = time + PATIENCE;
    let (mut sent, mut arrived, mut before) = ([0; 2], [0; 2], start);
    while start.elapsed() < time || (load.cycles < CYCLES && start.elapsed() < last) {
        std::thread::sleep(SAMPLE);
        let (now, new_sent, new_arrived) =
            (Instant::now(), Counters::read(&counters.sent), Counters::read(&counters.arrived));
        let seconds = (now - before).as_secs_f64();
        let mbps = [0, 1].map(|n| ((new_arrived[n] - arrived[n]) * FRAME * 8) as f64 / seconds / 1e6);
        load.see(new_sent[1] - sent[1], new_arrived[1] - arrived[1]);
        let at = start.elapsed().as_secs_f64();
        samples.push(Sample { at, utilisation: utilisation(agent), mbps, shed: load.shed });
        (sent, arrived, before) = (new_sent, new_arrived, now);
    }
    (samples, load.cycles)
}

/// Detects whether the load is shed, and counts cycles.
#[derive(Debug, Default, PartialEq, Eq)]
struct Load {
    shed: bool,
    cycles: u32,
}

impl Load {
    /// Records datagrams sent and received. Shares between the two thresholds change nothing.
    fn see(&mut self, sent: u64, arrived: u64) {
        if self.shed && arrived * 2 > sent && sent > 0 {
            self.shed = false;
            self.cycles += 1;
        } else if arrived * 10 < sent {
            self.shed = true;
        }
    }
}

/// Returns the agent's latest figures of its first interface.
fn utilisation(socket: &Path) -> Option<f64> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(b"{\"do\":\"status\"}\n").ok()?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    let answer: Value = serde_json::from_str(&line).ok()?;
    let wanted = u64::from(field::INTERFACE_BASE + field::INTERFACE_RX_UTILISATION);
    let known = answer["ok"]["status"]["known"].as_array()?;
    let hundredths = known.iter().find(|f| f[0].as_u64() == Some(wanted))?[1].as_u64()?;
    Some(hundredths as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_complete_when_the_load_is_through_again() {
        let mut load = Load::default();
        for (sent, arrived, shed, cycles) in [
            (100, 100, false, 0),
            (100, 40, false, 0),
            (100, 3, true, 0),
            (100, 30, true, 0),
            (0, 0, true, 0),
            (100, 90, false, 1),
            (100, 0, true, 1),
        ] {
            load.see(sent, arrived);
            assert_eq!(load, Load { shed, cycles }, "{sent} sent, {arrived} arrived");
        }
    }

    #[test]
    fn the_program_has_the_ports_and_the_field() {
        for part in ["LOAD_PORT = 9000", "HIGH = 3000", "LOW = 1000"] {
            assert!(PROGRAM.contains(part), "{part}");
        }
        let field = field::INTERFACE_BASE + field::INTERFACE_RX_UTILISATION;
        assert!(PROGRAM.contains(&format!("RX_UTILISATION = {field};")));
    }
}
