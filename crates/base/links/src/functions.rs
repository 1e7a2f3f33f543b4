//! Requests about the virtual functions of a network card, by its physical function's interface.

use crate::LinkError;
use crate::card::{Card, FunctionLink, INTERFACE, MESSAGE, VF_INFO, read, vf};
use crate::request::{attribute, change, index_of};
use neli::consts::rtnl::Ifla;
use neli::rtnl::IfinfomsgBuilder;
use neli::types::{Buffer, RtBuffer};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::io;

/// `RTM_GETLINK` and `NLM_F_REQUEST` (`include/uapi/linux/{rtnetlink,netlink}.h`).
const GET_LINK: u16 = 18;
const REQUEST: u16 = 1;
/// `IFLA_EXT_MASK` and `RTEXT_FILTER_VF`.
const EXT_MASK: u16 = 29;
const FILTER_VF: u32 = 1;
/// Number of the only request of a socket.
const SEQUENCE: u32 = 1;
/// The longest answer: the list of virtual functions is an attribute, whose length has 16 bits.
const LONGEST: usize = 1 << 18;

/// A change of a virtual function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionSetting {
    /// Its MAC address; zero: its driver chooses one. Its driver reads it when it starts.
    Mac([u8; 6]),
    /// Its VLAN, whose tag (IEEE 802.1Q) the card adds and removes; 0: none.
    Vlan(u16),
    /// The rate that it may send at most, in Mbit/s; 0: no limit.
    MaxRate(u32),
    /// True: the card drops its frames with another source MAC address.
    SpoofCheck(bool),
    /// True: it may receive foreign frames and change its address.
    Trust(bool),
    /// Its link.
    Link(FunctionLink),
}

impl FunctionSetting {
    const fn operation(self) -> &'static str {
        match self {
            Self::Mac(_) => "set the MAC address of",
            Self::Vlan(_) => "set the VLAN of",
            Self::MaxRate(_) => "set the rate of",
            Self::SpoofCheck(_) => "set the check of source addresses of",
            Self::Trust(_) => "set the trust in",
            Self::Link(_) => "set the link of",
        }
    }

    /// Returns its attribute's type and structure.
    fn encode(self, number: u32) -> (u16, Vec<u8>) {
        let words =
            |words: &[u32]| [&[number], words].concat().into_iter().flat_map(u32::to_ne_bytes).collect();
        match self {
            Self::Mac(mac) => (vf::MAC, [&number.to_ne_bytes()[..], &mac, &[0; 26]].concat()),
            Self::Vlan(vlan) => (vf::VLAN, words(&[vlan.into(), 0])),
            Self::MaxRate(rate) => (vf::RATE, words(&[0, rate])),
            Self::SpoofCheck(is_on) => (vf::SPOOFCHK, words(&[is_on.into()])),
            Self::Trust(is_on) => (vf::TRUST, words(&[is_on.into()])),
            Self::Link(link) => (vf::LINK_STATE, words(&[link.number()])),
        }
    }
}

/// Returns what the kernel says about a network card, given its physical function's interface.
///
/// # Errors
/// There is no interface with this name, or the answer is not one.
pub fn card(interface: &str) -> Result<Card, LinkError> {
    let index = index_of(interface)?;
    ask(index).map_err(LinkError::of("read the virtual functions of", interface))
}

/// Changes one setting of a virtual function.
///
/// # Errors
/// The kernel's refusal: `Unsupported` if the card's driver has no such setting.
pub fn set_function(interface: &str, number: u32, setting: FunctionSetting) -> Result<(), LinkError> {
    let index = index_of(interface)?;
    let set = || -> io::Result<()> {
        let (kind, value) = setting.encode(number);
        let settings: RtBuffer<u16, Buffer> = [attribute(kind, &value[..])?].into_iter().collect();
        let list: RtBuffer<u16, Buffer> = [attribute(VF_INFO, settings)?].into_iter().collect();
        let attributes = [attribute(Ifla::VfinfoList, list)?].into_iter().collect();
        change(IfinfomsgBuilder::default(), index, attributes)
    };
    let name = format!("virtual function {number} of {interface}");
    set().map_err(LinkError::of(setting.operation(), &name))
}

/// Asks for an interface with its virtual functions. Not by neli, which reads at most 32 KiB: those of about
/// 100 functions.
fn ask(index: u32) -> io::Result<Card> {
    // The default protocol is NETLINK_ROUTE, 0.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let request = question(index);
    // Without an address, a message goes to the kernel, and only the kernel's own come back.
    send(&socket, &request, SendFlags::empty())?;
    let (_, length) = recv(&socket, &mut [0; 0][..], RecvFlags::PEEK | RecvFlags::TRUNC)?;
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is too long"));
    }
    let mut answer = vec![0; length];
    recv(&socket, &mut answer[..], RecvFlags::empty())?;
    read(&answer, SEQUENCE)
}

/// Returns the request: `struct nlmsghdr`, `struct ifinfomsg`, and an attribute of 8 bytes.
fn question(index: u32) -> Vec<u8> {
    let length = (MESSAGE + INTERFACE + 8) as u32;
    let mut request = length.to_ne_bytes().to_vec();
    request.extend([GET_LINK, REQUEST].iter().flat_map(|half| half.to_ne_bytes()));
    let words = [SEQUENCE, 0, 0, index, 0, 0];
    request.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    request.extend([8, EXT_MASK].iter().flat_map(|half| half.to_ne_bytes()));
    request.extend(FILTER_VF.to_ne_bytes());
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_the_kernels_structure() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let (kind, mac) = FunctionSetting::Mac([2, 0, 0, 0, 0, 7]).encode(3);
        assert_eq!((kind, mac.len(), &mac[4..10]), (1, 36, &[2, 0, 0, 0, 0, 7][..]));
        for (setting, expected) in [
            (FunctionSetting::Vlan(10), (2, words(&[3, 10, 0]))),
            (FunctionSetting::SpoofCheck(true), (4, words(&[3, 1]))),
            (FunctionSetting::Link(FunctionLink::Down), (5, words(&[3, 2]))),
            (FunctionSetting::MaxRate(100), (6, words(&[3, 0, 100]))),
            (FunctionSetting::Trust(false), (9, words(&[3, 0]))),
        ] {
            assert_eq!(setting.encode(3), expected, "{setting:?}");
        }
    }

    #[test]
    fn the_kernel_tells_about_an_interface_without_functions() {
        let card = card("lo").unwrap();
        assert_eq!((card.index, card.device, card.count), (1, None, 0));
        assert_eq!(card.functions, []);
        assert!(self::card("no-such").is_err());
        let error = ask(0x7fff_ffff).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NODEV.raw_os_error()));
        let refusal = set_function("lo", 3, FunctionSetting::Vlan(10)).unwrap_err();
        assert_eq!(refusal.to_string(), "cannot set the VLAN of virtual function 3 of lo");
    }
}
