//! Rows over AF_XDP ports on veth, with a sender on the first core: batches have the size that its rate
//! gives them.
//!
//! The sender is a thread with an AF_XDP port of its own in the left host's namespace. It sends what is due
//! by the clock, at most a batch at once. For the maximum, packets gather first ([`Filled`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::{BATCH, BatchLog, Noted, PacketIo};

use super::filled::{Filled, Spells};
use super::fit::{Measured, Rate};
use super::row::{Extent, Row};
use super::sizes::{Load, log};
use crate::cores;
use crate::fixture::forward::{Forwarded, Packets, forward};
use crate::fixture::hosts::{Hosts, INTERFACE, PORTS};
use crate::fixture::opened::Opened;
use crate::fixture::programs::packets;

/// The sender's rates, in parts of its maximum.
const RATES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
/// Longest time until the first packet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures bare ports.
pub(super) fn measure(row: &Row, extent: &Extent<'_>) -> anyhow::Result<Measured> {
    let bed = Bed { row, extent, hosts: &Hosts::make()? };
    let mut notes = log(extent.ticks);
    let mut measured = Measured::default();
    let (mut received, mut sent) = (0, 0);
    for _ in 0..extent.rounds {
        let packets = bed.full(&mut measured, &mut notes)?;
        received += packets.received;
        sent += packets.sent;
    }
    ensure!(sent > 0, "the switch forwards no packet");
    measured.lost(received, sent);
    let (most, load) = bed.sent(None, &mut notes)?;
    for part in RATES {
        let offered = part * most;
        let (received, load) = bed.sent(Some(offered), &mut notes)?;
        measured.rates.push(Rate { offered, received, batches: load.batches });
    }
    measured.rates.push(Rate { offered: most, received: most, batches: load.batches });
    measured.batches = measured.rates.iter().flat_map(|rate| &rate.batches).copied().collect();
    measured.batches.extend(&measured.full.batches);
    Ok(measured)
}

/// The surroundings of a measured row.
struct Bed<'a> {
    row: &'a Row,
    extent: &'a Extent<'a>,
    hosts: &'a Hosts,
}

impl Bed<'_> {
    /// Forwards at full load, without notes and with them. Returns the packets without.
    fn full(&self, measured: &mut Measured, notes: &mut BatchLog) -> anyhow::Result<Packets> {
        let rate = |spells: &Spells| {
            ensure!(spells.packets > 0, "no batch was full: more --milliseconds are needed");
            Ok(spells.packets as f64 / spells.busy.as_secs_f64() / 1e6)
        };
        let mut spells = Spells::default();
        let run = |ports, sent: &_| self.forward(Filled::new(ports, sent, &mut spells));
        let bare = self.run(None, run)?;
        measured.bare.push(rate(&spells)?);
        measured.core.push(bare.core);
        let mut spells = Spells::default();
        let run = |ports, sent: &_| {
            let noted = Noted::new(ports, Some(&mut *notes));
            self.forward(Filled::new(noted, sent, &mut spells))
        };
        self.run(None, run)?;
        measured.noted.push(rate(&spells)?);
        let mut load = Load::from(notes.take());
        load.micros -= spells.waited.as_secs_f64() * 1e6;
        measured.full.join(load);
        Ok(bare.packets)
    }

    /// Forwards what a sender sends at a rate, or as fast as it can, with notes. Returns the rate.
    fn sent(&self, rate: Option<f64>, notes: &mut BatchLog) -> anyhow::Result<(f64, Load)> {
        let run = |ports, _: &_| self.forward(Noted::new(ports, Some(&mut *notes)));
        let forwarded = self.run(rate, run)?;
        Ok((forwarded.rates.iter().sum(), notes.take().into()))
    }

    /// Calls `work` on the second core with the switch's ports, and the counter of packets that the sender
    /// meanwhile sends at a rate, or as fast as it can.
    fn run<R: Send>(
        &self,
        rate: Option<f64>,
        work: impl FnOnce(AfxdpPorts, &AtomicU64) -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        let (stop, sent) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let switch = || {
            cores::pin(cores::two()[1]);
            let mut ports = AfxdpPorts::open(&AfxdpConfig::new(PORTS))?;
            std::thread::scope(|scope| {
                let send = move || self.hosts.left.inside(|| send(self.row.bytes, rate, sent, stop));
                let sender = scope.spawn(send);
                let done = await_packet(&mut ports).and_then(|()| work(ports, sent));
                stop.store(true, Ordering::Relaxed);
                sender.join().map_err(|_| anyhow!("the sender panicked")).flatten().context("the sender")?;
                done
            })
        };
        self.hosts.middle.inside(switch)
    }

    fn forward<I: PacketIo>(&self, ports: I) -> anyhow::Result<Forwarded> {
        forward(self.row.program, Opened::alone(ports), 1, self.extent.length)
    }
}

/// Discards packets until the first one arrived.
fn await_packet(ports: &mut AfxdpPorts) -> anyhow::Result<()> {
    let start = Instant::now();
    while ports.receive(0, BATCH, |_| ())? == 0 {
        ensure!(start.elapsed() < PATIENCE, "no packet arrived within {} s", PATIENCE.as_secs());
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
