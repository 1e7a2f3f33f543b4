//! Why a bundle is refused.

use crate::key::KeyId;
use crate::limits::{FORMAT, MAX_BUNDLE, MAX_NAME};

/// Reason why a bundle is refused. Every message contains the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file is something else.
    #[error("this is no bundle: it does not begin with \"P4BUNDLE\"; make one with `p4shield bundle build`")]
    NotABundle,
    /// Another version of the format.
    #[error(
        "the bundle has format {found}, and this program reads format {FORMAT}; build the bundle with the \
         release of P4 Shield that the cloud runs"
    )]
    Format {
        /// The version that the file names.
        found: u32,
    },
    /// More bytes than a bundle may have.
    #[error("the bundle has {len} bytes, and at most {MAX_BUNDLE} are accepted; use smaller objects")]
    TooLarge {
        /// Bytes of the file, or that its head announces.
        len: u64,
    },
    /// The file is cut, or has more bytes than its head says.
    #[error("the bundle has {found} bytes, and its head says {expected}; copy the file again")]
    Length {
        /// Bytes that the head announces.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The signer is not the pinned one.
    #[error(
        "the bundle is signed with key {found}, and key {expected} is pinned; sign it with the key that is \
         pinned, or pin the other one"
    )]
    WrongKey {
        /// The pinned key.
        expected: KeyId,
        /// The key that the bundle names.
        found: KeyId,
    },
    /// The key that the bundle names is no key that could have signed it.
    #[error("the key in the bundle is no valid ed25519 key; build the bundle again")]
    InvalidKey,
    /// The signature is not of these bytes.
    #[error("the signature is not of these contents: a byte was changed; copy or build the bundle again")]
    Changed,
    /// The signer has signed contents that no P4 VM accepts.
    #[error("the contents of the bundle are refused: {0}; build the bundle with `p4shield bundle build`")]
    Contents(#[from] Reason),
    /// An older version than one that ran before.
    #[error(
        "the bundle has version {version}, and version {floor} ran before; build it with version {floor} \
         or a newer one"
    )]
    TooOld {
        /// Its version.
        version: u64,
        /// The least version that is accepted.
        floor: u64,
    },
    /// The bundle is for another tenant.
    #[error("the bundle is for tenant {found:?}, not for {expected:?}; build one for this tenant")]
    OtherTenant {
        /// The tenant that loads it.
        expected: String,
        /// The tenant that it names.
        found: String,
    },
    /// The bundle is for another VM.
    #[error("the bundle is for VM {found:?}, not for {expected:?}; build one for this VM, or without `vm`")]
    OtherVm {
        /// The VM that it is loaded for.
        expected: String,
        /// The VM that it names.
        found: String,
    },
}

impl BundleError {
    /// Returns the name of the reason, for scripts and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotABundle => "not_a_bundle",
            Self::Format { .. } => "other_format",
            Self::TooLarge { .. } => "too_large",
            Self::Length { .. } => "other_length",
            Self::WrongKey { .. } | Self::InvalidKey => "wrong_key",
            Self::Changed => "changed",
            Self::Contents(_) => "contents",
            Self::TooOld { .. } => "too_old",
            Self::OtherTenant { .. } => "other_tenant",
            Self::OtherVm { .. } => "other_vm",
        }
    }
}

/// What is wrong with the contents of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Not postcard, or not this structure.
    #[error("they are not in the format's encoding")]
    Encoding,
    /// There is a shorter encoding of the same contents.
    #[error("they are not in the shortest encoding")]
    NotCanonical,
    /// A name has characters that no tenant, VM or check may have.
    #[error("{what} {name:?} is invalid: use 1 to {MAX_NAME} letters, digits, dots, dashes and underscores")]
    Name {
        /// What is named.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A value is outside its range.
    #[error("{what} is {found}, and has to be between {least} and {most}")]
    Range {
        /// The value.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The least value.
        least: u64,
        /// The greatest value.
        most: u64,
    },
    /// No direction has a program.
    #[error("no direction has a program")]
    NoProgram,
    /// Two entries of a table have one key.
    #[error("map {map:?} has two entries with one key")]
    DuplicateEntry {
        /// The map's symbol.
        map: String,
    },
    /// A check is of a direction without a program.
    #[error("check {check:?} is of direction {direction}, which has no program")]
    CheckWithoutProgram {
        /// The check's name.
        check: String,
        /// The direction.
        direction: &'static str,
    },
    /// Two checks have one name.
    #[error("two checks have the name {0:?}")]
    DuplicateCheck(String),
    /// A check sets information that does not exist.
    #[error("check {check:?} sets field {field}, and snapshots have {} fields", p4shield_abi::info::FIELDS)]
    Field {
        /// The check's name.
        check: String,
        /// The field's number.
        field: u32,
    },
}
