//! What a tenant needs to make bundles: private keys, signing, the manifest. No part of a P4 VM.

mod manifest;
mod secret_file;
mod signing;

pub use manifest::{Manifest, ManifestError, Problem};
pub use signing::{SigningError, SigningKey};
