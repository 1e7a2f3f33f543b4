//! Completes TCP and UDP checksums that a sender left to hardware.
//!
//! A sender whose interface promises to do checksums (every veth and most taps do) puts only the
//! sum of the pseudo header into the field and leaves the rest to the interface
//! (`CHECKSUM_PARTIAL`). The kernel keeps that mark beside the packet, where AF_XDP drops it, so
//! the field itself has to show it: it equals the pseudo header's sum exactly if the sender stopped
//! there.
//!
//! One whole checksum in 65535 equals that sum, too. If it was right, completing it gives the same
//! value again. If it was wrong, it becomes right: the one case in which an error is hidden, of a
//! packet that was damaged in a copy in memory between the sender's stack and this interface.

use p4shield_frame::transport::Protocol;
use p4shield_frame::{Sum, Transport};

/// Completes the checksum if it was left undone, and reports whether it was. Nothing else changes.
pub fn complete(frame: &mut [u8]) -> bool {
    let Some(found) = find(frame) else { return false };
    let Some(stored) = stored(frame, &found) else { return false };
    if Sum::word(stored) != found.pseudo_header(frame) {
        return false;
    }
    // The field holds the pseudo header's part, so that the sum over the segment is the sum over both.
    let sum = Sum::of(&frame[found.segment()]);
    let checksum = if found.protocol == Protocol::Udp { sum.udp_checksum() } else { sum.checksum() };
    frame[found.checksum()].copy_from_slice(&checksum.to_be_bytes());
    true
}

/// Reports whether a TCP or UDP checksum is right; `None` where there is none.
#[must_use]
pub fn is_right(frame: &[u8]) -> Option<bool> {
    let found = find(frame)?;
    stored(frame, &found)?;
    Some((found.pseudo_header(frame) + Sum::of(&frame[found.segment()])).checksum() == 0)
}

/// Finds TCP or UDP that is wholly within the frame.
pub(crate) fn find(frame: &[u8]) -> Option<Transport> {
    let found = Transport::find(frame).filter(|found| found.protocol != Protocol::Sctp)?;
    let whole = found.len >= found.protocol.header_len() && found.segment().end <= frame.len();
    whole.then_some(found)
}

/// Returns what the field holds. `None` for UDP without a checksum: over IPv6, a tunnel's outer header.
fn stored(frame: &[u8], found: &Transport) -> Option<u16> {
    let field = u16::from_be_bytes(*frame[found.checksum()].first_chunk()?);
    (field != 0 || found.protocol != Protocol::Udp).then_some(field)
}

#[cfg(test)]
mod tests;
