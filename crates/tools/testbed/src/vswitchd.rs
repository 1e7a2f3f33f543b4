//! The distribution's unmodified Open vSwitch on a private database, with AF_XDP ports; `dpdk` adds those of
//! DPDK.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, ExitStatus};

use rustix::process::Pid;

use crate::ovsdb::Database;
use crate::process::{Guarded, find};
use crate::{Error, NetNs, Result, wait_until};

/// Debian's build with DPDK, which has AF_XDP, too.
pub(crate) const WITH_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// A running `ovs-vswitchd` with one bridge on the userspace datapath. Dropping it stops it and removes its
/// files.
#[derive(Debug)]
pub struct OpenVswitch {
    process: Guarded,
    database: Database,
}

impl OpenVswitch {
    /// Name of its bridge.
    pub const BRIDGE: &str = crate::ovsdb::BRIDGE;

    /// Checks whether this machine can run it with ports of AF_XDP and DPDK.
    ///
    /// # Errors
    /// The reason why not, for a `skipped:` line.
    pub fn usable() -> std::result::Result<(), String> {
        crate::usable()?;
        if !Path::new(WITH_DPDK).is_file() || find("ovsdb-server").is_none() {
            return Err(
                "the packages openvswitch-switch and openvswitch-switch-dpdk are not installed".into()
            );
        }
        Ok(())
    }

    /// Starts it inside `ns` with these variables in its environment, for example `LD_PRELOAD`, for AF_XDP
    /// ports, and with threads that poll on the CPUs of the hexadecimal `mask`. DPDK is not started.
    ///
    /// # Errors
    /// A part of it does not start; with the end of the switch's log.
    pub fn for_afxdp(ns: &NetNs, environment: &[(&str, &OsStr)], mask: &str) -> Result<Self> {
        let database = Database::start(ns)?;
        let polling = format!("other_config:pmd-cpu-mask={mask}");
        database.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", &polling])?;
        Self::start(ns, Path::new(WITH_DPDK), database, |command, _| {
            command.envs(environment.iter().copied());
        })
    }

    /// Starts `program` inside `ns` on an initialised database; `prepare` receives the command and the
    /// database's folder. An error contains the end of the switch's log.
    pub(crate) fn start(
        ns: &NetNs,
        program: &Path,
        database: Database,
        prepare: impl FnOnce(&mut Command, &Path),
    ) -> Result<Self> {
        let mut command = database.vswitchd(ns, program);
        prepare(&mut command, database.folder());
        let mut switch = Self { process: Guarded::spawn(&mut command)?, database };
        switch.wait_ready().map_err(|e| switch.database.explain(&e))?;
        Ok(switch)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let mut died = None;
        wait_until("start of ovs-vswitchd", 60, || {
            died = self.process.ended();
            died.is_some() || self.database.appctl(&["version"]).is_ok()
        })?;
        if let Some(status) = died {
            return Err(Error::failed("ovs-vswitchd", format!("it ended: {status}")));
        }
        let words = ["add-br", Self::BRIDGE, "--", "set", "bridge", Self::BRIDGE, "datapath_type=netdev"];
        self.database.vsctl(&words).map(drop)
    }

    /// Adds a port with these settings of its interface. An error that the switch reports later counts, too.
    pub(crate) fn add(&self, name: &str, settings: &[&str]) -> Result<()> {
        let mut words = vec!["add-port", Self::BRIDGE, name, "--", "set", "Interface", name];
        words.extend(settings);
        self.database.vsctl(&words).map_err(|e| self.database.explain(&e))?;
        match self.database.vsctl(&["get", "Interface", name, "error"])?.trim() {
            "[]" => Ok(()),
            error => {
                let failed = Error::failed(format!("ovs-vsctl {}", words.join(" ")), error);
                Err(self.database.explain(&failed))
            }
        }
    }

    /// Adds an interface of the switch's namespace as an AF_XDP port with one queue.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn add_afxdp(&self, interface: &str) -> Result<()> {
        self.add(interface, &["type=afxdp", "options:n_rxq=1"])
    }

    /// Removes a port.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.database.vsctl(&["del-port", Self::BRIDGE, name]).map(drop)
    }

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Returns the exit status if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Stops it with SIGTERM, as a service manager does, and waits for its end.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        let _ = self.database.appctl(&["exit"]);
        let _ = wait_until("end of ovs-vswitchd", 30, || self.process.ended().is_some());
        self.process.stop()
    }
}

impl Deref for OpenVswitch {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}
