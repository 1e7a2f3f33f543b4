//! The samples of a run, and what those of a file have in common.

use serde::{Deserialize, Serialize};

use super::{Cores, Options, Place, Sample, Scenario};
use crate::name;
use crate::resume::{Record, Samples, Settings};

/// Version of the file.
const VERSION: u32 = 3;

/// The settings that all samples of a file have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Common {
    version: u32,
    cores: Cores,
    milliseconds: u64,
    rates: Vec<u32>,
    latency_rate: u32,
}

impl Settings for Common {
    const COMMAND: &str = "bench topology";

    fn options(&self) -> String {
        let Self { version, cores, milliseconds, rates, latency_rate } = self;
        let rates = rates.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        format!(
            "--cores {}, --milliseconds {milliseconds}, --rates {rates} and --latency-rate {latency_rate} \
             (version {version})",
            name(cores)
        )
    }
}

impl Record for Sample {
    fn is_whole(&self) -> bool {
        self.tenant_pps.len() == usize::from(self.tenants)
    }
}

/// Begins with the samples of the options' file, if they name one. The file need not exist.
pub(super) fn open(options: &Options) -> anyhow::Result<Samples<Sample>> {
    let common = Common {
        version: VERSION,
        cores: options.cores,
        milliseconds: options.time().as_millis() as u64,
        rates: options.rates(),
        latency_rate: options.latency_rate,
    };
    Samples::open(options.resume.as_deref(), &common)
}

/// Reports whether a sample was taken.
pub(super) fn has(samples: &[Sample], place: Place, scenario: Scenario, bytes: u16) -> bool {
    let wanted = (place.round, place.level, place.p4, place.tenants, scenario, bytes);
    samples.iter().any(|s| (s.round, s.level, s.p4, s.tenants, s.scenario, s.bytes) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_another_run_are_named() {
        let common = Common {
            version: VERSION,
            cores: Cores::Isolated,
            milliseconds: 8,
            rates: vec![1, 2],
            latency_rate: 3,
        };
        assert_eq!(
            common.options(),
            "--cores isolated, --milliseconds 8, --rates 1,2 and --latency-rate 3 (version 3)"
        );
    }
}
