//! AES-256-GCM over one record, bound to its purpose, its VM and its position in the stream.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use p4shield_abi::page::TAG_SIZE;

use crate::derive::{Identity, Purpose, PurposeKey, scope};
use crate::key::TenantKey;

/// A sealed record, as a page's slot contains it.
#[derive(Clone, Copy, Debug)]
pub struct SealedRecord<'a> {
    /// Epoch of the writer.
    pub epoch: u64,
    /// Position in the epoch, from 0.
    pub counter: u64,
    /// Ciphertext, then tag.
    pub bytes: &'a [u8],
}

/// Position of a record: epoch and counter, in this order.
pub(crate) type Position = (u64, u64);

/// Derives the keys of one VM's stream of records, and seals and opens them.
pub(crate) struct RecordCipher {
    key: PurposeKey,
    /// Cipher of the current epoch: the one that a reader accepted last, or that a writer uses.
    current: (u64, Aes256Gcm),
    /// Scope and layout version, then 16 bytes for the position.
    aad: Vec<u8>,
}

impl RecordCipher {
    pub(crate) fn new(
        key: &TenantKey,
        identity: &Identity<'_>,
        purpose: Purpose,
        layout: u32,
        epoch: u64,
    ) -> Self {
        let key = PurposeKey::new(key, purpose, identity);
        let mut aad = scope(purpose, identity);
        aad.extend_from_slice(&layout.to_le_bytes());
        aad.extend_from_slice(&[0; 16]);
        let cipher = cipher(&key, epoch);
        Self { key, current: (epoch, cipher), aad }
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.current.0
    }

    /// Continues with another epoch.
    pub(crate) fn set_epoch(&mut self, epoch: u64) {
        self.current = (epoch, cipher(&self.key, epoch));
    }

    /// Overwrites the keys; nothing opens any more. Frees nothing, as a thread on the packet path must not.
    pub(crate) fn wipe(&mut self) {
        self.key.wipe();
        self.current = (0, Aes256Gcm::new(&[0; 32].into()));
    }

    /// Encrypts `buffer` in place except for its last [`TAG_SIZE`] bytes, and writes the tag there.
    pub(crate) fn seal(&mut self, counter: u64, buffer: &mut [u8]) {
        let (epoch, cipher) = &self.current;
        set_position(&mut self.aad, (*epoch, counter));
        let (text, tag) = buffer.split_at_mut(buffer.len() - TAG_SIZE);
        let computed = cipher
            .encrypt_inout_detached(&nonce(counter), &self.aad, text.into())
            .expect("a record is far below GCM's 64 GiB");
        tag.copy_from_slice(&computed);
    }

    /// Decrypts `buffer` in place if it was sealed for exactly this position; otherwise leaves it unchanged.
    pub(crate) fn open(&mut self, position: Position, buffer: &mut [u8]) -> bool {
        let (epoch, counter) = position;
        let Some(split) = buffer.len().checked_sub(TAG_SIZE) else { return false };
        set_position(&mut self.aad, position);
        let (text, tag) = buffer.split_at_mut(split);
        let Ok(tag) = <&[u8; TAG_SIZE]>::try_from(&*tag) else { return false };
        let (tag, nonce) = (Tag::from(*tag), nonce(counter));
        if epoch == self.current.0 {
            return self.current.1.decrypt_inout_detached(&nonce, &self.aad, text.into(), &tag).is_ok();
        }
        let other = cipher(&self.key, epoch);
        let genuine = other.decrypt_inout_detached(&nonce, &self.aad, text.into(), &tag).is_ok();
        // Only an authentic record changes the kept cipher. Otherwise a forger could force a
        // derivation for each record.
        if genuine && epoch > self.current.0 {
            self.current = (epoch, other);
        }
        genuine
    }
}

fn cipher(key: &PurposeKey, epoch: u64) -> Aes256Gcm {
    let key = key.of_epoch(epoch);
    Aes256Gcm::new((&*key).into())
}

fn nonce(counter: u64) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut n = [0; 12];
    n[4..].copy_from_slice(&counter.to_le_bytes());
    n.into()
}

fn set_position(aad: &mut [u8], (epoch, counter): Position) {
    let at = aad.len() - 16;
    aad[at..at + 8].copy_from_slice(&epoch.to_le_bytes());
    aad[at + 8..].copy_from_slice(&counter.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: TenantKey = TenantKey::from_bytes([7; 32]);
    const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };

    fn of_epoch(epoch: u64) -> RecordCipher {
        RecordCipher::new(&KEY, &WEB, Purpose::Log, 1, epoch)
    }

    fn record(epoch: u64) -> [u8; 8 + TAG_SIZE] {
        let mut buffer = [1; 8 + TAG_SIZE];
        of_epoch(epoch).seal(0, &mut buffer);
        buffer
    }

    /// Otherwise each record of the current epoch costs the reader a derivation of its key.
    #[test]
    fn the_newest_genuine_epoch_keeps_its_cipher() {
        let mut reader = of_epoch(0);
        assert!(reader.open((5, 0), &mut record(5)));
        assert_eq!(reader.epoch(), 5);
        assert!(reader.open((3, 0), &mut record(3)), "an older record is genuine");
        assert_eq!(reader.epoch(), 5, "and does not replace the cipher");
        assert!(!reader.open((9, 0), &mut record(8)), "a forgery");
        assert_eq!(reader.epoch(), 5);
    }
}
