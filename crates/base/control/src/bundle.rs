//! Bundles in messages: signed programs of a VM, which the P4 VM alone verifies.

use crate::resource::ResourceId;
use serde::{Deserialize, Serialize};

/// A bundle to load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleRequest {
    /// Index of the VM within its tenant.
    pub vm: u16,
    /// The VM's name, which the bundle has to be for. The VM may become known later, under this name.
    pub name: String,
    /// The bundle.
    pub bytes: ResourceId,
    /// Bytes of the bundle.
    pub len: u32,
    /// The newest version that the host has seen run; the P4 VM accepts no older one than this, and no older
    /// one than it has run itself.
    pub floor: u64,
}

/// What a P4 VM answers to an accepted bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleLoaded {
    /// The bundle's version.
    pub version: u64,
    /// By [`p4shield_abi::Direction`]: the digest of the program with its entries; none: no program.
    pub programs: [Option<[u8; 32]>; 2],
}
