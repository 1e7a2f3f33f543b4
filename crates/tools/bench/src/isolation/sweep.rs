//! The adversary's packets: headers that each differ from what an access list allows in one bit of an address
//! and of both ports. A switch that remembers decisions by the bits that they depended on remembers each of
//! them with a mask of its own, and searches all masks for every packet.

use crate::fixture::headers::Headers;

/// Bits of an IPv4 address and of a port.
const BITS: [u32; 3] = [32, 16, 16];
/// The header combinations of a sweep.
pub(super) const COMBINATIONS: usize = (BITS[0] * BITS[1] * BITS[2]) as usize;

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
    use p4shield_frame::ipv4;
    use std::collections::BTreeSet;

    const ALLOWED: Headers =
        Headers { macs: [[2; 6], [4; 6]], addresses: [0x0a01_0003, 0x0ac8_0709], ports: [40_000, 8080] };

    #[test]
    fn a_sweep_has_8192_different_headers_of_one_source() {
        let frames: BTreeSet<_> = sweep(&ALLOWED, false).iter().map(|h| h.frame(&[])).collect();
        assert_eq!(frames.len(), 8192);
        assert!(frames.iter().all(|f| f[6..12] == [4; 6] && f[26..30] == [10, 1, 0, 3]), "its own source");
        assert!(!frames.contains(&ALLOWED.frame(&[])));
        assert!(frames.iter().all(|f| f.len() == 60 && ipv4::has_right_checksum(&f[14..])));
    }

    #[test]
    fn the_outside_sweeps_its_sources_towards_one_vm() {
        let frames: BTreeSet<_> = sweep(&ALLOWED, true).iter().map(|h| h.frame(&[])).collect();
        assert_eq!(frames.len(), 8192);
        assert!(frames.iter().all(|f| f[30..34] == [10, 200, 7, 9]));
        // No source in the tenants' network 10.0.0.0/14, which the outside may not claim.
        let allowed = Headers { addresses: [0x0ac8_0709, 0x0a01_0003], ..ALLOWED };
        assert!(sweep(&allowed, true).iter().all(|h| h.addresses[0] >> 18 != 0x0a00_0000 >> 18));
    }
}
