//! Source check: which source addresses a port's packets may have.
//!
//! [`crate::admission`] checks incoming packets, [`crate::rewrite_check`] packets that an egress
//! program has rewritten. ARP and neighbour discovery, which no program judges, may announce only the
//! port's VM: its IP addresses, at the link-layer address that the frame comes from.

use crate::config::{AllowedSources, Network, PortSpec, Stages, VmRef};
use crate::lookup::Lookup;
use crate::parse::Kind;
use p4shield_frame::neighbour::is_link_local;

/// Whether a packet with these addresses may come from a port.
#[inline]
pub(crate) fn is_allowed(lookup: &Lookup, kind: Kind, port: &PortSpec) -> bool {
    match port.source {
        AllowedSources::Any => port.stages != Stages::Both || !lookup.has_bound_source(kind, port.network),
        AllowedSources::Only(vm) => is_vms(lookup, kind, (vm, port.network)),
        AllowedSources::Foreign => lookup.sender(kind, port.network).is_none(),
    }
}

/// Whether a packet may come from a port behind which there is only this VM, in this network.
pub(crate) fn is_vms(lookup: &Lookup, kind: Kind, vm: (VmRef, Network)) -> bool {
    let is_source = |address| is_vms_address(lookup, Kind::V6 { source: address, destination: 0 }, vm);
    match kind {
        Kind::V4 { .. } | Kind::V6 { .. } => is_vms_address(lookup, kind, vm),
        Kind::Arp(arp) => {
            let source = Kind::V4 { source: arp.sender, destination: 0 };
            arp.is_own_link && is_vms_address(lookup, source, vm)
        }
        Kind::Discovery(message) => {
            message.is_own_link && is_source(message.source) && is_source(message.claimed)
        }
        Kind::Other | Kind::Refused => true,
    }
}

/// Whether a source address is this VM's, or one that every machine may use.
fn is_vms_address(lookup: &Lookup, kind: Kind, (vm, network): (VmRef, Network)) -> bool {
    match lookup.sender(kind, network) {
        Some(sender) => sender == vm,
        None => is_unspecified_or_link_local(kind),
    }
}

/// Whether every machine may use the source address: it is unspecified, or IPv6 link-local (`fe80::/10`).
const fn is_unspecified_or_link_local(kind: Kind) -> bool {
    match kind {
        Kind::V4 { source, .. } => source == 0,
        Kind::V6 { source, .. } => source == 0 || is_link_local(source),
        Kind::Arp(_) | Kind::Discovery(_) | Kind::Other | Kind::Refused => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, TenantConfig, UnownedPolicy, VmConfig};
    use p4shield_frame::neighbour::{Arp, Discovery};
    use std::net::{IpAddr, Ipv4Addr};

    fn config() -> Config {
        let vm = |last| VmConfig::new("v", vec![Ipv4Addr::new(10, 0, 0, last).into()]);
        let tenant = |name, vms| TenantConfig::new(name, vms);
        Config { tenants: vec![tenant("a", vec![vm(1), vm(2)]), tenant("b", vec![vm(3)])] }
    }

    fn lookup() -> Lookup {
        Lookup::new(&config()).expect("no address twice")
    }

    const fn from(last: u32) -> Kind {
        Kind::V4 { source: 0x0a00_0000 | last, destination: 0 }
    }

    const fn port(source: AllowedSources) -> PortSpec {
        let network = Network::Unknown;
        PortSpec { number: 1, stages: Stages::Both, unowned: UnownedPolicy::Pass, source, network }
    }

    #[test]
    fn a_vms_port_sends_its_own_and_unspecified_addresses() {
        let (lookup, port) = (lookup(), &port(AllowedSources::Only(VmRef { tenant: 0, vm: 0 })));
        assert!(is_allowed(&lookup, from(1), port));
        assert!(!is_allowed(&lookup, from(2), port), "another VM of the same tenant");
        assert!(!is_allowed(&lookup, from(3), port), "another tenant's VM");
        assert!(!is_allowed(&lookup, from(9), port), "an address of no configured VM");
        assert!(is_allowed(&lookup, Kind::V4 { source: 0, destination: u32::MAX }, port), "DHCP");
        let local = |source| Kind::V6 { source, destination: 1 };
        assert!(is_allowed(&lookup, local(0xfe80 << 112 | 7), port), "link-local");
        assert!(!is_allowed(&lookup, local(0xfec0 << 112 | 7), port), "not link-local");
        assert!(is_allowed(&lookup, Kind::Other, port), "not IP, so it has no IP source");
    }

    #[test]
    fn a_vms_port_announces_its_own_addresses_at_its_own_link() {
        let own6: u128 = 0x2001_0db8 << 96 | 1;
        let mut config = config();
        config.tenants[0].vms[0].addresses.push(IpAddr::V6(own6.into()));
        config.tenants[1].vms[0].addresses.push(IpAddr::V6((own6 + 1).into()));
        let lookup = Lookup::new(&config).expect("no address twice");
        let port = &port(AllowedSources::Only(VmRef { tenant: 0, vm: 0 }));
        let arp = |last: u32, is_own_link| Kind::Arp(Arp { sender: 0x0a00_0000 | last, is_own_link });
        assert!(is_allowed(&lookup, arp(1, true), port));
        assert!(!is_allowed(&lookup, arp(1, false), port), "at another machine's link-layer address");
        for (last, whose) in [(2, "another VM of the tenant"), (3, "another tenant's VM"), (9, "the gateway")]
        {
            assert!(!is_allowed(&lookup, arp(last, true), port), "{whose}");
        }
        assert!(is_allowed(&lookup, Kind::Arp(Arp { sender: 0, is_own_link: true }), port), "a probe");
        let message = |source, claimed, is_own_link| {
            Kind::Discovery(Discovery { source, claimed, is_own_link, is_router: false })
        };
        let link_local = 0xfe80 << 112 | 7;
        for (source, claimed) in [(own6, own6), (link_local, own6), (own6, link_local), (0, 0)] {
            assert!(is_allowed(&lookup, message(source, claimed, true), port), "{source:x} {claimed:x}");
            assert!(!is_allowed(&lookup, message(source, claimed, false), port), "another link");
        }
        for other in [own6 + 1, own6 + 2] {
            assert!(!is_allowed(&lookup, message(other, own6, true), port), "{other:x} as source");
            assert!(!is_allowed(&lookup, message(own6, other, true), port), "{other:x} announced");
        }
    }

    #[test]
    fn an_uplink_sends_no_vms_address() {
        let lookup = lookup();
        assert!(is_allowed(&lookup, from(9), &port(AllowedSources::Foreign)));
        assert!(!is_allowed(&lookup, from(3), &port(AllowedSources::Foreign)));
        assert!(is_allowed(&lookup, from(3), &port(AllowedSources::Any)));
    }
}
