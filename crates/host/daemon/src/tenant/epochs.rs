//! The floor of the epochs of a tenant's logs, which keeps them from going back with the clock (see
//! [`p4shield_seal::Floor`]).

use crate::text::chain;
use p4shield_seal::{EpochError, Floor};
use std::path::Path;

/// The folder for them within the daemon's.
const FOLDER: &str = "p4vm";

/// The floor of one tenant's.
#[derive(Debug)]
pub(super) struct Epochs {
    tenant: String,
    floor: Floor,
}

impl Epochs {
    /// Kept below the daemon's state folder; without one, for as long as the daemon runs.
    pub(super) fn new(tenant: &str, state: Option<&Path>) -> Self {
        let path = state.map(|state| state.join(FOLDER)).and_then(|folder| {
            let made = std::fs::create_dir_all(&folder);
            made.inspect_err(|error| {
                tracing::warn!(tenant, %error, "epochs are not kept: cannot make {}", folder.display());
            })
            .ok()?;
            Some(folder.join(format!("{tenant}.epoch")))
        });
        Self { tenant: tenant.to_owned(), floor: Floor::new(path) }
    }

    /// What whoever writes the logs next is told.
    pub(super) fn next(&mut self) -> u64 {
        let (floor, kept) = self.floor.reserve();
        self.tell(kept);
        floor
    }

    /// It has begun its logs.
    pub(super) fn taken(&mut self) {
        let kept = self.floor.settle();
        self.tell(kept);
    }

    /// A floor that is lost costs false alarms if the clock is set back, too; a P4 VM that does not start costs packets.
    fn tell(&self, kept: Result<(), EpochError>) {
        if let Err(error) = kept {
            let tenant = &self.tenant;
            tracing::warn!(tenant, "epochs of the log are not kept for the next daemon: {}", chain(&error));
        }
    }
}
