//! The victim's packets and probes, and the attacker's packets. All of their threads share the first core:
//! the switches have the last one.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::PacketIo as _;
use p4shield_testbed::NetNs;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::Options;
use crate::cores;
use crate::fixture::hosts::INTERFACE;
use crate::stats::Percentiles;

/// Probes a second.
const PROBES: u32 = 1000;
/// Bytes of a message. A probe has its number and when it was sent.
const MESSAGE: usize = 16;
/// Time between two bursts of a sender.
const PAUSE: Duration = Duration::from_micros(200);
/// Longest time whose packets a sender that had no core sends later.
const LATE: Duration = Duration::from_millis(5);
/// Time that an attack has to take effect, if it is measured for longer: that of two sweeps at the default
/// rate.
const SETTLE: Duration = Duration::from_secs(2);
/// Longest time for the answer to a probe.
const ANSWER: Duration = Duration::from_secs(1);
/// Longest time that a receiver waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a receiver's buffer, so that the kernel drops nothing while its thread has no core.
const BUFFER: usize = 8 << 20;

/// Packets that are sent one after the other, and again.
pub(super) struct Stream<'w> {
    pub(super) ns: &'w NetNs,
    pub(super) frames: Vec<Vec<u8>>,
}

/// The victim's VMs.
pub(super) struct Victim<'w> {
    /// Its packets come from here.
    pub(super) from: &'w NetNs,
    /// They go to here.
    pub(super) to: &'w NetNs,
    /// The address of `to`.
    pub(super) address: Ipv4Addr,
}

/// The victim's traffic, as it sees it.
pub(super) struct Seen {
    /// The attacker's packets a second.
    pub(super) attack_pps: f64,
    /// The victim's packets a second, and those that arrived.
    pub(super) sent_pps: f64,
    pub(super) received_pps: f64,
    /// Probes, and those without an answer.
    pub(super) probes: u64,
    pub(super) lost_probes: u64,
    /// From a probe to its answer, microseconds.
    pub(super) micros: Percentiles,
}

/// Counters and signals that the threads share.
#[derive(Default)]
struct Shared {
    sent: AtomicU64,
    received: AtomicU64,
    attack: AtomicU64,
    /// The senders end.
    stop: AtomicBool,
    /// The receivers end.
    over: AtomicBool,
}

impl Shared {
    fn counts(&self) -> [u64; 3] {
        [&self.attack, &self.sent, &self.received].map(|count| count.load(Relaxed))
    }
}

/// The victim's sockets: senders and receivers of packets and of probes.
struct Sockets {
    packets: [UdpSocket; 2],
    probes: [UdpSocket; 2],
}

impl Sockets {
    fn open(victim: &Victim<'_>) -> io::Result<Self> {
        let Victim { from, to, address } = *victim;
        let pair = || {
            let receiver = to.inside(|| UdpSocket::bind((address, 0)))?;
            let sender = from.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
            sender.connect(receiver.local_addr()?)?;
            for socket in [&sender, &receiver] {
                socket.set_read_timeout(Some(LOOK))?;
                set_socket_recv_buffer_size_force(socket, BUFFER)?;
            }
            Ok::<_, io::Error>([sender, receiver])
        };
        Ok(Self { packets: pair()?, probes: pair()? })
    }
}

/// Measures the victim's traffic during an attack, once it has taken effect; `clear` is called just before.
pub(super) fn measure(
    victim: &Victim<'_>,
    attack: Option<&Stream<'_>>,
    options: &Options,
    clear: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Seen> {
    let (shared, start) = (&Shared::default(), Instant::now());
    let sockets = &Sockets::open(victim).context("the victim's sockets")?;
    let Sockets { packets: [sender, receiver], probes: [client, server] } = sockets;
    std::thread::scope(|scope| {
        scope.spawn(|| send(sender, options.rate, shared));
        scope.spawn(|| count(receiver, shared));
        scope.spawn(|| answer(server, shared));
        let probes = scope.spawn(|| probe(client, start, shared));
        let answers = scope.spawn(|| answers(client, start, shared));
        let attacker = attack.map(|stream| {
            scope.spawn(|| stream.ns.inside(|| flood(&stream.frames, options.attack_rate, shared)))
        });
        std::thread::sleep(options.time.min(SETTLE));
        let cleared = clear();
        let (from, before) = (start.elapsed(), shared.counts());
        std::thread::sleep(options.time);
        let (until, after) = (start.elapsed(), shared.counts());
        shared.stop.store(true, Relaxed);
        std::thread::sleep(ANSWER);
        shared.over.store(true, Relaxed);
        attacker.map_or(Ok(()), |thread| joined(thread.join())?).context("the attacker")?;
        let times = Times { from, until, probes: joined(probes.join())?, answers: joined(answers.join())? };
        cleared?;
        times.seen(before, after)
    })
}

fn joined<T>(result: std::thread::Result<T>) -> anyhow::Result<T> {
    result.map_err(|_| anyhow::anyhow!("a thread panicked"))
}

/// The times of all probes since the start, and the part of the time that is measured.
struct Times {
    from: Duration,
    until: Duration,
    probes: Vec<Duration>,
    /// When each answered probe was sent, and how long its answer took.
    answers: Vec<[Duration; 2]>,
}

impl Times {
    fn seen(&self, before: [u64; 3], after: [u64; 3]) -> anyhow::Result<Seen> {
        let is_measured = |sent: Duration| (self.from..self.until).contains(&sent);
        let probes = self.probes.iter().filter(|sent| is_measured(**sent)).count() as u64;
        let answered = self.answers.iter().filter(|[sent, took]| is_measured(*sent) && *took <= ANSWER);
        let mut micros: Vec<_> = answered.map(|[_, took]| took.as_secs_f64() * 1e6).collect();
        ensure!(probes > 0 && after[1] > before[1], "the victim sends nothing");
        let seconds = (self.until - self.from).as_secs_f64();
        let rate = |n: usize| (after[n] - before[n]) as f64 / seconds;
        Ok(Seen {
            attack_pps: rate(0),
            sent_pps: rate(1),
            received_pps: rate(2),
            probes,
            lost_probes: probes.saturating_sub(micros.len() as u64),
            micros: Percentiles::of(&mut micros),
        })
    }
}

/// Calls `send` so often a second, in bursts, until the senders end.
fn paced(rate: u32, shared: &Shared, mut send: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<()> {
    cores::pin(cores::two()[0]);
    let (start, mut sent) = (Instant::now(), 0);
    let late = (f64::from(rate) * LATE.as_secs_f64()).ceil() as u64;
    while !shared.stop.load(Relaxed) {
        let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u64;
        for n in sent.max(due.saturating_sub(late))..due {
            send(n)?;
        }
        sent = due;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Sends the victim's packets.
fn send(socket: &UdpSocket, rate: u32, shared: &Shared) {
    let _ = paced(rate, shared, |_| {
        shared.sent.fetch_add(u64::from(socket.send(&[0; MESSAGE]).is_ok()), Relaxed);
        Ok(())
    });
}

/// Counts them.
fn count(socket: &UdpSocket, shared: &Shared) {
    cores::pin(cores::two()[0]);
    while !shared.over.load(Relaxed) {
        shared.received.fetch_add(u64::from(socket.recv(&mut [0; MESSAGE]).is_ok()), Relaxed);
    }
}

/// Sends probes; returns when.
fn probe(socket: &UdpSocket, start: Instant, shared: &Shared) -> Vec<Duration> {
    let mut sent = Vec::new();
    let _ = paced(PROBES, shared, |number| {
        let now = start.elapsed();
        let message = [number, now.as_nanos() as u64].map(u64::to_le_bytes);
        let _ = socket.send(message.as_flattened());
        sent.push(now);
        Ok(())
    });
    sent
}

/// Answers probes.
fn answer(socket: &UdpSocket, shared: &Shared) {
    cores::pin(cores::two()[0]);
    let mut message = [0; MESSAGE];
    while !shared.over.load(Relaxed) {
        if let Ok((n, from)) = socket.recv_from(&mut message) {
            let _ = socket.send_to(&message[..n], from);
        }
    }
}

/// Takes the answers. Returns when each probe was sent, and how long its answer took.
fn answers(socket: &UdpSocket, start: Instant, shared: &Shared) -> Vec<[Duration; 2]> {
    cores::pin(cores::two()[0]);
    let (mut all, mut message) = (Vec::new(), [[0; MESSAGE / 2]; 2]);
    while !shared.over.load(Relaxed) {
        if socket.recv(message.as_flattened_mut()).is_ok_and(|n| n == MESSAGE) {
            let sent = Duration::from_nanos(u64::from_le_bytes(message[1]));
            all.push([sent, start.elapsed().saturating_sub(sent)]);
        }
    }
    all
}

/// Sends the attacker's packets from the namespace of the calling thread.
fn flood(frames: &[Vec<u8>], rate: u32, shared: &Shared) -> anyhow::Result<()> {
    let mut port = AfxdpPorts::open(&AfxdpConfig::new([INTERFACE]))?;
    let mut frames = frames.iter().cycle();
    paced(rate, shared, |_| {
        let frame = frames.next().context("an attack has packets")?;
        shared.attack.fetch_add(u64::from(port.send(0, frame)), Relaxed);
        Ok(port.flush()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_count_that_were_sent_while_it_is_measured() {
        let at = Duration::from_millis;
        let times = Times {
            from: at(10),
            until: at(20),
            probes: (0..30).map(at).collect(),
            // One in the measured time has no answer, one a late one.
            answers: (0..30)
                .filter(|n| *n != 12)
                .map(|n| [at(n), at(if n == 13 { 2000 } else { 1 })])
                .collect(),
        };
        let seen = times.seen([0, 0, 0], [0, 200, 100]).unwrap();
        assert_eq!((seen.probes, seen.lost_probes, seen.micros.p99), (10, 2, 1000.0));
        assert!((seen.sent_pps - 20_000.0).abs() < 1e-6 && (seen.received_pps - 10_000.0).abs() < 1e-6);
        assert!(times.seen([0; 3], [0; 3]).is_err(), "nothing was sent");
    }
}
