//! Ports of the NIC switch, which the plan makes and the NIC switch enforces.

use macaddr::MacAddr6;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::num::NonZero;

/// A port of the NIC switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The host's network interface: the NIC switch receives from it and sends to it.
    pub interface: String,
    /// The tenant whose packets it carries; `None`: those of several, or of the outside.
    pub tenant: Option<String>,
    /// The party at the port.
    pub role: Role,
    /// Frames that it may send in a second at most; `None`: there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_rate: Option<NonZero<u32>>,
}

/// The party at a port of the NIC switch, and with it the packets that may pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The network outside the host.
    Uplink,
    /// A switch compartment's side to the outside (the paper's In/Out VF).
    InOut {
        /// The compartment's address in the outside network.
        #[serde(with = "super::mac")]
        mac: MacAddr6,
        /// Addresses of the compartment's VMs, from which it may send.
        addresses: Vec<IpAddr>,
    },
    /// A switch compartment's side to a tenant's VMs (the paper's Gw VF).
    Gateway {
        /// The tenant's VLAN.
        vlan: u16,
        /// The address to which the tenant's VMs send.
        #[serde(with = "super::mac")]
        mac: MacAddr6,
    },
    /// A VM (the paper's T VF).
    Vm {
        /// The tenant's VLAN.
        vlan: u16,
        /// The VM's address, the only one from which it may send.
        #[serde(with = "super::mac")]
        mac: MacAddr6,
        /// The VM's IP addresses, from which it may send.
        addresses: Vec<IpAddr>,
    },
}
