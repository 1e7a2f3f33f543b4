//! Completes TCP and UDP checksums that a sender left to hardware.
//!
//! A sender whose interface promises to do checksums (every veth and most taps do) puts only the sum of the
//! pseudo-header into the field and says beside the packet that the rest is to be done (`CHECKSUM_PARTIAL`). AF_XDP
//! drops what is beside the packet, so the field itself has to tell: it equals the folded sum of the pseudo-header
//! exactly if nobody went on.
//!
//! A packet whose whole checksum happens to equal that sum (one in 65535) is told apart by nothing, and needs not
//! be: if it was right, completing gives the same value again; if it was wrong, it becomes right, which is the one
//! case in which we hide an error, of a packet that was damaged between the sender's stack and our interface, which
//! is a copy in memory.
//!
//! Sums are those of RFC 1071: of 16-bit words in the machine's order, which folds to the same bytes.

use super::headers::Transport;

/// Completes the checksum if it was left undone. Returns whether it was; nothing else is ever changed.
pub fn complete(frame: &mut [u8]) -> bool {
    let Some(found) = Transport::find(frame) else { return false };
    let field = found.checksum..found.checksum + 2;
    let stored = u16::from_ne_bytes([frame[field.start], frame[field.start + 1]]);
    // None was made, or (UDP over IPv6) none is wanted: a tunnel's outer header.
    if found.is_udp() && stored == 0 {
        return false;
    }
    let pseudo = pseudo_header(frame, &found);
    if !same(stored, fold(pseudo)) {
        return false;
    }
    // The field holds the pseudo-header's part, so that the sum over the segment is the sum over both.
    let sum = !fold(sum(&frame[found.segment.clone()]));
    let sum = if found.is_udp() && sum == 0 { !0 } else { sum };
    frame[field].copy_from_slice(&sum.to_ne_bytes());
    true
}

/// Whether a TCP or UDP checksum is right; `None` where there is none.
#[must_use]
pub fn is_right(frame: &[u8]) -> Option<bool> {
    let found = Transport::find(frame)?;
    let stored = u16::from_ne_bytes([frame[found.checksum], frame[found.checksum + 1]]);
    if found.is_udp() && stored == 0 {
        return None;
    }
    Some(fold(pseudo_header(frame, &found) + sum(&frame[found.segment])) == !0)
}

fn pseudo_header(frame: &[u8], found: &Transport) -> u64 {
    // Both as 16-bit words in network order; a segment within a frame has a length of 16 bits.
    let length = (found.segment.len() as u16).to_be();
    let protocol = u16::from(found.protocol).to_be();
    sum(&frame[found.addresses.clone()]) + u64::from(length) + u64::from(protocol)
}

/// Zero has two forms, and which one a sender's arithmetic ends in is its own business.
const fn same(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == !0) || (a == !0 && b == 0)
}

/// The sum of the words, not folded: at most 2^17 times 2^32 for anything that fits a frame.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|&w| u64::from(u32::from_ne_bytes(w))).sum();
    let mut tail = [0; 4];
    tail[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(tail));
    total
}

const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
