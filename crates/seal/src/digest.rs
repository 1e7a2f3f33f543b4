//! The keyed digest of one packet, whose sums a P4 VM and an auditor compare.
//!
//! Both ends must get the same number for the same packet although they see it at different places, and a cloud
//! must not find two sets of packets with the same sum. Hence SipHash-1-3 under a key that only they have; sums
//! are published encrypted, so the cloud never sees an output. The key belongs to the tenant and the VM and not to
//! an epoch: the auditor's sum runs on while a P4 VM restarts, and needs no exchange to begin.
//!
//! What goes in: the packet's length and four zero bytes, then its first bytes up to [`DIGEST_BYTES`], filled up with
//! zeros to whole words, with the layer-4 checksum zeroed, since offloads fill that in anywhere between the two.

use std::hash::Hasher;

use p4shield_abi::log::DIGEST_BYTES;
use siphasher::sip::SipHasher13;
use zeroize::Zeroizing;

use crate::derive::{Identity, Purpose, PurposeKey};
use crate::key::TenantKey;

/// Digests packets.
#[derive(Clone)]
pub struct PacketDigest {
    key: Zeroizing<[u8; 16]>,
    sip: SipHasher13,
}

impl PacketDigest {
    /// From the 16-byte key itself.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self { key: Zeroizing::new(*key), sip: SipHasher13::new_with_key(key) }
    }

    /// Under the key of a tenant's VM; both ends derive the same.
    #[must_use]
    pub fn for_vm(key: &TenantKey, identity: &Identity<'_>) -> Self {
        let derived = PurposeKey::new(key, Purpose::Digest, identity);
        Self::new(derived.bytes().first_chunk().expect("32 bytes hold 16"))
    }

    /// The 16-byte key, for the part of the auditor that runs in the kernel. Whoever calls this answers for the
    /// copy.
    #[must_use]
    pub fn expose_key(&self) -> &[u8; 16] {
        &self.key
    }

    /// The digest of a packet of `packet_len` bytes that begins with `header`: the Ethernet header on, as many
    /// bytes as are at hand. At most [`DIGEST_BYTES`] of them count, so both ends must have the same number.
    #[must_use]
    pub fn digest(&self, header: &[u8], packet_len: u32) -> u64 {
        let header = &header[..header.len().min(DIGEST_BYTES)];
        let mut sip = self.sip;
        let [a, b, c, d] = packet_len.to_le_bytes();
        write(&mut sip, [a, b, c, d, 0, 0, 0, 0]);
        // The field is at an even place, so it is inside one word: those before it, itself, those after it.
        let mut rest = header;
        if let Some(field) = l4_checksum(header).filter(|at| at + 2 <= header.len()) {
            let (before, from) = header.split_at(field / 8 * 8);
            write_all(&mut sip, before);
            let (mut word, len) = first_word(from);
            word[field % 8] = 0;
            word[field % 8 + 1] = 0;
            write(&mut sip, word);
            rest = &from[len..];
        }
        write_all(&mut sip, rest);
        sip.finish()
    }
}

#[inline]
fn write(sip: &mut SipHasher13, word: [u8; 8]) {
    sip.write_u64(u64::from_ne_bytes(word));
}

/// Writes whole words, the last one filled up with zeros.
#[inline]
fn write_all(sip: &mut SipHasher13, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        write(sip, *word);
    }
    if !rest.is_empty() {
        write(sip, first_word(rest).0);
    }
}

/// The first eight bytes, filled up with zeros, and how many there were.
#[inline]
fn first_word(bytes: &[u8]) -> ([u8; 8], usize) {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    (word, len)
}

/// Where the checksum of TCP or UDP is, if the bytes have one: Ethernet, up to two VLAN tags, IPv4 (any IHL, not a
/// later fragment) or IPv6 (no extension headers).
fn l4_checksum(b: &[u8]) -> Option<usize> {
    const VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
    let u16_at = |at: usize| Some(u16::from_be_bytes([*b.get(at)?, *b.get(at + 1)?]));
    let mut at = 12;
    for _ in 0..2 {
        if VLAN.contains(&u16_at(at)?) {
            at += 4;
        }
    }
    let ip = at + 2;
    let (protocol, l4) = match u16_at(at)? {
        0x0800 => {
            let ihl = usize::from(b.get(ip)? & 0xf) * 4;
            let later_fragment = u16_at(ip + 6)? & 0x1fff != 0;
            if ihl < 20 || later_fragment {
                return None;
            }
            (*b.get(ip + 9)?, ip + ihl)
        }
        0x86dd => (*b.get(ip + 6)?, ip + 40),
        _ => return None,
    };
    match protocol {
        6 => Some(l4 + 16),
        17 => Some(l4 + 6),
        _ => None,
    }
}
