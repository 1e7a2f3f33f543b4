//! The distribution's Open vSwitch with AF_XDP ports, unmodified, on a private database.

use std::ffi::OsStr;
use std::process::ExitStatus;

use crate::ovsdb::Database;
use crate::vswitchd::Vswitchd;
use crate::{NetNs, Result};

/// A running Open vSwitch without ports. Dropping it stops it and removes its files.
#[derive(Debug)]
pub struct OvsAfxdp(Vswitchd);

impl OvsAfxdp {
    /// Name of its bridge.
    pub const BRIDGE: &str = Vswitchd::BRIDGE;

    /// Checks whether this machine can run it.
    ///
    /// # Errors
    /// The reason why not, for a `skipped:` line.
    pub fn usable() -> std::result::Result<(), String> {
        Vswitchd::usable()
    }

    /// Starts it inside `ns` with these variables in its environment, for example `LD_PRELOAD`, and with
    /// threads that poll on the CPUs of the hexadecimal `mask`. DPDK is not started.
    ///
    /// # Errors
    /// A part of it does not start; with the end of the switch's log.
    pub fn start(ns: &NetNs, environment: &[(&str, &OsStr)], mask: &str) -> Result<Self> {
        let database = Database::start(ns)?;
        let polling = format!("other_config:pmd-cpu-mask={mask}");
        database.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &polling])?;
        Vswitchd::start(ns, database, |command, _| {
            command.envs(environment.iter().copied());
        })
        .map(Self)
    }

    /// Adds an interface of the switch's namespace as an AF_XDP port with one queue.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn add(&self, interface: &str) -> Result<()> {
        self.0.add(interface, &["type=afxdp", "options:n_rxq=1"])
    }

    /// Removes a port.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn remove(&self, interface: &str) -> Result<()> {
        self.0.remove(interface)
    }

    /// Returns the switch's standard error so far, to which a preloaded library writes.
    #[must_use]
    pub fn said(&self) -> String {
        self.0.database().said()
    }

    /// Returns the switch's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.0.database().log()
    }

    /// Runs `ovs-appctl`; see [`Database::appctl`].
    ///
    /// # Errors
    /// The command fails.
    pub fn appctl(&self, words: &[&str]) -> Result<String> {
        self.0.database().appctl(words)
    }

    /// Returns the exit status if `ovs-vswitchd` has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.ended()
    }
}
