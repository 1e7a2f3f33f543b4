//! The cloud around a DPDK switch, by [`Mode`].

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;

use p4shield_testbed::{NetNs, leftover};
use tempfile::TempDir;

use super::lab::{self, SERVER};
use super::{Mode, Options};
use crate::shield::{self, Config, GUARD, Setup, Shield as Cloud};

/// Long enough for client, server, daemon, P4 VM and agent, which share a core, to be scheduled.
const KEYS: &str = "deadline = \"50ms\"";

/// Daemon and P4 VM (neither in [`Mode::Plain`]) and a folder for this run's files.
pub(super) struct Shield {
    folder: TempDir,
    cloud: Option<Cloud>,
}

impl Shield {
    /// Starts the processes of `mode`; `ports` are the uplink's and the user VM's.
    pub(super) fn start(options: &Options, mode: Mode, ports: &[String; 2]) -> anyhow::Result<Self> {
        let setup = Setup { library: &options.library, program: GUARD, config: &config(mode, ports) };
        let cloud = (mode != Mode::Plain).then(|| Cloud::start(&setup)).transpose()?;
        Ok(Self { folder: leftover::folder("bench")?, cloud })
    }

    /// Starts the user VM's agent in `ns`, with its interface `eth0`.
    pub(super) fn start_agent(&mut self, ns: &NetNs) -> anyhow::Result<()> {
        self.cloud.as_mut().map_or(Ok(()), |cloud| cloud.start_agent(ns, "eth0"))
    }

    /// Waits until the library in the switch has connected to the daemon.
    pub(super) fn await_switch(&self) -> anyhow::Result<()> {
        self.cloud.as_ref().map_or(Ok(()), Cloud::await_switch)
    }

    /// Returns the switch's environment.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.cloud.as_ref().map_or_else(Vec::new, Cloud::environment)
    }

    /// Returns a folder for this run's files.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Returns the configuration. In the modes without a tenant's packets, neither port belongs to a VM.
fn config(mode: Mode, ports: &[String; 2]) -> String {
    let (placement, address) = match mode {
        Mode::Inline => ("inline", SERVER),
        Mode::Attached | Mode::Neighbour => ("p4vm", Ipv4Addr::new(192, 0, 2, 1)),
        Mode::Plain | Mode::P4vm => ("p4vm", SERVER),
    };
    let text = Config { attachment: "dpdk", placement, address, keys: KEYS, both: false }.text();
    match mode {
        Mode::Attached => text,
        Mode::Neighbour => text + &shield::vm_port(lab::TENANT_SOCKET),
        Mode::Plain | Mode::Inline | Mode::P4vm => text + &shield::ports(ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_modes_configuration_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p4shield.toml");
        for mode in [Mode::Attached, Mode::Neighbour, Mode::Inline, Mode::P4vm] {
            std::fs::write(&path, config(mode, &["net_pcap0".into(), "net_null1".into()])).unwrap();
            if let Err(e) = p4shield_config::Config::load(&path) {
                panic!("{mode:?}: {e}");
            }
        }
    }
}
