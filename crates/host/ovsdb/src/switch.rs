//! The switch as its database describes it, in the terms of attachments.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The switch at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// `other_config:hw-offload`: flows may be offloaded to the network card, where no attachment sees their
    /// packets.
    pub hw_offload: bool,
    /// `other_config:dpdk-init`: the switch is configured to use DPDK.
    pub dpdk: bool,
    /// `other_config:dpdk-extra`: additional command line options of DPDK.
    pub dpdk_extra: Option<String>,
    /// `external_ids:ovn-encap-ip`: the addresses of this host in OVN's tunnels.
    pub encap_ips: Vec<IpAddr>,
    /// The interfaces of all bridges, by name.
    pub interfaces: Vec<Interface>,
}

/// An interface of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name: unique in the switch.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Its port's name, which differs from the interface's for a bond.
    pub port: Option<Arc<str>>,
    /// Its bridge's name.
    pub bridge: Option<Arc<str>>,
    /// Its bridge's `datapath_type`: `netdev` is the user-space datapath, none the kernel's.
    pub datapath: Option<Arc<str>>,
    /// `external_ids:iface-id`: the cloud's name for the VM's port.
    pub iface_id: Option<String>,
    /// `options:dpdk-devargs`: the DPDK device, such as `0000:01:00.0` or `net_af_packet0,iface=eth1`.
    pub dpdk_devargs: Option<String>,
    /// `status:port_no`: DPDK's number of the port, once it is open.
    pub dpdk_port: Option<u16>,
    /// The socket of a vhost-user interface: `options:vhost-server-path` or else `status:socket`.
    pub vhost_path: Option<String>,
    /// `options:local_ip`: the local address of a tunnel, if it is fixed.
    pub local_ip: Option<IpAddr>,
    /// `options:dst_port`: the UDP port of a tunnel, if it is not the default.
    pub dst_port: Option<u16>,
    /// OpenFlow's number of the port; negative if the switch could not add it.
    pub ofport: Option<i64>,
    /// The kernel's number of a network interface, in the switch's network namespace.
    pub ifindex: Option<u32>,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Whether it is administratively up.
    pub admin_up: Option<bool>,
    /// Whether it has a carrier.
    pub link_up: Option<bool>,
    /// Reason why the switch cannot set it up.
    pub error: Option<String>,
}

/// The type of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A network interface of the host, by a packet socket or the kernel's datapath.
    #[default]
    System,
    /// A port of the bridge for the host itself, created by the switch.
    Internal,
    /// A DPDK device.
    Dpdk,
    /// A vhost-user socket on which the switch listens.
    VhostUser,
    /// A vhost-user socket to which the switch connects.
    VhostUserClient,
    /// A network interface by AF_XDP, copying or not.
    Afxdp,
    /// One end of a patch between two bridges.
    Patch,
    /// A tunnel: Ethernet in VXLAN.
    Vxlan,
    /// A tunnel: Ethernet in Geneve.
    Geneve,
    /// Any other, such as `gre` or `tap`.
    Other(String),
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl Switch {
    /// Returns the interface with this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        // Sorted by name, see `Tables::switch`.
        self.interfaces.binary_search_by(|i| i.name.as_str().cmp(name)).ok().map(|n| &self.interfaces[n])
    }
}

impl Interface {
    /// Returns DPDK's name of the device: `dpdk_devargs` up to the first comma.
    #[must_use]
    pub fn dpdk_device(&self) -> Option<&str> {
        self.dpdk_devargs.as_deref().and_then(|args| args.split(',').next()).filter(|name| !name.is_empty())
    }
}

impl Kind {
    /// Returns the kind with this name in the database.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "" | "system" => Self::System,
            "internal" => Self::Internal,
            "dpdk" => Self::Dpdk,
            "dpdkvhostuser" => Self::VhostUser,
            "dpdkvhostuserclient" => Self::VhostUserClient,
            "afxdp" | "afxdp-nonpmd" => Self::Afxdp,
            "patch" => Self::Patch,
            "vxlan" => Self::Vxlan,
            "geneve" => Self::Geneve,
            other => Self::Other(other.into()),
        }
    }
}

/// Writes the name in the database.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "system",
            Self::Internal => "internal",
            Self::Dpdk => "dpdk",
            Self::VhostUser => "dpdkvhostuser",
            Self::VhostUserClient => "dpdkvhostuserclient",
            Self::Afxdp => "afxdp",
            Self::Patch => "patch",
            Self::Vxlan => "vxlan",
            Self::Geneve => "geneve",
            Self::Other(word) => word,
        })
    }
}

impl Mac {
    /// Parses an address such as `02:00:00:00:00:01`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_strictly() {
        assert_eq!(Mac::parse("02:00:aB:00:00:01"), Some(Mac([2, 0, 0xab, 0, 0, 1])));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "+2:00:00:00:00:01"] {
            assert_eq!(Mac::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_devices_name_ends_before_its_arguments() {
        let of = |args: &str| Interface { dpdk_devargs: Some(args.into()), ..Interface::default() };
        assert_eq!(of("net_af_packet0,iface=v0,qpairs=2").dpdk_device(), Some("net_af_packet0"));
        assert_eq!(of("0000:01:00.0").dpdk_device(), Some("0000:01:00.0"));
        assert_eq!(of("").dpdk_device(), None);
    }
}
