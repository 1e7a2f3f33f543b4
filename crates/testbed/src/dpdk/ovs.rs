//! The distribution's Open vSwitch over DPDK, unmodified, on a database of its own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use rustix::process::Pid;

use super::{Eal, first_cpu, last_cpu};
use crate::ovsdb::Database;
use crate::process::{Guarded, find};
use crate::{Error, NetNs, Result, wait_until};

const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// How to start an [`OvsDpdk`].
#[derive(Debug, Clone)]
pub struct OvsSetup {
    eal: Eal,
    pmd_cpu_mask: String,
    other_config: Vec<String>,
}

impl OvsSetup {
    /// Sets a variable of the switch's environment, for example `LD_PRELOAD`.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.eal.env(name, value);
        self
    }

    /// The CPUs of the threads that poll, as a hexadecimal mask. Default: the machine's last CPU.
    #[must_use]
    pub fn pmd_cpu_mask(mut self, mask: &str) -> Self {
        mask.clone_into(&mut self.pmd_cpu_mask);
        self
    }

    /// DPDK's memory in MiB, 256 if not set.
    #[must_use]
    pub const fn megabytes(mut self, megabytes: u32) -> Self {
        self.eal.megabytes = megabytes;
        self
    }

    /// A further key of the switch's `other_config`.
    #[must_use]
    pub fn other_config(mut self, key: &str, value: &str) -> Self {
        self.other_config.push(format!("other_config:{key}={value}"));
        self
    }

    /// Starts it inside `ns`, with one bridge ([`OvsDpdk::BRIDGE`]) on the userspace datapath and no ports.
    ///
    /// # Errors
    /// If a part of it does not start; with the end of the switch's log.
    pub fn start(self, ns: &NetNs) -> Result<OvsDpdk> {
        let database = Database::start(ns)?;
        let extra = format!("other_config:dpdk-extra={:?}", self.eal.arguments().join(" "));
        let lcores = format!("other_config:dpdk-lcore-mask=0x{:x}", 1_u128 << first_cpu());
        let polling = format!("other_config:pmd-cpu-mask={}", self.pmd_cpu_mask);
        let mut words = vec!["--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true"];
        words.extend([extra.as_str(), &lcores, &polling]);
        words.extend(self.other_config.iter().map(String::as_str));
        database.vsctl(&words)?;
        let mut command = database.vswitchd(ns, Path::new(PROGRAM));
        self.eal.apply(&mut command, database.folder());
        let mut switch = OvsDpdk { vswitchd: Guarded::spawn(&mut command)?, database };
        switch.wait_ready().map_err(|e| switch.database.explain(e))?;
        Ok(switch)
    }
}

/// A running Open vSwitch over DPDK. It ends, and its files go, on drop.
#[derive(Debug)]
pub struct OvsDpdk {
    vswitchd: Guarded,
    database: Database,
}

impl OvsDpdk {
    /// The name of its bridge.
    pub const BRIDGE: &str = "br0";

    /// The defaults: nothing preloaded, 256 MiB, one polling thread.
    #[must_use]
    pub fn setup() -> OvsSetup {
        let pmd_cpu_mask = format!("0x{:x}", 1_u128 << last_cpu());
        OvsSetup { eal: Eal::new(), pmd_cpu_mask, other_config: Vec::new() }
    }

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

    fn wait_ready(&mut self) -> Result<()> {
        let mut died = None;
        wait_until("start of ovs-vswitchd over DPDK", 60, || {
            died = self.vswitchd.ended();
            died.is_some() || self.database.appctl(&["version"]).is_ok()
        })?;
        if let Some(status) = died {
            return Err(Error::Failed { command: PROGRAM.into(), stderr: format!("it ended: {status}") });
        }
        self.vsctl(&["add-br", Self::BRIDGE, "--", "set", "bridge", Self::BRIDGE, "datapath_type=netdev"])?;
        match self.vsctl(&["get", "Open_vSwitch", ".", "dpdk_initialized"])?.trim() {
            "true" => Ok(()),
            other => {
                Err(Error::Failed { command: PROGRAM.into(), stderr: format!("dpdk_initialized is {other}") })
            }
        }
    }

    /// Adds a port of DPDK device arguments, for example `net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap`.
    ///
    /// # Errors
    /// What the switch says, also asynchronously about the device.
    pub fn add_dpdk(&self, name: &str, devargs: &str) -> Result<()> {
        let devargs = format!("options:dpdk-devargs={devargs:?}");
        self.add(name, &["type=dpdk", &devargs])
    }

    /// Adds a kernel interface of the switch's namespace through DPDK's `net_af_packet`, with one queue pair: the
    /// driver spreads packets over as many receive queues as it has pairs, also over those that nobody polls.
    ///
    /// # Errors
    /// What the switch says.
    pub fn add_interface(&self, name: &str, interface: &str) -> Result<()> {
        self.add_dpdk(name, &format!("net_af_packet_{name},iface={interface},qpairs=1"))
    }

    /// Adds a `dpdkvhostuserclient` port whose server (QEMU) makes the socket, before or after.
    ///
    /// # Errors
    /// What the switch says.
    pub fn add_vhost_client(&self, name: &str, socket: &Path) -> Result<()> {
        let path = format!("options:vhost-server-path={:?}", socket.display().to_string());
        self.add(name, &["type=dpdkvhostuserclient", &path])
    }

    fn add(&self, name: &str, settings: &[&str]) -> Result<()> {
        let mut words = vec!["add-port", Self::BRIDGE, name, "--", "set", "Interface", name];
        words.extend(settings);
        self.vsctl(&words).map_err(|e| self.database.explain(e))?;
        match self.vsctl(&["get", "Interface", name, "error"])?.trim() {
            "[]" => Ok(()),
            error => Err(self.database.explain(Error::Failed {
                command: format!("ovs-vsctl {}", words.join(" ")),
                stderr: error.into(),
            })),
        }
    }

    /// Removes a port.
    ///
    /// # Errors
    /// What the switch says.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.vsctl(&["del-port", Self::BRIDGE, name]).map(drop)
    }

    /// Runs `ovs-vsctl`; see [`Database::vsctl`].
    ///
    /// # Errors
    /// What it says.
    pub fn vsctl(&self, words: &[&str]) -> Result<String> {
        self.database.vsctl(words)
    }

    /// Runs `ovs-appctl`; see [`Database::appctl`].
    ///
    /// # Errors
    /// What it says.
    pub fn appctl(&self, words: &[&str]) -> Result<String> {
        self.database.appctl(words)
    }

    /// Runs `ovs-ofctl COMMAND BRIDGE WORDS`.
    ///
    /// # Errors
    /// What it says.
    pub fn ofctl(&self, command: &str, words: &[&str]) -> Result<String> {
        self.database.ofctl(command, Self::BRIDGE, words)
    }

    /// What the switch has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.database.log()
    }

    /// The socket where OVSDB clients connect.
    #[must_use]
    pub fn ovsdb_socket(&self) -> PathBuf {
        self.database.socket()
    }

    /// The process id of `ovs-vswitchd`.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.vswitchd.pid()
    }

    /// How `ovs-vswitchd` ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.vswitchd.ended()
    }

    /// Asks the switch to end, as its service manager would, and waits for that.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        let _ = self.appctl(&["exit"]);
        let _ = wait_until("end of ovs-vswitchd", 30, || self.vswitchd.ended().is_some());
        self.vswitchd.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::tests::world;
    use crate::process::run;

    #[test]
    fn open_vswitch_over_dpdk_forwards() {
        if let Err(why) = OvsDpdk::usable() {
            println!("skipped: {why}");
            return;
        }
        let [host, a, _b] = world().unwrap();
        let mut switch = OvsDpdk::setup().start(&host).unwrap();
        switch.add_interface("left", "s0").unwrap();
        switch.add_interface("right", "s1").unwrap();
        let ping = || run(a.command("ping").args(["-c1", "-W1", "10.9.2.2"])).is_ok();
        wait_until("a ping through Open vSwitch over DPDK", 30, ping).unwrap();
        assert!(switch.appctl(&["dpif-netdev/pmd-rxq-show"]).unwrap().contains("left"));
        assert!(switch.ofctl("dump-flows", &[]).unwrap().contains("NORMAL"));
        switch.remove("right").unwrap();
        assert!(!ping(), "it forwards to a port that was removed");
        let status = switch.stop().unwrap();
        assert!(status.success(), "{status}\n{}", switch.log());
    }

    #[test]
    fn a_device_that_cannot_be_is_an_error_with_the_log() {
        if let Err(why) = OvsDpdk::usable() {
            println!("skipped: {why}");
            return;
        }
        let host = NetNs::create("host").unwrap();
        let switch = OvsDpdk::setup().start(&host).unwrap();
        let error = switch.add_interface("none", "nosuch").unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("log ends"), "{error}");
    }
}
