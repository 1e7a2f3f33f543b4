//! The time of single packets through a switch on veth, from the sender's call to the receiver's.
//!
//! One thread, on the sender's core, has an AF_XDP port in each host's namespace: it sends a packet with a
//! number, and the next one when that has arrived. Meanwhile it sends other packets at a rate, or sleeps
//! until a packet arrives, so that a compartment that needs this core has it.

use std::time::{Duration, Instant};

use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::{BATCH, PacketIo};

use super::report::Latency;
use crate::fixture::hosts::{Hosts, INTERFACE};
use crate::fixture::programs::packets;
use crate::stats::Percentiles;

/// Offset of a packet's number, behind what the program reads and changes.
const MARK: usize = 40;
/// Longest time until a packet arrives: the switch may have no core.
const LONGEST: Duration = Duration::from_secs(10);
/// A packet that takes longer is lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// Packets that may be lost before the first one that is timed.
const TRIALS: usize = 10;
/// Longest sleep, should the packet arrive before it.
const NAP: Duration = Duration::from_millis(1);

/// Sends numbered packets for a time, with so many million other packets a second.
pub(super) fn measure(hosts: &Hosts, bytes: usize, others: f64, length: Duration) -> anyhow::Result<Latency> {
    let open = || AfxdpPorts::open(&AfxdpConfig::new([INTERFACE]));
    let (left, right) = (hosts.left.inside(open)?, hosts.right.inside(open)?);
    let all = packets(bytes);
    let mut way = Way { left, right, all: &all, bytes, others, start: Instant::now(), sent: 0 };
    // An interface may lose what arrives while its program is attached.
    for _ in 0..TRIALS {
        if way.trip(0)?.is_some() {
            break;
        }
    }
    (way.start, way.sent) = (Instant::now(), 0);
    let (mut times, mut lost) = (Vec::new(), 0);
    let mut number = 0;
    while way.start.elapsed() < length || (times.is_empty() && way.start.elapsed() < LONGEST) {
        number += 1;
        match way.trip(number)? {
            Some(time) => times.push(time.as_secs_f64() * 1e6),
            None => lost += 1,
        }
    }
    Ok(Latency {
        others_mpps: others,
        packets: times.len() as u64,
        lost,
        micros: Percentiles::of(&mut times),
    })
}

/// The way from one host to the other.
struct Way<'a> {
    left: AfxdpPorts,
    right: AfxdpPorts,
    /// Packets, one behind the other.
    all: &'a [u8],
    /// The length of each.
    bytes: usize,
    /// Million others a second, and how many of them were sent since the start.
    others: f64,
    start: Instant,
    sent: u64,
}

impl Way<'_> {
    /// Sends a packet with a number, and returns how long it takes; `None` if it does not arrive.
    fn trip(&mut self, number: u64) -> anyhow::Result<Option<Duration>> {
        let mut packet = self.all[..self.bytes].to_vec();
        packet[MARK..MARK + 8].copy_from_slice(&number.to_le_bytes());
        let begun = Instant::now();
        let mut is_sent = self.left.send(0, &packet);
        self.left.flush()?;
        loop {
            let mut has_arrived = false;
            let is_it = |p: &[u8]| p.get(MARK..MARK + 8) == Some(&number.to_le_bytes());
            self.right.receive(0, BATCH, |arrived| has_arrived |= is_it(arrived))?;
            self.right.flush()?;
            let time = begun.elapsed();
            if has_arrived {
                return Ok(Some(time));
            }
            if time > PATIENCE {
                return Ok(None);
            }
            if !is_sent {
                is_sent = self.left.send(0, &packet);
                self.left.flush()?;
            }
            if self.others > 0.0 {
                self.send_others()?;
            } else {
                self.right.wait(NAP, None)?;
            }
        }
    }

    /// Sends what is due by the clock, at most a batch.
    fn send_others(&mut self) -> anyhow::Result<()> {
        let due = (self.start.elapsed().as_secs_f64() * self.others * 1e6) as u64;
        for _ in 0..due.saturating_sub(self.sent).min(BATCH as u64) {
            let at = self.sent as usize % (self.all.len() / self.bytes) * self.bytes;
            self.sent += u64::from(self.left.send(0, &self.all[at..at + self.bytes]));
        }
        Ok(self.left.flush()?)
    }
}
