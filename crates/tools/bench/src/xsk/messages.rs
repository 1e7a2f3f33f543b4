//! Latency of requests and responses, and throughput, by message size: figures 8 to 10 of the TransP4 paper.

use serde::Serialize;

use super::world::{TenantSetup, World};
use super::{Mode, Options};
use crate::name;
use crate::stats::{Percentiles, Spread};
use crate::switch::Protocol;
use crate::trips::LONGEST_DATAGRAM;

/// Request/response latency.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The switch's configuration.
    pub mode: Mode,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Bytes of request and of response.
    pub message: u32,
    /// Microseconds from request to response, in the round with the median p50.
    pub micros: Percentiles,
    /// The median over that of plain.
    pub ratio: f64,
}

/// Throughput of one connection or flow.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// The switch's configuration.
    pub mode: Mode,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Bytes of a message.
    pub message: u32,
    /// Received million bits per second, by rounds.
    pub mbps: Spread,
    /// The median over that of plain.
    pub ratio: f64,
}

/// Figures by message size.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Requests and responses.
    pub latency: Vec<Latency>,
    /// Floods.
    pub throughput: Vec<Throughput>,
}

/// Steps of [`measure`].
pub(super) fn steps(options: &Options) -> usize {
    usize::from(options.rounds) * Mode::ALL.len()
}

/// A sample of one round.
struct Sample<T> {
    mode: Mode,
    protocol: Protocol,
    message: u32,
    value: T,
}

impl<T> Sample<T> {
    const fn key(&self) -> (Mode, Protocol, u32) {
        (self.mode, self.protocol, self.message)
    }
}

/// Measures every size with both protocols in each mode.
pub(super) fn measure(options: &Options, progress: &mut dyn FnMut(String)) -> anyhow::Result<Report> {
    let (mut trips, mut floods) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        for mode in Mode::ALL {
            progress(format!("round {round}, {}", name(mode)));
            let world = World::start(options, mode, &TenantSetup::default())?;
            for &size in &options.messages {
                for protocol in Protocol::ALL {
                    let message = length(protocol, size);
                    let ends = world.endpoints();
                    let mut micros = ends.trips(protocol, options.round_trips as usize, message as usize)?;
                    trips.push(Sample { mode, protocol, message, value: Percentiles::of(&mut micros) });
                    let mbps = ends.flood(protocol, message as usize, options.time)?;
                    floods.push(Sample { mode, protocol, message, value: mbps });
                }
            }
        }
    }
    Ok(Report { latency: latencies(trips), throughput: throughputs(floods) })
}

/// Returns the bytes of a message of this size over `protocol`.
pub(super) const fn length(protocol: Protocol, size: u32) -> u32 {
    match protocol {
        Protocol::Udp if size > LONGEST_DATAGRAM => LONGEST_DATAGRAM,
        Protocol::Udp | Protocol::Tcp => size,
    }
}

/// Groups the samples of all rounds by mode, protocol and size, in order of first appearance.
fn grouped<T>(samples: Vec<Sample<T>>) -> Vec<((Mode, Protocol, u32), Vec<T>)> {
    let mut all: Vec<((Mode, Protocol, u32), Vec<T>)> = Vec::new();
    for sample in samples {
        let key = sample.key();
        match all.iter_mut().find(|(k, _)| *k == key) {
            Some((_, values)) => values.push(sample.value),
            None => all.push((key, vec![sample.value])),
        }
    }
    all
}

fn latencies(samples: Vec<Sample<Percentiles>>) -> Vec<Latency> {
    let median = |(key, mut rounds): (_, Vec<Percentiles>)| {
        rounds.sort_by(|a, b| a.p50.total_cmp(&b.p50));
        (key, rounds[rounds.len() / 2])
    };
    let all: Vec<_> = grouped(samples).into_iter().map(median).collect();
    let plain = |p, m| all.iter().find(|(k, _)| *k == (Mode::Plain, p, m)).map_or(f64::NAN, |(_, v)| v.p50);
    let figure = |&((mode, protocol, message), micros): &(_, Percentiles)| {
        let ratio = micros.p50 / plain(protocol, message);
        Latency { mode, protocol, message, micros, ratio }
    };
    all.iter().map(figure).collect()
}

fn throughputs(samples: Vec<Sample<f64>>) -> Vec<Throughput> {
    let all: Vec<_> = grouped(samples).into_iter().map(|(key, v)| (key, Spread::of(v))).collect();
    let plain =
        |p, m| all.iter().find(|(k, _)| *k == (Mode::Plain, p, m)).map_or(f64::NAN, |(_, v)| v.median);
    let figure = |((mode, protocol, message), mbps): &(_, Spread)| {
        let ratio = mbps.median / plain(*protocol, *message);
        Throughput { mode: *mode, protocol: *protocol, message: *message, mbps: mbps.clone(), ratio }
    };
    all.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_held_against_plain() {
        let sample = |mode, value| Sample { mode, protocol: Protocol::Tcp, message: 64, value };
        let rounds = [(Mode::Plain, 10.0), (Mode::P4vm, 9.0), (Mode::Plain, 30.0), (Mode::P4vm, 9.0)];
        let rounds = rounds.into_iter().chain([(Mode::Plain, 20.0), (Mode::P4vm, 18.0)]);
        let got = throughputs(rounds.map(|(m, v)| sample(m, v)).collect());
        assert_eq!((got[0].mbps.median, got[0].ratio), (20.0, 1.0));
        assert_eq!((got[1].mbps.median, got[1].ratio), (9.0, 0.45));
        assert_eq!(got[1].mbps.rounds, [9.0, 9.0, 18.0]);
    }

    #[test]
    fn a_datagram_has_a_limit_and_a_stream_has_none() {
        assert_eq!(length(Protocol::Udp, 65_536), LONGEST_DATAGRAM);
        assert_eq!(length(Protocol::Tcp, 65_536), 65_536);
        assert_eq!(length(Protocol::Udp, 1), 1);
    }
}
