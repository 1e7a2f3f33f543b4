//! The switch as its database describes it, in terms that attachments understand.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The switch at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// `other_config:hw-offload`: flows may be put into the network card, and their packets then pass nobody.
    pub hw_offload: bool,
    /// `other_config:dpdk-init`: the switch is asked to use DPDK.
    pub dpdk: bool,
    /// `other_config:dpdk-extra`: what DPDK gets on its command line besides.
    pub dpdk_extra: Option<String>,
    /// `external_ids:ovn-encap-ip`: where OVN has other hosts send wrapped packets.
    pub encap_ips: Vec<IpAddr>,
    /// The interfaces of all bridges, by name.
    pub interfaces: Vec<Interface>,
}

/// An interface of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name: unique in the switch.
    pub name: String,
    /// How packets get there.
    pub kind: Kind,
    /// Its port's name: another than the interface's for a bond.
    pub port: Option<Arc<str>>,
    /// Its bridge's name.
    pub bridge: Option<Arc<str>>,
    /// Its bridge's `datapath_type`: `netdev` is the datapath in user space; none means the kernel's.
    pub datapath: Option<Arc<str>>,
    /// `external_ids:iface-id`: what the cloud calls the VM's port.
    pub iface_id: Option<String>,
    /// `options:dpdk-devargs`: which DPDK device it is, as in `0000:01:00.0` or `net_af_packet0,iface=eth1`.
    pub dpdk_devargs: Option<String>,
    /// `status:port_no`: DPDK's number of the port, once it is open.
    pub dpdk_port: Option<u16>,
    /// The socket of a vhost-user interface: `options:vhost-server-path`, else `status:socket`.
    pub vhost_path: Option<String>,
    /// `options:local_ip`: the end of a tunnel on this host, if it is one address.
    pub local_ip: Option<IpAddr>,
    /// `options:dst_port`: the UDP port of a tunnel, if it is not the usual one.
    pub dst_port: Option<u16>,
    /// OpenFlow's number of the port; negative if the switch could not add it.
    pub ofport: Option<i64>,
    /// The kernel's number of a network interface, in the switch's network namespace.
    pub ifindex: Option<u32>,
    /// The address it uses.
    pub mac: Option<Mac>,
    /// Whether it is switched on.
    pub admin_up: Option<bool>,
    /// Whether it has a carrier.
    pub link_up: Option<bool>,
    /// Why the switch could not set it up.
    pub error: Option<String>,
}

/// The type of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A network interface of the host, by a packet socket or the kernel's datapath.
    #[default]
    System,
    /// A port of the bridge for the host itself, made by the switch.
    Internal,
    /// A DPDK device.
    Dpdk,
    /// A vhost-user socket on which the switch listens.
    VhostUser,
    /// A vhost-user socket to which the switch connects.
    VhostUserClient,
    /// A network interface by AF_XDP, copying or not.
    Afxdp,
    /// Half of a cable between two bridges.
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
    /// The interface of this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        // Sorted by name, see `Tables::switch`.
        self.interfaces.binary_search_by(|i| i.name.as_str().cmp(name)).ok().map(|n| &self.interfaces[n])
    }
}

impl Interface {
    /// The name by which DPDK knows the device: `dpdk_devargs` up to its first comma.
    #[must_use]
    pub fn dpdk_device(&self) -> Option<&str> {
        self.dpdk_devargs.as_deref().and_then(|args| args.split(',').next()).filter(|name| !name.is_empty())
    }
}

impl Kind {
    /// The kind that the database calls so.
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

/// What the database calls it.
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
    /// Reads `02:00:00:00:00:01`.
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
    fn addresses_are_read_strictly() {
        assert_eq!(Mac::parse("02:00:aB:00:00:01"), Some(Mac([2, 0, 0xab, 0, 0, 1])));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "+2:00:00:00:00:01"] {
            assert_eq!(Mac::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_device_is_named_before_its_arguments() {
        let of = |args: &str| Interface { dpdk_devargs: Some(args.into()), ..Interface::default() };
        assert_eq!(of("net_af_packet0,iface=v0,qpairs=2").dpdk_device(), Some("net_af_packet0"));
        assert_eq!(of("0000:01:00.0").dpdk_device(), Some("0000:01:00.0"));
        assert_eq!(of("").dpdk_device(), None);
    }
}
