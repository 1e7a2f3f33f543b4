//! What the daemon has recorded of a P4 VM for the next daemon.

use crate::adoption::P4VmRecord;
use std::time::Duration;

/// What the next daemon could adopt.
#[derive(Debug, Default)]
pub(super) struct Legacy {
    /// The record of the running P4 VM.
    pub(super) record: Option<P4VmRecord>,
    /// How long the P4 VM goes on without a daemon, as it knows.
    pub(super) patience: Option<Duration>,
}
