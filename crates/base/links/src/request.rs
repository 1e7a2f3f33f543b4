//! The requests.

use crate::LinkError;
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

/// Sets an interface up in a network namespace.
///
/// # Errors
/// The interface is not there, or the kernel refuses it.
pub fn start_in(namespace: BorrowedFd<'_>, interface: &str) -> Result<(), LinkError> {
    let failed = || LinkError::of("set up", interface);
    // The namespace of the calling thread stays as it is.
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let moved = move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network));
            moved.map_err(|e| failed()(e.into()))?;
            start(interface)
        });
        there.join().unwrap_or_else(|_| Err(failed()(io::Error::other("a thread panicked"))))
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

/// Moves an interface into a network namespace, where it is down.
///
/// # Errors
/// The interface is not there, or the kernel refuses it.
pub fn move_to(namespace: BorrowedFd<'_>, interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let failed = || LinkError::of("move", interface);
    let attributes = [attribute(Ifla::NetNsFd, namespace.as_raw_fd()).map_err(failed())?];
    change(IfinfomsgBuilder::default(), index, attributes.into_iter().collect()).map_err(failed())
}

/// Makes a macvtap that has all packets of an interface, which then has no other user.
pub(crate) fn add_macvtap(interface: &str, name: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let add = || -> io::Result<()> {
        let mode: RtBuffer<u16, Buffer> = [attribute(MODE, PASSTHRU)?].into_iter().collect();
        let kind: RtBuffer<IflaInfo, Buffer> =
            [attribute(IflaInfo::Kind, "macvtap\0")?, attribute(IflaInfo::Data, mode)?].into_iter().collect();
        let attributes = [
            attribute(Ifla::Ifname, format!("{name}\0"))?,
            attribute(Ifla::Link, index)?,
            attribute(Ifla::Linkinfo, kind)?,
        ];
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

/// Deletes an interface.
pub(crate) fn delete(interface: &str) -> Result<(), LinkError> {
    let index = index_of(interface)?.cast_signed();
    let which = IfinfomsgBuilder::default().ifi_index(index);
    request(Rtm::Dellink, NlmF::empty(), which, RtBuffer::new()).map_err(LinkError::of("delete", interface))
}

fn change(builder: IfinfomsgBuilder, index: u32, attributes: Attributes) -> io::Result<()> {
    request(Rtm::Newlink, NlmF::empty(), builder.ifi_index(index.cast_signed()), attributes)
}

/// Sends a request, and waits until the kernel has executed it.
fn request(kind: Rtm, flags: NlmF, builder: IfinfomsgBuilder, attributes: Attributes) -> io::Result<()> {
    let message = builder.ifi_family(RtAddrFamily::Unspecified).rtattrs(attributes).build();
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
fn cause<T, P>(error: RouterError<T, P>) -> io::Error
where
    RouterError<T, P>: std::fmt::Display,
{
    match &error {
        RouterError::Nlmsgerr(refusal) => io::Error::from_raw_os_error(-refusal.error()),
        other => io::Error::other(other.to_string()),
    }
}

fn attribute<T: neli::consts::rtnl::RtaType, P: neli::Size + neli::ToBytes>(
    kind: T,
    payload: P,
) -> io::Result<Rtattr<T, Buffer>> {
    RtattrBuilder::default().rta_type(kind).rta_payload(payload).build().map_err(io::Error::other)
}
