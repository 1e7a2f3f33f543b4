//! What both parties have in the end.

use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::binding::{Binding, PROTOCOL, Role, joined};
use crate::checks;
use crate::evidence::Standing;
use crate::key::PublicKey;
use crate::message::Introduction;
use crate::sealed_stream::{StreamOpener, StreamSealer};
use crate::secret::{KEY_SIZE, Secret};

/// Highest epoch of a session, far above the nanoseconds of any clock. It leaves room for later ones.
const HIGHEST_EPOCH: u64 = 1 << 63;

/// Most nanoseconds that a peer's proposal may be ahead of the clock: 834 days, twice what a P4 VM's
/// floor may be. A higher one is refused of any peer: a party that agreed would propose it
/// ever after.
pub(crate) const MAX_LEAD_NS: u64 = 1 << 56;

/// Keys of a session. Each is independent of the others.
#[derive(Debug)]
pub(crate) struct SessionKeys {
    pub(crate) records: Secret,
    pub(crate) to_p4vm: Secret,
    pub(crate) from_p4vm: Secret,
}

/// When a session has to be replaced by a new handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Longest use, in milliseconds.
    pub age_ms: u64,
    /// Most records under one key.
    pub records: u64,
}

impl Default for SessionLimits {
    /// An hour, and 2^32 records, far below what AES-GCM allows with counted nonces.
    fn default() -> Self {
        Self { age_ms: 3_600_000, records: 1 << 32 }
    }
}

/// Reason why a session has to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It is too old.
    Age,
    /// A key has sealed too many records.
    Use,
}

/// Keys that two parties agreed on, and what each knows of the other.
///
/// After a restart of either party there is a new handshake, and everything under older keys is void.
#[derive(Debug)]
pub struct Session {
    role: Role,
    binding: Binding,
    peer: PublicKey,
    standing: Standing,
    began_ms: u64,
    limits: SessionLimits,
    transcript: [u8; 32],
    epoch: u64,
    keys: SessionKeys,
    is_stream_taken: bool,
}

/// Transcript, keys and epoch, which both parties compute from the same values.
pub(crate) struct Agreement {
    transcript: [u8; 32],
    epoch: u64,
    secret: Hkdf<Sha256>,
}

impl Agreement {
    /// Computes the agreement of the exchange `hash` with the introductions of both parties. None if no
    /// epoch is left.
    pub(crate) fn new(hash: &[u8; 32], initiator: &Introduction, responder: &Introduction) -> Option<Self> {
        let (i, r) = (initiator.public_part(), responder.public_part());
        let transcript: [u8; 32] = Sha256::digest(joined(&[PROTOCOL, b"transcript", hash, &i, &r])).into();
        let mut random = Zeroizing::new([0; 2 * KEY_SIZE]);
        random[..KEY_SIZE].copy_from_slice(initiator.random.expose());
        random[KEY_SIZE..].copy_from_slice(responder.random.expose());
        let epoch = checks::epoch(initiator, responder);
        let secret = checks::secret(&transcript, &random[..]);
        (epoch <= HIGHEST_EPOCH).then_some(Self { transcript, epoch, secret })
    }

    fn key(&self, purpose: &[u8]) -> Secret {
        let mut key = [0; KEY_SIZE];
        self.secret
            .expand(&joined(&[PROTOCOL, purpose]), &mut key)
            .expect("32 bytes are within what HKDF-SHA256 can give");
        let secret = Secret::from_bytes(key);
        zeroize::Zeroize::zeroize(&mut key);
        secret
    }

    /// Returns what proves to the initiator that the responder has the same keys.
    pub(crate) fn confirmation(&self) -> [u8; 32] {
        *self.key(b"confirmation").expose()
    }

    /// Makes the session of a party.
    pub(crate) fn session(
        &self,
        role: Role,
        binding: Binding,
        (peer, standing): (PublicKey, Standing),
        began_ms: u64,
        limits: SessionLimits,
    ) -> Session {
        let keys = SessionKeys {
            records: self.key(b"records"),
            to_p4vm: self.key(b"stream to P4 VM"),
            from_p4vm: self.key(b"stream from P4 VM"),
        };
        let (transcript, epoch) = (self.transcript, self.epoch);
        Session {
            role,
            binding,
            peer,
            standing,
            began_ms,
            limits,
            transcript,
            epoch,
            keys,
            is_stream_taken: false,
        }
    }
}

impl Session {
    /// Returns this party's role.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns what the session is for.
    #[must_use]
    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Returns the digest of everything that was agreed. Both parties log it, and the auditor keeps it.
    #[must_use]
    pub const fn transcript(&self) -> &[u8; 32] {
        &self.transcript
    }

    /// Returns the epoch of records that begin with this session: not below the proposal of either party.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the peer's static key.
    #[must_use]
    pub const fn peer(&self) -> PublicKey {
        self.peer
    }

    /// Returns what is known of the peer.
    #[must_use]
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the key of the VM's records, in place of a key file: `p4shield-seal` derives from it the keys
    /// of information (user VM to P4 VM), of the log and of packet digests (P4 VM to user VM).
    #[must_use]
    pub const fn records_key(&self) -> &Secret {
        &self.keys.records
    }

    /// Takes this party's ends of the sealed stream: what it sends, and what it receives. Once only, because
    /// a second pair would number its messages from 0, too.
    pub fn take_stream(&mut self) -> Option<(StreamSealer, StreamOpener)> {
        if std::mem::replace(&mut self.is_stream_taken, true) {
            return None;
        }
        let SessionKeys { to_p4vm, from_p4vm, .. } = &self.keys;
        let (sends, receives) = match self.role {
            Role::Initiator => (to_p4vm, from_p4vm),
            Role::Responder => (from_p4vm, to_p4vm),
        };
        Some((StreamSealer::new(sends), StreamOpener::new(receives)))
    }

    #[cfg(test)]
    pub(crate) const fn keys(&self) -> &SessionKeys {
        &self.keys
    }

    /// Returns whether a new handshake is due, after `records` records under the most used key. The session
    /// stays usable until the new one is agreed.
    #[must_use]
    pub const fn rekey_due(&self, now_ms: u64, records: u64) -> Option<Renewal> {
        if now_ms.saturating_sub(self.began_ms) >= self.limits.age_ms {
            return Some(Renewal::Age);
        }
        if records >= self.limits.records { Some(Renewal::Use) } else { None }
    }
}
