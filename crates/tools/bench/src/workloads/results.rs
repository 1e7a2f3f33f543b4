//! The samples of a run, and what those of a file have in common.

use serde::{Deserialize, Serialize};

use super::{Options, Place, Sample, Scenario, Workload};
use crate::resume::{Record, Samples, Settings};

/// Version of the file.
const VERSION: u32 = 1;

/// The settings that all samples of a file have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Common {
    workloads_version: u32,
    seconds: u16,
    connections: u16,
    page: u32,
    congestion: String,
}

impl Settings for Common {
    const COMMAND: &str = "bench workloads";

    fn options(&self) -> String {
        let Self { workloads_version, seconds, connections, page, congestion } = self;
        format!(
            "--seconds {seconds}, --connections {connections}, --page {page} and --congestion {congestion} \
             (version {workloads_version})"
        )
    }
}

impl Record for Sample {
    fn is_whole(&self) -> bool {
        let tenants = usize::from(self.tenants);
        self.throughput.len() == tenants && [0, tenants].contains(&self.micros.len())
    }
}

/// Begins with the samples of the options' file, if they name one. The file need not exist.
pub(super) fn open(options: &Options) -> anyhow::Result<Samples<Sample>> {
    let Options { connections, page, .. } = *options;
    let common = Common {
        workloads_version: VERSION,
        seconds: options.seconds(),
        connections,
        page,
        congestion: options.congestion()?,
    };
    Samples::open(options.resume.as_deref(), &common)
}

/// Reports whether a sample was taken.
pub(super) fn has(samples: &[Sample], place: Place, scenario: Scenario, workload: Workload) -> bool {
    let wanted = (place.round, place.level, place.tenants, scenario, workload);
    samples.iter().any(|s| (s.round, s.level, s.tenants, s.scenario, s.workload) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_another_run_are_named() {
        let congestion = "bbr".to_owned();
        let common = Common { workloads_version: VERSION, seconds: 2, connections: 8, page: 100, congestion };
        let wanted = "--seconds 2, --connections 8, --page 100 and --congestion bbr (version 1)";
        assert_eq!(common.options(), wanted);
    }
}
