//! The rotation of keys: the order that `p4shield key rotate` gives (`order`), and the keys in force and kept
//! (`keys`). `supervisor::rotation` gives them to the P4 VM, whose worker changes over.

pub(crate) mod keys;
mod order;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A rotation that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRotation {
    /// The tenant's name.
    pub tenant: String,
    /// The VMs that have the key.
    pub vms: Vec<String>,
    /// Number of the new key.
    pub key: String,
    /// Number of the key before.
    pub previous: String,
    /// The file that has the new key.
    pub key_file: PathBuf,
    /// End of the window in which both keys are accepted, in seconds since 1970; none: the previous key ended
    /// at once.
    pub until: Option<u64>,
}

/// What to rotate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyOrder {
    /// The tenant's name.
    pub tenant: String,
    /// The VM's name; none: the tenant's key.
    #[serde(default)]
    pub vm: Option<String>,
    /// Absolute path of a file with the new key; none: the daemon makes one.
    #[serde(default)]
    pub new_key: Option<PathBuf>,
    /// Time in which both keys are accepted, in milliseconds; none: the tenant's `key_window`.
    #[serde(default)]
    pub window_ms: Option<u64>,
}
