//! What a party demands of its peer.

use crate::error::HandshakeError;
use crate::evidence::{Judgement, Standing};
use crate::key::PublicKey;

/// What a party demands of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    key: Option<PublicKey>,
    is_evidence_required: bool,
    is_unverified_allowed: bool,
}

impl Trust {
    /// Demands evidence that the judge finds attested.
    #[must_use]
    pub const fn attested() -> Self {
        Self { key: None, is_evidence_required: true, is_unverified_allowed: false }
    }

    /// Demands this static key. Evidence, if the peer has any, is judged, too.
    #[must_use]
    pub const fn pinned(key: PublicKey) -> Self {
        Self { key: Some(key), is_evidence_required: false, is_unverified_allowed: false }
    }

    /// Demands nothing: the peer may be the host. Both parties have to allow it
    /// ([`Trust::and_unverified`]), and the session says that the peer is not attested.
    #[must_use]
    pub const fn unverified() -> Self {
        Self { key: None, is_evidence_required: false, is_unverified_allowed: true }
    }

    /// Demands this static key in addition.
    #[must_use]
    pub const fn and_pinned(self, key: PublicKey) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Allows that a party of the session stays unverified, which is this one if its peer demands nothing
    /// of it. It makes this party demand no less of its peer than before.
    #[must_use]
    pub const fn and_unverified(self) -> Self {
        Self { is_unverified_allowed: true, ..self }
    }

    /// Whether a party may stay unverified.
    pub(crate) const fn allows_unverified(&self) -> bool {
        self.is_unverified_allowed
    }

    /// Checks the key that the peer proved to have.
    pub(crate) fn check_key(&self, found: PublicKey) -> Result<(), HandshakeError> {
        match self.key {
            Some(expected) if expected != found => Err(HandshakeError::WrongKey { expected, found }),
            _ => Ok(()),
        }
    }

    /// Decides about the peer, whose key was checked.
    pub(crate) fn decide(
        &self,
        judgement: Judgement,
        peer_allows_unverified: bool,
    ) -> Result<Standing, HandshakeError> {
        let claims = match judgement {
            Judgement::Attested(claims) => Some(claims),
            Judgement::NotAttested => None,
        };
        let standing = Standing { claims, is_pinned: self.key.is_some() };
        if self.is_evidence_required && !standing.is_attested() {
            return Err(HandshakeError::NotAttested);
        }
        let is_allowed = self.is_unverified_allowed && peer_allows_unverified;
        if !standing.is_verified() && !is_allowed {
            let by_peer = self.is_unverified_allowed;
            return Err(HandshakeError::Unverified { by_peer });
        }
        Ok(standing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attested() -> Judgement {
        Judgement::Attested("image 7".to_owned())
    }

    #[test]
    fn demands_are_met_or_named() {
        let key = PublicKey([1; 32]);
        let decide = |trust: Trust, judgement, peer| trust.decide(judgement, peer);
        assert!(decide(Trust::attested(), attested(), false).unwrap().is_attested());
        let refused = decide(Trust::attested(), Judgement::NotAttested, true).unwrap_err();
        assert_eq!(refused, HandshakeError::NotAttested);
        let allowing = Trust::attested().and_unverified();
        assert_eq!(decide(allowing, Judgement::NotAttested, true).unwrap_err(), HandshakeError::NotAttested);
        let pinned = decide(Trust::pinned(key), Judgement::NotAttested, false).unwrap();
        assert!(pinned.is_pinned() && !pinned.is_attested() && pinned.is_verified());
        let refused = Trust::pinned(key).check_key(PublicKey([2; 32]));
        assert!(matches!(refused, Err(HandshakeError::WrongKey { .. })));
        let both = Trust::attested().and_pinned(key);
        assert_eq!(decide(both, Judgement::NotAttested, true).unwrap_err(), HandshakeError::NotAttested);
        assert!(decide(both, attested(), false).unwrap().is_pinned());
    }

    #[test]
    fn without_verification_both_must_agree() {
        let decide = |trust: Trust, peer| trust.decide(Judgement::NotAttested, peer);
        let standing = decide(Trust::unverified(), true).unwrap();
        assert!(!standing.is_verified());
        assert!(standing.to_string().starts_with("not attested"));
        assert_eq!(
            decide(Trust::unverified(), false).unwrap_err(),
            HandshakeError::Unverified { by_peer: true }
        );
    }
}
