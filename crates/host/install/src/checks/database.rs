//! Settings of Open vSwitch that let packets go round the library.

use std::path::Path;
use std::time::Duration;

use p4shield_ovsdb::{Interface, Kind as Port, Switch, read_once};

use crate::Kind;
use crate::finding::Finding;

const CHECK: &str = "database";
/// A database that is there answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most ports that are named.
const NAMED: usize = 8;

/// Asks the database behind `socket`.
pub(crate) fn check(kind: Kind, socket: &Path) -> Vec<Finding> {
    match read_once(socket, PATIENCE) {
        Ok(switch) => look(kind, &switch),
        Err(error) => {
            let what = format!("hw-offload and ports were not looked at: {error}");
            vec![Finding::note(CHECK, what, "start it and ask again, or name its socket with --ovsdb")]
        }
    }
}

fn look(kind: Kind, switch: &Switch) -> Vec<Finding> {
    let mut findings = Vec::new();
    if switch.hw_offload {
        findings.push(Finding::problem(
            CHECK,
            "hw-offload is on: the network card forwards packets that nobody has judged",
            "`ovs-vsctl set Open_vSwitch . other_config:hw-offload=false`, and restart the switch",
        ));
    }
    if kind == Kind::Dpdk && !switch.dpdk {
        findings.push(Finding::note(
            CHECK,
            "Open vSwitch is not asked to use DPDK",
            "`ovs-vsctl set Open_vSwitch . other_config:dpdk-init=true`, and restart the switch",
        ));
    }
    let round: Vec<_> = switch.interfaces.iter().filter(|i| goes_round(kind, i)).collect();
    if !round.is_empty() {
        let mut names: Vec<_> =
            round.iter().take(NAMED).map(|i| format!("{} ({})", i.name, i.kind)).collect();
        if round.len() > NAMED {
            names.push(format!("{} more", round.len() - NAMED));
        }
        findings.push(Finding::note(
            CHECK,
            format!("not every port is one of {}'s: {}", kind.word(), names.join(", ")),
            "what comes in there is not judged; bring these ports in as docs/how-to/attach-dpdk.md has it, or take them out",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good(CHECK, format!("nothing goes round {} ports", switch.interfaces.len())));
    }
    findings
}

/// Whether packets come into the switch there without passing the library. Patch ports bring what came in by another
/// port; an internal port is the host's own. Packets of tunnels came in by another port, too, where `dpdk` looks into
/// VXLAN and Geneve; with others they were seen in their wrapping only.
fn goes_round(kind: Kind, interface: &Interface) -> bool {
    let mediated = match (kind, &interface.kind) {
        (_, Port::Internal | Port::Patch) | (Kind::Dpdk, Port::Vxlan | Port::Geneve) => return false,
        (Kind::Dpdk, Port::Dpdk | Port::VhostUser | Port::VhostUserClient) | (Kind::Xsk, Port::Afxdp) => true,
        _ => false,
    };
    !mediated || interface.datapath.as_deref() != Some("netdev")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Outcome;

    fn port(name: &str, kind: Port) -> Interface {
        Interface { name: name.into(), kind, datapath: Some("netdev".into()), ..Interface::default() }
    }

    #[test]
    fn hw_offload_is_a_problem_and_a_strange_port_is_told() {
        let interfaces =
            vec![port("dpdk0", Port::Dpdk), port("br0", Port::Internal), port("eth7", Port::System)];
        let switch = Switch { dpdk: true, hw_offload: true, interfaces, ..Switch::default() };
        let found = look(Kind::Dpdk, &switch);
        assert_eq!(found.iter().map(|f| f.outcome).collect::<Vec<_>>(), [Outcome::Problem, Outcome::Note]);
        assert!(found[1].what.contains("eth7 (system)") && !found[1].what.contains("dpdk0"), "{found:?}");
        let fine = Switch { dpdk: true, interfaces: vec![port("dpdk0", Port::Dpdk)], ..Switch::default() };
        assert_eq!(look(Kind::Dpdk, &fine)[0].outcome, Outcome::Good);
        // Another kind's ports go round this one.
        assert_eq!(look(Kind::Xsk, &fine)[0].outcome, Outcome::Note);
    }

    #[test]
    fn a_tunnel_and_a_port_of_the_kernels_datapath_go_round() {
        assert!(goes_round(Kind::Dpdk, &port("gre0", Port::Other("gre".into()))));
        assert!(goes_round(Kind::Xsk, &port("gnv0", Port::Geneve)));
        assert!(!goes_round(Kind::Dpdk, &port("gnv0", Port::Geneve)), "it is looked into");
        let mut kernel = port("eth0", Port::Dpdk);
        kernel.datapath = None;
        assert!(goes_round(Kind::Dpdk, &kernel));
    }
}
