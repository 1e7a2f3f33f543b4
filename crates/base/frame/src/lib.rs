//! The one view of a packet's headers.
//!
//! Every part of P4 Shield that reads or writes packet headers does it through this crate, so that no two
//! parts disagree about where a header begins: the mediator, the packet digest, the attachments' offload and
//! tunnel code, the test framework and the tests. The kernel's C programs are tested against it.
//!
//! | module | header | source |
//! |---|---|---|
//! | [`ethernet`] | Ethernet II, up to two VLAN tags | IEEE 802.3, 802.1Q |
//! | [`llc`] | LLC and SNAP behind a length field | IEEE 802.2, RFC 1042 |
//! | [`arp`] | ARP for IPv4 over Ethernet | RFC 826 |
//! | [`neighbour`] | ARP and neighbour discovery that every machine needs | RFC 826, 4861 |
//! | [`mpls`] | MPLS label stack entries | RFC 3032 |
//! | [`ipv4`] | IPv4, options and fragments | RFC 791 |
//! | [`ipv6`] | IPv6, extension headers | RFC 8200 |
//! | [`tcp`], [`udp`], [`icmp`] | transport | RFC 9293, 768, 792 and 4443 |
//! | [`vxlan`], [`geneve`] | tunnels | RFC 7348, 8926 |
//! | [`checksum`] | the Internet checksum, whole and incremental | RFC 1071, 1624 |
//! | [`transport`] | TCP, UDP or SCTP of a whole frame, and its pseudo header | |
//! | [`tunnel`] | the frame in VXLAN or Geneve, and the headers around it after a change | |
//! | [`layers`] | every header of a frame, one after the other | |
//!
//! A packet's way goes on in `p4shield_mediator::classify`, which decides by these headers whose
//! packet it is.
//!
//! # Conventions
//!
//! * Any bytes are valid input. No function panics, allocates or loops without a bound; a header that is not
//!   wholly there is `None`.
//! * Offsets and lengths are in bytes, from the beginning of the slice that was passed. Numbers
//!   that a function returns are in host byte order; the bytes of a packet are in network byte
//!   order.
//! * A view such as [`ipv4::Header`] borrows the header's fixed part and reads fields on demand. It judges
//!   nothing: a field may contradict the packet, and the caller checks what it relies on.
//!
//! # Why not a library
//!
//! `etherparse`, `smoltcp::wire`, `pnet_packet` and `ingot` refuse malformed headers or slice every
//! layer, whereas P4 Shield has to take a malformed IP packet for IP (so that a program judges it),
//! to bound VLAN tags and extension headers as its kernel programs do, and to read two addresses in
//! 2 ns (`etherparse::LaxSlicedPacket`: 36 ns). `etherparse` is the oracle of this crate's tests.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[macro_use]
mod bytes;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod geneve;
pub mod icmp;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
pub mod llc;
pub mod mpls;
pub mod neighbour;
pub mod tcp;
pub mod transport;
pub mod tunnel;
pub mod udp;
pub mod vxlan;

pub use checksum::Sum;
pub use transport::Transport;

/// Protocol numbers of IPv4's protocol field and IPv6's next header field (IANA, Protocol Numbers).
pub mod protocol {
    /// ICMP for IPv4 (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;
}
