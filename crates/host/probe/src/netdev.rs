//! XDP features of network interfaces: the generic netlink family `netdev` (`linux/netdev.h`, Linux 6.3).

use neli::consts::nl::NlmF;
use neli::consts::socket::NlFamily;
use neli::genl::{AttrTypeBuilder, Genlmsghdr, GenlmsghdrBuilder, NlattrBuilder};
use neli::nl::{NlPayload, Nlmsghdr};
use neli::router::synchronous::NlRouter;
use neli::types::GenlBuffer;
use neli::utils::Groups;
use std::error::Error;
use std::iter::once;

/// Name of the family.
const FAMILY: &str = "netdev";

/// Commands of the family.
#[neli::neli_enum(serialized_type = "u8")]
enum Command {
    /// Describes interfaces (`NETDEV_CMD_DEV_GET`).
    DevGet = 1,
}

impl neli::consts::genl::Cmd for Command {}

/// Attributes of an interface.
#[neli::neli_enum(serialized_type = "u16")]
enum Attribute {
    /// Its index (`NETDEV_A_DEV_IFINDEX`).
    Index = 1,
    /// What its driver offers (`NETDEV_A_DEV_XDP_FEATURES`).
    Features = 3,
}

impl neli::consts::genl::NlAttrType for Attribute {}

/// What a driver offers: bits of `enum netdev_xdp_act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features(pub(crate) u64);

impl Features {
    /// Returns whether programs run in the driver (`NETDEV_XDP_ACT_BASIC`).
    pub(crate) const fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether packets go to AF_XDP without a copy (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
    pub(crate) const fn zero_copy(self) -> bool {
        self.0 & 8 != 0
    }
}

/// Returns the features of the interface with this index in this network namespace.
///
/// # Errors
/// The kernel does not know the family or the interface, or the socket fails.
pub(crate) fn features(index: u32) -> Result<Features, Box<dyn Error>> {
    let (socket, _) = NlRouter::connect(NlFamily::Generic, Some(0), Groups::empty())?;
    let family = socket.resolve_genl_family(FAMILY)?;
    let kind = AttrTypeBuilder::default().nla_type(Attribute::Index).build()?;
    let attribute = NlattrBuilder::default().nla_type(kind).nla_payload(index).build()?;
    // One interface, as the kernel does not mark the messages of a dump as parts of one.
    let request = GenlmsghdrBuilder::default()
        .cmd(Command::DevGet)
        .version(1)
        .attrs(once(attribute).collect::<GenlBuffer<_, _>>())
        .build()?;
    let mut replies = socket.send::<_, _, u16, Genlmsghdr<Command, Attribute>>(
        family,
        NlmF::empty(),
        NlPayload::Payload(request),
    )?;
    let reply: Nlmsghdr<u16, Genlmsghdr<Command, Attribute>> = replies.next().ok_or("no reply")??;
    let payload = reply.get_payload().ok_or("no payload")?;
    Ok(Features(payload.attrs().get_attr_handle().get_attr_payload_as::<u64>(Attribute::Features)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_described_one_by_one() {
        match features(1) {
            Ok(loopback) => assert!(!loopback.native() && !loopback.zero_copy(), "{loopback:?}"),
            Err(error) => p4shield_need::skip("netdev", format!("Linux 6.3 has the family netdev: {error}")),
        }
        assert!(features(u32::MAX).is_err());
    }
}
