//! The keyed digest of one packet. A P4 VM and an auditor compare sums of digests.
//!
//! Both ends have to compute the same number for the same packet although they see it at different
//! points, and a cloud must not find two sets of packets with the same sum. Therefore the digest is
//! SipHash-1-3 with a key that only they have; sums are published encrypted, so the cloud never sees
//! an output. The key belongs to the tenant and the VM, not to an epoch: the auditor's sum continues
//! while a P4 VM restarts, and needs no key exchange.
//!
//! Message: the length of the packet without VLAN tags as little-endian `u32`, four zero bytes, then its
//! first bytes without VLAN tags up to [`DIGEST_BYTES`], padded with zeros to whole words. These fields
//! are zeroed, because offloads fill them in anywhere between the two ends: the checksum of TCP or UDP
//! ([`digest_checksum`]), and IPv4's checksum and identification; the latter stays in a fragment, where it
//! says to which others the fragment belongs. VLAN tags are left out, because
//! interfaces store them beside the packet, and switches add and remove them at their ports.
//! [`crate::DigestBatch`] computes several digests at once; `tap.bpf.c` repeats the rules.

use p4shield_abi::log_page::DIGEST_BYTES;
use p4shield_frame::ethernet::{self, ADDRESSES_LEN, HEADER_LEN, ether_type, is_tag};
use p4shield_frame::transport::digest_checksum;
use siphasher::sip::SipHasher13;
use zeroize::Zeroizing;

use crate::derive::{Identity, Purpose, PurposeKey};
use crate::key::TenantKey;

/// Words of the longest message: the packet's length, and its bytes.
pub(crate) const MESSAGE_WORDS: usize = 1 + DIGEST_BYTES / WORD;
const WORD: usize = size_of::<u64>();

/// Computes packet digests.
#[derive(Clone)]
pub struct PacketDigest {
    key: Zeroizing<[u8; 16]>,
    sip: SipHasher13,
}

impl PacketDigest {
    /// Digests with a 16-byte key.
    #[must_use]
    pub fn new(key: &[u8; 16]) -> Self {
        Self { key: Zeroizing::new(*key), sip: SipHasher13::new_with_key(key) }
    }

    /// Digests with the key of a tenant's VM, which both ends derive.
    #[must_use]
    pub fn for_vm(key: &TenantKey, identity: &Identity<'_>) -> Self {
        let derived = PurposeKey::new(key, Purpose::Digest, identity);
        Self::new(derived.bytes().first_chunk().expect("32 bytes hold 16"))
    }

    /// Returns the 16-byte key, for the part of the auditor that runs in the kernel. The caller is
    /// responsible for the copy.
    #[must_use]
    pub fn expose_key(&self) -> &[u8; 16] {
        &self.key
    }

    /// Returns the digest of a packet of `packet_len` bytes that begins with `header`, from the
    /// Ethernet header on. At most [`DIGEST_BYTES`] of `header` without VLAN tags count, and both ends
    /// have to use the same number of them.
    #[must_use]
    pub fn digest(&self, header: &[u8], packet_len: u32) -> u64 {
        let mut message = [[0; WORD]; MESSAGE_WORDS];
        let words = message_words(header, packet_len, |i, word| message[i] = word.to_le_bytes());
        self.sip.hash(message[..words].as_flattened())
    }

    /// Returns the digest of a message of at most [`MESSAGE_WORDS`].
    pub(crate) fn of_message(&self, words: impl Iterator<Item = u64>) -> u64 {
        let mut message = [[0; WORD]; MESSAGE_WORDS];
        let mut len = 0;
        for (to, word) in message.iter_mut().zip(words) {
            *to = word.to_le_bytes();
            len += 1;
        }
        self.sip.hash(message[..len].as_flattened())
    }
}

/// Passes the words of a packet's message to `put`, with their positions, and returns their number. A
/// position may be passed twice; the last word counts.
#[inline]
pub(crate) fn message_words(header: &[u8], packet_len: u32, put: impl FnMut(usize, u64)) -> usize {
    match type_of(header) {
        Some(tag) if is_tag(tag) => words_without_tags(header, packet_len, put),
        found => words_of(header, packet_len, found, put),
    }
}

/// Returns the two bytes after both addresses.
#[inline]
fn type_of(header: &[u8]) -> Option<u16> {
    let head = header.first_chunk::<HEADER_LEN>()?;
    Some(u16::from_be_bytes([head[ADDRESSES_LEN], head[ADDRESSES_LEN + 1]]))
}

#[cold]
fn words_without_tags(header: &[u8], packet_len: u32, put: impl FnMut(usize, u64)) -> usize {
    let Some(payload) = ethernet::payload(header) else {
        return words_of(header, packet_len, None, put);
    };
    let tags = payload.offset - HEADER_LEN;
    let mut front = [0; DIGEST_BYTES];
    front[..ADDRESSES_LEN].copy_from_slice(&header[..ADDRESSES_LEN]);
    let rest = &header[ADDRESSES_LEN + tags..];
    let len = rest.len().min(DIGEST_BYTES - ADDRESSES_LEN);
    front[ADDRESSES_LEN..][..len].copy_from_slice(&rest[..len]);
    let front = &front[..ADDRESSES_LEN + len];
    words_of(front, packet_len.saturating_sub(tags as u32), Some(payload.ether_type), put)
}

/// Passes the words of a packet without VLAN tags. Its payload has this EtherType, if it is known; behind
/// the EtherType of a further tag nothing is zeroed.
#[inline]
fn words_of(header: &[u8], packet_len: u32, kind: Option<u16>, mut put: impl FnMut(usize, u64)) -> usize {
    /// Words with IPv4's identification and header checksum, and the other bits of these words.
    const ZEROED: [(usize, u64); 2] = [(2, !0xffff_0000), (3, !0xffff)];
    /// Bits of word 2 of which a fragment has one: "more fragments", and its offset.
    const FRAGMENT: u64 = 0xff3f_0000_0000;
    /// Bytes up to these bits.
    const UP_TO_OFFSET: usize = 22;
    let header = &header[..header.len().min(DIGEST_BYTES)];
    put(0, packet_len.into());
    let (words, rest) = header.as_chunks::<WORD>();
    for (i, word) in words.iter().enumerate() {
        put(1 + i, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        put(1 + words.len(), last_word(header, rest));
    }
    let word = |i: usize| words.get(i).map_or_else(|| last_word(header, rest), |w| u64::from_le_bytes(*w));
    let count = header.len().div_ceil(WORD);
    if kind == Some(ether_type::IPV4) {
        let first = usize::from(header.len() >= UP_TO_OFFSET && word(2) & FRAGMENT != 0);
        for (i, kept) in ZEROED.into_iter().skip(first).filter(|(i, _)| *i < count) {
            put(1 + i, word(i) & kept);
        }
    }
    // The field has an even offset, so it lies within one word.
    let checksum = if kind.is_some_and(is_tag) { None } else { digest_checksum(header) };
    if let Some(field) = checksum.filter(|at| at + 2 <= header.len()) {
        put(1 + field / WORD, word(field / WORD) & !(0xffff << (8 * (field % WORD))));
    }
    1 + count
}

/// Returns the rest of the header behind its whole words, padded with zeros.
#[inline]
fn last_word(header: &[u8], rest: &[u8]) -> u64 {
    // The last eight bytes without those of the previous word: one load instead of a loop.
    if let Some(last) = header.last_chunk::<WORD>() {
        return u64::from_le_bytes(*last) >> (8 * (WORD - rest.len()));
    }
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
