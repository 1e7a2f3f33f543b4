//! Endurance: many TCP connections with messages from 1 byte to 64 KiB, while a program drops packets at
//! random in both directions and the benchmark kills the P4 VM at intervals. TransP4 does not survive this.
//!
//! Every byte must return unchanged, with no pause beyond TCP's own retransmission, and at the end the switch
//! must have every frame exactly once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use p4shield_testbed::{Closed, NetNs, process, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::world::{PORTS, SERVER, TenantSetup, World};
use super::{Mode, Options};
use crate::shield::Shield;

const PROGRAM: &str = include_str!("random_drop.p4");
/// The longest message.
const LONGEST: u32 = 64 << 10;
/// Messages per connection before the client opens another.
const MESSAGES: u32 = 200;
/// Time after which a connection without progress has stalled: TCP retransmits at least every few seconds
/// after an outage as short as a P4 VM's restart.
const STALL: Duration = Duration::from_secs(60);
/// Seconds in which the daemon must replace a P4 VM, or sockets must close, on a loaded machine.
const PATIENCE: u64 = 60;

/// Result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Time in which messages were sent.
    pub seconds: f64,
    /// Opened connections.
    pub connections: u64,
    /// Messages that returned unchanged.
    pub messages: u64,
    /// Their bytes, one way.
    pub bytes: u64,
    /// Messages that returned changed.
    pub corrupted: u64,
    /// Reasons of failed connections; no progress for a minute is a failure.
    pub failures: Vec<String>,
    /// Longest time that a waiting connection received nothing.
    pub longest_pause_s: f64,
    /// Retransmitted TCP segments, both ends.
    pub retransmitted: u64,
    /// Expirations of TCP's retransmission timer, both ends.
    pub timeouts: u64,
    /// Kills of the P4 VM after which it returned.
    pub restarts: u32,
    /// Longest outage of the P4 VM: meanwhile every packet is dropped, and TCP, which doubles its timer, may
    /// need as long again to notice the return.
    pub longest_outage_s: f64,
    /// Frames of each of the switch's sockets by owner, at its close.
    pub sockets: Vec<Account>,
    /// Whether the switch aborted or reported that it must.
    pub aborted: bool,
}

/// Owners of a socket's frames.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// Frames by owner.
    pub frames: std::collections::BTreeMap<String, u64>,
    /// All frames.
    pub total: u64,
    /// Refused transitions of frames.
    pub refused: Option<u64>,
}

/// Counters of the clients.
#[derive(Default)]
struct Tally {
    connections: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    corrupted: AtomicU64,
    failures: Mutex<Vec<String>>,
    longest_pause_ms: AtomicU64,
    stop: AtomicBool,
}

/// Runs the scenario.
pub(super) fn play(options: &Options) -> anyhow::Result<Report> {
    let tenant = TenantSetup { program: PROGRAM, both: true, ..TenantSetup::default() };
    let mut world = World::start(options, Mode::P4vm, &tenant)?;
    let listener =
        world.server.inside(|| TcpListener::bind((SERVER, 0))).context("cannot start the server")?;
    listener.set_nonblocking(true)?;
    let to = listener.local_addr()?;
    let (tally, done, start) = (Tally::default(), AtomicBool::new(false), Instant::now());
    let (restarts, outage) = std::thread::scope(|s| {
        s.spawn(|| serve(&listener, &done));
        let clients: Vec<_> = (0..options.connections)
            .map(|n| (n, &world.client, &tally))
            .map(|(n, ns, tally)| s.spawn(move || talk(ns, to, n, tally)))
            .collect();
        let restarts = restart(world.shield.as_ref(), options);
        tally.stop.store(true, Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        }
        done.store(true, Relaxed);
        restarts
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let (retransmitted, timeouts) = retransmissions([&world.client, &world.server])?;
    let sockets = close(&world)?;
    let log = world.switch.log();
    let aborted = world.switch.ended().is_some() || log.contains("EMER") || log.contains("assertion");
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    Ok(Report {
        seconds,
        connections: read(&tally.connections),
        messages: read(&tally.messages),
        bytes: read(&tally.bytes),
        corrupted: read(&tally.corrupted),
        failures: tally.failures(),
        longest_pause_s: read(&tally.longest_pause_ms) as f64 / 1e3,
        retransmitted,
        timeouts,
        restarts,
        longest_outage_s: outage.as_secs_f64(),
        sockets,
        aborted,
    })
}

/// Removes the ports and returns the library's account of their frames.
fn close(world: &World) -> anyhow::Result<Vec<Account>> {
    for port in PORTS {
        world.switch.remove(port)?;
    }
    let closed = || Closed::all(&world.switch.said());
    wait_until("the end of both sockets", PATIENCE, || closed().len() >= PORTS.len())?;
    let account = |c: Closed| Account { total: c.total(), refused: c.refused(), frames: c.frames };
    Ok(closed().into_iter().map(account).collect())
}

/// Kills the P4 VM repeatedly until time is over. Returns the number of returns and the longest outage.
fn restart(shield: Option<&Shield>, options: &Options) -> anyhow::Result<(u32, Duration)> {
    let start = Instant::now();
    let (mut restarts, mut longest) = (0, Duration::ZERO);
    while let Some(left) = options.seconds.checked_sub(start.elapsed()) {
        std::thread::sleep(left.min(options.restart_every));
        let Some(shield) = shield.filter(|_| start.elapsed() < options.seconds) else { continue };
        let (old, killed) = (shield.p4vm(), Instant::now());
        if let Some(pid) = old.and_then(Pid::from_raw) {
            // The daemon also replaces a P4 VM that ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        wait_until("a new P4 VM", PATIENCE, || shield.p4vm().is_some_and(|new| Some(new) != old))?;
        restarts += 1;
        longest = longest.max(killed.elapsed());
    }
    Ok((restarts, longest))
}

/// Echoes every connection on a thread of its own until `stop` is set.
fn serve(listener: &TcpListener, stop: &AtomicBool) {
    std::thread::scope(|s| {
        while !stop.load(Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => drop(s.spawn(move || echo(stream))),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    });
}

fn echo(mut stream: TcpStream) {
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(STALL)));
    let ready = ready.and_then(|()| stream.set_write_timeout(Some(STALL)));
    let mut buffer = vec![0; LONGEST as usize];
    while let (Ok(()), Ok(n @ 1..)) = (&ready, stream.read(&mut buffer)) {
        if stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// One client: connection after connection.
fn talk(ns: &NetNs, to: SocketAddr, number: u32, tally: &Tally) {
    let mut random = Random(u64::from(number) + 1);
    while !tally.stop.load(Relaxed) {
        tally.connections.fetch_add(1, Relaxed);
        if let Err(error) = connection(ns, to, &mut random, tally) {
            tally.failed(&error);
        }
    }
}

fn connection(ns: &NetNs, to: SocketAddr, random: &mut Random, tally: &Tally) -> io::Result<()> {
    let before = Instant::now();
    let mut stream = ns.inside(|| TcpStream::connect_timeout(&to, STALL))?;
    tally.paused(before);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(STALL))?;
    for _ in 0..MESSAGES {
        if tally.stop.load(Relaxed) {
            break;
        }
        let sent = random.message();
        let got = exchange(&mut stream, &sent, tally)?;
        let counter = if got == sent { &tally.messages } else { &tally.corrupted };
        counter.fetch_add(1, Relaxed);
        tally.bytes.fetch_add(sent.len() as u64, Relaxed);
    }
    stream.shutdown(Shutdown::Write)
}

/// Sends a message and returns the response.
fn exchange(stream: &mut TcpStream, message: &[u8], tally: &Tally) -> io::Result<Vec<u8>> {
    let mut last = Instant::now();
    stream.write_all(message)?;
    let (mut got, mut at) = (vec![0; message.len()], 0);
    while at < got.len() {
        let n = stream.read(&mut got[at..])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += n;
        tally.paused(last);
        last = Instant::now();
    }
    Ok(got)
}

impl Tally {
    fn failed(&self, error: &io::Error) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
    }

    fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a connection waited since `start`.
    fn paused(&self, since: Instant) {
        let pause = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.longest_pause_ms.fetch_max(pause, Relaxed);
    }
}

/// A reproducible random number generator (SplitMix64).
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a length from 1 to the longest, uniform in its logarithm.
    fn message(&mut self) -> Vec<u8> {
        let most = 1 << (self.next() % u64::from(LONGEST.ilog2() + 1));
        let len = 1 + self.next() % most;
        let seed = self.next();
        (0..len).map(|n| (seed.wrapping_add(n).wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
    }
}

/// Returns retransmitted segments and expired timers in these namespaces.
fn retransmissions(all: [&NetNs; 2]) -> anyhow::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for ns in all {
        let text = process::run(ns.command("cat").args(["/proc/net/snmp", "/proc/net/netstat"]))?;
        sum.0 += counter(&text, "Tcp:", "RetransSegs").unwrap_or_default();
        sum.1 += counter(&text, "TcpExt:", "TCPTimeouts").unwrap_or_default();
    }
    Ok(sum)
}

/// Returns a kernel counter: one line has the names, the next line with the same prefix the numbers.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|l| l.split(' ').next() == Some(group));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|n| n == name)?;
    values.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_of_every_size() {
        let mut random = Random(1);
        let sizes: Vec<usize> = (0..2000).map(|_| random.message().len()).collect();
        assert!(sizes.contains(&1));
        assert!(sizes.iter().all(|s| (1..=LONGEST as usize).contains(s)));
        assert!(sizes.iter().any(|s| *s > LONGEST as usize / 2));
    }

    #[test]
    fn counters_of_the_kernel_are_found_by_name() {
        let text = "Tcp: InSegs RetransSegs\nTcp: 5 7\nTcpExt: A TCPTimeouts B\nTcpExt: 1 2 3\n";
        assert_eq!(counter(text, "Tcp:", "RetransSegs"), Some(7));
        assert_eq!(counter(text, "TcpExt:", "TCPTimeouts"), Some(2));
        assert_eq!(counter(text, "TcpExt:", "RetransSegs"), None);
    }
}
