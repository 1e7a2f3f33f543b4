//! Bridges that filter VLANs.

use crate::LinkError;
use crate::attributes::{Attributes, TYPE, half, word};
use crate::request::{attribute, cause, index_of, request, request_of};
use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Ifla, IflaInfo, Nda, Ntf, Nud, RtAddrFamily, Rtm, Rtn};
use neli::consts::socket::NlFamily;
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::rtnl::{Ifinfomsg, IfinfomsgBuilder, Ndmsg, NdmsgBuilder, Rtattr};
use neli::types::{Buffer, RtBuffer};
use neli::utils::Groups;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// `AF_BRIDGE` (`include/linux/socket.h`).
const BRIDGE_FAMILY: u8 = 7;
/// `NLA_F_NESTED`: without it, the kernel takes `IFLA_PROTINFO` for a port's state.
const NESTED: u16 = 1 << 15;
/// `IFLA_MASTER`, `IFLA_PROTINFO`, `IFLA_LINKINFO`, `IFLA_AF_SPEC`, `IFLA_GROUP` and `IFLA_EXT_MASK`
/// (`include/uapi/linux/if_link.h`).
const MASTER: u16 = 10;
const PROTINFO: u16 = 12;
const LINKINFO: u16 = 18;
const AF_SPEC: u16 = 26;
const GROUP: u16 = 27;
const EXT_MASK: u16 = 29;
/// `IFLA_INFO_KIND` and `IFLA_INFO_DATA`.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
/// `RTEXT_FILTER_BRVLAN` (`include/uapi/linux/rtnetlink.h`).
const FILTER_VLANS: u32 = 2;
/// `IFF_UP`.
const UP: u32 = 1;
/// `IFLA_BRIDGE_VLAN_INFO`, `BRIDGE_VLAN_INFO_PVID` and `BRIDGE_VLAN_INFO_UNTAGGED`
/// (`include/uapi/linux/if_bridge.h`).
const VLAN_INFO: u16 = 2;
const PVID: u16 = 2;
const UNTAGGED: u16 = 4;
/// `NDA_LLADDR`, `NDA_VLAN` and `NDA_MASTER` (`include/uapi/linux/neighbour.h`).
const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;

/// `IFLA_BR_VLAN_FILTERING`.
const VLAN_FILTERING: u16 = 7;
/// The settings of a bridge, as `IFLA_BR_*` and value. The kernel leaves out those that it is built without.
const SETTINGS: [(u16, &[u8]); 10] = [
    (5, &[0; 4]), // STP_STATE: it sends no packets of its own
    (VLAN_FILTERING, &[1]),
    (8, &[0x81, 0]), // VLAN_PROTOCOL
    (9, &[0; 2]),    // GROUP_FWD_MASK: it forwards no control packets of bridges
    (23, &[0]),      // MCAST_SNOOPING: it reads no tenant's packets
    (25, &[0]),      // MCAST_QUERIER
    (36, &[0]),      // NF_CALL_IPTABLES: the host's own rules do not concern its packets
    (37, &[0]),      // NF_CALL_IP6TABLES
    (38, &[0]),      // NF_CALL_ARPTABLES
    (39, &[0; 2]),   // VLAN_DEFAULT_PVID: a new port has no VLAN
];

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Index of its interface.
    pub index: u32,
    /// The group of its interface, as in `ip link set group`.
    pub group: u32,
    /// True if it is up; otherwise it forwards nothing.
    pub is_up: bool,
    /// True if it filters VLANs, which takes a kernel with `CONFIG_BRIDGE_VLAN_FILTERING`.
    pub filters_vlans: bool,
    /// True if it has the settings of [`add_bridge`].
    pub is_as_made: bool,
}

/// A property that a port of a bridge has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum PortFlag {
    /// It may send packets back to where they came from.
    Hairpin = 4,
    /// Its stations are learned from what it receives.
    Learning = 8,
    /// It sends packets to unknown stations.
    Flood = 9,
    /// The bridge answers ARP for it.
    ArpProxy = 10,
    /// It sends packets to groups.
    MulticastFlood = 27,
    /// It sends packets to groups to each member.
    MulticastToUnicast = 28,
    /// It translates between VLANs and tunnels.
    VlanTunnel = 29,
    /// It sends packets to all.
    BroadcastFlood = 30,
    /// The bridge answers neighbour discovery for it.
    SuppressNeighbours = 32,
    /// It sends to ports only that are not isolated, too.
    Isolated = 33,
    /// It receives from its known stations only. Linux 5.18.
    Locked = 39,
    /// It learns stations nevertheless. Linux 6.2.
    LearnLocked = 40,
}

impl PortFlag {
    /// All of them.
    const ALL: [Self; 12] = [
        Self::Hairpin,
        Self::Learning,
        Self::Flood,
        Self::ArpProxy,
        Self::MulticastFlood,
        Self::MulticastToUnicast,
        Self::VlanTunnel,
        Self::BroadcastFlood,
        Self::SuppressNeighbours,
        Self::Isolated,
        Self::Locked,
        Self::LearnLocked,
    ];
}

/// An address behind a port of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Station {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its VLAN; 0: none.
    pub vlan: u16,
}

/// A port of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgePort {
    /// Index of its interface.
    pub index: u32,
    /// The properties that it has.
    pub flags: BTreeSet<PortFlag>,
    /// Its VLANs; true: as [`add_port_vlan`] makes them.
    pub vlans: BTreeMap<u16, bool>,
    /// Stations behind it, without the host's own; true: as [`add_station`] makes them.
    pub stations: BTreeMap<Station, bool>,
}

/// An interface that is a bridge's port or becomes one. Requests go by its index, so that they never concern
/// another one that got its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeMember<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its index.
    pub index: u32,
}

/// Makes a bridge that filters VLANs, is down and has this group. Its new ports have no VLAN and so forward
/// nothing; the host's stack sees none of its packets, and none of them reaches the host's own rules.
///
/// # Errors
/// The name is in use or invalid. `Unsupported`: the kernel has no bridges or none that filters VLANs.
pub fn add_bridge(name: &str, group: u32) -> Result<(), LinkError> {
    let add = || -> io::Result<()> {
        let attributes = [
            attribute(Ifla::Ifname, format!("{name}\0"))?,
            attribute(Ifla::from(GROUP), group)?,
            attribute(Ifla::Linkinfo, settings()?)?,
        ];
        let flags = NlmF::CREATE | NlmF::EXCL;
        request(Rtm::Newlink, flags, IfinfomsgBuilder::default(), attributes.into_iter().collect())
    };
    add().map_err(LinkError::of("make the bridge", name))
}

/// Gives a bridge the settings of [`add_bridge`] again.
///
/// # Errors
/// There is none with this name.
pub fn set_bridge(name: &str) -> Result<(), LinkError> {
    let index = index_of(name)?;
    let set = || -> io::Result<()> {
        let attributes = [attribute(Ifla::Linkinfo, settings()?)?].into_iter().collect();
        let which = IfinfomsgBuilder::default().ifi_index(index.cast_signed());
        request(Rtm::Newlink, NlmF::empty(), which, attributes)
    };
    set().map_err(LinkError::of("set the bridge", name))
}

fn settings() -> io::Result<RtBuffer<IflaInfo, Buffer>> {
    let data: io::Result<RtBuffer<u16, Buffer>> =
        SETTINGS.iter().map(|(kind, value)| attribute(*kind, *value)).collect();
    Ok([attribute(IflaInfo::Kind, "bridge\0")?, attribute(IflaInfo::Data, data?)?].into_iter().collect())
}

/// Returns the bridge of a name; `None`: there is no such interface, or it is no bridge.
///
/// # Errors
/// The kernel's error.
pub fn bridge(name: &str) -> Result<Option<Bridge>, LinkError> {
    let failed = LinkError::of("read the bridge", name);
    let index = match index_of(name) {
        Err(error) if error.source.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => return Ok(None),
        index => index?,
    };
    let which = IfinfomsgBuilder::default().ifi_family(RtAddrFamily::Unspecified);
    let messages =
        ask_links(which.ifi_index(index.cast_signed()), NlmF::ACK, RtBuffer::new()).map_err(failed)?;
    Ok(messages.iter().find_map(read_bridge))
}

fn read_bridge(message: &Ifinfomsg) -> Option<Bridge> {
    let info = find(message, LINKINFO)?;
    let kind = list(info).find_map(|(kind, value)| (kind == INFO_KIND).then_some(value))?;
    if kind.strip_suffix(&[0]).unwrap_or(kind) != b"bridge" {
        return None;
    }
    let data = list(info).find_map(|(kind, value)| (kind == INFO_DATA).then_some(value))?;
    let has = |(kind, wanted): &(u16, &[u8])| list(data).all(|(its, value)| its != *kind || value == *wanted);
    let filters_vlans = list(data).any(|(kind, value)| kind == VLAN_FILTERING && value == [1]);
    Some(Bridge {
        index: message.ifi_index().cast_unsigned(),
        group: find(message, GROUP).and_then(|group| word(group, 0))?,
        is_up: message.ifi_flags().bits() & UP != 0,
        filters_vlans,
        is_as_made: filters_vlans && SETTINGS.iter().all(has),
    })
}

/// Returns the ports of the bridge with this index, sorted by index.
///
/// # Errors
/// The kernel's error.
pub fn bridge_ports(bridge: u32) -> Result<Vec<BridgePort>, LinkError> {
    let number = bridge.to_string();
    let failed = || LinkError::of::<io::Error>("read the ports of the bridge with the index", &number);
    let mask =
        || -> io::Result<_> { Ok([attribute(Ifla::from(EXT_MASK), FILTER_VLANS)?].into_iter().collect()) };
    let which = IfinfomsgBuilder::default().ifi_family(RtAddrFamily::from(BRIDGE_FAMILY));
    let links = mask().and_then(|mask| ask_links(which, NlmF::DUMP, mask)).map_err(failed())?;
    let mut ports: BTreeMap<u32, BridgePort> = BTreeMap::new();
    for message in links {
        let index = message.ifi_index().cast_unsigned();
        if index != bridge && find(&message, MASTER).and_then(|master| word(master, 0)) == Some(bridge) {
            ports.insert(index, read_port(&message));
        }
    }
    for (index, station, is_static) in stations(bridge).map_err(failed())? {
        if let Some(port) = ports.get_mut(&index) {
            port.stations.insert(station, is_static);
        }
    }
    Ok(ports.into_values().collect())
}

fn read_port(message: &Ifinfomsg) -> BridgePort {
    let mut port = BridgePort { index: message.ifi_index().cast_unsigned(), ..BridgePort::default() };
    for (kind, value) in find(message, PROTINFO).into_iter().flat_map(list) {
        if let Some(flag) = PortFlag::ALL.into_iter().find(|flag| *flag as u16 == kind && value != [0]) {
            port.flags.insert(flag);
        }
    }
    for (kind, value) in find(message, AF_SPEC).into_iter().flat_map(list) {
        if let (VLAN_INFO, Some(flags), Some(vlan)) = (kind, half(value, 0), half(value, 2)) {
            port.vlans.insert(vlan, flags == PVID | UNTAGGED);
        }
    }
    port
}

/// Returns the bridge's stations by port, and whether each one is as [`add_station`] makes it.
fn stations(bridge: u32) -> io::Result<Vec<(u32, Station, bool)>> {
    let (socket, _) = NlRouter::connect(NlFamily::Route, None, Groups::empty()).map_err(cause)?;
    let question = neighbour(0, Nud::NONE, Ntf::empty(), RtBuffer::new())?;
    let replies = socket.send::<_, _, Rtm, Ndmsg>(Rtm::Getneigh, NlmF::DUMP, NlPayload::Payload(question));
    let mut found = Vec::new();
    for reply in replies.map_err(cause)? {
        let reply = reply.map_err(cause)?;
        let Some(entry) = reply.get_payload() else { continue };
        let value = |kind: u16| {
            let is_it = |attribute: &&Rtattr<Nda, Buffer>| u16::from(attribute.rta_type()) & TYPE == kind;
            entry.rtattrs().iter().find(is_it).map(|attribute| attribute.rta_payload().as_ref())
        };
        let master = value(NDA_MASTER).and_then(|master| word(master, 0));
        let mac = value(NDA_LLADDR).and_then(|mac| mac.try_into().ok());
        let (Some(mac), true) = (mac, master == Some(bridge)) else { continue };
        // The addresses of the host's own interfaces are permanent.
        if !entry.ndm_state().contains(Nud::PERMANENT) {
            let vlan = value(NDA_VLAN).and_then(|vlan| half(vlan, 0)).unwrap_or(0);
            let is_static = entry.ndm_state().contains(Nud::NOARP);
            found.push((entry.ndm_index().cast_unsigned(), Station { mac, vlan }, is_static));
        }
    }
    Ok(found)
}

/// Makes an interface a port of the bridge with this index.
///
/// # Errors
/// It is another one's, or the kernel refuses it.
pub fn join_bridge(member: BridgeMember<'_>, bridge: u32) -> Result<(), LinkError> {
    set_master(member, bridge).map_err(LinkError::of("make a port of a bridge of", member.name))
}

/// Takes an interface off its bridge.
///
/// # Errors
/// The interface is gone.
pub fn leave_bridge(member: BridgeMember<'_>) -> Result<(), LinkError> {
    set_master(member, 0).map_err(LinkError::of("take off its bridge", member.name))
}

fn set_master(member: BridgeMember<'_>, master: u32) -> io::Result<()> {
    let attributes = [attribute(Ifla::Master, master)?].into_iter().collect();
    request(
        Rtm::Newlink,
        NlmF::empty(),
        IfinfomsgBuilder::default().ifi_index(member.index.cast_signed()),
        attributes,
    )
}

/// Gives a bridge's port these properties, and takes all others of [`PortFlag`] from it. A kernel leaves out
/// what it does not know: read it back.
///
/// # Errors
/// The interface is no port of a bridge.
pub fn set_port_flags(member: BridgeMember<'_>, flags: &BTreeSet<PortFlag>) -> Result<(), LinkError> {
    let set = || -> io::Result<()> {
        let values = PortFlag::ALL.into_iter().map(|flag| (flag as u16, u8::from(flags.contains(&flag))));
        let list: io::Result<RtBuffer<u16, Buffer>> =
            values.map(|(kind, value)| attribute(kind, value)).collect();
        change_port(Rtm::Setlink, member.index, [attribute(Ifla::from(PROTINFO | NESTED), list?)?])
    };
    set().map_err(LinkError::of("set the port of a bridge", member.name))
}

/// Gives a bridge's port a VLAN: what arrives without a tag belongs to it, and leaves without a tag.
///
/// # Errors
/// The interface is no port of a bridge that filters VLANs.
pub fn add_port_vlan(member: BridgeMember<'_>, vlan: u16) -> Result<(), LinkError> {
    let result = port_vlan(Rtm::Setlink, member, PVID | UNTAGGED, vlan);
    result.map_err(LinkError::of("set the VLAN of", member.name))
}

/// Takes a VLAN, and its stations, off a bridge's port.
///
/// # Errors
/// It has no such VLAN.
pub fn remove_port_vlan(member: BridgeMember<'_>, vlan: u16) -> Result<(), LinkError> {
    port_vlan(Rtm::Dellink, member, 0, vlan).map_err(LinkError::of("remove a VLAN of", member.name))
}

fn port_vlan(kind: Rtm, member: BridgeMember<'_>, flags: u16, vlan: u16) -> io::Result<()> {
    let info = [flags.to_ne_bytes(), vlan.to_ne_bytes()].concat();
    let list: RtBuffer<u16, Buffer> = [attribute(VLAN_INFO, &info[..])?].into_iter().collect();
    change_port(kind, member.index, [attribute(Ifla::AfSpec, list)?])
}

fn change_port(kind: Rtm, index: u32, attributes: [Rtattr<Ifla, Buffer>; 1]) -> io::Result<()> {
    let which = IfinfomsgBuilder::default().ifi_index(index.cast_signed());
    let which = which.rtattrs(attributes.into_iter().collect());
    request_of(RtAddrFamily::from(BRIDGE_FAMILY), kind, NlmF::empty(), which)
}

/// Tells a bridge that a station is behind a port, for good.
///
/// # Errors
/// The port has no such VLAN.
pub fn add_station(member: BridgeMember<'_>, station: Station) -> Result<(), LinkError> {
    let flags = NlmF::CREATE | NlmF::REPLACE;
    let result = change_station(Rtm::Newneigh, flags, member, station);
    result.map_err(LinkError::of("add a station behind", member.name))
}

/// Has a bridge forget a station behind a port.
///
/// # Errors
/// There is no such station.
pub fn remove_station(member: BridgeMember<'_>, station: Station) -> Result<(), LinkError> {
    let result = change_station(Rtm::Delneigh, NlmF::empty(), member, station);
    result.map_err(LinkError::of("remove a station behind", member.name))
}

fn change_station(kind: Rtm, flags: NlmF, member: BridgeMember<'_>, station: Station) -> io::Result<()> {
    let mut attributes = vec![attribute(Nda::Lladdr, &station.mac[..])?];
    if station.vlan != 0 {
        attributes.push(attribute(Nda::Vlan, station.vlan)?);
    }
    let entry = neighbour(member.index, Nud::NOARP, Ntf::MASTER, attributes.into_iter().collect())?;
    let (socket, _) = NlRouter::connect(NlFamily::Route, None, Groups::empty()).map_err(cause)?;
    let replies = socket.send::<_, _, Rtm, Ndmsg>(kind, flags | NlmF::ACK, NlPayload::Payload(entry));
    for reply in replies.map_err(cause)? {
        reply.map_err(cause)?;
    }
    Ok(())
}

fn neighbour(index: u32, state: Nud, flags: Ntf, attributes: RtBuffer<Nda, Buffer>) -> io::Result<Ndmsg> {
    let builder = NdmsgBuilder::default().ndm_family(RtAddrFamily::from(BRIDGE_FAMILY));
    let builder = builder.ndm_index(index.cast_signed()).ndm_state(state).ndm_flags(flags);
    builder.ndm_type(Rtn::Unspec).rtattrs(attributes).build().map_err(io::Error::other)
}

/// Asks for interfaces.
fn ask_links(
    which: IfinfomsgBuilder,
    flags: NlmF,
    attributes: RtBuffer<Ifla, Buffer>,
) -> io::Result<Vec<Ifinfomsg>> {
    let question = which.rtattrs(attributes).build().map_err(io::Error::other)?;
    let (socket, _) = NlRouter::connect(NlFamily::Route, None, Groups::empty()).map_err(cause)?;
    let replies = socket.send::<_, _, Rtm, Ifinfomsg>(Rtm::Getlink, flags, NlPayload::Payload(question));
    let mut links = Vec::new();
    for reply in replies.map_err(cause)? {
        links.extend(reply.map_err(cause)?.get_payload().cloned());
    }
    Ok(links)
}

/// Returns the value of an interface's attribute.
fn find(message: &Ifinfomsg, kind: u16) -> Option<&[u8]> {
    let is_it = |attribute: &&Rtattr<Ifla, Buffer>| u16::from(attribute.rta_type()) & TYPE == kind;
    message.rtattrs().iter().find(is_it).map(|attribute| attribute.rta_payload().as_ref())
}

/// The attributes in an attribute, up to the first that is none.
fn list(value: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    Attributes(value).map_while(|attribute| attribute)
}
