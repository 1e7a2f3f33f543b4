//! Rotation of keys: what a writer or a reader needs of a new key.
//!
//! A rotation changes the key and nothing else. Epochs, counters and the chain of a log continue, so that a
//! position never repeats and no record becomes acceptable again. Keys are derived from a [`TenantKey`] on
//! a thread that may allocate, and handed to the thread that seals and opens.
//!
//! Nothing here knows where keys come from: a file today, an attested handshake later.

use p4shield_abi::info::LAYOUT_VERSION;
use p4shield_abi::log_page::LOG_VERSION;

use crate::derive::{Identity, Purpose};
use crate::digest::PacketDigest;
use crate::key::{KeyId, TenantKey};
use crate::record_cipher::RecordCipher;

/// The keys of one VM: the current one and, for a while after a rotation, the previous one.
#[derive(Debug)]
pub struct KeyRing {
    current: TenantKey,
    previous: Option<(TenantKey, u64)>,
}

impl KeyRing {
    /// A ring with one key.
    #[must_use]
    pub const fn new(current: TenantKey) -> Self {
        Self { current, previous: None }
    }

    /// Accepts `previous`, too, until the steady clock ([`crate::Now::mono_ns`]) reads `until_ns`.
    #[must_use]
    pub fn with_previous(self, previous: TenantKey, until_ns: u64) -> Self {
        Self { previous: Some((previous, until_ns)), ..self }
    }

    /// Returns the current key.
    #[must_use]
    pub const fn current(&self) -> &TenantKey {
        &self.current
    }

    /// Returns the previous key, and the reading of the steady clock at which its window ends.
    #[must_use]
    pub fn previous(&self) -> Option<(&TenantKey, u64)> {
        self.previous.as_ref().map(|(key, until)| (key, *until))
    }

    /// Returns a copy, which is wiped on its own.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let previous = self.previous.as_ref().map(|(key, until)| (key.duplicate(), *until));
        Self { current: self.current.duplicate(), previous }
    }

    /// Makes `new` the current key, and the current one the previous one until `until_ns`. A key that was
    /// the previous one before is wiped.
    pub fn rotate(&mut self, new: TenantKey, until_ns: u64) {
        let old = std::mem::replace(&mut self.current, new);
        self.previous = Some((old, until_ns));
    }

    /// Ends the window: wipes the previous key.
    pub fn end_window(&mut self) {
        self.previous = None;
    }

    /// Wipes the previous key if its window is over. Returns whether it did.
    pub fn expire(&mut self, mono_ns: u64) -> bool {
        let is_over = self.previous.as_ref().is_some_and(|(_, until)| mono_ns >= *until);
        if is_over {
            self.end_window();
        }
        is_over
    }
}

/// The key of a VM's snapshots, derived.
pub struct InfoKey {
    pub(crate) cipher: RecordCipher,
    pub(crate) id: KeyId,
}

impl InfoKey {
    /// Derives the key of `identity`'s snapshots.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>) -> Self {
        Self { cipher: RecordCipher::reader(key, identity, Purpose::Info, LAYOUT_VERSION), id: key.id() }
    }
}

/// The key of a VM's log and the key of its packet digests, derived.
pub struct LogKey {
    pub(crate) cipher: RecordCipher,
    pub(crate) id: KeyId,
    digest: PacketDigest,
}

impl LogKey {
    /// Derives the keys of `identity`'s log and packets.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>) -> Self {
        let cipher = RecordCipher::reader(key, identity, Purpose::Log, LOG_VERSION);
        Self { cipher, id: key.id(), digest: PacketDigest::for_vm(key, identity) }
    }

    /// Returns the number of the key.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Returns the digest of the VM's packets.
    #[must_use]
    pub const fn digest(&self) -> &PacketDigest {
        &self.digest
    }

    /// Overwrites the keys.
    pub fn wipe(&mut self) {
        self.cipher.wipe();
        self.digest = PacketDigest::new(&[0; 16]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> TenantKey {
        TenantKey::from_bytes([byte; 32])
    }

    #[test]
    fn a_ring_keeps_the_previous_key_until_its_window_ends() {
        let mut ring = KeyRing::new(key(1));
        ring.rotate(key(2), 100);
        assert_eq!(ring.current().id(), key(2).id());
        assert!(!ring.expire(99));
        assert_eq!(ring.previous().map(|(k, until)| (k.id(), until)), Some((key(1).id(), 100)));
        assert!(ring.expire(100));
        assert!(ring.previous().is_none());
        assert!(!ring.expire(101), "once");
    }

    #[test]
    fn the_number_of_a_key_names_it_and_is_no_part_of_it() {
        assert_ne!(key(1).id(), key(2).id());
        assert_eq!(key(1).id(), key(1).duplicate().id());
        assert_ne!(key(1).id().0, [1; 8]);
        assert_eq!(KeyId([0xab; 8]).to_string(), "ab".repeat(8));
    }
}
