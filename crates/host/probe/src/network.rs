//! AF_XDP, what network interfaces offer it, and traffic control.

use crate::finding::Found;
use crate::host::{Host, is_this_machine};
use crate::netdev::{Features, features};
use p4shield_xdp::program::has_ingress;
use rustix::net::{AddressFamily, SocketType, socket};

/// Whether the kernel has AF_XDP, and the best mode of each physical interface.
pub(crate) fn af_xdp(host: &Host) -> Found {
    if is_this_machine(host)
        && let Err(error) = socket(AddressFamily::XDP, SocketType::RAW, None)
    {
        return Found::missing(
            format!("AF_XDP sockets cannot be created: {error}"),
            "use a kernel with CONFIG_XDP_SOCKETS, and run as root or with CAP_NET_RAW",
        );
    }
    let physical = |name: &String| host.has(&format!("/sys/class/net/{name}/device"));
    let interfaces: Vec<_> = host.names("/sys/class/net").into_iter().filter(physical).collect();
    if interfaces.is_empty() {
        return Found::works("sockets can be created; there is no physical interface to drive");
    }
    let describe = |name: &String| {
        let driver = host.link(&format!("/sys/class/net/{name}/device/driver"));
        let queues = host.names(&format!("/sys/class/net/{name}/queues"));
        let receive = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
        let index = host.number(&format!("/sys/class/net/{name}/ifindex")).filter(|_| is_this_machine(host));
        let features = index.and_then(|index| features(u32::try_from(index).ok()?).ok());
        format!(
            "{name} ({}, receive queues: {receive}, {})",
            driver.as_deref().unwrap_or("unknown driver"),
            features.map_or("modes unknown before Linux 6.3", mode)
        )
    };
    Found::works(interfaces.iter().map(describe).collect::<Vec<_>>().join(", "))
}

/// Reports `tcx` and BTF, which a NIC switch in traffic control needs.
pub(crate) fn tcx(host: &Host) -> Found {
    let limited = |lacking: &str, remedy: &str| {
        let found = format!("the kernel has no {lacking}: NIC switches run in XDP, which passes less TCP");
        Found::limited(found, remedy)
    };
    if is_this_machine(host) && !has_ingress() {
        return limited("tcx", "use Linux 6.6 or later, with CONFIG_NET_XGRESS");
    }
    if !host.has("/sys/kernel/btf/vmlinux") {
        return limited("BTF", "use a kernel with CONFIG_DEBUG_INFO_BTF");
    }
    Found::works("NIC switches in front of Open vSwitch run in traffic control (nic_switch = \"tc\")")
}

/// Returns the best mode that a driver offers.
const fn mode(features: Features) -> &'static str {
    if features.zero_copy() {
        "zero-copy"
    } else if features.native() {
        "native XDP with copies"
    } else {
        "generic XDP with copies"
    }
}
