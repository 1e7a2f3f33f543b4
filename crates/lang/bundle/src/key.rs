//! The public key that a bundle is verified with, and its file.

use std::fmt;
use std::str::FromStr;

use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest, Sha256};

/// First word of a file with a public key.
const WORD: &str = "p4shield-bundle-public-key";

/// A public key, as its tenant pins it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// Number of a public key, by which people recognise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId([u8; 8]);

/// A text or bytes that are no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublicKeyError {
    /// The text has another form.
    #[error(
        "this is no public key of bundles: it is one line of \"{WORD}\" and 64 hexadecimal digits; \
         `p4shield bundle key generate` writes it beside the private key"
    )]
    Text,
    /// The bytes are no point of the curve, or one of small order, whose signatures anyone can make.
    #[error("the 32 bytes are no ed25519 key that can verify signatures; generate a key")]
    Point,
}

impl PublicKey {
    /// Takes a key from its 32 bytes.
    ///
    /// # Errors
    /// They are no key, or one whose signatures prove nothing.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, PublicKeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| PublicKeyError::Point)?;
        if key.is_weak() || key.to_bytes() != *bytes {
            return Err(PublicKeyError::Point);
        }
        Ok(Self(key))
    }

    /// Takes the key of a private key, which is never weak.
    #[cfg(feature = "author")]
    pub(crate) const fn of_signer(key: VerifyingKey) -> Self {
        Self(key)
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Returns the key's number.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.to_bytes())
    }

    /// Returns whether the signature is this key's of the message; the strict rules accept one signature at
    /// most of each message and no key of small order.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    /// Reads the text of a key file.
    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let mut words = text.split_whitespace();
        match (words.next(), words.next().and_then(parse_hex), words.next()) {
            (Some(WORD), Some(bytes), None) => Self::from_bytes(&bytes),
            _ => Err(PublicKeyError::Text),
        }
    }
}

/// As in a key file, without the line's end.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(WORD)?;
        f.write_str(" ")?;
        write_hex(f, &self.to_bytes())
    }
}

impl KeyId {
    /// Returns the number of the key with these bytes, also if they are no valid key.
    pub(crate) fn of(key: &[u8; 32]) -> Self {
        let digest: [u8; 32] = Sha256::digest(key).into();
        Self(std::array::from_fn(|i| digest[i]))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Parses 64 hexadecimal digits in lower case.
pub(crate) fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let digits = <&[u8; 64]>::try_from(text.as_bytes()).ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}
