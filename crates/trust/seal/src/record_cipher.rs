//! AES-256-GCM over one record, bound to its purpose, its VM and its position in the stream.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use p4shield_abi::page::{SALT_SIZE, TAG_SIZE};

use crate::derive::{Identity, Purpose, PurposeKey, Salt, scope};
use crate::key::TenantKey;

/// A sealed record, as a page's slot contains it.
#[derive(Clone, Copy, Debug)]
pub struct SealedRecord<'a> {
    /// Epoch of the writer.
    pub epoch: u64,
    /// Position in the epoch, from 0.
    pub counter: u64,
    /// Salt, ciphertext, tag.
    pub bytes: &'a [u8],
}

/// Position of a record: epoch and counter, in this order.
pub(crate) type Position = (u64, u64);

/// What a writer's key is of: the epoch, and the salt that it drew at its start.
pub(crate) type WriterStart = (u64, Salt);

/// Derives the keys of one VM's stream of records, and seals and opens them.
pub(crate) struct RecordCipher {
    key: PurposeKey,
    /// Cipher of the current epoch: the one that a reader accepted last, or that a writer uses.
    current: (WriterStart, Aes256Gcm),
    /// Scope and layout version, then 16 bytes for the position.
    aad: Vec<u8>,
}

impl RecordCipher {
    pub(crate) fn new(
        key: &TenantKey,
        identity: &Identity<'_>,
        purpose: Purpose,
        layout: u32,
        start: WriterStart,
    ) -> Self {
        let key = PurposeKey::new(key, purpose, identity);
        let mut aad = scope(purpose, identity);
        aad.extend_from_slice(&layout.to_le_bytes());
        aad.extend_from_slice(&[0; 16]);
        let cipher = cipher(&key, start);
        Self { key, current: (start, cipher), aad }
    }

    /// Returns a cipher that only opens, or that a writer's start is set for later.
    pub(crate) fn reader(key: &TenantKey, identity: &Identity<'_>, purpose: Purpose, layout: u32) -> Self {
        Self::new(key, identity, purpose, layout, (0, [0; SALT_SIZE]))
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.start().0
    }

    pub(crate) const fn start(&self) -> WriterStart {
        self.current.0
    }

    /// Seals for this start from now on.
    pub(crate) fn set_start(&mut self, start: WriterStart) {
        self.current = (start, cipher(&self.key, start));
    }

    /// Overwrites the keys; nothing opens any more. Frees nothing, as a thread on the packet path must not.
    pub(crate) fn wipe(&mut self) {
        self.key.wipe();
        self.current = ((0, [0; SALT_SIZE]), Aes256Gcm::new(&[0; 32].into()));
    }

    /// Encrypts `buffer` in place except for its first [`SALT_SIZE`] and its last [`TAG_SIZE`] bytes, and
    /// writes salt and tag there.
    pub(crate) fn seal(&mut self, counter: u64, buffer: &mut [u8]) {
        let ((epoch, salt), cipher) = &self.current;
        set_position(&mut self.aad, (*epoch, counter));
        let (salted, text) = buffer.split_at_mut(SALT_SIZE);
        salted.copy_from_slice(salt);
        let (text, tag) = text.split_at_mut(text.len() - TAG_SIZE);
        let computed = cipher
            .encrypt_inout_detached(&nonce(counter), &self.aad, text.into())
            .expect("a record is far below GCM's 64 GiB");
        tag.copy_from_slice(&computed);
    }

    /// Decrypts `buffer` in place if it was sealed for exactly this position; otherwise leaves it unchanged.
    pub(crate) fn open(&mut self, position: Position, buffer: &mut [u8]) -> bool {
        let (epoch, counter) = position;
        let Some((salt, rest)) = buffer.split_first_chunk_mut::<SALT_SIZE>() else { return false };
        let Some((text, tag)) = rest.split_last_chunk_mut::<TAG_SIZE>() else { return false };
        set_position(&mut self.aad, position);
        let (tag, nonce) = (Tag::from(*tag), nonce(counter));
        let start = (epoch, *salt);
        if start == self.current.0 {
            return self.current.1.decrypt_inout_detached(&nonce, &self.aad, text.into(), &tag).is_ok();
        }
        let other = cipher(&self.key, start);
        let genuine = other.decrypt_inout_detached(&nonce, &self.aad, text.into(), &tag).is_ok();
        // Only an authentic record changes the kept cipher. Otherwise a forger could force a
        // derivation for each record.
        if genuine && epoch > self.epoch() {
            self.current = (start, other);
        }
        genuine
    }
}

fn cipher(key: &PurposeKey, (epoch, salt): WriterStart) -> Aes256Gcm {
    let key = key.of_epoch(epoch, salt);
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
        started((epoch, [3; SALT_SIZE]))
    }

    fn started(start: WriterStart) -> RecordCipher {
        RecordCipher::new(&KEY, &WEB, Purpose::Log, 1, start)
    }

    fn sealed(start: WriterStart, content: u8) -> [u8; SALT_SIZE + 8 + TAG_SIZE] {
        let mut buffer = [content; SALT_SIZE + 8 + TAG_SIZE];
        started(start).seal(0, &mut buffer);
        buffer
    }

    fn record(epoch: u64) -> [u8; SALT_SIZE + 8 + TAG_SIZE] {
        sealed((epoch, [3; SALT_SIZE]), 1)
    }

    /// Under one key and nonce, two ciphertexts differ as their contents do, and give GCM's key away.
    #[test]
    fn two_starts_under_one_epoch_have_different_keys() {
        let difference = |salt: [Salt; 2]| {
            let [a, b] = [sealed((5, salt[0]), 1), sealed((5, salt[1]), 2)];
            std::array::from_fn::<u8, 8, _>(|i| a[SALT_SIZE + i] ^ b[SALT_SIZE + i])
        };
        assert_eq!(difference([[3; 8], [3; 8]]), [1 ^ 2; 8], "what would be if the salts were equal");
        assert_ne!(difference([[3; 8], [4; 8]]), [1 ^ 2; 8]);
    }

    #[test]
    fn the_salt_is_authenticated() {
        let mut bytes = record(5);
        bytes[0] ^= 1;
        assert!(!of_epoch(5).open((5, 0), &mut bytes));
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
