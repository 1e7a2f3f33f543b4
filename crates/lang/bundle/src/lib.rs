//! Signed bundles: a VM's programs as one file that its tenant has signed.
//!
//! A bundle holds the programs of a VM's directions with their initial table entries, and what a P4 VM has to
//! check before it runs them: for which tenant and VM they are, a version, the least length of header copies,
//! and health checks. Layout of the file, integers little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `P4BUNDLE` |
//! | 8 | 4 | version of the format: 1 |
//! | 12 | 4 | bytes of the contents |
//! | 16 | 32 | public key of the signer |
//! | 48 | 64 | ed25519 signature |
//! | 112 | | [`Contents`] in postcard's encoding |
//!
//! The signature is over the 28 bytes `p4shield bundle signature 1\n` and the SHA-256 digest of the first 48
//! bytes and the contents. Every byte of a file is therefore signed, or is the signature.
//!
//! Guarantees: a [`Bundle`] exists only once its signature was verified with the key that its reader pins,
//! and nothing of the contents is decoded before. [`Unpinned`], for a reader without a key, offers a summary
//! and no program. Each bundle has one encoding. The same contents and key give the same bytes.
//!
//! | module | contents |
//! |---|---|
//! | `format` | the file's head, and what is signed |
//! | `contents`, `limits` | [`Contents`] and its limits |
//! | `verified` | [`Bundle`], [`Unpinned`] |
//! | `key` | [`PublicKey`] |
//! | `digest` | the digest by which P4 VM and auditor name a program with its entries |
//! | `summary` | what a bundle contains, for people and scripts |
//! | `author` (feature) | private keys, signing, the manifest |

#![forbid(unsafe_code)]

#[cfg(feature = "author")]
pub mod author;
mod contents;
mod digest;
mod error;
mod format;
pub mod fuzz;
mod key;
mod limits;
mod summary;
mod verified;

pub use contents::{BundledProgram, Contents, Entry, HealthCheck};
pub use digest::program_digest;
pub use error::{BundleError, Reason};
pub use key::{KeyId, PublicKey, PublicKeyError};
pub use limits::{
    FORMAT, MAX_BUNDLE, MAX_CHECKS, MAX_ENTRIES, MAX_NAME, MAX_OBJECTS, MAX_P4INFO, MIN_HEADER_BYTES,
};
pub use summary::{CheckSummary, EntrySummary, ObjectSummary, ProgramSummary, Summary};
pub use verified::{Bundle, Unpinned};
