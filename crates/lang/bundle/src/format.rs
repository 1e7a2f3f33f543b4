//! The head of the file, and what is signed.

use sha2::{Digest, Sha256};

use crate::error::BundleError;
use crate::limits::{FORMAT, MAX_BUNDLE};

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"P4BUNDLE";
/// Bytes of the head that are signed: all but the signature.
const SIGNED_HEAD: usize = 48;
/// Bytes before the contents.
pub(crate) const HEAD: usize = SIGNED_HEAD + 64;
/// What the signed message begins with, so that the key's signature of something else is none of a bundle.
const DOMAIN: &[u8; 28] = b"p4shield bundle signature 1\n";

/// A file whose head is a bundle's. Neither its key nor its contents are trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    head: &'a [u8],
    pub(crate) key: [u8; 32],
    pub(crate) signature: [u8; 64],
    pub(crate) contents: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the head. Decodes nothing of the contents.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, BundleError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BundleError::NotABundle);
        }
        let too_short = BundleError::Length { expected: HEAD as u64, found: bytes.len() as u64 };
        let number = |at: usize| {
            let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map(u32::from_le_bytes).ok_or_else(|| too_short.clone())
        };
        let (format, len) = (number(8)?, number(12)?);
        if format != FORMAT {
            return Err(BundleError::Format { found: format });
        }
        let expected = HEAD as u64 + u64::from(len);
        let found = bytes.len() as u64;
        if expected.max(found) > MAX_BUNDLE as u64 {
            return Err(BundleError::TooLarge { len: expected.max(found) });
        }
        if expected != found {
            return Err(BundleError::Length { expected, found });
        }
        let (head, contents) = bytes.split_at_checked(HEAD).ok_or(too_short)?;
        let (head, signature) = head.split_at(SIGNED_HEAD);
        let key = std::array::from_fn(|i| head[16 + i]);
        let signature = std::array::from_fn(|i| signature[i]);
        Ok(Self { head, key, signature, contents })
    }

    /// Returns the message that the signature is of.
    pub(crate) fn message(&self) -> Vec<u8> {
        message(self.head, self.contents)
    }
}

fn message(head: &[u8], contents: &[u8]) -> Vec<u8> {
    let digest = Sha256::new().chain_update(head).chain_update(contents).finalize();
    [DOMAIN.as_slice(), digest.as_slice()].concat()
}

/// Writes a file. `sign` returns the signature of a message by the key.
#[cfg(feature = "author")]
pub(crate) fn write(
    key: &[u8; 32],
    contents: &[u8],
    sign: impl FnOnce(&[u8]) -> [u8; 64],
) -> Result<Vec<u8>, BundleError> {
    let total = HEAD + contents.len();
    let too_large = || BundleError::TooLarge { len: total as u64 };
    let len = u32::try_from(contents.len()).ok().filter(|_| total <= MAX_BUNDLE).ok_or_else(too_large)?;
    let mut file = Vec::with_capacity(total);
    file.extend(MAGIC);
    file.extend(FORMAT.to_le_bytes());
    file.extend(len.to_le_bytes());
    file.extend(key);
    let signature = sign(&message(&file, contents));
    file.extend(signature);
    file.extend(contents);
    Ok(file)
}
