//! The small cloud of the demo.
//!
//! ```text
//!  client namespace          cloud host namespace                                    user VM namespace
//!  eth0 10.77.0.1 ── c0 ── switch ── sw-web-port ── sw-web ══ wire ══ tap-web ── eth0 10.77.0.2
//! ```
//!
//! `sw-web` and `tap-web` are the two ends of the wire; the switch knows only `sw-web-port`.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use p4shield_testbed::{NetNs, Switch};

/// The client's address.
pub(crate) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
/// The user VM's address.
pub(crate) const VM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
/// The VM's interface on the host, one end of the wire.
pub(crate) const VM_INTERFACE: &str = "tap-web";
/// The other end of the wire.
pub(crate) const SWITCH_INTERFACE: &str = "sw-web";
/// The tenant.
pub(crate) const TENANT: &str = "alice";
/// The user VM's name.
pub(crate) const VM_NAME: &str = "web";

/// Namespaces, links and switch; removed on drop, the switch first.
#[derive(Debug)]
pub(crate) struct Scene {
    /// The switch between client and VM.
    pub(crate) switch: Switch,
    /// Namespace of the remote client.
    pub(crate) client: NetNs,
    /// Namespace of switch, host daemon and P4 VM.
    pub(crate) host: NetNs,
    /// Namespace of server, agent and auditor.
    pub(crate) vm: NetNs,
}

impl Scene {
    /// Builds namespaces, links and switch.
    pub(crate) fn build() -> anyhow::Result<Self> {
        p4shield_testbed::leftover::sweep();
        let (client, host, vm) = (NetNs::create("client")?, NetNs::create("host")?, NetNs::create("vm")?);
        host.veth("c0", &client, "eth0")?;
        // Open vSwitch's userspace datapath drops what is longer than a frame.
        client.send_whole_packets("eth0")?;
        host.veth(VM_INTERFACE, &vm, "eth0")?;
        host.veth(SWITCH_INTERFACE, &host, "sw-web-port")?;
        for (ns, address) in [(&client, CLIENT), (&vm, VM)] {
            ns.ip(&format!("addr add {address}/24 dev eth0"))?;
        }
        // A queue on the VM's interface: without one, veth drops packets beyond its ring of 256, and on two
        // busy cores the VM may be too late to empty the ring.
        let queue = ["qdisc", "replace", "dev", VM_INTERFACE, "root", "pfifo"];
        p4shield_testbed::process::run(host.command("tc").args(queue))?;
        let switch = Switch::start(&host)?;
        for port in ["c0", "sw-web-port"] {
            switch.plug(&host, port)?;
        }
        Ok(Self { switch, client, host, vm })
    }
}

/// Returns kernel and processor of this machine, for the report.
pub(crate) fn machine() -> String {
    let kernel = rustix::system::uname();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "{} {}, {}, {cores} cores",
        kernel.sysname().to_string_lossy(),
        kernel.release().to_string_lossy(),
        model.trim_start_matches([' ', '\t', ':'])
    )
}

/// Returns the kernel's used TCP memory in bytes: `mem` of /proc/net/sockstat counts pages.
pub(crate) fn used_tcp_memory() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/net/sockstat").context("cannot read /proc/net/sockstat")?;
    let mut words = text.lines().find(|l| l.starts_with("TCP:")).unwrap_or_default().split_whitespace();
    let pages: Option<u64> = words.find(|w| *w == "mem").and_then(|_| words.next()?.parse().ok());
    Ok(pages.context("/proc/net/sockstat has no `TCP: ... mem N`")? * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_reports_tcp_memory() {
        let _held = super::used_tcp_memory().unwrap();
    }
}
