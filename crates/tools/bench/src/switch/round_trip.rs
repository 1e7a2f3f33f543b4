//! Requests and responses between a client and a server on two kernel interfaces of the switch.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use super::lab::{CLIENT, SERVER};
use super::world::World;
use super::{Latency, Options};
use crate::protocol::Protocol;
use crate::stats::Percentiles;
use crate::trips::{Endpoints, LOST};

/// Other traffic of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// Nothing.
    Idle,
    /// Datagrams at half of the switch's capacity.
    Half,
}

/// Payload of the datagrams that load the switch.
const LOAD_BYTES: usize = 64;
/// The most messages that [`Load::Half`] sends without a pause.
const LOAD_BURST: u64 = 16;

impl World {
    /// Measures every message size with both protocols on an idle switch, and the first size on a half-loaded
    /// one.
    pub(super) fn latencies(&self, options: &Options) -> anyhow::Result<Vec<Latency>> {
        let mut all = Vec::new();
        for &message in &options.messages {
            for protocol in Protocol::ALL {
                all.push(self.latency(options, protocol, Load::Idle, message)?);
            }
        }
        if let Some(&message) = options.messages.first() {
            let gap = self.half_load().context("cannot load the switch")?;
            let stop = AtomicBool::new(false);
            let sender = self.flood_socket().context("cannot load the switch")?;
            let under_load: Result<Vec<_>, _> = std::thread::scope(|s| {
                s.spawn(|| send_paced(&sender, gap, &stop));
                let measured =
                    Protocol::ALL.map(|protocol| self.latency(options, protocol, Load::Half, message));
                stop.store(true, Ordering::Relaxed);
                measured.into_iter().collect()
            });
            all.extend(under_load?);
        }
        Ok(all)
    }

    fn latency(
        &self,
        options: &Options,
        protocol: Protocol,
        load: Load,
        message: u32,
    ) -> anyhow::Result<Latency> {
        let ends = Endpoints { client: (&self.client, CLIENT), server: (&self.server, SERVER), core: None };
        let mut micros = ends.trips(protocol, options.round_trips as usize, message as usize)?;
        let micros = Percentiles::of(&mut micros);
        Ok(Latency { mode: self.mode, protocol, load, message, micros, ratio: f64::NAN })
    }

    fn flood_socket(&self) -> anyhow::Result<UdpSocket> {
        let socket = self.client.inside(|| UdpSocket::bind((CLIENT, 0)))?;
        // No socket listens at the discard port; the kernel limits its ICMP errors.
        socket.connect((SERVER, 9))?;
        Ok(socket)
    }

    /// Returns the time between two bursts at half of the rate that arrives when the client sends at full
    /// speed.
    fn half_load(&self) -> anyhow::Result<Duration> {
        let sink = self.server.inside(|| UdpSocket::bind((SERVER, 0)))?;
        sink.set_read_timeout(Some(LOST))?;
        let source = self.client.inside(|| UdpSocket::bind((CLIENT, 0)))?;
        source.connect(sink.local_addr()?)?;
        let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        let time = Duration::from_millis(500);
        std::thread::scope(|s| {
            s.spawn(|| send_paced(&source, Duration::ZERO, &stop));
            s.spawn(|| {
                let mut buffer = [0; LOAD_BYTES];
                while !stop.load(Ordering::Relaxed) {
                    arrived.fetch_add(u64::from(sink.recv(&mut buffer).is_ok()), Ordering::Relaxed);
                }
            });
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
        });
        let bursts = arrived.load(Ordering::Relaxed).div_ceil(2 * LOAD_BURST).max(1);
        Ok(time / u32::try_from(bursts).unwrap_or(u32::MAX))
    }
}

/// Sends bursts of datagrams `gap` apart until `stop` is set.
fn send_paced(socket: &UdpSocket, gap: Duration, stop: &AtomicBool) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..LOAD_BURST {
            // Fails after an ICMP error or while the queue is full; the datagram is then simply not sent.
            let _ = socket.send(&[0; LOAD_BYTES]);
        }
        next += gap;
        if let Some(wait) = next.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
    }
}
