//! What a session is for, and the byte strings that bind everything to it.

use sha2::{Digest, Sha256};

/// First part of each byte string that is hashed or agreed upon: protocol and version.
pub(crate) const PROTOCOL: &[u8] = b"P4 Shield handshake 1";

/// SHA-256 digest of the name of a tenant or user VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NameDigest(pub(crate) [u8; 32]);

impl NameDigest {
    /// Returns the digest of a name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(Sha256::digest(name).into())
    }
}

/// Who has the session with the P4 VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user VM, by its name within the tenant.
    Vm(NameDigest),
    /// The tenant's workstation.
    Workstation,
}

/// What a session is for. Both parties must have the same, or no message 2 authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// Name of the tenant.
    pub tenant: NameDigest,
    /// The initiator.
    pub subject: Subject,
    /// SHA-256 digest of the P4 VM's configuration, such as [`crate::Terms::digest`]. The responder's own,
    /// and the one that the initiator expects.
    pub configuration: [u8; 32],
}

/// The part of a party in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// User VM or workstation.
    Initiator,
    /// P4 VM.
    Responder,
}

impl Role {
    /// Returns the other role.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }

    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::Responder => "responder",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Joins parts, each preceded by its length: different lists of parts never give the same bytes.
pub(crate) fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    }
    out
}

impl Binding {
    /// Encodes the binding.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, vm) = match self.subject {
            Subject::Vm(name) => (b"vm".as_slice(), name.0),
            Subject::Workstation => (b"workstation".as_slice(), [0; 32]),
        };
        joined(&[&self.tenant.0, kind, &vm, &self.configuration])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PublicKey;
    use crate::{checks, noise};

    #[test]
    fn every_part_changes_the_report_data() {
        let [one, two] = [NameDigest::of("1"), NameDigest::of("2")];
        let base = Binding { tenant: one, subject: Subject::Vm(two), configuration: [3; 32] };
        let data = |b: &Binding, role, hash: u8, key: u8| {
            checks::report_data(b, role, &[hash; 32], &PublicKey([key; 32]))
        };
        let all = [
            data(&base, Role::Responder, 4, 5),
            data(&base, Role::Initiator, 4, 5),
            data(&base, Role::Responder, 5, 5),
            data(&base, Role::Responder, 4, 4),
            data(&Binding { tenant: two, ..base }, Role::Responder, 4, 5),
            data(&Binding { subject: Subject::Vm(one), ..base }, Role::Responder, 4, 5),
            data(&Binding { subject: Subject::Workstation, ..base }, Role::Responder, 4, 5),
            data(&Binding { configuration: [4; 32], ..base }, Role::Responder, 4, 5),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(a), "part {i} is not bound");
        }
    }

    #[test]
    fn parts_cannot_be_shifted() {
        assert_ne!(joined(&[b"ab", b"c"]), joined(&[b"a", b"bc"]));
        assert_ne!(joined(&[b"a", b""]), joined(&[b"a"]));
        // A VM whose name has this digest is no workstation.
        let zero = NameDigest([0; 32]);
        let vm = Binding { tenant: zero, subject: Subject::Vm(zero), configuration: [0; 32] };
        let workstation = Binding { subject: Subject::Workstation, ..vm };
        assert_ne!(noise::prologue(&vm, &[0; 16]), noise::prologue(&workstation, &[0; 16]));
    }
}
