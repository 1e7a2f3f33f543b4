//! Network cards with virtual functions (SR-IOV), as the kernel describes them. Nothing that it says is
//! believed to be well formed.

use crate::attributes::{Attributes, half, word};
use std::io;

/// Bytes of `struct nlmsghdr` and of `struct ifinfomsg`.
pub(crate) const MESSAGE: usize = 16;
pub(crate) const INTERFACE: usize = 16;
/// `NLMSG_ERROR` (`include/uapi/linux/netlink.h`) and `RTM_NEWLINK` (`include/uapi/linux/rtnetlink.h`).
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
/// `IFF_UP` and `IFF_LOWER_UP` (`include/uapi/linux/if.h`).
const UP: u32 = 1;
const LOWER_UP: u32 = 1 << 16;
/// `IFLA_NUM_VF`, `IFLA_VFINFO_LIST` and `IFLA_PARENT_DEV_NAME` (`include/uapi/linux/if_link.h`).
const NUM_VF: u16 = 21;
const VFINFO_LIST: u16 = 22;
const PARENT_DEV_NAME: u16 = 56;
/// `IFLA_VF_INFO`.
pub(crate) const VF_INFO: u16 = 1;
/// ETH_P_8021Q, the tag of an ordinary VLAN.
const CUSTOMER_TAG: u16 = 0x8100;

/// `IFLA_VF_MAC` and those that follow it.
pub(crate) mod vf {
    pub(crate) const MAC: u16 = 1;
    pub(crate) const VLAN: u16 = 2;
    pub(crate) const SPOOFCHK: u16 = 4;
    pub(crate) const LINK_STATE: u16 = 5;
    pub(crate) const RATE: u16 = 6;
    pub(crate) const STATS: u16 = 8;
    pub(crate) const TRUST: u16 = 9;
    pub(crate) const VLAN_LIST: u16 = 12;
}

/// A network card, as its physical function's interface tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Index of the physical function's interface.
    pub index: u32,
    /// True if that interface is up; otherwise no virtual function has a link.
    pub is_up: bool,
    /// True if the card has a link.
    pub has_link: bool,
    /// The physical function's device, as a PCI address like `0000:01:00.0`. `None`: it is no device of a
    /// bus, or the kernel is older than Linux 5.14.
    pub device: Option<String>,
    /// How many virtual functions there are.
    pub count: u32,
    /// Those of which the driver tells the settings, by number.
    pub functions: Vec<VirtualFunction>,
}

/// The settings of a virtual function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualFunction {
    /// Its number, from 0.
    pub number: u32,
    /// The MAC address that it was given; zero: none, and its driver chooses one.
    pub mac: [u8; 6],
    /// Its VLAN, 1 to 4094; 0: none.
    pub vlan: u16,
    /// The priority in its VLAN's tag.
    pub priority: u32,
    /// True if the tag is not that of IEEE 802.1Q but a service provider's (IEEE 802.1ad).
    pub has_service_tag: bool,
    /// The rate that it may always send, in Mbit/s; 0: none.
    pub min_rate: u32,
    /// The rate that it may send at most, in Mbit/s; 0: no limit.
    pub max_rate: u32,
    /// True if the card drops frames with another source MAC address. `None`: the driver does not say.
    pub spoof_check: Option<bool>,
    /// True if it may receive foreign frames and change its address. `None`: the driver does not say.
    pub trusted: Option<bool>,
    /// Its link.
    pub link: FunctionLink,
    /// Its traffic. All zero if the driver does not count it: the kernel does not say which.
    pub traffic: FunctionTraffic,
}

/// The link of a virtual function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FunctionLink {
    /// It is the card's. Also that of drivers without such a setting.
    #[default]
    Auto,
    /// Always up: virtual functions reach each other without the card's link.
    Up,
    /// Always down: it neither sends nor receives.
    Down,
}

impl FunctionLink {
    /// Returns its number, as `enum` of `IFLA_VF_LINK_STATE`.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Auto => 0,
            Self::Up => 1,
            Self::Down => 2,
        }
    }
}

/// Traffic of a virtual function since it was made, from its own point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionTraffic {
    /// Frames that it received.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that it sent.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that it sent and the card dropped.
    pub sent_dropped: u64,
}

/// Reads the kernel's answer to the request with number `sequence` for an interface.
///
/// # Errors
/// The kernel's refusal, or `InvalidData`: it is no such answer.
pub(crate) fn read(answer: &[u8], sequence: u32) -> io::Result<Card> {
    let mut rest = answer;
    while let Some(length) = word(rest, 0) {
        let length = length as usize;
        let message = rest.get(..length).filter(|message| message.len() >= MESSAGE).ok_or_else(malformed)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if word(message, 8) != Some(sequence) {
            continue;
        }
        let payload = &message[MESSAGE..];
        match half(message, 4) {
            Some(NEW_LINK) => return card(payload).ok_or_else(malformed),
            Some(ERROR) => {
                let code = word(payload, 0).ok_or_else(malformed)?.cast_signed();
                // 0 is an acknowledgement, which was not asked for.
                let code = code.checked_neg().filter(|code| *code > 0).ok_or_else(malformed)?;
                return Err(io::Error::from_raw_os_error(code));
            }
            _ => {}
        }
    }
    Err(malformed())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is malformed")
}

/// Reads `struct ifinfomsg` and the attributes behind it.
fn card(payload: &[u8]) -> Option<Card> {
    let flags = word(payload, 8)?;
    let mut card = Card {
        index: word(payload, 4)?,
        is_up: flags & UP != 0,
        has_link: flags & LOWER_UP != 0,
        ..Card::default()
    };
    for attribute in Attributes(payload.get(INTERFACE..)?) {
        match attribute? {
            (NUM_VF, value) => card.count = word(value, 0)?,
            (PARENT_DEV_NAME, value) => card.device = Some(text(value)?.to_owned()),
            (VFINFO_LIST, list) => {
                for function in Attributes(list) {
                    if let (VF_INFO, settings) = function? {
                        card.functions.push(self::function(settings)?);
                    }
                }
            }
            _ => {}
        }
    }
    card.functions.sort_by_key(|function| function.number);
    card.functions.dedup_by_key(|function| function.number);
    Some(card)
}

fn function(settings: &[u8]) -> Option<VirtualFunction> {
    let mut function = VirtualFunction::default();
    let mut is_numbered = false;
    for attribute in Attributes(settings) {
        let (kind, value) = attribute?;
        // Each of the structures begins with the function's number; the other ones are lists.
        match kind {
            vf::MAC => {
                function.number = word(value, 0)?;
                function.mac = *value.get(4..)?.first_chunk()?;
                is_numbered = true;
            }
            vf::VLAN => {
                function.vlan = u16::try_from(word(value, 4)?).ok()?;
                function.priority = word(value, 8)?;
            }
            vf::RATE => (function.min_rate, function.max_rate) = (word(value, 4)?, word(value, 8)?),
            vf::SPOOFCHK => function.spoof_check = setting(word(value, 4)?),
            vf::TRUST => function.trusted = setting(word(value, 4)?),
            vf::LINK_STATE => {
                let all = [FunctionLink::Auto, FunctionLink::Up, FunctionLink::Down];
                let number = word(value, 4)?;
                function.link = all.into_iter().find(|link| link.number() == number)?;
            }
            vf::VLAN_LIST => {
                let first = Attributes(value).next();
                let protocol = first.and_then(|first| first?.1.get(12..)?.first_chunk().copied());
                function.has_service_tag = protocol.map(u16::from_be_bytes) != Some(CUSTOMER_TAG);
            }
            vf::STATS => function.traffic = traffic(value)?,
            _ => {}
        }
    }
    is_numbered.then_some(function)
}

/// Returns a setting that a driver need not know: all bits are set then.
const fn setting(value: u32) -> Option<bool> {
    if value == u32::MAX { None } else { Some(value != 0) }
}

fn traffic(list: &[u8]) -> Option<FunctionTraffic> {
    let mut traffic = FunctionTraffic::default();
    for attribute in Attributes(list) {
        let (kind, value) = attribute?;
        // `IFLA_VF_STATS_RX_PACKETS` and those that follow it.
        let counter = match kind {
            0 => &mut traffic.received_packets,
            1 => &mut traffic.sent_packets,
            2 => &mut traffic.received_bytes,
            3 => &mut traffic.sent_bytes,
            8 => &mut traffic.sent_dropped,
            _ => continue,
        };
        *counter = u64::from_ne_bytes(*value.first_chunk()?);
    }
    Some(traffic)
}

/// Returns a string that ends with zero.
fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_suffix(&[0])?).ok()
}

#[cfg(test)]
mod tests;
