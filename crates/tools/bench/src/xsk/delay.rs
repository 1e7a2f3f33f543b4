//! The cost of a program's run time: figures 12 and 13 of the TransP4 paper. The tenant's key `delay` adds
//! time to each packet, as a slow program would.

use std::time::Duration;

use serde::Serialize;

use super::messages::length;
use super::world::{TenantSetup, World};
use super::{Mode, Options};
use crate::stats::{Percentiles, Spread};
use crate::switch::Protocol;

/// Bytes of a request and of its response.
const REQUEST: usize = 64;
/// Deadline of a held packet: the most held packets, each with the longest delay.
const DEADLINE: Duration = Duration::from_secs(2);

/// Latency with a delay.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Microseconds that the P4 VM adds; `None`: no P4 VM.
    pub delay_us: Option<f64>,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Microseconds from request to response.
    pub micros: Percentiles,
}

/// Throughput with a delay.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Microseconds that the P4 VM adds; `None`: no P4 VM.
    pub delay_us: Option<f64>,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Bytes of a message.
    pub message: u32,
    /// Received million bits per second, by rounds.
    pub mbps: Spread,
}

/// Figures by delay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Requests and responses of 64 bytes.
    pub latency: Vec<Latency>,
    /// Floods.
    pub throughput: Vec<Throughput>,
}

/// Steps of [`measure`].
pub(super) fn steps(options: &Options) -> usize {
    options.delay_us.len() + 1
}

/// Measures without a P4 VM, then every delay.
pub(super) fn measure(options: &Options, progress: &mut dyn FnMut(String)) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let delays = options.delay_us.iter().map(|us| Some(Duration::from_micros((*us).into())));
    for delay in std::iter::once(None).chain(delays) {
        progress(delay.map_or_else(|| "no P4 VM".into(), |d| format!("a P4 VM that takes {d:?} longer")));
        let mode = if delay.is_some() { Mode::P4vm } else { Mode::Plain };
        let tenant =
            TenantSetup { delay: delay.unwrap_or_default(), deadline: DEADLINE, ..TenantSetup::default() };
        let world = World::start(options, mode, &tenant)?;
        let (ends, delay_us) = (world.endpoints(), delay.map(|d| d.as_secs_f64() * 1e6));
        for protocol in Protocol::ALL {
            let micros = Percentiles::of(&mut ends.trips(protocol, options.round_trips as usize, REQUEST)?);
            report.latency.push(Latency { delay_us, protocol, micros });
            for &size in &options.messages {
                let message = length(protocol, size);
                let flood = |_| ends.flood(protocol, message as usize, options.time);
                let rounds = (0..options.rounds).map(flood).collect::<Result<Vec<_>, _>>()?;
                report.throughput.push(Throughput { delay_us, protocol, message, mbps: Spread::of(rounds) });
            }
        }
    }
    Ok(report)
}
