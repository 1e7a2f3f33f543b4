//! The cloud's virtual switch: Open vSwitch's userspace datapath where its package is installed, else a Linux bridge.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::leftover::folder;
use crate::process::{Guarded, find, run};
use crate::{NetNs, Result, wait_until};

/// A running switch with no ports yet. Removed on drop.
#[derive(Debug)]
pub struct Switch {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Ovs { socket: String, _vswitchd: Guarded, _ovsdb: Guarded, _dir: TempDir },
    Bridge,
}

const BRIDGE: &str = "br0";

impl Switch {
    /// Starts the best switch there is inside `ns`.
    ///
    /// # Errors
    /// If a part of it does not start.
    pub fn start(ns: &NetNs) -> Result<Self> {
        match (find("ovsdb-server"), find("ovs-vswitchd")) {
            (Some(db), Some(switch)) => Self::ovs(ns, &db, &switch),
            _ => Self::bridge(ns),
        }
    }

    /// Starts a Linux bridge inside `ns`.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn bridge(ns: &NetNs) -> Result<Self> {
        ns.ip(&format!("link add {BRIDGE} type bridge stp_state 0"))?;
        ns.ip(&format!("link set {BRIDGE} up"))?;
        Ok(Self { kind: Kind::Bridge })
    }

    /// Starts an Open vSwitch of its own (database, sockets and logs in a temporary folder) inside `ns`, with
    /// one bridge on the userspace datapath.
    fn ovs(ns: &NetNs, ovsdb: &Path, vswitchd: &Path) -> Result<Self> {
        let dir = folder("ovs")?;
        let at = |name: &str| dir.path().join(name).display().to_string();
        let quiet = |c: &mut Command| {
            c.env("OVS_RUNDIR", dir.path()).env("OVS_LOGDIR", dir.path()).env("OVS_DBDIR", dir.path());
            c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        };
        run(Command::new("ovsdb-tool").args(["create", &at("conf.db"), &schema()]))?;
        let socket = format!("unix:{}", at("db.sock"));
        let mut c = ns.command(ovsdb);
        quiet(c.arg(at("conf.db")).arg(format!("--remote=p{socket}")).arg("--no-chdir"));
        let ovsdb = Guarded::spawn(&mut c)?;
        wait_until("start of ovsdb-server", 10, || dir.path().join("db.sock").exists())?;
        vsctl(&socket, &["--no-wait", "init"])?;
        let mut c = ns.command(vswitchd);
        quiet(c.args([
            &socket,
            "--disable-system",
            "--no-chdir",
            &format!("--log-file={}", at("vswitchd.log")),
        ]));
        let vswitchd = Guarded::spawn(&mut c)?;
        vsctl(&socket, &["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        Ok(Self { kind: Kind::Ovs { socket, _vswitchd: vswitchd, _ovsdb: ovsdb, _dir: dir } })
    }

    /// What it is, for people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Ovs { .. } => "Open vSwitch, userspace datapath",
            Kind::Bridge => "Linux bridge",
        }
    }

    /// Plugs an interface of `ns` in.
    ///
    /// # Errors
    /// What the switch says.
    pub fn plug(&self, ns: &NetNs, interface: &str) -> Result<()> {
        match &self.kind {
            Kind::Ovs { socket, .. } => vsctl(socket, &["add-port", BRIDGE, interface]),
            Kind::Bridge => ns.ip(&format!("link set {interface} master {BRIDGE}")).map(drop),
        }
    }

    /// Pulls an interface of `ns` out.
    ///
    /// # Errors
    /// What the switch says.
    pub fn unplug(&self, ns: &NetNs, interface: &str) -> Result<()> {
        match &self.kind {
            Kind::Ovs { socket, .. } => vsctl(socket, &["del-port", BRIDGE, interface]),
            Kind::Bridge => ns.ip(&format!("link set {interface} nomaster")).map(drop),
        }
    }
}

fn vsctl(socket: &str, words: &[&str]) -> Result<()> {
    run(Command::new("ovs-vsctl").arg(format!("--db={socket}")).arg("--timeout=10").args(words)).map(drop)
}

fn schema() -> String {
    let places = ["/usr/share/openvswitch", "/usr/local/share/openvswitch"];
    let found = places.iter().map(|p| PathBuf::from(p).join("vswitch.ovsschema")).find(|p| p.is_file());
    found.unwrap_or_else(|| PathBuf::from(places[0]).join("vswitch.ovsschema")).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!ping(), "{} forwards to a port that was pulled out", switch.name());
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
