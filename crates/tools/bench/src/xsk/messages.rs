//! Latency of requests and responses, and throughput, by message size: figures 8 to 10 of the TransP4 paper.

use serde::Serialize;

use super::world::{TenantSetup, World};
use super::{Mode, Options};
use crate::figures::{figure, over_rounds};
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

figure!(Latency, Mode::Plain, |l| l.micros.p50, [protocol, message]);
figure!(
    Throughput,
    Mode::Plain,
    |t| t.mbps.median,
    [protocol, message],
    fn of_rounds(rounds: Vec<Self>) -> Self {
        let all = rounds.iter().flat_map(|t| &t.mbps.rounds).copied().collect();
        Self { mbps: Spread::of(all), ..rounds[0] }
    }
);

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
                    let micros = Percentiles::of(&mut micros);
                    trips.push(Latency { mode, protocol, message, micros, ratio: f64::NAN });
                    let mbps = Spread::of(vec![ends.flood(protocol, message as usize, options.time)?]);
                    floods.push(Throughput { mode, protocol, message, mbps, ratio: f64::NAN });
                }
            }
        }
    }
    Ok(Report { latency: over_rounds(trips), throughput: over_rounds(floods) })
}

/// Returns the bytes of a message of this size over `protocol`.
pub(super) const fn length(protocol: Protocol, size: u32) -> u32 {
    match protocol {
        Protocol::Udp if size > LONGEST_DATAGRAM => LONGEST_DATAGRAM,
        Protocol::Udp | Protocol::Tcp => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_held_against_plain() {
        let sample = |mode, mbps| Throughput {
            mode,
            protocol: Protocol::Tcp,
            message: 64,
            mbps: Spread::of(vec![mbps]),
            ratio: f64::NAN,
        };
        let rounds = [(Mode::Plain, 10.0), (Mode::P4vm, 9.0), (Mode::Plain, 30.0), (Mode::P4vm, 9.0)];
        let rounds = rounds.into_iter().chain([(Mode::Plain, 20.0), (Mode::P4vm, 18.0)]);
        let got = over_rounds(rounds.map(|(m, v)| sample(m, v)).collect());
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
