//! Which fields of well-known headers the bytes of a packet are, to tell differences by name.

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
    /// The bytes in which it lies.
    #[must_use]
    pub const fn bytes(&self) -> Range<usize> {
        self.bit / 8..(self.bit + self.width).div_ceil(8)
    }

    /// Its bits in one byte.
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

struct Dissection<'p> {
    packet: &'p [u8],
    at: usize,
    fields: Vec<Field>,
}

impl Dissection<'_> {
    /// Adds a header if all of it is there.
    fn header(&mut self, name: &str, layout: Layout) -> bool {
        let bytes: usize = layout.iter().map(|(_, w)| w).sum::<usize>() / 8;
        if self.packet.len() < self.at + bytes {
            return false;
        }
        let mut bit = self.at * 8;
        for (field, width) in layout {
            self.fields.push(Field { name: format!("{name}.{field}"), bit, width: *width });
            bit += width;
        }
        self.at += bytes;
        true
    }

    /// Adds bytes that have no fields of their own.
    fn bytes(&mut self, name: &str, bytes: usize) {
        let bytes = bytes.min(self.packet.len().saturating_sub(self.at));
        if bytes > 0 {
            self.fields.push(Field { name: name.to_owned(), bit: self.at * 8, width: bytes * 8 });
            self.at += bytes;
        }
    }

    fn byte(&self, at: usize) -> usize {
        self.packet.get(at).copied().unwrap_or(0).into()
    }

    fn word(&self, at: usize) -> usize {
        self.byte(at) << 8 | self.byte(at + 1)
    }

    fn ethernet(&mut self) {
        if !self.header("ethernet", ETHERNET) {
            return;
        }
        let mut kind = self.word(self.at - 2);
        let mut tags = 0;
        while matches!(kind, 0x8100 | 0x88a8) && tags < 4 && self.header("vlan", VLAN) {
            kind = self.word(self.at - 2);
            tags += 1;
        }
        match kind {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            0x0806 => {
                self.header("arp", ARP);
            }
            0x8847 | 0x8848 => self.mpls(),
            _ => {}
        }
    }

    fn mpls(&mut self) {
        for _ in 0..8 {
            if !self.header("mpls", MPLS) {
                return;
            }
            if self.byte(self.at - 2) & 1 == 1 {
                break;
            }
        }
        match self.byte(self.at) >> 4 {
            4 => self.ipv4(),
            6 => self.ipv6(),
            _ => {}
        }
    }

    fn ipv4(&mut self) {
        let start = self.at;
        if !self.header("ipv4", IPV4) {
            return;
        }
        self.bytes("ipv4.options", ((self.byte(start) & 15) * 4).saturating_sub(20));
        if self.word(start + 6) & 0x1fff == 0 {
            self.transport(self.byte(start + 9));
        }
    }

    fn ipv6(&mut self) {
        let start = self.at;
        if self.header("ipv6", IPV6) {
            self.transport(self.byte(start + 6));
        }
    }

    fn transport(&mut self, protocol: usize) {
        match protocol {
            6 => {
                self.header("tcp", TCP);
            }
            17 => {
                self.header("udp", UDP);
            }
            1 | 58 => {
                self.header("icmp", ICMP);
            }
            _ => {}
        }
    }
}

/// The fields of a packet that starts with an Ethernet header, as far as they are known; what follows them is
/// `payload`.
#[must_use]
pub fn dissect(packet: &[u8]) -> Vec<Field> {
    let mut d = Dissection { packet, at: 0, fields: Vec::new() };
    d.ethernet();
    // Frames of tests often are no Ethernet at all; then plain bytes tell more than wrong names.
    if d.fields.len() <= ETHERNET.len() {
        return Vec::new();
    }
    d.bytes("payload", usize::MAX);
    d.fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_tags_and_options() {
        let mut p = vec![0; 12];
        p.extend([0x81, 0x00, 0x60, 0x07, 0x08, 0x00, 0x46]);
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
