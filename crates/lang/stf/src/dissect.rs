//! Names the fields of a packet's well-known headers, so that differences are reported by name.

use p4shield_frame::layers::{LayerKind, Layers};
use std::ops::Range;

/// A field of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Header and field, such as `ipv4.ttl`.
    pub name: String,
    /// First bit.
    pub bit: usize,
    /// How many bits.
    pub width: usize,
}

impl Field {
    /// Returns the bytes that hold it.
    #[must_use]
    pub const fn bytes(&self) -> Range<usize> {
        self.bit / 8..(self.bit + self.width).div_ceil(8)
    }

    /// Returns its bits in one byte.
    #[must_use]
    pub fn mask(&self, byte: usize) -> u8 {
        let bit = |b: usize| {
            let at = byte * 8 + b;
            u8::from(at >= self.bit && at < self.bit + self.width) << (7 - b)
        };
        (0..8).map(bit).sum()
    }
}

type Layout = &'static [(&'static str, usize)];

const ETHERNET: Layout = &[("dst", 48), ("src", 48), ("type", 16)];
const VLAN: Layout = &[("pcp", 3), ("dei", 1), ("vid", 12), ("type", 16)];
const LLC_SNAP: Layout = &[("dsap", 8), ("ssap", 8), ("control", 8), ("organisation", 24), ("type", 16)];
const ARP: Layout = &[
    ("hardware", 16),
    ("protocol", 16),
    ("hardware_len", 8),
    ("protocol_len", 8),
    ("operation", 16),
    ("sender_mac", 48),
    ("sender_ip", 32),
    ("target_mac", 48),
    ("target_ip", 32),
];
const IPV4: Layout = &[
    ("version", 4),
    ("ihl", 4),
    ("dscp", 6),
    ("ecn", 2),
    ("total_len", 16),
    ("identification", 16),
    ("flags", 3),
    ("fragment_offset", 13),
    ("ttl", 8),
    ("protocol", 8),
    ("checksum", 16),
    ("src", 32),
    ("dst", 32),
];
const IPV6: Layout = &[
    ("version", 4),
    ("traffic_class", 8),
    ("flow_label", 20),
    ("payload_len", 16),
    ("next_header", 8),
    ("hop_limit", 8),
    ("src", 128),
    ("dst", 128),
];
const TCP: Layout = &[
    ("src_port", 16),
    ("dst_port", 16),
    ("sequence", 32),
    ("acknowledgement", 32),
    ("data_offset", 4),
    ("reserved", 4),
    ("flags", 8),
    ("window", 16),
    ("checksum", 16),
    ("urgent", 16),
];
const UDP: Layout = &[("src_port", 16), ("dst_port", 16), ("len", 16), ("checksum", 16)];
const ICMP: Layout = &[("type", 8), ("code", 8), ("checksum", 16)];
const MPLS: Layout = &[("label", 20), ("tc", 3), ("bottom", 1), ("ttl", 8)];
const IPV6_EXTENSION: Layout = &[("next_header", 8), ("len", 8)];
const VXLAN: Layout = &[("flags", 8), ("reserved", 24), ("vni", 24), ("reserved2", 8)];
const GENEVE: Layout =
    &[("version", 2), ("options_len", 6), ("flags", 8), ("protocol", 16), ("vni", 24), ("reserved", 8)];

/// Returns a header's name and the fields of its fixed part.
const fn layout(kind: LayerKind) -> (&'static str, Layout) {
    match kind {
        LayerKind::Ethernet => ("ethernet", ETHERNET),
        LayerKind::Vlan => ("vlan", VLAN),
        LayerKind::LlcSnap => ("llc", LLC_SNAP),
        LayerKind::Arp => ("arp", ARP),
        LayerKind::Mpls => ("mpls", MPLS),
        LayerKind::Ipv4 => ("ipv4", IPV4),
        LayerKind::Ipv6 => ("ipv6", IPV6),
        LayerKind::Ipv6Extension => ("ipv6_extension", IPV6_EXTENSION),
        LayerKind::Tcp => ("tcp", TCP),
        LayerKind::Udp => ("udp", UDP),
        LayerKind::Icmp => ("icmp", ICMP),
        LayerKind::Vxlan => ("vxlan", VXLAN),
        LayerKind::Geneve => ("geneve", GENEVE),
    }
}

/// Returns the fields of a packet that starts with an Ethernet header, as far as its headers are
/// known. The fields `options` and `payload` are bytes without names of their own.
#[must_use]
pub fn dissect(packet: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut end = 0;
    let mut known = false;
    for layer in Layers::new(packet) {
        let (name, layout) = layout(layer.kind);
        known |= layer.kind != LayerKind::Ethernet;
        end = layer.range.end;
        let mut bit = layer.range.start * 8;
        for (field, width) in layout {
            fields.push(Field { name: format!("{name}.{field}"), bit, width: *width });
            bit += width;
        }
        fields.extend(bytes(format!("{name}.options"), bit / 8..end));
    }
    // Tests often send frames that are no Ethernet at all; no names are better than wrong ones.
    if !known {
        return Vec::new();
    }
    fields.extend(bytes("payload".to_owned(), end..packet.len()));
    fields
}

/// Returns a field of whole bytes, if there are any.
fn bytes(name: String, range: Range<usize>) -> Option<Field> {
    (!range.is_empty()).then(|| Field { name, bit: range.start * 8, width: range.len() * 8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_tags_and_options() {
        let mut p = vec![0; 12];
        p.extend([0x91, 0x00, 0x60, 0x07, 0x08, 0x00, 0x46]);
        p.resize(18 + 9, 0);
        p.push(17);
        p.resize(18 + 24 + 8 + 3, 0);
        let fields = dissect(&p);
        let named = |n: &str| fields.iter().find(|f| f.name == n).map(Field::bytes);
        assert_eq!(named("vlan.vid"), Some(14..16));
        assert_eq!(named("ipv4.ttl"), Some(26..27));
        assert_eq!(named("ipv4.options"), Some(38..42));
        assert_eq!(named("udp.dst_port"), Some(44..46));
        assert_eq!(named("payload"), Some(50..53));
    }

    #[test]
    fn any_bytes_are_dissected() {
        for n in 0..200 {
            for fill in [0u8, 0x08, 0x45, 0x81, 0xff] {
                let p = vec![fill; n];
                assert!(dissect(&p).iter().all(|f| f.bytes().end <= n));
            }
        }
    }
}
