//! Bundles and their programs, as files that a user names.

use std::path::Path;

use p4shield_bpf::{Linked, Object, link};
use p4shield_bundle::{Bundle, BundleError, BundledProgram, PublicKey, program_digest};
use p4shield_console::{Refused, input};

/// Reads a file with a public key.
///
/// # Errors
/// The file cannot be read, or holds no public key.
pub fn public_key(path: &Path) -> anyhow::Result<PublicKey> {
    let text = input::text(path, "a public key")?;
    Ok(text.parse().map_err(|e| Refused::because(&e).of(&path.display().to_string()))?)
}

/// Reads a bundle and verifies it with the key in a file.
///
/// # Errors
/// A file cannot be read, or the bundle is refused.
pub fn open(file: &Path, key: &Path) -> anyhow::Result<Bundle> {
    let (key, bytes) = (public_key(key)?, input::bytes(file)?);
    Ok(Bundle::open(&bytes, &key).map_err(|e| refused(file, &e))?)
}

/// Refuses a file with the reason that a bundle has.
#[must_use]
pub fn refused(file: &Path, error: &BundleError) -> Refused {
    Refused::because(error).of(&file.display().to_string())
}

/// Returns the digest by which P4 VM and auditor name a program.
///
/// # Errors
/// As [`linked`].
pub fn digest(program: &BundledProgram) -> anyhow::Result<[u8; 32]> {
    let linked = linked(program).map_err(Refused)?;
    Ok(program_digest(linked.digest(), &program.entries))
}

/// Links the objects of a program.
///
/// # Errors
/// The reason why an object is none, or why they do not fit together.
pub fn linked(program: &BundledProgram) -> Result<Linked, String> {
    let why = |e: &dyn std::error::Error| Refused::because(e).0;
    let parse = |(n, bytes): (usize, &Vec<u8>)| {
        let object = Object::parse(bytes).map_err(|e| format!("object {}: {}", n + 1, why(&e)))?;
        Ok(object.named(&format!("object {}", n + 1)))
    };
    let objects = program.objects.iter().enumerate().map(parse).collect::<Result<Vec<_>, String>>()?;
    link(&objects).map_err(|e| why(&e))
}

/// Returns the digest of a program's linked objects, without its entries.
///
/// # Errors
/// As [`linked`].
pub fn link_digest(program: &BundledProgram) -> Result<[u8; 32], String> {
    linked(program).map(|linked| linked.digest())
}
