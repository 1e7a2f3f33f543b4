//! The settings that a port has at the bridge itself, which hold without any rule of nftables, too.

use std::collections::{BTreeMap, BTreeSet};

use p4shield_links::{
    BridgeMember, BridgePort, LinkError, PortFlag, Station, add_port_vlan, add_station, join_bridge,
    remove_port_vlan, remove_station, set_port_flags,
};
use p4shield_topology::{Port, Role};

use crate::check::{mac, vlan};

/// The settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings<'a> {
    pub(super) member: BridgeMember<'a>,
    flags: BTreeSet<PortFlag>,
    vlan: u16,
    station: Option<Station>,
}

impl<'a> Settings<'a> {
    pub(super) fn of(port: &'a Port, index: u32, outside_vlan: u16) -> Self {
        use PortFlag::{BroadcastFlood, Flood, Isolated, Locked, MulticastFlood};
        let flags: &[PortFlag] = match port.role {
            Role::Vm { .. } => &[Locked, Isolated],
            Role::Gateway { .. } => &[Locked, MulticastFlood, BroadcastFlood],
            Role::InOut { .. } => &[Locked, Isolated, MulticastFlood, BroadcastFlood],
            // The stations outside are unknown: what no compartment has goes there.
            Role::Uplink => &[Flood, MulticastFlood, BroadcastFlood],
        };
        let vlan = vlan(port).unwrap_or(outside_vlan);
        Self {
            member: BridgeMember { name: &port.interface, index },
            flags: flags.iter().copied().collect(),
            vlan,
            station: mac(port).map(|mac| Station { mac: mac.into_array(), vlan }),
        }
    }

    /// Returns whether a port has these settings and no others.
    pub(super) fn are_of(&self, port: &BridgePort) -> bool {
        port.flags == self.flags
            && port.vlans == BTreeMap::from([(self.vlan, true)])
            && port.stations == self.station.into_iter().map(|station| (station, true)).collect()
    }

    /// Takes off a port what it should not have.
    pub(super) fn restrict(&self, found: &BridgePort) -> Result<(), LinkError> {
        let keeps = |station: &Station| self.station == Some(*station);
        for station in found.stations.keys().filter(|station| !keeps(station)) {
            remove_station(self.member, *station)?;
        }
        found
            .vlans
            .keys()
            .filter(|vlan| **vlan != self.vlan)
            .try_for_each(|vlan| remove_port_vlan(self.member, *vlan))
    }

    /// Gives a port what it lacks; `None`: it is none of the bridge yet. It forwards nothing before it has
    /// its VLAN, and nothing of an unknown station after that.
    pub(super) fn complete(&self, bridge: u32, found: Option<&BridgePort>) -> Result<(), LinkError> {
        if found.is_none() {
            join_bridge(self.member, bridge)?;
        }
        if found.is_none_or(|port| port.flags != self.flags) {
            set_port_flags(self.member, &self.flags)?;
        }
        if found.is_none_or(|port| port.vlans.get(&self.vlan) != Some(&true)) {
            add_port_vlan(self.member, self.vlan)?;
        }
        match self.station {
            Some(station) if found.is_none_or(|port| port.stations.get(&station) != Some(&true)) => {
                add_station(self.member, station)
            }
            _ => Ok(()),
        }
    }
}
