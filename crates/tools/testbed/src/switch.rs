//! The cloud's virtual switch: Open vSwitch's userspace datapath if its package is installed, else a Linux
//! bridge.

use std::path::Path;
use std::process::ExitStatus;

use crate::ovsdb::Database;
use crate::process::{Guarded, find};
use crate::{NetNs, Result};

/// A running switch with no ports yet. Removed on drop.
#[derive(Debug)]
pub struct Switch {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Ovs { vswitchd: Guarded, database: Database },
    Bridge,
}

const BRIDGE: &str = "br0";

impl Switch {
    /// Starts the best available switch inside `ns`.
    ///
    /// # Errors
    /// A part of it does not start.
    pub fn start(ns: &NetNs) -> Result<Self> {
        match (find("ovsdb-server"), find("ovs-vswitchd")) {
            (Some(_), Some(switch)) => Self::ovs(ns, &switch),
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
        Ok(Self { kind: Kind::Bridge })
    }

    /// Starts a private Open vSwitch (database, sockets and logs in a temporary folder) inside `ns`, with one
    /// bridge on the userspace datapath.
    fn ovs(ns: &NetNs, vswitchd: &Path) -> Result<Self> {
        let database = Database::start(ns)?;
        let vswitchd = Guarded::spawn(&mut database.vswitchd(ns, vswitchd))?;
        database.vsctl(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        Ok(Self { kind: Kind::Ovs { vswitchd, database } })
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Ovs { .. } => "Open vSwitch, userspace datapath",
            Kind::Bridge => "Linux bridge",
        }
    }

    /// Returns the exit status if its process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.kind {
            Kind::Ovs { vswitchd, .. } => vswitchd.ended(),
            Kind::Bridge => None,
        }
    }

    /// Returns its log so far; a bridge has none.
    #[must_use]
    pub fn log(&self) -> String {
        match &self.kind {
            Kind::Ovs { database, .. } => database.log(),
            Kind::Bridge => String::new(),
        }
    }

    /// Adds an interface of `ns` as a port.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn plug(&self, ns: &NetNs, interface: &str) -> Result<()> {
        match &self.kind {
            Kind::Ovs { database, .. } => database.vsctl(&["add-port", BRIDGE, interface]).map(drop),
            Kind::Bridge => ns.ip(&format!("link set {interface} master {BRIDGE}")).map(drop),
        }
    }

    /// Removes a port.
    ///
    /// # Errors
    /// The switch reports an error.
    pub fn unplug(&self, ns: &NetNs, interface: &str) -> Result<()> {
        match &self.kind {
            Kind::Ovs { database, .. } => database.vsctl(&["del-port", BRIDGE, interface]).map(drop),
            Kind::Bridge => ns.ip(&format!("link set {interface} nomaster")).map(drop),
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
            println!("skipped: {why}");
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
        switch.unplug(&host, "b0").unwrap();
        assert!(!ping(), "{} forwards to a removed port", switch.name());
    }

    #[test]
    fn a_bridge_forwards() {
        forwards(Switch::bridge);
    }

    #[test]
    fn open_vswitch_forwards() {
        if find("ovs-vswitchd").is_none() {
            println!("skipped: the package openvswitch-switch is not installed");
            return;
        }
        forwards(Switch::start);
    }
}
