//! P4 Shield around the measured switch, started as an operator starts it: daemon, P4 VM, agent.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use p4shield_testbed::{Guarded, NetNs, Product};

/// The program of the P4 Shield paper's measurements.
pub(crate) const GUARD: &str = include_str!("../../../../examples/programs/tcp_guard.p4");
/// The tenant's name.
pub(crate) const TENANT: &str = "bench";
/// The user VM's name.
pub(crate) const VM: &str = "server";
const CONFIG: &str = include_str!("cloud.toml");
/// TCP memory that programs allow; more than any measurement uses.
const THRESHOLD: u64 = 1 << 30;

/// Parts of a cloud with one tenant and one user VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'s> {
    /// The library that is preloaded into the switch.
    pub(crate) library: &'s Path,
    /// Text of the tenant's P4 program.
    pub(crate) program: &'s str,
    /// Text of the configuration: [`Config`] and [`ports`]. The program's object is `program.o`.
    pub(crate) config: &'s str,
}

/// The configuration except the ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config<'s> {
    pub(crate) attachment: &'s str,
    pub(crate) placement: &'s str,
    /// The user VM's name.
    pub(crate) address: Ipv4Addr,
    /// Further keys of the tenant with their values.
    pub(crate) keys: &'s str,
    /// Whether the program is the egress program, too.
    pub(crate) both: bool,
}

impl Config<'_> {
    /// Returns the text of the file.
    pub(crate) fn text(&self) -> String {
        CONFIG
            .replace("@ATTACHMENT@", self.attachment)
            .replace("@PLACEMENT@", self.placement)
            .replace("@ADDRESS@", &self.address.to_string())
            .replace("@KEYS@", self.keys)
            .replace("@EGRESS@", if self.both { "\"program.o\"" } else { "" })
    }
}

/// Returns the ports' part: the uplink and the user VM's port.
pub(crate) fn ports([uplink, vm]: &[String; 2]) -> String {
    format!("\n[[port]]\nname = {uplink:?}\nrole = \"uplink\"\n{}", vm_port(vm))
}

/// Returns the part of the user VM's port.
pub(crate) fn vm_port(name: &str) -> String {
    format!("\n[[port]]\nname = {name:?}\ntenant = \"{TENANT}\"\nvm = \"{VM}\"\n")
}

/// A running daemon with its P4 VM, and the agent once it is started.
pub(crate) struct Shield {
    library: PathBuf,
    agent: Option<Guarded>,
    product: Product,
}

impl Shield {
    /// Compiles the program, starts the daemon and waits until its P4 VM runs.
    pub(crate) fn start(setup: &Setup<'_>) -> anyhow::Result<Self> {
        present(setup.library)?;
        let product = Product::start(None, setup.program, setup.config)?;
        Ok(Self { library: setup.library.to_owned(), agent: None, product })
    }

    /// Returns the output of `p4shield status --json`.
    pub(crate) fn status(&self) -> serde_json::Value {
        self.product.status()
    }

    /// Returns the P4 VM's process id while it runs with its programs loaded.
    pub(crate) fn p4vm(&self) -> Option<i32> {
        self.product.p4vm()
    }

    /// Starts the user VM's agent in `ns`; `interface` is the option's value, `NAME` or `NAME:MBPS`.
    pub(crate) fn start_agent(&mut self, ns: &NetNs, interface: &str) -> anyhow::Result<()> {
        self.agent = Some(self.product.agent(ns, [TENANT, VM], interface, THRESHOLD)?);
        Ok(())
    }

    /// Returns the agent's control socket.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.product.at("agent.sock")
    }

    /// Returns the switch's environment.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into_os_string()),
            ("P4SHIELD_CONFIG", self.product.at("p4shield.toml").into_os_string()),
        ]
    }

    /// Waits until the library in the switch has connected to the daemon; otherwise the benchmark would
    /// measure a plain switch.
    pub(crate) fn await_switch(&self) -> anyhow::Result<()> {
        let switches = || self.product.status()["switches"].as_array().map_or(0, Vec::len);
        let what = "report of the library in the switch";
        Ok(self.product.await_part(what, "run", || switches() > 0)?)
    }
}

/// Refuses a missing library: the dynamic linker would only warn.
pub(crate) fn present(library: &Path) -> anyhow::Result<()> {
    ensure!(library.is_file(), "{} does not exist; name the library with --library", library.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libp4shield_xsk.so");
        let refused = present(&library).unwrap_err().to_string();
        assert!(refused.contains("libp4shield_xsk.so does not exist"), "{refused}");
        std::fs::File::create(&library).unwrap();
        present(&library).unwrap();
    }
}
