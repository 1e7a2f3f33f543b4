//! Key derivation, and the byte strings that bind a record to its tenant, VM and purpose.

use hkdf::Hkdf;
use p4shield_abi::page::SALT_SIZE;
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::key::{KEY_SIZE, KeyId, TenantKey};

/// Tenant and VM of a stream of records. Both names are part of every key and of every record's
/// associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    /// The tenant's name.
    pub tenant: &'a str,
    /// The user VM's name, unique within the tenant.
    pub vm: &'a str,
}

/// Purpose of a key. Keys of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Info,
    Log,
    Digest,
}

impl Purpose {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Log => "log",
            Self::Digest => "digest",
        }
    }
}

/// Returns the start of every derivation and of all associated data: strings preceded by their
/// lengths, so that two different (purpose, tenant, VM) never give the same bytes.
pub(crate) fn scope(purpose: Purpose, identity: &Identity<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in ["p4shield", purpose.name(), identity.tenant, identity.vm] {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

/// What a writer draws at its start, so that two starts under one epoch have different keys.
pub(crate) type Salt = [u8; SALT_SIZE];

/// Key of one purpose of one VM, from which the keys of its epochs are derived. It reveals neither
/// the tenant's key nor the key of another purpose.
pub(crate) struct PurposeKey(Zeroizing<[u8; KEY_SIZE]>);

impl PurposeKey {
    pub(crate) fn new(key: &TenantKey, purpose: Purpose, identity: &Identity<'_>) -> Self {
        Self(expand(key.expose(), &scope(purpose, identity)))
    }

    pub(crate) fn of_epoch(&self, epoch: u64, salt: Salt) -> Zeroizing<[u8; KEY_SIZE]> {
        let mut info = *b"p4shield epoch \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        info[15..23].copy_from_slice(&epoch.to_le_bytes());
        info[23..].copy_from_slice(&salt);
        expand(&self.0, &info)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_SIZE] {
        &self.0
    }

    /// Overwrites the key.
    pub(crate) fn wipe(&mut self) {
        self.0.zeroize();
    }
}

impl TenantKey {
    /// Returns the number of this key. No key of a purpose is derived with the same byte string.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let id = expand(self.expose(), b"p4shield key id");
        KeyId(*id.first_chunk().expect("32 bytes hold 8"))
    }
}

fn expand(ikm: &[u8; KEY_SIZE], info: &[u8]) -> Zeroizing<[u8; KEY_SIZE]> {
    let mut out = Zeroizing::new([0; KEY_SIZE]);
    Hkdf::<Sha256>::new(Some(b"p4shield key derivation 1"), ikm)
        .expand(info, out.as_mut())
        .expect("32 bytes are within what HKDF-SHA256 can give");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: TenantKey = TenantKey::from_bytes([7; KEY_SIZE]);

    #[test]
    fn similar_names_derive_different_scopes() {
        let a = scope(Purpose::Info, &Identity { tenant: "ab", vm: "c" });
        let b = scope(Purpose::Info, &Identity { tenant: "a", vm: "bc" });
        assert_ne!(a, b);
    }

    #[test]
    fn every_part_of_the_scope_changes_the_key() {
        let base = Identity { tenant: "t", vm: "v" };
        let salted = |p, i: &Identity<'_>, e, salt| *PurposeKey::new(&KEY, p, i).of_epoch(e, salt);
        let key = |p, i: &Identity<'_>, e| salted(p, i, e, [0; SALT_SIZE]);
        let all = [
            key(Purpose::Info, &base, 1),
            key(Purpose::Info, &base, 2),
            key(Purpose::Log, &base, 1),
            key(Purpose::Digest, &base, 1),
            key(Purpose::Info, &Identity { tenant: "u", ..base }, 1),
            key(Purpose::Info, &Identity { vm: "w", ..base }, 1),
            salted(Purpose::Info, &base, 1, [1; SALT_SIZE]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(a), "key {i} is derived twice");
        }
        assert_eq!(all[0], key(Purpose::Info, &base, 1), "both ends derive the same");
    }

    #[test]
    fn tenants_keys_are_unrelated() {
        let id = Identity { tenant: "t", vm: "v" };
        let other = TenantKey::from_bytes([8; KEY_SIZE]);
        assert_ne!(
            PurposeKey::new(&KEY, Purpose::Info, &id).bytes(),
            PurposeKey::new(&other, Purpose::Info, &id).bytes()
        );
    }
}
