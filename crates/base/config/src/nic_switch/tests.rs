//! Configurations of NIC switches.

use crate::NicSwitchKind;
use crate::topology::tests::{TOPOLOGY, errors, parse};

/// Returns the topology with these keys more.
fn with(keys: &str) -> String {
    TOPOLOGY.replacen("uplink", &format!("{keys}\nuplink"), 1)
}

#[test]
fn the_nic_switch_has_back_ends() {
    let topology = parse(&with("nic_switch = \"bridge\"")).unwrap().topology.unwrap();
    assert_eq!((topology.nic_switch, topology.last_vlan()), (Some(NicSwitchKind::Bridge), 4093));
    assert!(
        errors(&with("nic_switch = \"ebpf\""))
            .ends_with("write \"tc\" or \"xdp\" or \"bridge\" or \"sriov\"")
    );
    let error = errors(&with("nic_switch = \"bridge\"\nfirst_vlan = 4093"));
    assert!(error.contains("the VLANs from 4093 to 4093 are fewer than the 2 tenants"), "{error}");
    let error = errors(&with("nic_switch = \"bridge\"").replacen("\"2\"", "\"baseline\"", 1));
    assert!(error.contains("nic_switch: level = \"baseline\" has no NIC switch"), "{error}");
}

const CARD: &str = "nic_switch = \"sriov\"\noutside_vlan = 99";

#[test]
fn a_network_card_is_the_nic_switch() {
    let topology = parse(&with(CARD)).unwrap().topology.unwrap();
    assert_eq!((topology.nic_switch, topology.outside_vlan), (Some(NicSwitchKind::Sriov), 99));
    assert_eq!(topology.last_vlan(), 4094);
    let error = errors(&with("nic_switch = \"sriov\""));
    assert!(error.starts_with("3:14: nic_switch: \"sriov\" needs outside_vlan"), "{error}");
    let error = errors(&with("outside_vlan = 1"));
    assert!(error.contains("only a network card puts switches into a VLAN"), "{error}");
    let error = errors(&with(&CARD.replace("99", "100")));
    assert!(
        error.contains("outside_vlan: 100 may be a tenant's: they have the VLANs from 100 on"),
        "{error}"
    );
}

#[test]
fn what_a_network_card_cannot_do_is_refused() {
    let error = errors(&with(&format!("{CARD}\ncompartment = \"vm\"")));
    assert!(error.contains("virtual functions go into processes' namespaces"), "{error}");
    let mac = "mac = \"02:00:00:00:00:01\"";
    let error = errors(&with(CARD).replacen(mac, &format!("{mac}\npacket_rate = 5"), 1));
    assert!(error.contains("a network card limits bits, not packets"), "{error}");
    let error = errors(&with(CARD).replacen(mac, &format!("{mac}\ningress = [\"a.o\"]"), 1));
    assert!(error.contains("VM \"web\" has a virtual function"), "{error}");
}
