//! The digest by which P4 VM and auditor name a program.

use sha2::{Digest, Sha256};

use crate::contents::Entry;

/// What the digest's input begins with, so that it is none of a linked program alone.
const DOMAIN: &[u8] = b"p4shield bundled program 1\n";

/// Returns the digest of a program with its initial entries: that of the linked program, if there are none.
///
/// Entries decide verdicts as much as instructions do. Without them in the digest, a host could bring back an
/// older bundle that differs in its entries only, and no log would show it.
#[must_use]
pub fn program_digest(linked: [u8; 32], entries: &[Entry]) -> [u8; 32] {
    if entries.is_empty() {
        return linked;
    }
    let mut hash = Sha256::new().chain_update(DOMAIN).chain_update(linked);
    for Entry { map, key, value } in entries {
        for part in [map.as_bytes(), key, value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finalize().into()
}
