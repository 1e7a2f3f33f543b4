//! Announcements of addresses in the outside network: without a question, as RFC 5227 (section 2.3) has it
//! for ARP and RFC 4861 (section 7.2.6) for IPv6. Machines there learn from them that an address is at
//! another switch now, and do not wait until their own entries are too old.

use super::model::Compartment;
use etherparse::{ArpEthIpv4Packet, ArpOperation, PacketBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BROADCAST: [u8; 6] = [0xff; 6];
/// The Ethernet address of the group of all nodes.
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
/// That group.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Neighbour discovery takes a packet of this hop limit only, which no router has passed on.
const HOP_LIMIT: u8 = 255;
/// The ICMPv6 type of an advertisement.
const ADVERTISEMENT: u8 = 136;
/// The flag "override" of an advertisement.
const OVERRIDE: [u8; 4] = [0x20, 0, 0, 0];
/// An advertisement's option for the address of the link layer: its type, and its length in eight bytes.
const TARGET_LINK_LAYER: [u8; 2] = [2, 1];

impl Compartment {
    /// Returns the Ethernet frames by which the switch says at its port to the outside that it has the
    /// addresses of its VMs: one for each, without a frame check sequence.
    #[must_use]
    pub fn announcements(&self) -> Vec<Vec<u8>> {
        let mac = self.mac.into_array();
        let vms = self.tenants.iter().flat_map(|t| &t.vms);
        vms.flat_map(|vm| &vm.addresses)
            .map(|address| match address {
                IpAddr::V4(address) => arp(mac, *address),
                IpAddr::V6(address) => advertisement(mac, *address),
            })
            .collect()
    }
}

fn arp(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let packet = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: mac,
        sender_ipv4: address.octets(),
        target_mac: [0; 6],
        target_ipv4: address.octets(),
    };
    let mut frame = Vec::new();
    // Writing to a vector does not fail.
    let _ = PacketBuilder::ethernet2(mac, BROADCAST).arp(packet.into()).write_to_vec(&mut frame);
    frame
}

fn advertisement(mac: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    let body = [&address.octets()[..], &TARGET_LINK_LAYER, &mac].concat();
    let mut frame = Vec::new();
    // It fails only for a payload that is longer than IPv6 allows.
    let _ = PacketBuilder::ethernet2(mac, ALL_NODES_MAC)
        .ipv6(address.octets(), ALL_NODES.octets(), HOP_LIMIT)
        .icmpv6_raw(ADVERTISEMENT, 0, OVERRIDE)
        .write_to_vec(&mut frame, &body);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{SlicedPacket, TransportSlice};

    const MAC: [u8; 6] = [2, 0x50, 0x34, 0, 0, 7];

    #[test]
    fn an_ipv4_address_is_announced_as_a_request_for_itself() {
        let frame = arp(MAC, Ipv4Addr::new(10, 0, 0, 2));
        let expected = "ffffffffffff 025034000007 0806 \
                        0001 0800 06 04 0001 025034000007 0a000002 000000000000 0a000002";
        let text: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, expected.replace(' ', ""));
    }

    #[test]
    fn an_ipv6_address_is_announced_to_all_nodes() {
        let address: Ipv6Addr = "fd00::2".parse().unwrap();
        let frame = advertisement(MAC, address);
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(TransportSlice::Icmpv6(icmp)) = &packet.transport else { panic!("{packet:?}") };
        assert!(icmp.is_checksum_valid(address.octets(), ALL_NODES.octets()));
        assert_eq!(icmp.slice()[0..2], [ADVERTISEMENT, 0]);
        assert_eq!(icmp.slice()[4..8], OVERRIDE);
        assert_eq!(icmp.slice()[8..], [&address.octets()[..], &[2, 1], &MAC].concat());
        assert_eq!((frame[..6].to_vec(), frame[21]), (ALL_NODES_MAC.to_vec(), HOP_LIMIT));
    }
}
