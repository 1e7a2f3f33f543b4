//! The keyed digest of one packet, whose sums a P4 VM and an auditor compare.
//!
//! Both ends must get the same number for the same packet although they see it at different places, and a cloud
//! must not find two sets of packets with the same sum. Hence SipHash-1-3 under a key that only they have; sums
//! are published encrypted, so the cloud never sees an output. The key belongs to the tenant and the VM and not to
//! an epoch: the auditor's sum runs on while a P4 VM restarts, and needs no exchange to begin.
//!
//! What goes in: the packet's length and four zero bytes, then its first bytes up to [`DIGEST_BYTES`], filled up with
//! zeros to whole words, with the layer-4 checksum zeroed, since offloads fill that in anywhere between the two.
//! [`crate::Digests`] computes several at once.

use p4shield_abi::log::DIGEST_BYTES;
use siphasher::sip::SipHasher13;
use zeroize::Zeroizing;

use crate::derive::{Identity, Purpose, PurposeKey};
use crate::key::TenantKey;

/// Words of the longest message: the packet's length, and its bytes.
pub(crate) const MESSAGE_WORDS: usize = 1 + DIGEST_BYTES / WORD;
const WORD: usize = size_of::<u64>();

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
        let mut message = [[0; WORD]; MESSAGE_WORDS];
        let words = message_words(header, packet_len, |i, word| message[i] = word.to_le_bytes());
        self.sip.hash(message[..words].as_flattened())
    }

    /// The digest of a message of at most [`MESSAGE_WORDS`].
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

/// Gives the words of a packet's message to `put`, with their places, and returns how many there are. A place may be
/// put to twice; what is put last counts.
#[inline]
pub(crate) fn message_words(header: &[u8], packet_len: u32, mut put: impl FnMut(usize, u64)) -> usize {
    let header = &header[..header.len().min(DIGEST_BYTES)];
    put(0, packet_len.into());
    let (words, rest) = header.as_chunks::<WORD>();
    for (i, word) in words.iter().enumerate() {
        put(1 + i, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        put(1 + words.len(), last_word(header, rest));
    }
    // The field is at an even place, so it is inside one word.
    if let Some(field) = l4_checksum(header).filter(|at| at + 2 <= header.len()) {
        let word =
            words.get(field / WORD).map_or_else(|| last_word(header, rest), |w| u64::from_le_bytes(*w));
        put(1 + field / WORD, word & !(0xffff << (8 * (field % WORD))));
    }
    1 + header.len().div_ceil(WORD)
}

/// What is left of the header behind its whole words, filled up with zeros.
#[inline]
fn last_word(header: &[u8], rest: &[u8]) -> u64 {
    // The last eight bytes without those that belong to the word before: one load instead of a loop.
    if let Some(last) = header.last_chunk::<WORD>() {
        return u64::from_le_bytes(*last) >> (8 * (WORD - rest.len()));
    }
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where the checksum of a protocol is, counted from its header on.
#[inline]
const fn checksum_of(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        _ => None,
    }
}

/// Where the checksum of TCP or UDP is, if the bytes have one: Ethernet, up to two VLAN tags, IPv4 (any IHL, not a
/// later fragment) or IPv6 (no extension headers).
#[inline]
fn l4_checksum(b: &[u8]) -> Option<usize> {
    const IP: usize = 14;
    const L4: usize = IP + 20;
    // Most packets: no tag, no options.
    if let Some(head) = b.first_chunk::<L4>()
        && head[12..=IP] == [0x08, 0x00, 0x45]
    {
        let later_fragment = u16::from_be_bytes([head[IP + 6], head[IP + 7]]) & 0x1fff != 0;
        return if later_fragment { None } else { Some(L4 + checksum_of(head[IP + 9])?) };
    }
    l4_checksum_anywhere(b)
}

#[cold]
fn l4_checksum_anywhere(b: &[u8]) -> Option<usize> {
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
    Some(l4 + checksum_of(protocol)?)
}
