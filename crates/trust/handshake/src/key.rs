//! Static keys of parties.

use std::sync::Arc;

use crate::crypto::Curve;
use crate::secret::{KEY_SIZE, Secret};

/// A party's public static key (X25519).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey(pub [u8; KEY_SIZE]);

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// A party's static key pair (X25519).
///
/// An attested party makes a new one at each start; its evidence binds it. A workstation keeps one, whose
/// public half the P4 VM's configuration pins. Copies share the secret, which is wiped with the last one.
#[derive(Clone, Debug)]
pub struct StaticKey {
    secret: Arc<Secret>,
    public: PublicKey,
    curve: Curve,
}

impl StaticKey {
    /// Creates a random key.
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        Ok(Self::on(Curve::X25519, Secret::random()?))
    }

    /// A key from its secret half.
    #[must_use]
    pub fn from_secret(secret: Secret) -> Self {
        Self::on(Curve::X25519, secret)
    }

    pub(crate) fn on(curve: Curve, secret: Secret) -> Self {
        let public = PublicKey(curve.public(secret.expose()));
        Self { secret: Arc::new(secret), public, curve }
    }

    /// Returns the public half.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the secret half, to store it. The caller is responsible for the copy.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_SIZE] {
        self.secret.expose()
    }

    pub(crate) const fn curve(&self) -> Curve {
        self.curve
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_printed() {
        let key = StaticKey::from_secret(Secret::from_bytes([0xab; KEY_SIZE]));
        let shown = format!("{key:?} {:?}", Secret::from_bytes([0xab; KEY_SIZE]));
        assert!(!shown.contains("abab") && !shown.contains("171, 171"), "{shown}");
        assert!(shown.contains(&key.public().to_string()));
    }
}
