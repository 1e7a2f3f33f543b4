//! The private key that signs bundles, and its file.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use ed25519_dalek::Signer;
use zeroize::Zeroizing;

use super::secret_file::{self, Unfit};
use crate::contents::Contents;
use crate::error::{BundleError, Reason};
use crate::format;
use crate::key::{PublicKey, parse_hex};

/// First word of a file with a private key: a tenant's key of 32 bytes, or a public key, is none.
const WORD: &str = "p4shield-bundle-private-key";
/// Most bytes of such a file.
const MAX_FILE: u64 = 256;

/// The private key of a tenant's bundles. Wiped when dropped; never printed.
pub struct SigningKey(ed25519_dalek::SigningKey);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(secret)")
    }
}

/// A private key's file was refused, or could not be read or written. Every message contains the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SigningError {
    /// A system call failed.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file exists.
    #[error(
        "{} exists already, and a private key is never overwritten: name another file, or remove this one",
        .0.display()
    )]
    Exists(PathBuf),
    /// The file is a link, a folder, a device or a pipe.
    #[error("{} is not a regular file; name the file of the private key itself", .0.display())]
    NotAFile(PathBuf),
    /// Others may read it.
    #[error(
        "{} has mode {mode:04o}; only 0600 is accepted: run `chmod 600 {}`, and replace the key if other \
         users could have read it",
        path.display(), path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "{} belongs to user {owner}; run this command as that user, or make a key of your own",
        path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// User ID of its owner.
        owner: u32,
    },
    /// It contains something else.
    #[error(
        "{} is no private key of bundles; make one with `p4shield bundle key generate`",
        .0.display()
    )]
    NotAKey(PathBuf),
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for a key: {0}")]
    Random(getrandom::Error),
}

impl SigningKey {
    /// Takes a key from its 32 secret bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(bytes))
    }

    /// Creates a random key and writes it to a new file of mode 0600.
    ///
    /// # Errors
    /// The file exists or cannot be written, or the system returns no random bytes.
    pub fn generate(path: &Path) -> Result<Self, SigningError> {
        let mut secret = Zeroizing::new([0; 32]);
        getrandom::fill(secret.as_mut()).map_err(SigningError::Random)?;
        let mut text = Zeroizing::new(String::with_capacity(MAX_FILE as usize));
        text.push_str(WORD);
        text.push(' ');
        for byte in secret.iter() {
            let digit = |n: u8| char::from(b"0123456789abcdef"[usize::from(n)]);
            text.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        text.push('\n');
        secret_file::create(path, text.as_bytes()).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => SigningError::Exists(path.to_owned()),
            _ => SigningError::Io { path: path.to_owned(), doing: "create", source },
        })?;
        Ok(Self::from_bytes(&secret))
    }

    /// Reads a key's file.
    ///
    /// # Errors
    /// The file cannot be read, others may read it, or it is no private key of bundles.
    pub fn load(path: &Path) -> Result<Self, SigningError> {
        let of = path.to_owned();
        let text = Zeroizing::new(secret_file::read(path, MAX_FILE).map_err(|unfit| match unfit {
            Unfit::Io(source) => SigningError::Io { path: of.clone(), doing: "read", source },
            Unfit::Kind => SigningError::NotAFile(of.clone()),
            Unfit::Mode(mode) => SigningError::Mode { path: of.clone(), mode },
            Unfit::Owner(owner) => SigningError::Owner { path: of.clone(), owner },
        })?);
        let text = std::str::from_utf8(&text).unwrap_or_default();
        let secret = text.strip_prefix(WORD).and_then(|rest| parse_hex(rest.trim()));
        secret.map(Zeroizing::new).map(|s| Self::from_bytes(&s)).ok_or(SigningError::NotAKey(of))
    }

    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey::of_signer(self.0.verifying_key())
    }

    /// Makes a bundle of these contents. The same contents give the same bytes.
    ///
    /// # Errors
    /// The contents exceed a limit.
    pub fn sign(&self, contents: &Contents) -> Result<Vec<u8>, BundleError> {
        contents.check()?;
        let encoded = postcard::to_stdvec(contents).map_err(|_| Reason::Encoding)?;
        self.sign_encoded(&encoded)
    }

    /// Signs bytes in place of contents, which may be none.
    pub(crate) fn sign_encoded(&self, contents: &[u8]) -> Result<Vec<u8>, BundleError> {
        format::write(&self.public().to_bytes(), contents, |message| self.0.sign(message).to_bytes())
    }
}
