//! The victim's packets and probes while the adversary acts. All of their threads share the first core: the
//! switches have the last one.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use p4shield_testbed::NetNs;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde::{Deserialize, Serialize};

use crate::cores;
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
/// Longest time by which a measurement is extended.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for the answer to a probe.
const ANSWER: Duration = Duration::from_secs(1);
/// Longest time that a receiver waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a receiver's buffer, so that the kernel drops nothing while its thread has no core.
const BUFFER: usize = 8 << 20;

/// The acts of the adversary, until [`Meter::is_over`]. Returns what became of them.
pub(super) type Deed<'w> = Box<dyn FnOnce(&Meter) -> anyhow::Result<String> + Send + 'w>;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Packets a second of the victim.
    pub(super) rate: u32,
    /// Its time, once the deed has taken effect.
    pub(super) time: Duration,
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Acts of the adversary a second.
    pub(super) acts_per_second: f64,
    /// Its acts, with those before the measured time.
    pub(super) acts: u64,
    /// The victim's packets a second, and those that arrived.
    pub(super) sent_pps: f64,
    pub(super) received_pps: f64,
    /// Probes, and those without an answer.
    pub(super) probes: u64,
    pub(super) lost_probes: u64,
    /// From a probe to its answer, microseconds.
    pub(super) micros: Percentiles,
    /// The deed's outcome.
    pub(super) outcome: String,
}

/// Counters and signals that the threads share.
#[derive(Default)]
pub(super) struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
    probes: AtomicU64,
    acts: AtomicU64,
    /// The senders end.
    stop: AtomicBool,
    /// The receivers end.
    over: AtomicBool,
}

impl Meter {
    /// Counts acts of the adversary.
    pub(super) fn add(&self, acts: u64) {
        self.acts.fetch_add(acts, Relaxed);
    }

    /// Returns the acts so far.
    pub(super) fn acts(&self) -> u64 {
        self.acts.load(Relaxed)
    }

    /// Reports whether the adversary is to end.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Returns acts, the victim's packets, those that arrived, and probes.
    fn counts(&self) -> [u64; 4] {
        [&self.acts, &self.sent, &self.received, &self.probes].map(|count| count.load(Relaxed))
    }

    /// Reports whether the victim sent no packet or probe, or none arrived.
    fn is_idle_since(&self, before: [u64; 4]) -> bool {
        self.counts().iter().zip(before).skip(1).any(|(now, then)| *now == then)
    }
}

/// Has the senders end when it is dropped, also by a failure.
struct Stop<'m>(&'m Meter);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
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

/// Measures the victim's traffic during a deed, once it has taken effect.
pub(super) fn measure(victim: &Victim<'_>, deed: Option<Deed<'_>>, extent: Extent) -> anyhow::Result<Seen> {
    let (meter, start) = (&Meter::default(), Instant::now());
    let sockets = &Sockets::open(victim).context("the victim's sockets")?;
    let Sockets { packets: [sender, receiver], probes: [client, server] } = sockets;
    std::thread::scope(|scope| {
        scope.spawn(|| send(sender, extent.rate, meter));
        scope.spawn(|| count(receiver, meter));
        scope.spawn(|| answer(server, meter));
        let probes = scope.spawn(|| probe(client, start, meter));
        let answers = scope.spawn(|| answers(client, start, meter));
        let adversary = deed.map(|deed| scope.spawn(|| deed(meter)));
        let stop = Stop(meter);
        std::thread::sleep(extent.time.min(SETTLE));
        let (from, before) = (start.elapsed(), meter.counts());
        std::thread::sleep(extent.time);
        // Its threads or the switch may have had no core. A victim that gets nothing is a result in the end.
        while start.elapsed() < from + extent.time + PATIENCE && meter.is_idle_since(before) {
            std::thread::sleep(LOOK);
        }
        let (until, after) = (start.elapsed(), meter.counts());
        drop(stop);
        std::thread::sleep(ANSWER);
        meter.over.store(true, Relaxed);
        let outcome = adversary.map_or(Ok(String::new()), |thread| joined(thread.join())?);
        let times = Times { from, until, probes: joined(probes.join())?, answers: joined(answers.join())? };
        let outcome = outcome.context("the adversary")?;
        Ok(Seen { acts: meter.acts(), outcome, ..times.seen(before, after)? })
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
    fn seen(&self, before: [u64; 4], after: [u64; 4]) -> anyhow::Result<Seen> {
        let is_measured = |sent: Duration| (self.from..self.until).contains(&sent);
        let probes = self.probes.iter().filter(|sent| is_measured(**sent)).count() as u64;
        let answered = self.answers.iter().filter(|[sent, took]| is_measured(*sent) && *took <= ANSWER);
        let mut micros: Vec<_> = answered.map(|[_, took]| took.as_secs_f64() * 1e6).collect();
        ensure!(probes > 0 && after[1] > before[1], "the victim sends nothing");
        let seconds = (self.until - self.from).as_secs_f64();
        let rate = |n: usize| (after[n] - before[n]) as f64 / seconds;
        Ok(Seen {
            acts_per_second: rate(0),
            acts: after[0],
            sent_pps: rate(1),
            received_pps: rate(2),
            probes,
            lost_probes: probes.saturating_sub(micros.len() as u64),
            micros: Percentiles::of(&mut micros),
            outcome: String::new(),
        })
    }
}

/// Calls `send` so often a second, in bursts, until the senders end.
pub(super) fn paced(
    rate: u32,
    meter: &Meter,
    mut send: impl FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    cores::pin(cores::two()[0]);
    let (start, mut sent) = (Instant::now(), 0);
    let late = (f64::from(rate) * LATE.as_secs_f64()).ceil() as u64;
    while !meter.is_over() {
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
fn send(socket: &UdpSocket, rate: u32, meter: &Meter) {
    let _ = paced(rate, meter, |_| {
        meter.sent.fetch_add(u64::from(socket.send(&[0; MESSAGE]).is_ok()), Relaxed);
        Ok(())
    });
}

/// Counts them.
fn count(socket: &UdpSocket, meter: &Meter) {
    cores::pin(cores::two()[0]);
    while !meter.over.load(Relaxed) {
        meter.received.fetch_add(u64::from(socket.recv(&mut [0; MESSAGE]).is_ok()), Relaxed);
    }
}

/// Sends probes; returns when.
fn probe(socket: &UdpSocket, start: Instant, meter: &Meter) -> Vec<Duration> {
    let mut sent = Vec::new();
    let _ = paced(PROBES, meter, |number| {
        let now = start.elapsed();
        let message = [number, now.as_nanos() as u64].map(u64::to_le_bytes);
        let _ = socket.send(message.as_flattened());
        sent.push(now);
        meter.probes.fetch_add(1, Relaxed);
        Ok(())
    });
    sent
}

/// Answers probes.
fn answer(socket: &UdpSocket, meter: &Meter) {
    cores::pin(cores::two()[0]);
    let mut message = [0; MESSAGE];
    while !meter.over.load(Relaxed) {
        if let Ok((n, from)) = socket.recv_from(&mut message) {
            let _ = socket.send_to(&message[..n], from);
        }
    }
}

/// Takes the answers. Returns when each probe was sent, and how long its answer took.
fn answers(socket: &UdpSocket, start: Instant, meter: &Meter) -> Vec<[Duration; 2]> {
    cores::pin(cores::two()[0]);
    let (mut all, mut message) = (Vec::new(), [[0; MESSAGE / 2]; 2]);
    while !meter.over.load(Relaxed) {
        if socket.recv(message.as_flattened_mut()).is_ok_and(|n| n == MESSAGE) {
            let sent = Duration::from_nanos(u64::from_le_bytes(message[1]));
            all.push([sent, start.elapsed().saturating_sub(sent)]);
        }
    }
    all
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
        let seen = times.seen([0; 4], [0, 200, 100, 0]).unwrap();
        assert_eq!((seen.probes, seen.lost_probes, seen.micros.p99), (10, 2, 1000.0));
        assert!((seen.sent_pps - 20_000.0).abs() < 1e-6 && (seen.received_pps - 10_000.0).abs() < 1e-6);
        assert!(times.seen([0; 4], [0; 4]).is_err(), "nothing was sent");
    }
}
