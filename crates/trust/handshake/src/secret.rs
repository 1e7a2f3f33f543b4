//! Secrets that are wiped.

use zeroize::Zeroizing;

/// Bytes of each key.
pub const KEY_SIZE: usize = 32;

/// 32 secret bytes. Wiped when dropped; never printed.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; KEY_SIZE]>);

impl Secret {
    /// A secret from bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; KEY_SIZE]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the bytes, to pass them on. The caller is responsible for the copy.
    #[must_use]
    pub fn expose(&self) -> &[u8; KEY_SIZE] {
        &self.0
    }

    /// Creates a random secret.
    pub(crate) fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; KEY_SIZE]);
        getrandom::fill(bytes.as_mut())?;
        Ok(Self(bytes))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(secret)")
    }
}
