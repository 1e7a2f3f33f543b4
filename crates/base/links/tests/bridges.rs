//! Bridges and their ports. This kernel's may filter no VLANs, so tests of VLANs are those of the NIC switch.

use std::collections::BTreeSet;

use p4shield_links::{
    BridgeMember, PortFlag, add_bridge, bridge, bridge_ports, index_of, join_bridge, leave_bridge,
    set_port_flags,
};
use p4shield_testbed::NetNs;

#[test]
fn ports_join_get_properties_and_leave() {
    if let Err(why) = p4shield_testbed::usable() {
        return p4shield_need::skip("machine", why);
    }
    let host = NetNs::create("bridges").unwrap();
    host.ip("link add br0 type bridge").unwrap();
    host.ip("link set br0 group 77").unwrap();
    host.ip("link add p1 type veth peer name q1").unwrap();
    host.inside(|| {
        let found = bridge("br0").unwrap().unwrap();
        assert_eq!((found.index, found.group, found.is_up), (index_of("br0").unwrap(), 77, false));
        assert!(!found.filters_vlans && !found.is_as_made);
        assert_eq!((bridge("p1").unwrap(), bridge("none").unwrap()), (None, None));
        let member = BridgeMember { name: "p1", index: index_of("p1").unwrap() };
        assert!(set_port_flags(member, &BTreeSet::new()).is_err(), "it is no port");
        join_bridge(member, found.index).unwrap();
        for flags in [vec![PortFlag::Isolated, PortFlag::Locked], vec![PortFlag::Flood], vec![]] {
            let flags: BTreeSet<_> = flags.into_iter().collect();
            set_port_flags(member, &flags).unwrap();
            let ports = bridge_ports(found.index).unwrap();
            assert_eq!((ports.len(), ports[0].index, &ports[0].flags), (1, member.index, &flags));
            assert!(ports[0].stations.is_empty() && ports[0].vlans.is_empty());
        }
        leave_bridge(member).unwrap();
        assert_eq!(bridge_ports(found.index).unwrap(), []);
        let gone = BridgeMember { name: "p1", index: 0x7fff_fff0 };
        let error = join_bridge(gone, found.index).unwrap_err().to_string();
        assert_eq!(error, "cannot make a port of a bridge of p1");
    });
}

#[test]
fn a_bridge_filters_vlans_or_is_refused() {
    if let Err(why) = p4shield_testbed::usable() {
        return p4shield_need::skip("machine", why);
    }
    let host = NetNs::create("filter").unwrap();
    let can = host.ip("link add twin type bridge vlan_filtering 1").is_ok();
    host.inside(|| {
        let made = add_bridge("br0", 7);
        assert!(made.is_ok() || !can);
        let found = bridge("br0").unwrap();
        assert_eq!(found.is_some_and(|found| found.is_as_made && found.group == 7), can);
    });
}
