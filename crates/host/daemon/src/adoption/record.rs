//! What a P4 VM has, as the daemon that started it knows.

use p4shield_compartment::ProcessIdentity;
use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A process; what every record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pub(crate) process: ProcessIdentity,
}

/// A P4 VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct P4VmRecord {
    /// The tenant's name.
    pub(crate) tenant: String,
    /// Its process.
    pub(crate) process: ProcessIdentity,
    /// By VM: the files of info page, log page and handshake page.
    pub(crate) pages: Vec<[Option<PageRecord>; 3]>,
    /// The key of bundles that is pinned.
    #[serde(default)]
    pub(crate) bundle_key: Option<[u8; 32]>,
    /// By VM and direction: the program.
    pub(crate) programs: Vec<[Option<ProgramMark>; 2]>,
}

/// The file of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PageRecord {
    device: u64,
    inode: u64,
    /// Whether the daemon made the file and removes it.
    pub(crate) ours: bool,
}

impl PageRecord {
    /// Returns the record of an open file.
    pub(crate) fn of(file: impl AsFd, ours: bool) -> Option<Self> {
        let stat = rustix::fs::fstat(file).ok()?;
        Some(Self { device: stat.st_dev, inode: stat.st_ino, ours })
    }

    /// Returns whether both are the same file.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// A program that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramMark {
    /// The SHA-256 digest of its objects.
    pub(crate) objects: [u8; 32],
    /// The SHA-256 digest of the linked program.
    pub(crate) digest: [u8; 32],
}

/// The record of a P4 VM for the next daemon.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// The record; none: no P4 VM runs, or it cannot be adopted.
    pub(crate) record: Option<P4VmRecord>,
    /// How long the P4 VM goes on without a daemon, as it knows.
    pub(crate) patience: Option<Duration>,
}
