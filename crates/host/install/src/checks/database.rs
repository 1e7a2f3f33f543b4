//! Checks of Open vSwitch's settings that let packets bypass the library.

use std::path::Path;
use std::time::Duration;

use p4shield_ovsdb::{Interface, Kind as PortKind, Switch, read_once};

use crate::PreloadedAttachment;
use crate::finding::Finding;

const CHECK: &str = "database";
/// Longest time for an answer; a running database needs milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most ports listed by name.
const MAX_LISTED: usize = 8;

/// Checks the switch in the database behind `socket`.
pub(crate) fn check(kind: PreloadedAttachment, socket: &Path) -> Vec<Finding> {
    match read_once(socket, TIMEOUT) {
        Ok(switch) => check_switch(kind, &switch),
        Err(error) => {
            let what = format!("hw-offload and ports were not checked: {error}");
            vec![Finding::note(
                CHECK,
                what,
                "start ovsdb-server and try again, or name its socket with --ovsdb",
            )]
        }
    }
}

fn check_switch(kind: PreloadedAttachment, switch: &Switch) -> Vec<Finding> {
    let mut findings = Vec::new();
    if switch.hw_offload {
        findings.push(Finding::problem(
            CHECK,
            "hw-offload is on: the network card forwards packets that no program has judged",
            "run `ovs-vsctl set Open_vSwitch . other_config:hw-offload=false`, then restart the switch",
        ));
    }
    if kind == PreloadedAttachment::Dpdk && !switch.dpdk {
        findings.push(Finding::note(
            CHECK,
            "Open vSwitch is not configured to use DPDK",
            "run `ovs-vsctl set Open_vSwitch . other_config:dpdk-init=true`, then restart the switch",
        ));
    }
    let unmediated: Vec<_> = switch.interfaces.iter().filter(|i| bypasses_library(kind, i)).collect();
    if !unmediated.is_empty() {
        let mut names: Vec<_> =
            unmediated.iter().take(MAX_LISTED).map(|i| format!("{} ({})", i.name, i.kind)).collect();
        if unmediated.len() > MAX_LISTED {
            names.push(format!("{} more", unmediated.len() - MAX_LISTED));
        }
        findings.push(Finding::note(
            CHECK,
            format!("the attachment {} does not mediate all ports: {}", kind.word(), names.join(", ")),
            "packets that arrive there are not judged; replace these ports as docs/how-to/attach-dpdk.md \
             describes, or \
             remove them",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good(
            CHECK,
            format!("the library sees the packets of all {} ports", switch.interfaces.len()),
        ));
    }
    findings
}

/// Returns whether packets enter the switch at this interface without passing the library. Packets of a patch
/// port have entered at another port, and an internal port is the host's own. Packets of tunnels have entered
/// at another port, too: `dpdk` decapsulates VXLAN and Geneve there; otherwise only the outer packet was
/// judged.
fn bypasses_library(kind: PreloadedAttachment, interface: &Interface) -> bool {
    let mediated = match (kind, &interface.kind) {
        (_, PortKind::Internal | PortKind::Patch)
        | (PreloadedAttachment::Dpdk, PortKind::Vxlan | PortKind::Geneve) => return false,
        (PreloadedAttachment::Dpdk, PortKind::Dpdk | PortKind::VhostUser | PortKind::VhostUserClient)
        | (PreloadedAttachment::Xsk, PortKind::Afxdp) => true,
        _ => false,
    };
    !mediated || interface.datapath.as_deref() != Some("netdev")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn port(name: &str, kind: PortKind) -> Interface {
        Interface { name: name.into(), kind, datapath: Some("netdev".into()), ..Interface::default() }
    }

    #[test]
    fn hw_offload_is_a_problem_an_unmediated_port_a_note() {
        let interfaces = vec![
            port("dpdk0", PortKind::Dpdk),
            port("br0", PortKind::Internal),
            port("eth7", PortKind::System),
        ];
        let switch = Switch { dpdk: true, hw_offload: true, interfaces, ..Switch::default() };
        let found = check_switch(PreloadedAttachment::Dpdk, &switch);
        assert_eq!(found.iter().map(|f| f.outcome).collect::<Vec<_>>(), [Severity::Problem, Severity::Note]);
        assert!(found[1].what.contains("eth7 (system)") && !found[1].what.contains("dpdk0"), "{found:?}");
        let fine =
            Switch { dpdk: true, interfaces: vec![port("dpdk0", PortKind::Dpdk)], ..Switch::default() };
        assert_eq!(check_switch(PreloadedAttachment::Dpdk, &fine)[0].outcome, Severity::Good);
        // The library of another attachment does not see these ports.
        assert_eq!(check_switch(PreloadedAttachment::Xsk, &fine)[0].outcome, Severity::Note);
    }

    #[test]
    fn tunnels_and_kernel_datapath_ports_bypass_the_library() {
        assert!(bypasses_library(PreloadedAttachment::Dpdk, &port("gre0", PortKind::Other("gre".into()))));
        assert!(bypasses_library(PreloadedAttachment::Xsk, &port("gnv0", PortKind::Geneve)));
        assert!(
            !bypasses_library(PreloadedAttachment::Dpdk, &port("gnv0", PortKind::Geneve)),
            "dpdk decapsulates Geneve"
        );
        let mut kernel = port("eth0", PortKind::Dpdk);
        kernel.datapath = None;
        assert!(bypasses_library(PreloadedAttachment::Dpdk, &kernel));
    }
}
