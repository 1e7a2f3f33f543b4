//! The record of who loaded which program.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a command did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramAction {
    /// It loaded a program.
    Load,
    /// It unloaded the program.
    Unload,
    /// It returned to the configuration's program.
    Revert,
}

/// An object that was linked into a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Where the command found it.
    pub path: PathBuf,
    /// Its SHA-256 digest, hexadecimal.
    pub sha256: String,
}

/// A command that changed the program of a direction of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRecord {
    /// When, in seconds since 1970.
    pub time: u64,
    /// The user ID of the client.
    pub uid: u32,
    /// What it did.
    pub action: ProgramAction,
    /// Whether the next reload or restart undoes it.
    pub temporary: bool,
    /// The SHA-256 digest of the linked program, hexadecimal; `None`: no program.
    pub program: Option<String>,
    /// The objects, in the order of the command.
    pub objects: Vec<ObjectRecord>,
}

impl ProgramRecord {
    /// Returns a record of a command of this user, now.
    pub(crate) fn now(action: ProgramAction, uid: u32, temporary: bool) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self { time, uid, action, temporary, program: None, objects: Vec::new() }
    }
}

/// Where the program of a direction comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgramSource {
    /// The configuration.
    #[default]
    Configuration,
    /// A command, instead of the configuration.
    Command(ProgramRecord),
}
