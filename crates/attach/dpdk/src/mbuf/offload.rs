//! What a rewrite does to a packet's flags.
//!
//! *Promises* of the receiving side about the old headers (checksums known, hash, packet type, flow
//! mark) are cleared. *Requests* stay: a packet whose layer-4 checksum is left to others (a guest's
//! `TX` request that vhost passes on, or "not computed but good") gets the pseudo header's sum of
//! the new headers in the field and the new header lengths, so that the device or switch that
//! completes it computes the right one, whatever the program did to the field. Programs see such a
//! packet with the checksum undone. If the new headers have no such field (another protocol, a
//! tunnel around them), it could not be completed, and the rewrite is refused.

use super::layout::flags;
use p4shield_frame::ipv6;
use p4shield_frame::transport::{Protocol, Transport};
use p4shield_mediator::RewriteRefused;

/// Promises about bytes that may have changed.
const PROMISES: u64 = flags::RX_RSS_HASH
    | flags::RX_FDIR
    | flags::RX_FDIR_ID
    | flags::RX_FDIR_FLX
    | flags::RX_IP_CKSUM_MASK
    | flags::RX_L4_CKSUM_MASK
    | flags::RX_OUTER_IP_CKSUM_BAD
    | flags::RX_OUTER_L4_CKSUM_MASK;

/// Requests that concern headers inside headers, or encryption: a rewrite cannot be checked against them.
const UNTOUCHABLE: u64 = flags::TX_TUNNEL_MASK
    | flags::TX_OUTER_IP_CKSUM
    | flags::TX_OUTER_UDP_CKSUM
    | flags::TX_OUTER_IPV4
    | flags::TX_OUTER_IPV6
    | flags::TX_SEC_OFFLOAD
    | flags::TX_MACSEC;

const SEGMENT: u64 = flags::TX_TCP_SEG | flags::TX_UDP_SEG;
const REQUESTS: u64 = SEGMENT | flags::TX_L4_MASK | flags::TX_IP_CKSUM | flags::TX_IPV4 | flags::TX_IPV6;

/// What a packet requests of the device that sends it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    flags: u64,
    /// The protocol whose checksum is left to others.
    undone: Option<Protocol>,
}

impl Requests {
    /// Reads those of a packet before it is rewritten.
    ///
    /// # Errors
    /// A rewrite could not satisfy them.
    pub(crate) fn of(flags: u64, front: &[u8]) -> Result<Self, RewriteRefused> {
        if flags & UNTOUCHABLE != 0 {
            return Err(RewriteRefused);
        }
        let requested = flags & (SEGMENT | flags::TX_L4_MASK) != 0
            || flags & flags::RX_L4_CKSUM_MASK == flags::RX_L4_CKSUM_MASK;
        let undone = if requested { Some(transport(front).ok_or(RewriteRefused)?.protocol) } else { None };
        Ok(Self { flags, undone })
    }

    /// Updates flags and `tx_offload` for the new headers, which begin `front`.
    ///
    /// # Errors
    /// The new headers have no field for what was requested.
    pub(crate) fn settle(
        self,
        front: &mut [u8],
        ol_flags: &mut u64,
        tx_offload: &mut u64,
    ) -> Result<(), RewriteRefused> {
        // Not those of before: if the packet was copied, what says where its bytes are has changed.
        let mut new = *ol_flags & !PROMISES;
        // The tag's copy is right as long as the tag is not in the data, where it may have been changed.
        if new & (flags::RX_VLAN_STRIPPED | flags::RX_QINQ_STRIPPED) == 0 {
            new &= !(flags::RX_VLAN | flags::RX_QINQ);
        }
        if let Some(undone) = self.undone {
            let found = transport(front).filter(|t| t.protocol == undone).ok_or(RewriteRefused)?;
            leave_undone(&found, front);
            if self.flags & flags::RX_L4_CKSUM_MASK == flags::RX_L4_CKSUM_MASK {
                new |= flags::RX_L4_CKSUM_MASK;
            }
        }
        if self.flags & REQUESTS != 0 {
            let found = transport(front).ok_or(RewriteRefused)?;
            let old_v6 = self.flags & flags::TX_IPV6 != 0;
            if self.flags & (flags::TX_IPV4 | flags::TX_IPV6) != 0 && old_v6 != found.is_v6 {
                return Err(RewriteRefused);
            }
            *tx_offload = with_lengths(*tx_offload, &found, front)?;
        }
        *ol_flags = new;
        Ok(())
    }
}

/// Finds the transport header, right behind IPv4 or the fixed IPv6 header: DPDK's drivers find no other.
fn transport(front: &[u8]) -> Option<Transport> {
    Transport::find(front).filter(|found| !found.is_v6 || found.ip_len == ipv6::HEADER_LEN)
}

/// Writes what the checksum's field holds while the checksum is left to others.
fn leave_undone(found: &Transport, front: &mut [u8]) {
    let sum = found.pseudo_header(front);
    let Some(field) = front.get_mut(found.checksum()) else { return };
    match found.protocol {
        Protocol::Tcp | Protocol::Udp => field.copy_from_slice(&sum.folded().to_be_bytes()),
        // A CRC over the packet, with no pseudo header.
        Protocol::Sctp => field.fill(0),
    }
}

/// Returns `tx_offload` with the header lengths; see `RawMbuf::tx_offload` for its layout.
fn with_lengths(tx_offload: u64, found: &Transport, front: &[u8]) -> Result<u64, RewriteRefused> {
    let (l2, l3, l4) = (found.link_len as u64, found.ip_len as u64, found.header_len(front) as u64);
    if l2 >= 1 << 7 || l3 >= 1 << 9 || l4 >= 1 << 8 {
        return Err(RewriteRefused);
    }
    Ok(tx_offload & !0xff_ffff | l2 | l3 << 7 | l4 << 16)
}
