//! The samples of a run, and what those of a file have in common.

use serde::{Deserialize, Serialize};

use super::traffic::Seen;
use super::{Options, Place};
use crate::resume::{Record, Samples, Settings};

/// Version of the file.
const VERSION: u32 = 2;

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) place: Place,
    /// Decisions that the adversary's switch remembers, if it answers.
    pub(super) flows: Option<u64>,
    pub(super) seen: Seen,
}

/// The settings that all samples of a file have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Common {
    version: u32,
    seconds: u64,
    rate: u32,
    p4_rate: u32,
    attack_rate: u32,
}

impl Settings for Common {
    const COMMAND: &str = "bench isolation";

    fn options(&self) -> String {
        let Self { version, seconds, rate, p4_rate, attack_rate } = self;
        format!(
            "--seconds {seconds}, --rate {rate}, --p4-rate {p4_rate} and --attack-rate {attack_rate} \
             (version {version})"
        )
    }
}

impl Record for Sample {
    fn is_whole(&self) -> bool {
        true
    }
}

/// Begins with the samples of the options' file, if they name one. The file need not exist.
pub(super) fn open(options: &Options) -> anyhow::Result<Samples<Sample>> {
    let Options { rate, p4_rate, attack_rate, .. } = *options;
    let common = Common { version: VERSION, seconds: options.time().as_secs(), rate, p4_rate, attack_rate };
    Samples::open(options.resume.as_deref(), &common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_another_run_are_named() {
        let common = Common { version: VERSION, seconds: 1, rate: 2, p4_rate: 3, attack_rate: 4 };
        let options = "--seconds 1, --rate 2, --p4-rate 3 and --attack-rate 4 (version 2)";
        assert_eq!(common.options(), options);
    }
}
