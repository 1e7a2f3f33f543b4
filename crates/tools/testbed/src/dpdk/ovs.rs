//! The distribution's Open vSwitch over DPDK, unmodified, on a private database.

use std::path::Path;
use std::process::Command;

use super::{Setup, cpus};
use crate::ovsdb::Database;
use crate::vswitchd::{OpenVswitch, WITH_DPDK};
use crate::{Error, NetNs, Result};

/// Settings of an [`OpenVswitch`] over DPDK.
pub type OvsSetup = Setup<Options>;

/// Settings of Open vSwitch alone.
#[derive(Debug, Clone)]
pub struct Options {
    pmd_cpu_mask: String,
    other_config: Vec<String>,
}

impl Setup<Options> {
    /// The CPUs of the threads that poll, as a hexadecimal mask. Default: the machine's last CPU.
    #[must_use]
    pub fn pmd_cpu_mask(mut self, mask: &str) -> Self {
        mask.clone_into(&mut self.options.pmd_cpu_mask);
        self
    }

    /// A further key of the switch's `other_config`.
    #[must_use]
    pub fn other_config(mut self, key: &str, value: &str) -> Self {
        self.options.other_config.push(format!("other_config:{key}={value}"));
        self
    }

    /// Starts it inside `ns`, with one bridge ([`OpenVswitch::BRIDGE`]) on the userspace datapath and no
    /// ports.
    ///
    /// # Errors
    /// A part of it does not start; with the end of the switch's log.
    pub fn start(self, ns: &NetNs) -> Result<OpenVswitch> {
        let database = Database::start(ns)?;
        let extra = format!("other_config:dpdk-extra={:?}", self.eal.arguments().join(" "));
        let lcores = format!("other_config:dpdk-lcore-mask=0x{:x}", 1_u128 << cpus()[0]);
        let polling = format!("other_config:pmd-cpu-mask={}", self.options.pmd_cpu_mask);
        let mut words = vec!["--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true"];
        words.extend([extra.as_str(), &lcores, &polling]);
        words.extend(self.options.other_config.iter().map(String::as_str));
        database.vsctl(&words)?;
        let prepare = |command: &mut Command, folder: &Path| self.eal.apply(command, folder);
        let switch = OpenVswitch::start(ns, Path::new(WITH_DPDK), database, prepare)?;
        match switch.vsctl(&["get", "Open_vSwitch", ".", "dpdk_initialized"])?.trim() {
            "true" => Ok(switch),
            other => {
                let why = format!("dpdk_initialized is {other}");
                Err(switch.explain(&Error::failed("start DPDK", why)))
            }
        }
    }
}

impl OpenVswitch {
    /// Returns the defaults of a switch over DPDK: nothing preloaded, 256 MiB, one polling thread.
    #[must_use]
    pub fn over_dpdk() -> OvsSetup {
        let pmd_cpu_mask = format!("0x{:x}", 1_u128 << cpus()[1]);
        Setup::new(Options { pmd_cpu_mask, other_config: Vec::new() })
    }

    /// Adds a port of DPDK device arguments, for example `net_pcap0,rx_pcap=in.pcap,tx_pcap=out.pcap`.
    ///
    /// # Errors
    /// The switch reports an error, also asynchronously about the device.
    pub fn add_dpdk(&self, name: &str, devargs: &str) -> Result<()> {
        let devargs = format!("options:dpdk-devargs={devargs:?}");
        self.add(name, &["type=dpdk", &devargs])
    }

    /// Adds a kernel interface of the switch's namespace through DPDK's `net_af_packet`, with one queue pair:
    /// the driver spreads packets over all its receive queues, even those that no thread polls.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn add_interface(&self, name: &str, interface: &str) -> Result<()> {
        self.add_dpdk(name, &format!("net_af_packet_{name},iface={interface},qpairs=1"))
    }

    /// Adds a `dpdkvhostuserclient` port whose server (QEMU) creates the socket, before or after.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn add_vhost_client(&self, name: &str, socket: &Path) -> Result<()> {
        let path = format!("options:vhost-server-path={:?}", socket.display().to_string());
        self.add(name, &["type=dpdkvhostuserclient", &path])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::tests::world;
    use crate::process::run;
    use crate::wait_until;

    #[test]
    fn open_vswitch_over_dpdk_forwards() {
        if let Err(why) = OpenVswitch::usable() {
            p4shield_need::skip("openvswitch", why);
            return;
        }
        let [host, a, _b] = world().unwrap();
        let mut switch = OpenVswitch::over_dpdk().start(&host).unwrap();
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
    fn an_invalid_device_is_an_error_with_the_log() {
        if let Err(why) = OpenVswitch::usable() {
            p4shield_need::skip("openvswitch", why);
            return;
        }
        let host = NetNs::create("host").unwrap();
        let switch = OpenVswitch::over_dpdk().start(&host).unwrap();
        let error = switch.add_interface("none", "nosuch").unwrap_err().to_string();
        assert!(error.contains("nosuch") && error.contains("log ends"), "{error}");
    }
}
