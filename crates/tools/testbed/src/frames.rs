//! Generated Ethernet frames, for tests that compare two readers of packet headers.
//!
//! The frames are plausible enough to get past each check and wrong often enough to fail it: VLAN
//! tags of every type, LLC and SNAP, ARP, MPLS, IPv4 with options and fragments, IPv6 with
//! extension headers and neighbour discovery, TCP, UDP, SCTP, ICMP, VXLAN, Geneve, lengths that
//! contradict, and flipped bits. A seed always gives the same frames.

/// IPv4 addresses that half of the IPv4 packets have, in network byte order.
pub const V4: [[u8; 4]; 2] = [[10, 7, 7, 7], [10, 7, 7, 8]];
/// IPv6 addresses that many of the IPv6 packets have, in network byte order.
pub const V6: [[u8; 16]; 2] = [
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8],
];

/// The first of [`V4`] as an IPv6 address, which is another address.
const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 7, 7, 7];

/// A generator of frames.
#[derive(Clone, Debug)]
pub struct Frames {
    state: u64,
}

impl Frames {
    /// Of a seed, which must not be zero.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns a number below `end` (xorshift64*).
    pub fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        ((self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % end
    }

    /// Puts a new frame into `frame`: at most 400 bytes.
    pub fn fill(&mut self, frame: &mut Vec<u8>) {
        frame.clear();
        self.ethernet(frame, 1);
        frame.truncate(400);
        if self.below(8) == 0 {
            let at = self.below(frame.len());
            frame[at] ^= 1 << self.below(8);
        }
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self, frame: &mut Vec<u8>, len: usize) {
        for _ in 0..len {
            frame.push(self.byte());
        }
    }

    fn ethernet(&mut self, frame: &mut Vec<u8>, tunnels: usize) {
        frame.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        for _ in 0..self.pick(&[0, 0, 0, 1, 1, 2, 2, 3]) {
            let tag: [u8; 2] = self.pick(&[[0x81, 0], [0x88, 0xa8], [0x91, 0], [0x91, 0], [0x92, 0]]);
            frame.extend(tag);
            self.bytes(frame, 2);
        }
        match self.below(20) {
            0..9 => self.ipv4(frame, tunnels),
            9..15 => self.ipv6(frame, tunnels),
            15 | 16 => self.discovery(frame),
            17 => {
                frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, self.pick(&[1, 1, 2, 3])]);
                self.bytes(frame, 20);
                let padding = self.pick(&[0, 0, 18, 19, 60]);
                self.bytes(frame, padding);
            }
            18 => {
                let [high, low]: [u8; 2] = self.pick(&[[8, 0], [8, 6], [0x86, 0xdd], [0x80, 0x9b]]);
                frame.extend([0, 60, 0xaa, 0xaa, 3, 0, 0, 0, high, low]);
                self.bytes(frame, 30);
            }
            _ => {
                let [high, low]: [u8; 2] = self.pick(&[[0x88, 0x47], [0x88, 0xcc], [0, 0], [0x08, 0x01]]);
                frame.extend([high, low]);
                self.bytes(frame, 40);
            }
        }
    }

    fn ipv4(&mut self, frame: &mut Vec<u8>, tunnels: usize) {
        let words: u8 = self.pick(&[5, 5, 5, 5, 5, 6, 10, 15, 4, 0]);
        let version: u8 = self.pick(&[4, 4, 4, 4, 4, 4, 4, 6]);
        let fragment: [u8; 2] =
            self.pick(&[[0, 0], [0, 0], [0x40, 0], [0x40, 0], [0x20, 0], [0, 5], [0x3f, 0xff]]);
        let protocol: u8 = self.pick(&[6, 6, 17, 17, 17, 1, 132, 58, 47]);
        frame.extend([8, 0]);
        let start = frame.len();
        frame.extend([version << 4 | words, 0, 0, 0, 1, 2, fragment[0], fragment[1], 64, protocol, 0, 0]);
        for _ in 0..2 {
            let address: [u8; 4] = self.pick(&[V4[0], V4[1], [10, 9, 9, 9], [0; 4]]);
            frame.extend(address);
        }
        self.bytes(frame, usize::from(words.saturating_sub(5)) * 4);
        self.transport(frame, protocol, tunnels);
        let total = (frame.len() - start) as u16;
        let total = self.lie(total);
        frame[start + 2..start + 4].copy_from_slice(&total.to_be_bytes());
    }

    fn ipv6(&mut self, frame: &mut Vec<u8>, tunnels: usize) {
        const EXTENSIONS: [u8; 9] = [0, 43, 44, 51, 60, 135, 139, 140, 60];
        let protocol: u8 = self.pick(&[6, 6, 17, 17, 58, 58, 132, 59, 50]);
        let version: u8 = self.pick(&[6, 6, 6, 6, 6, 6, 6, 4]);
        let extensions = self.pick(&[0, 0, 0, 0, 1, 2, 3, 18]);
        frame.extend([0x86, 0xdd]);
        let start = frame.len();
        frame.extend([version << 4, 0, 0, 0, 0, 0, protocol, self.pick(&[255, 255, 64])]);
        for _ in 0..2 {
            let address: [u8; 16] = self.pick(&[V6[0], V6[1], MAPPED, [0xfe; 16], [0; 16]]);
            frame.extend(address);
        }
        let mut next_at = start + 6;
        for _ in 0..extensions {
            let number = self.pick(&EXTENSIONS);
            frame[next_at] = number;
            next_at = frame.len();
            let words: u8 = self.pick(&[0, 0, 0, 1]);
            let len = match number {
                44 => 8,
                51 => (usize::from(words) + 2) * 4,
                _ => (usize::from(words) + 1) * 8,
            };
            frame.extend([protocol, words]);
            self.bytes(frame, 6);
            // No address left to visit, no later fragment, most of the time.
            if self.below(4) != 0 {
                frame[next_at + 2..next_at + 4].fill(0);
            }
            self.bytes(frame, len.saturating_sub(8));
        }
        self.transport(frame, protocol, tunnels);
        let len = (frame.len() - start - 40) as u16;
        let len = self.lie(len);
        frame[start + 4..start + 6].copy_from_slice(&len.to_be_bytes());
    }

    /// Neighbour discovery (RFC 4861), often valid.
    fn discovery(&mut self, frame: &mut Vec<u8>) {
        const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        const ALL_ROUTERS: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        const SOLICITED_V6_1: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 8];
        const AFAR: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 8];
        let kind: u8 = self.pick(&[133, 134, 135, 135, 136, 136, 137]);
        let (source, usual, fixed) = match kind {
            133 => (LINK_LOCAL, ALL_ROUTERS, 4),
            134 => (LINK_LOCAL, ALL_NODES, 12),
            135 => (V6[0], SOLICITED_V6_1, 4),
            _ => (V6[0], V6[1], 4),
        };
        let other: [u8; 16] = self.pick(&[V6[0], V6[1], LINK_LOCAL, ALL_NODES, AFAR, [0; 16]]);
        let source = self.pick(&[source, source, source, source, other]);
        let other: [u8; 16] = self.pick(&[V6[0], V6[1], LINK_LOCAL, ALL_NODES, ALL_ROUTERS, AFAR, [0; 16]]);
        let destination = self.pick(&[usual, usual, usual, usual, other]);
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 58, self.pick(&[255, 255, 255, 255, 64])]);
        let len_at = frame.len() - 4;
        frame.extend([source, destination].concat());
        let code: u8 = self.pick(&[0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([kind, code, self.byte(), self.byte()]);
        self.bytes(frame, fixed);
        if kind >= 135 {
            let target: [u8; 16] = self.pick(&[V6[1], V6[1], V6[1], V6[1], V6[0], ALL_NODES, AFAR, [0; 16]]);
            frame.extend(target);
        }
        for _ in 0..self.pick(&[0, 1, 1, 2, 3, 6]) {
            let option: u8 = self.pick(&[1, 1, 2, 2, 14, 14, 5]);
            let words: u8 = self.pick(&[1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 0]);
            frame.extend([option, words]);
            self.bytes(frame, (usize::from(words) * 8).max(8) - 2);
        }
        let len = (frame.len() - len_at - 36) as u16;
        let len = self.lie(len);
        frame[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
    }

    fn transport(&mut self, frame: &mut Vec<u8>, protocol: u8, tunnels: usize) {
        match protocol {
            6 => {
                self.bytes(frame, 12);
                frame.extend([self.pick(&[0x50, 0x50, 0x80, 0xf0, 0]), 0x10, 1, 0, 0, 0, 0, 0]);
            }
            17 => self.udp(frame, tunnels),
            58 => {
                let kind = 130 + self.below(12) as u8;
                frame.extend([kind, 0, 0, 0]);
            }
            _ => self.bytes(frame, 12),
        }
        let payload = self.pick(&[0, 1, 7, 20, 60, 120]);
        self.bytes(frame, payload);
    }

    fn udp(&mut self, frame: &mut Vec<u8>, tunnels: usize) {
        let port: u16 = self.pick(&[53, 4789, 6081, 4789, 6081]);
        self.bytes(frame, 2);
        frame.extend(port.to_be_bytes());
        let at = frame.len();
        frame.extend([0, 0, self.byte(), self.byte()]);
        match port {
            4789 => {
                let flags: u8 = self.pick(&[8, 8, 8, 8, 0x0c, 0]);
                frame.extend([flags, 0, 0, self.pick(&[0, 3, 1]), 0, 0, self.pick(&[7, 8]), 0]);
            }
            6081 => {
                let options = self.below(4) as u8;
                let version: u8 = self.pick(&[0, 0, 0, 0, 1]);
                let bridged: [u8; 2] = self.pick(&[[0x65, 0x58], [0x65, 0x58], [0x65, 0x58], [8, 0]]);
                frame.extend([
                    version << 6 | options,
                    0,
                    bridged[0],
                    bridged[1],
                    0,
                    0,
                    self.pick(&[7, 8]),
                    0,
                ]);
                self.bytes(frame, usize::from(options) * 4);
            }
            _ => {}
        }
        if port != 53 && tunnels > 0 {
            self.ethernet(frame, tunnels - 1);
        }
        let len = (frame.len() - at + 4) as u16;
        frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }

    /// Returns a length, which now and then is wrong.
    fn lie(&mut self, len: u16) -> u16 {
        match self.below(12) {
            0 => len.wrapping_add(self.below(9) as u16),
            1 => self.below(80) as u16,
            _ => len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_frames_and_no_two_alike() {
        let (mut frames, mut again) = (Frames::new(7), Frames::new(7));
        let mut seen = std::collections::HashSet::new();
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            frames.fill(&mut a);
            again.fill(&mut b);
            assert_eq!(a, b);
            assert!((14..=400).contains(&a.len()));
            seen.insert(a.clone());
        }
        assert!(seen.len() > 990, "{}", seen.len());
    }
}
