//! The requests.

use crate::LinkError;
use crate::sys::Sysfs;
use neli::consts::nl::NlmF;
use neli::consts::rtnl::{Ifla, IflaInfo, RtAddrFamily, Rtm};
use neli::consts::socket::NlFamily;
use neli::err::RouterError;
use neli::nl::NlPayload;
use neli::router::synchronous::NlRouter;
use neli::rtnl::{Ifinfomsg, IfinfomsgBuilder, Rtattr, RtattrBuilder};
use neli::types::{Buffer, RtBuffer};
use neli::utils::Groups;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// `IFLA_MACVLAN_MODE` and `MACVLAN_MODE_PASSTHRU` (`include/uapi/linux/if_link.h`).
const MODE: u16 = 1;
const PASSTHRU: u32 = 8;

/// `VETH_INFO_PEER` (`include/uapi/linux/veth.h`).
const PEER: u16 = 1;
/// `IFLA_GSO_MAX_SEGS` and `IFLA_GSO_MAX_SIZE` (`include/uapi/linux/if_link.h`).
const GSO_MAX_SEGS: u16 = 40;
const GSO_MAX_SIZE: u16 = 41;
/// More than the kernel's least one (`MAX_TCP_HEADER`), and less than what is worth dividing.
const UNDIVIDED: u32 = 512;
/// `IFLA_GRO_MAX_SIZE` and `IFLA_GRO_IPV4_MAX_SIZE` (`include/uapi/linux/if_link.h`).
const GRO_MAX_SIZE: u16 = 58;
const GRO_IPV4_MAX_SIZE: u16 = 64;
/// Both sizes of a new interface (`include/linux/netdevice.h`).
const GRO_LEGACY_MAX_SIZE: u32 = 65_536;

/// Attributes of an interface.
type Attributes = RtBuffer<Ifla, Buffer>;

/// Returns the index of an interface of this network namespace.
///
/// # Errors
/// There is none with this name.
pub fn index_of(interface: &str) -> Result<u32, LinkError> {
    let failed = LinkError::of::<Errno>;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(failed("open a socket for", interface))?;
    rustix::net::netdevice::name_to_index(&socket, interface).map_err(failed("find", interface))
}

/// Sets an interface up.
///
/// # Errors
/// There is none with this name, or the kernel refuses it.
pub fn start(interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = LinkError::of("set up", interface);
    change(IfinfomsgBuilder::default().up(), index, RtBuffer::new()).map_err(failed)
}

/// Sets an interface down.
///
/// # Errors
/// There is none with this name, or the kernel refuses it.
pub fn stop(interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = LinkError::of("set down", interface);
    change(IfinfomsgBuilder::default().down(), index, RtBuffer::new()).map_err(failed)
}

/// Sets an interface up in a network namespace.
///
/// # Errors
/// The interface is not there, or the kernel refuses it.
pub fn start_in(namespace: BorrowedFd<'_>, interface: &str) -> Result<(), LinkError> {
    inside(namespace, || start(interface)).map_err(LinkError::of("set up", interface))?
}

/// Does something in a network namespace. The calling thread stays in its own.
///
/// # Errors
/// The kernel lets the process not enter it.
pub fn inside<R: Send>(namespace: BorrowedFd<'_>, act: impl FnOnce() -> R + Send) -> io::Result<R> {
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
            Ok(act())
        });
        there.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    })
}

/// Gives an interface that is down another name.
///
/// # Errors
/// The name is in use or invalid, or the interface is up.
pub fn rename(interface: &str, name: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = || LinkError::of("rename", interface);
    let attributes = [attribute(Ifla::Ifname, format!("{name}\0")).map_err(failed())?];
    change(IfinfomsgBuilder::default(), index, attributes.into_iter().collect()).map_err(failed())
}

/// Gives the interface with this Ethernet address, which is down, a name.
///
/// # Errors
/// There is none with this address, or the name is in use or invalid.
pub fn rename_by_address(address: [u8; 6], name: &str) -> Result<(), LinkError> {
    let wanted = address.map(|byte| format!("{byte:02x}")).join(":");
    let find = || -> io::Result<String> {
        let sysfs = Sysfs::mount()?;
        let has = |n: &String| sysfs.read(n, "address").is_ok_and(|address| address == wanted);
        let none = || io::Error::new(io::ErrorKind::NotFound, "no interface has this address");
        sysfs.interfaces()?.into_iter().find(has).ok_or_else(none)
    };
    rename(&find().map_err(LinkError::of("find", &wanted))?, name)
}

/// Makes a macvtap that has all packets of an interface, which then has no other user; in another network
/// namespace, if one is given.
pub(crate) fn add_macvtap(
    interface: &str,
    name: &str,
    namespace: Option<BorrowedFd<'_>>,
) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let add = || -> io::Result<()> {
        let mode: RtBuffer<u16, Buffer> = [attribute(MODE, PASSTHRU)?].into_iter().collect();
        let kind: RtBuffer<IflaInfo, Buffer> =
            [attribute(IflaInfo::Kind, "macvtap\0")?, attribute(IflaInfo::Data, mode)?].into_iter().collect();
        let mut attributes = vec![
            attribute(Ifla::Ifname, format!("{name}\0"))?,
            attribute(Ifla::Link, index)?,
            attribute(Ifla::Linkinfo, kind)?,
        ];
        if let Some(namespace) = namespace {
            attributes.push(attribute(Ifla::NetNsFd, namespace.as_raw_fd())?);
        }
        let flags = NlmF::CREATE | NlmF::EXCL;
        request(Rtm::Newlink, flags, IfinfomsgBuilder::default(), attributes.into_iter().collect())
    };
    let refusal = |error: io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INVAL | Errno::BUSY) => io::Error::new(error.kind(), IN_USE),
        Some(Errno::OPNOTSUPP) => io::Error::new(error.kind(), NO_MACVTAP),
        _ => error,
    };
    add().map_err(|error| LinkError::of("make a tap of", interface)(refusal(error)))
}

const IN_USE: &str =
    "it has another user, such as a bridge, a macvlan or another switch; `ip -d link` names it";
const NO_MACVTAP: &str = "the kernel has no macvtap; load the module macvtap, or use one with CONFIG_MACVTAP";

/// An end of a pair of interfaces that are connected with each other.
#[derive(Clone, Copy, Debug)]
pub struct PairEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address; `None`: the kernel chooses one.
    pub mac: Option<[u8; 6]>,
}

impl PairEnd<'_> {
    fn attributes(&self) -> io::Result<Vec<Rtattr<Ifla, Buffer>>> {
        let mut attributes = vec![attribute(Ifla::Ifname, format!("{}\0", self.name))?];
        if let Some(mac) = self.mac {
            attributes.push(attribute(Ifla::Address, &mac[..])?);
        }
        Ok(attributes)
    }
}

/// Makes a pair of interfaces (`man 4 veth`), which are down.
///
/// # Errors
/// A name is in use or invalid.
pub fn add_pair(first: PairEnd<'_>, second: PairEnd<'_>) -> Result<(), LinkError> {
    let add = || -> io::Result<()> {
        let builder = IfinfomsgBuilder::default().ifi_family(RtAddrFamily::Unspecified);
        let peer = builder.rtattrs(second.attributes()?.into_iter().collect()).build();
        let peer = attribute(PEER, peer.map_err(io::Error::other)?)?;
        let data: RtBuffer<u16, Buffer> = [peer].into_iter().collect();
        let kind: RtBuffer<IflaInfo, Buffer> =
            [attribute(IflaInfo::Kind, "veth\0")?, attribute(IflaInfo::Data, data)?].into_iter().collect();
        let mut attributes = first.attributes()?;
        attributes.push(attribute(Ifla::Linkinfo, kind)?);
        let flags = NlmF::CREATE | NlmF::EXCL;
        request(Rtm::Newlink, flags, IfinfomsgBuilder::default(), attributes.into_iter().collect())
    };
    add().map_err(LinkError::of("make", first.name))
}

/// Gives an interface that is down the name that it then has in a network namespace, and moves it there.
///
/// # Errors
/// The interface is not there, the name is in use there, or the kernel refuses it.
pub fn move_as(namespace: BorrowedFd<'_>, interface: &str, name: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = || LinkError::of("move", interface);
    let name = attribute(Ifla::Ifname, format!("{name}\0")).map_err(failed())?;
    let attributes = [attribute(Ifla::NetNsFd, namespace.as_raw_fd()).map_err(failed())?, name];
    change(IfinfomsgBuilder::default(), index, attributes.into_iter().collect()).map_err(failed())
}

/// Has the kernel merge no received packets of an interface into longer ones, whatever merging is on.
///
/// # Errors
/// The interface is not there, or the kernel is older than Linux 6.3.
pub fn limit_merging(interface: &str) -> Result<(), LinkError> {
    // Nothing that is longer than this is made.
    merge_up_to(1, interface)
}

/// Has the kernel merge received packets of an interface as it does without [`limit_merging`].
///
/// # Errors
/// Those of [`limit_merging`].
pub fn allow_merging(interface: &str) -> Result<(), LinkError> {
    merge_up_to(GRO_LEGACY_MAX_SIZE, interface)
}

fn merge_up_to(longest: u32, interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = || LinkError::of("limit the merging of packets of", interface);
    let sizes = [GRO_MAX_SIZE, GRO_IPV4_MAX_SIZE].map(|kind| attribute(Ifla::from(kind), longest));
    let [all, ipv4] = sizes;
    let attributes = [all.map_err(failed())?, ipv4.map_err(failed())?];
    change(IfinfomsgBuilder::default(), index, attributes.into_iter().collect()).map_err(failed())
}

/// Has the kernel divide packets that leave by an interface into frames, whatever its driver can divide.
///
/// # Errors
/// The interface is not there, or the kernel refuses it.
pub fn divide_sent(interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = || LinkError::of("have the kernel divide the packets of", interface);
    // Packets of VMs have no number of segments until they are divided, so the size counts.
    let limits = [(GSO_MAX_SEGS, 1), (GSO_MAX_SIZE, UNDIVIDED)];
    let [segments, size] = limits.map(|(kind, most)| attribute(Ifla::from(kind), most));
    let attributes = [segments.map_err(failed())?, size.map_err(failed())?];
    change(IfinfomsgBuilder::default(), index, attributes.into_iter().collect()).map_err(failed())
}

/// Deletes an interface, and the other end of its pair.
///
/// # Errors
/// There is none with this name, or it cannot be deleted.
pub fn delete(interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?.cast_signed();
    let which = IfinfomsgBuilder::default().ifi_index(index);
    request(Rtm::Dellink, NlmF::empty(), which, RtBuffer::new()).map_err(LinkError::of("delete", interface))
}

pub(crate) fn change(builder: IfinfomsgBuilder, index: u32, attributes: Attributes) -> io::Result<()> {
    request(Rtm::Newlink, NlmF::empty(), builder.ifi_index(index.cast_signed()), attributes)
}

/// Sends a request, and waits until the kernel has executed it.
pub(crate) fn request(
    kind: Rtm,
    flags: NlmF,
    builder: IfinfomsgBuilder,
    attributes: Attributes,
) -> io::Result<()> {
    request_of(RtAddrFamily::Unspecified, kind, flags, builder.rtattrs(attributes))
}

/// Sends a request to the part of the kernel that an address family names.
pub(crate) fn request_of(
    family: RtAddrFamily,
    kind: Rtm,
    flags: NlmF,
    builder: IfinfomsgBuilder,
) -> io::Result<()> {
    let message = builder.ifi_family(family).build();
    let message = message.map_err(io::Error::other)?;
    let (socket, _) = NlRouter::connect(NlFamily::Route, None, Groups::empty()).map_err(cause)?;
    let payload = NlPayload::Payload(message);
    let replies = socket.send::<_, _, Rtm, Ifinfomsg>(kind, flags | NlmF::ACK, payload).map_err(cause)?;
    for reply in replies {
        reply.map_err(cause)?;
    }
    Ok(())
}

/// Returns the kernel's error, if there is one.
pub(crate) fn cause<T, P>(error: RouterError<T, P>) -> io::Error
where
    RouterError<T, P>: std::fmt::Display,
{
    match &error {
        RouterError::Nlmsgerr(refusal) => io::Error::from_raw_os_error(-refusal.error()),
        other => io::Error::other(other.to_string()),
    }
}

pub(crate) fn attribute<T: neli::consts::rtnl::RtaType, P: neli::Size + neli::ToBytes>(
    kind: T,
    payload: P,
) -> io::Result<Rtattr<T, Buffer>> {
    RtattrBuilder::default().rta_type(kind).rta_payload(payload).build().map_err(io::Error::other)
}
