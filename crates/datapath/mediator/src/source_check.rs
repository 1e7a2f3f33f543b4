//! Source check: which source addresses a port's packets may have.
//!
//! [`crate::admission`] checks incoming packets, [`crate::rewrite_check`] packets that an egress
//! program has rewritten.

use crate::config::{AllowedSources, PortSpec};
use crate::lookup::Lookup;
use crate::parse::Kind;

/// Whether a packet with these addresses may come from a port.
#[inline]
pub(crate) fn is_allowed(lookup: &Lookup, kind: Kind, port: &PortSpec) -> bool {
    if kind == Kind::Other {
        return true;
    }
    match port.source {
        AllowedSources::Any => true,
        AllowedSources::Only(vm) => match lookup.sender(kind, port.network) {
            Some(sender) => sender == vm,
            None => is_unspecified_or_link_local(kind),
        },
        AllowedSources::Foreign => lookup.sender(kind, port.network).is_none(),
    }
}

/// Whether every machine may use the source address: it is unspecified, or IPv6 link-local (`fe80::/10`).
fn is_unspecified_or_link_local(kind: Kind) -> bool {
    match kind {
        Kind::V4 { source, .. } => source == 0,
        Kind::V6 { source, .. } => source == 0 || source >> 118 == 0xfe80 >> 6,
        Kind::Other => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Network, Stages, TenantConfig, UnownedPolicy, VmConfig, VmRef};
    use std::net::Ipv4Addr;

    fn lookup() -> Lookup {
        let vm = |last| VmConfig::new("v", vec![Ipv4Addr::new(10, 0, 0, last).into()]);
        let tenant = |name, vms| TenantConfig::new(name, vms);
        let config = Config { tenants: vec![tenant("a", vec![vm(1), vm(2)]), tenant("b", vec![vm(3)])] };
        Lookup::new(&config).expect("no address twice")
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
        assert!(is_allowed(&lookup, Kind::Other, port), "ARP has no IP source");
    }

    #[test]
    fn an_uplink_sends_no_vms_address() {
        let lookup = lookup();
        assert!(is_allowed(&lookup, from(9), &port(AllowedSources::Foreign)));
        assert!(!is_allowed(&lookup, from(3), &port(AllowedSources::Foreign)));
        assert!(is_allowed(&lookup, from(3), &port(AllowedSources::Any)));
    }
}
