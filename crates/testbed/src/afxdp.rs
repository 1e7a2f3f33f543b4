//! The distribution's Open vSwitch with AF_XDP ports, unmodified, on a database of its own.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;
use std::process::ExitStatus;

use crate::ovsdb::Database;
use crate::process::{Guarded, find};
use crate::{Error, NetNs, Result, wait_until};

/// Debian's build with DPDK is the one that has AF_XDP, too; DPDK is not started.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// A running Open vSwitch without ports. It ends, and its files go, on drop.
#[derive(Debug)]
pub struct OvsAfxdp {
    vswitchd: Guarded,
    database: Database,
}

impl OvsAfxdp {
    /// The name of its bridge.
    pub const BRIDGE: &str = "br0";

    /// Whether this machine can run it; otherwise why not, for a `skipped:` line.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub fn usable() -> std::result::Result<(), String> {
        crate::usable()?;
        if !Path::new(PROGRAM).is_file() || find("ovsdb-server").is_none() {
            return Err(
                "the packages openvswitch-switch and openvswitch-switch-dpdk are not installed".into()
            );
        }
        Ok(())
    }

    /// Starts it inside `ns` with these variables in its environment, for example `LD_PRELOAD`, and with threads
    /// that poll on the CPUs of the hexadecimal `mask`.
    ///
    /// # Errors
    /// If a part of it does not start; with the end of the switch's log.
    pub fn start(ns: &NetNs, environment: &[(&str, &OsStr)], mask: &str) -> Result<Self> {
        let database = Database::start(ns)?;
        database.vsctl(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            &format!("other_config:pmd-cpu-mask={mask}"),
        ])?;
        let mut command = database.vswitchd(ns, Path::new(PROGRAM));
        command.envs(environment.iter().map(|(k, v)| (OsString::from(k), v)));
        let said = File::create(database.folder().join("vswitchd.err"))
            .map_err(|source| Error::System { what: "make a file for errors".into(), source })?;
        command.stderr(said);
        let mut switch = Self { vswitchd: Guarded::spawn(&mut command)?, database };
        switch.wait_ready().map_err(|e| switch.explain(e))?;
        Ok(switch)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut died = None;
        wait_until("start of ovs-vswitchd", 60, || {
            died = self.vswitchd.ended();
            died.is_some() || self.database.appctl(&["version"]).is_ok()
        })?;
        if let Some(status) = died {
            return Err(Error::Failed { command: PROGRAM.into(), stderr: format!("it ended: {status}") });
        }
        let words = ["add-br", Self::BRIDGE, "--", "set", "bridge", Self::BRIDGE, "datapath_type=netdev"];
        self.database.vsctl(&words).map(drop)
    }

    /// Adds an interface of the switch's namespace as an AF_XDP port with one queue.
    ///
    /// # Errors
    /// What the switch says.
    pub fn add(&self, interface: &str) -> Result<()> {
        let mut words = vec!["add-port", Self::BRIDGE, interface, "--", "set", "Interface", interface];
        words.extend(["type=afxdp", "options:n_rxq=1"]);
        self.database.vsctl(&words).map_err(|e| self.explain(e))?;
        match self.database.vsctl(&["get", "Interface", interface, "error"])?.trim() {
            "[]" => Ok(()),
            error => Err(self.explain(Error::Failed { command: words.join(" "), stderr: error.into() })),
        }
    }

    /// Removes a port.
    ///
    /// # Errors
    /// What the switch says.
    pub fn remove(&self, interface: &str) -> Result<()> {
        self.database.vsctl(&["del-port", Self::BRIDGE, interface]).map(drop)
    }

    /// What the switch, and what is preloaded into it, has written to its standard error so far.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.database.folder().join("vswitchd.err")).unwrap_or_default()
    }

    /// What the switch has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.database.log()
    }

    /// Runs `ovs-appctl`; see [`Database::appctl`].
    ///
    /// # Errors
    /// What it says.
    pub fn appctl(&self, words: &[&str]) -> Result<String> {
        self.database.appctl(words)
    }

    /// How `ovs-vswitchd` ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.vswitchd.ended()
    }

    fn explain(&self, error: Error) -> Error {
        let said = self.said();
        self.database
            .explain(Error::Failed { command: "ovs-vswitchd".into(), stderr: format!("{error}\n{said}") })
    }
}
