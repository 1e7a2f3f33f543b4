//! The distribution's unmodified `ovs-vswitchd` on a private database: the common part of Open vSwitch over
//! DPDK and with AF_XDP ports.

use std::path::Path;
use std::process::{Command, ExitStatus};

use rustix::process::Pid;

use crate::ovsdb::Database;
use crate::process::{Guarded, find};
use crate::{Error, NetNs, Result, wait_until};

/// Debian's build with DPDK has AF_XDP, too.
const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// A running `ovs-vswitchd` with one bridge on the userspace datapath. Dropping it stops it and removes its
/// files.
#[derive(Debug)]
pub(crate) struct Vswitchd {
    process: Guarded,
    database: Database,
}

impl Vswitchd {
    /// Name of its bridge.
    pub(crate) const BRIDGE: &str = "br0";

    /// Checks whether this machine can run it; the error is the reason for a `skipped:` line.
    pub(crate) fn usable() -> std::result::Result<(), String> {
        crate::usable()?;
        if !Path::new(PROGRAM).is_file() || find("ovsdb-server").is_none() {
            return Err(
                "the packages openvswitch-switch and openvswitch-switch-dpdk are not installed".into()
            );
        }
        Ok(())
    }

    /// Starts it inside `ns` on an initialised database; `prepare` receives the command and the database\'s
    /// folder. An error contains the end of the switch\'s log.
    pub(crate) fn start(
        ns: &NetNs,
        database: Database,
        prepare: impl FnOnce(&mut Command, &Path),
    ) -> Result<Self> {
        let mut command = database.vswitchd(ns, Path::new(PROGRAM));
        prepare(&mut command, database.folder());
        let mut switch = Self { process: Guarded::spawn(&mut command)?, database };
        switch.wait_ready().map_err(|e| switch.database.explain(e))?;
        Ok(switch)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut died = None;
        wait_until("start of ovs-vswitchd", 60, || {
            died = self.process.ended();
            died.is_some() || self.database.appctl(&["version"]).is_ok()
        })?;
        if let Some(status) = died {
            return Err(Error::Failed { command: PROGRAM.into(), stderr: format!("it ended: {status}") });
        }
        let words = ["add-br", Self::BRIDGE, "--", "set", "bridge", Self::BRIDGE, "datapath_type=netdev"];
        self.database.vsctl(&words).map(drop)
    }

    /// Adds a port with these settings of its interface. An error that the switch reports later counts, too.
    pub(crate) fn add(&self, name: &str, settings: &[&str]) -> Result<()> {
        let mut words = vec!["add-port", Self::BRIDGE, name, "--", "set", "Interface", name];
        words.extend(settings);
        self.database.vsctl(&words).map_err(|e| self.database.explain(e))?;
        match self.database.vsctl(&["get", "Interface", name, "error"])?.trim() {
            "[]" => Ok(()),
            error => Err(self.database.explain(Error::Failed {
                command: format!("ovs-vsctl {}", words.join(" ")),
                stderr: error.into(),
            })),
        }
    }

    /// Removes a port.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.database.vsctl(&["del-port", Self::BRIDGE, name]).map(drop)
    }

    /// Returns its database.
    pub(crate) const fn database(&self) -> &Database {
        &self.database
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns the exit status if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Stops it with SIGTERM, as a service manager does, and waits for its end.
    pub(crate) fn stop(&mut self) -> Option<ExitStatus> {
        let _ = self.database.appctl(&["exit"]);
        let _ = wait_until("end of ovs-vswitchd", 30, || self.process.ended().is_some());
        self.process.stop()
    }
}
