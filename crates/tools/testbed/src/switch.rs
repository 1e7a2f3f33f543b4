//! The cloud's virtual switch: Open vSwitch's userspace datapath if its package is installed, else a Linux
//! bridge.

use std::process::ExitStatus;

use crate::ovsdb::{BRIDGE, Database};
use crate::process::find;
use crate::{NetNs, OpenVswitch, Result};

/// A running switch with no ports yet. Removed on drop.
#[derive(Debug)]
pub enum Switch {
    /// A private Open vSwitch (database, sockets and logs in a temporary folder) with one bridge on the
    /// userspace datapath.
    Ovs(OpenVswitch),
    /// A Linux bridge.
    Bridge,
}

impl Switch {
    /// Starts the best available switch inside `ns`.
    ///
    /// # Errors
    /// A part of it does not start.
    pub fn start(ns: &NetNs) -> Result<Self> {
        match (find("ovsdb-server"), find("ovs-vswitchd")) {
            (Some(_), Some(program)) => {
                OpenVswitch::start(ns, &program, Database::start(ns)?, |_, _| ()).map(Self::Ovs)
            }
            _ => Self::bridge(ns),
        }
    }

    /// Starts a Linux bridge inside `ns`.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn bridge(ns: &NetNs) -> Result<Self> {
        ns.ip(&format!("link add {BRIDGE} type bridge stp_state 0"))?;
        ns.ip(&format!("link set {BRIDGE} up"))?;
        Ok(Self::Bridge)
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ovs(_) => "Open vSwitch, userspace datapath",
            Self::Bridge => "Linux bridge",
        }
    }

    /// Returns the exit status if its process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Ovs(switch) => switch.ended(),
            Self::Bridge => None,
        }
    }

    /// Returns its log so far; a bridge has none.
    #[must_use]
    pub fn log(&self) -> String {
        match self {
            Self::Ovs(switch) => switch.log(),
            Self::Bridge => String::new(),
        }
    }

    /// Adds an interface of `ns` as a port.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn plug(&self, ns: &NetNs, interface: &str) -> Result<()> {
        match self {
            Self::Ovs(switch) => switch.vsctl(&["add-port", BRIDGE, interface]).map(drop),
            Self::Bridge => ns.ip(&format!("link set {interface} master {BRIDGE}")).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::run;
    use crate::wait_until;

    fn forwards(start: fn(&NetNs) -> Result<Switch>) {
        if let Err(why) = crate::usable() {
            p4shield_need::skip("machine", why);
            return;
        }
        let [host, a, b] = ["host", "a", "b"].map(|n| NetNs::create(n).unwrap());
        let switch = start(&host).unwrap();
        for (ns, port, address) in [(&a, "a0", "10.9.1.1/24"), (&b, "b0", "10.9.1.2/24")] {
            host.veth(port, ns, "eth0").unwrap();
            ns.ip(&format!("addr add {address} dev eth0")).unwrap();
            switch.plug(&host, port).unwrap();
        }
        let ping = || run(a.command("ping").args(["-c1", "-W1", "10.9.1.2"])).is_ok();
        wait_until("a ping through the switch", 10, ping).unwrap();
    }

    #[test]
    fn a_bridge_forwards() {
        forwards(Switch::bridge);
    }

    #[test]
    fn open_vswitch_forwards() {
        if find("ovs-vswitchd").is_none() {
            p4shield_need::skip("openvswitch", "the package openvswitch-switch is not installed");
            return;
        }
        forwards(Switch::start);
    }
}
