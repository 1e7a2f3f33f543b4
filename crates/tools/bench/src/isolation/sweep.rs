//! The attacker's packets: headers that each differ from what an access list allows in one bit of an address
//! and of both ports. A switch that remembers decisions by the bits that they depended on remembers each of
//! them with a mask of its own, and searches all masks for every packet.

use p4shield_frame::ipv4;

/// Bits of an IPv4 address and of a port.
const BITS: [u32; 3] = [32, 16, 16];
/// The header combinations of a sweep.
pub(super) const COMBINATIONS: usize = (BITS[0] * BITS[1] * BITS[2]) as usize;

/// The headers of a UDP datagram over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// Ethernet addresses: destination and source.
    pub(super) macs: [[u8; 6]; 2],
    /// Source and destination.
    pub(super) addresses: [u32; 2],
    /// Source and destination.
    pub(super) ports: [u16; 2],
}

impl Headers {
    /// Returns the frame. A UDP checksum of zero means that there is none (RFC 768).
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut ip = [0_u8; 20];
        (ip[0], ip[8], ip[9]) = (0x45, 64, 17);
        ip[2..4].copy_from_slice(&28_u16.to_be_bytes());
        ip[12..20].copy_from_slice(self.addresses.map(u32::to_be_bytes).as_flattened());
        ipv4::set_checksum(&mut ip);
        let udp = [self.ports[0], self.ports[1], 8, 0].map(u16::to_be_bytes);
        let mut frame = [self.macs.as_flattened(), &[8, 0], &ip, udp.as_flattened()].concat();
        // The shortest frame of Ethernet, without its check sequence.
        frame.resize(60, 0);
        frame
    }
}

/// Returns the headers that differ from the allowed ones in one bit of the destination address, or of the
/// source address, and in one bit of each port.
pub(super) fn sweep(allowed: &Headers, of_source: bool) -> Vec<Headers> {
    let flipped = |n: u32| {
        let mut headers = *allowed;
        let [address, source, destination] = [n / (BITS[1] * BITS[2]), n / BITS[2] % BITS[1], n % BITS[2]];
        headers.addresses[usize::from(!of_source)] ^= 1 << address;
        headers.ports[0] ^= 1 << source;
        headers.ports[1] ^= 1 << destination;
        headers
    };
    (0..COMBINATIONS as u32).map(flipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ALLOWED: Headers =
        Headers { macs: [[2; 6], [4; 6]], addresses: [0x0a01_0003, 0x0ac8_0709], ports: [40_000, 8080] };

    #[test]
    fn a_sweep_has_8192_different_headers_of_one_source() {
        let frames: BTreeSet<_> = sweep(&ALLOWED, false).iter().map(Headers::frame).collect();
        assert_eq!(frames.len(), 8192);
        assert!(frames.iter().all(|f| f[6..12] == [4; 6] && f[26..30] == [10, 1, 0, 3]), "its own source");
        assert!(!frames.contains(&ALLOWED.frame()));
        assert!(frames.iter().all(|f| f.len() == 60 && ipv4::has_right_checksum(&f[14..])));
    }

    #[test]
    fn the_outside_sweeps_its_sources_towards_one_vm() {
        let frames: BTreeSet<_> = sweep(&ALLOWED, true).iter().map(Headers::frame).collect();
        assert_eq!(frames.len(), 8192);
        assert!(frames.iter().all(|f| f[30..34] == [10, 200, 7, 9]));
        // No source in the tenants' network 10.0.0.0/14, which the outside may not claim.
        let allowed = Headers { addresses: [0x0ac8_0709, 0x0a01_0003], ..ALLOWED };
        assert!(sweep(&allowed, true).iter().all(|h| h.addresses[0] >> 18 != 0x0a00_0000 >> 18));
    }
}
