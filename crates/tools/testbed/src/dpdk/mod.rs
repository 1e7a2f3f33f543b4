//! The distribution's unmodified DPDK programs: Open vSwitch and testpmd.
//!
//! They use no device of the machine (`--no-pci`) and no hugepages, and keep every file in a temporary
//! folder, so that any number of them run side by side.

mod ovs;
mod testpmd;

use std::ffi::{OsStr, OsString};
use std::path::Path;

pub use ovs::OvsSetup;
pub use testpmd::{PortStats, Testpmd, TestpmdSetup};

/// Settings of a DPDK program: DPDK's and the program's own.
#[derive(Debug, Clone)]
pub struct Setup<O> {
    eal: Eal,
    options: O,
}

impl<O> Setup<O> {
    const fn new(options: O) -> Self {
        Self { eal: Eal { megabytes: 256, environment: Vec::new() }, options }
    }

    /// Sets a variable of the program's environment, for example `LD_PRELOAD`.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.eal.environment.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// DPDK's memory in MiB, 256 if not set.
    #[must_use]
    pub const fn megabytes(mut self, megabytes: u32) -> Self {
        self.eal.megabytes = megabytes;
        self
    }
}

/// Settings of DPDK's environment abstraction layer: memory, files and the process's environment.
#[derive(Debug, Clone)]
struct Eal {
    megabytes: u32,
    environment: Vec<(OsString, OsString)>,
}

impl Eal {
    /// Returns the arguments. DPDK 22.11 refuses `--in-memory` together with `--no-huge`, and Open vSwitch
    /// adds it unless it sees `--legacy-mem`, which `--no-huge` implies. `--no-shconf` leaves no file behind
    /// either, only an empty folder, and [`Eal::apply`] says where.
    fn arguments(&self) -> Vec<String> {
        let memory = self.megabytes.to_string();
        ["--no-pci", "--no-huge", "--legacy-mem", "--no-shconf", "--no-telemetry", "-m", &memory]
            .map(String::from)
            .into()
    }

    fn apply(&self, command: &mut std::process::Command, folder: &Path) {
        command.env("RUNTIME_DIRECTORY", folder);
        command.envs(self.environment.iter().map(|(n, v)| (n, v)));
    }
}

/// Returns the first and the last CPU that this process may use; polling threads disturb the least on the
/// latter.
fn cpus() -> [usize; 2] {
    let mine = rustix::thread::sched_getaffinity(None).ok();
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|c| mine.is_some_and(|set| set.is_set(*c)));
    let first = cpus.next().unwrap_or(0);
    [first, cpus.next_back().unwrap_or(first)]
}

#[cfg(test)]
mod tests {
    use crate::{NetNs, Result};

    /// Returns a namespace for the switch, and two with an address each, linked to it by `s0` and `s1`.
    pub(super) fn world() -> Result<[NetNs; 3]> {
        let [host, a, b] = [NetNs::create("host")?, NetNs::create("a")?, NetNs::create("b")?];
        for (ns, port, address) in [(&a, "s0", "10.9.2.1/24"), (&b, "s1", "10.9.2.2/24")] {
            host.veth(port, ns, "eth0")?;
            ns.send_whole_packets("eth0")?;
            ns.ip(&format!("addr add {address} dev eth0"))?;
        }
        Ok([host, a, b])
    }
}
