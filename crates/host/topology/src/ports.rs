//! The ports of the NIC switch that a plan needs.

use super::model::{Compartment, Plan, Tenant};
use super::port::{Port, Role};

impl Plan {
    /// Returns the ports of the NIC switch: the uplink, then those of each compartment. Empty at the
    /// baseline, which has no such switch.
    #[must_use]
    pub fn ports(&self) -> Vec<Port> {
        let of: Vec<_> = self.compartments.iter().flat_map(Compartment::ports).collect();
        let uplink =
            Port { interface: self.uplink.clone(), tenant: None, role: Role::Uplink, packet_rate: None };
        if of.is_empty() { of } else { std::iter::once(uplink).chain(of).collect() }
    }
}

impl Compartment {
    /// Returns the ports of the NIC switch that it and its VMs have.
    #[must_use]
    pub fn ports(&self) -> Vec<Port> {
        let Some(in_out) = &self.in_out else { return Vec::new() };
        let vms = self.tenants.iter().flat_map(|t| &t.vms);
        let role =
            Role::InOut { mac: self.mac, addresses: vms.flat_map(|vm| vm.addresses.clone()).collect() };
        let tenant = match &*self.tenants {
            [only] => Some(only.name.clone()),
            _ => None,
        };
        let own = Port { interface: in_out.outer.clone(), tenant, role, packet_rate: None };
        std::iter::once(own).chain(self.tenants.iter().flat_map(Tenant::ports)).collect()
    }
}

impl Tenant {
    fn ports(&self) -> Vec<Port> {
        let port = |interface: &str, role| Port {
            interface: interface.to_owned(),
            tenant: Some(self.name.clone()),
            role,
            packet_rate: None,
        };
        let vlan = self.vlan;
        let gateway =
            self.gateway.iter().map(|link| port(&link.outer, Role::Gateway { vlan, mac: self.mac }));
        let vms = self.vms.iter().map(|vm| Port {
            packet_rate: vm.packet_rate,
            ..port(vm.port_interface(), Role::Vm { vlan, mac: vm.mac, addresses: vm.addresses.clone() })
        });
        gateway.chain(vms).collect()
    }
}
