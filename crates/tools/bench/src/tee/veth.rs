//! Rows over AF_XDP ports on veth: `p4shield switch run`, as an operator starts it, with a sender on the
//! first core and the packet thread on the second one. Batches have the size that the sender's rate gives
//! them, and come from the switch as `p4shield switch batches` gets them.
//!
//! The sender is a thread with an AF_XDP port of its own in the left host's namespace. It sends what is due
//! by the clock, at most a batch at once. Packets count where they arrive, in the right host's namespace.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4shield_batch_model::Batch;
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_p4switch::api::{self, BatchesView, Status, ThreadBatches};
use p4shield_switch::{BATCH, PacketIo};
use rustix::process::Pid;

use super::fit::{Measured, Rate, compare};
use super::latency;
use super::row::{Extent, Row};
use super::sizes::Load;
use crate::cores;
use crate::fixture::hosts::{Hosts, INTERFACE};
use crate::fixture::product::{Product, waited};
use crate::fixture::programs::packets;

/// The sender's rates, in parts of its maximum.
const RATES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Rates of other packets while single packets are timed, in parts of the maximum.
const LATENCY_RATES: [f64; 2] = [0.0, 0.5];
/// Longest time until packets arrive.
const PATIENCE: Duration = Duration::from_secs(10);
/// Packets that arrive before a measurement.
const FIRST: u64 = 1000;

/// Measures switches side by side, one round of each by turns.
pub(super) fn measure(rows: &[Row], extent: &Extent<'_>) -> anyhow::Result<Vec<Measured>> {
    let beds = rows.iter().map(|row| Bed::start(row, extent)).collect::<Result<Vec<_>, _>>()?;
    let mut all: Vec<_> = beds.iter().map(|_| Measured::default()).collect();
    for _ in 0..extent.rounds {
        for (bed, measured) in beds.iter().zip(&mut all) {
            bed.full(measured)?;
        }
    }
    for (bed, measured) in beds.iter().zip(&mut all) {
        let most = bed.at_rates(measured)?;
        bed.latencies(most, measured)?;
    }
    let places: Vec<_> = rows.iter().map(|row| row.place).collect();
    compare(&places, &mut all);
    Ok(all)
}

/// A switch between two hosts. Fields are dropped in order: the switch before its ports.
struct Bed {
    _switch: Product,
    socket: PathBuf,
    thread: Pid,
    hosts: Hosts,
    bytes: usize,
    length: Duration,
}

/// Packets that arrived in a time.
struct Arrived {
    /// Million packets a second.
    rate: f64,
    /// Sent and arrived packets.
    sent: u64,
    arrived: u64,
    /// The part of the time in which the packet thread did not wait for its core.
    core: f64,
}

/// The counts at a moment.
struct Moment {
    at: Instant,
    sent: u64,
    arrived: u64,
    waited: Duration,
}

impl Bed {
    fn start(row: &Row, extent: &Extent<'_>) -> anyhow::Result<Self> {
        let hosts = Hosts::make()?;
        let switch = Product::start(&hosts.middle, row.source(), row.place.words)?;
        let (socket, thread) = (switch.socket(), switch.packet_thread()?);
        // A machine has several threads.
        if !switch.is_machine() {
            cores::pin_thread(thread, cores::two()[1]);
        }
        Ok(Self { _switch: switch, socket, thread, hosts, bytes: row.bytes, length: extent.length })
    }

    /// Forwards at full load, without notes and with them.
    fn full(&self, measured: &mut Measured) -> anyhow::Result<()> {
        let bare = self.run(None, |count| self.arrived(count))?;
        measured.bare.push(bare.rate);
        measured.core.push(bare.core);
        measured.offered += bare.sent;
        measured.forwarded += bare.arrived;
        let (noted, load) = self.run(None, |count| self.noted(count))?;
        measured.noted.push(noted.rate);
        measured.full.join(load);
        Ok(())
    }

    /// Forwards what a sender sends at rising rates, with notes. Returns the greatest that arrives.
    fn at_rates(&self, measured: &mut Measured) -> anyhow::Result<f64> {
        let (most, load) = self.run(None, |count| self.noted(count))?;
        for part in RATES {
            let offered = part * most.rate;
            let (arrived, load) = self.run(Some(offered), |count| self.noted(count))?;
            measured.rates.push(Rate { offered, received: arrived.rate, batches: load.batches });
        }
        measured.rates.push(Rate { offered: most.rate, received: most.rate, batches: load.batches });
        measured.batches = measured.rates.iter().flat_map(|rate| &rate.batches).copied().collect();
        measured.batches.extend(&measured.full.batches);
        measured.lost(measured.offered, measured.forwarded);
        Ok(most.rate)
    }

    /// Times single packets, alone and among others at parts of the greatest rate, without notes.
    fn latencies(&self, most: f64, measured: &mut Measured) -> anyhow::Result<()> {
        for part in LATENCY_RATES {
            let latency = latency::measure(&self.hosts, self.bytes, part * most, self.length)?;
            ensure!(latency.packets > 0 || part > 0.0, "no single packet arrives");
            measured.latencies.push(latency);
        }
        Ok(())
    }

    /// Calls `work` while a sender sends at a rate, or as fast as it can, with the counter of its packets.
    fn run<R: Send>(
        &self,
        rate: Option<f64>,
        work: impl FnOnce(&AtomicU64) -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        let (stop, sent) = (&AtomicBool::new(false), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            let send = || self.hosts.left.inside(|| send(self.bytes, rate, sent, stop));
            let sender = scope.spawn(send);
            let first = rate.map_or(FIRST, |mpps| ((mpps * 1e6) as u64).clamp(1, FIRST));
            let done = self.hosts.right.inside(|| await_packets(first, sent).and_then(|()| work(sent)));
            stop.store(true, Ordering::Relaxed);
            sender.join().map_err(|_| anyhow!("the sender panicked")).flatten().context("the sender")?;
            done
        })
    }

    /// Counts what arrives, in the first time in which something does: the switch may have no core before.
    fn arrived(&self, sent: &AtomicU64) -> anyhow::Result<Arrived> {
        let (mut before, begun) = (self.now(sent)?, Instant::now());
        let after = loop {
            std::thread::sleep(self.length);
            let after = self.now(sent)?;
            if after.arrived > before.arrived || begun.elapsed() > PATIENCE {
                break after;
            }
            before = after;
        };
        let time = after.at - before.at;
        let (sent, arrived) = (after.sent - before.sent, after.arrived - before.arrived);
        ensure!(arrived > 0, "the switch forwards no packet");
        let rate = arrived as f64 / time.as_secs_f64() / 1e6;
        let core = 1.0 - (after.waited - before.waited).div_duration_f64(time).clamp(0.0, 0.99);
        Ok(Arrived { rate, sent, arrived, core })
    }

    fn now(&self, sent: &AtomicU64) -> anyhow::Result<Moment> {
        let waited = waited(self.thread)?;
        let (arrived, at) = (received()?, Instant::now());
        Ok(Moment { at, sent: sent.load(Ordering::Relaxed), arrived, waited })
    }

    /// Counts what arrives while the switch notes batches, and takes them.
    fn noted(&self, sent: &AtomicU64) -> anyhow::Result<(Arrived, Load)> {
        api::note_batches(&self.socket)?;
        let before = api::status(&self.socket);
        let arrived = self.arrived(sent);
        let taken = api::batches(&self.socket);
        let after = api::status(&self.socket);
        api::stop_batches(&self.socket)?;
        let (before, after) = (counts(&before?), counts(&after?));
        let [received, dropped] = [after[0] - before[0], after[1] - before[1]];
        Ok((arrived?, Load { received, dropped, ..load(&taken?) }))
    }
}

/// Returns the packets that a switch has received, and those that it has dropped.
fn counts(status: &Status) -> [u64; 2] {
    let received = status.ports.iter().map(|port| port.traffic.received).sum();
    [received, status.dropped.iter().map(|dropped| dropped.packets).sum()]
}

/// Returns the batches of all threads.
fn load(view: &BatchesView) -> Load {
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let mut all = Load::default();
    for ThreadBatches { batches, span_ns, empty_ns, .. } in &view.threads {
        let batch = |[packets, times @ ..]: &[u32; 4]| {
            let [receive, process, send] = times.map(|time| micros(time.into()));
            Batch { packets: *packets, receive, process, send }
        };
        let batches = batches.iter().map(batch).collect();
        all.join(Load { batches, micros: micros(*span_ns), empty: micros(*empty_ns), ..Load::default() });
    }
    all
}

/// Returns the packets that the interface of the calling thread's host has received.
fn received() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let fields = text.lines().find_map(|line| line.trim().strip_prefix(INTERFACE)?.strip_prefix(':'));
    let packets = fields.and_then(|fields| fields.split_whitespace().nth(1));
    Ok(packets.context("/proc/net/dev has no counters of the interface")?.parse()?)
}

/// Waits until the switch has forwarded the first packets.
fn await_packets(first: u64, sent: &AtomicU64) -> anyhow::Result<()> {
    let (start, before) = (Instant::now(), received()?);
    while received()? < before + first {
        ensure!(
            start.elapsed() < PATIENCE,
            "{} of {} sent packets arrived within {} s",
            received()? - before,
            sent.load(Ordering::Relaxed),
            PATIENCE.as_secs()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Sends packets until `stop`, from the namespace of the calling thread: so many million a second, or as many
/// as it can.
fn send(bytes: usize, rate: Option<f64>, count: &AtomicU64, stop: &AtomicBool) -> anyhow::Result<()> {
    cores::pin(cores::two()[0]);
    let mut port = AfxdpPorts::open(&AfxdpConfig::new([INTERFACE]))?;
    let all = packets(bytes);
    let mut all = all.chunks_exact(bytes).cycle();
    let (start, mut sent) = (Instant::now(), 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let most = sent + BATCH as u64;
        let due = rate.map_or(most, |mpps| (start.elapsed().as_secs_f64() * mpps * 1e6) as u64);
        for packet in all.by_ref().take((due.min(most) - sent) as usize) {
            if !port.send(0, packet) {
                break;
            }
            sent += 1;
        }
        port.flush()?;
        count.store(sent, Ordering::Relaxed);
    }
    Ok(())
}
