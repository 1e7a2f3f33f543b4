//! The lower bound for the epochs of a tenant's logs. It keeps epochs increasing when the clock is set back
//! (see [`p4shield_seal::EpochFloor`]).

use p4shield_seal::{EpochError, EpochFloor};
use p4shield_text::chain;
use std::path::Path;

/// Subfolder of the daemon's state folder.
const FOLDER: &str = "p4vm";

/// The lower bound for one tenant.
#[derive(Debug)]
pub(super) struct Epochs {
    tenant: String,
    floor: EpochFloor,
}

impl Epochs {
    /// Keeps the bound below the daemon's state folder; without a folder, in memory only.
    pub(super) fn new(tenant: &str, state: Option<&Path>) -> Self {
        let path = state.map(|state| state.join(FOLDER)).and_then(|folder| {
            let created = std::fs::create_dir_all(&folder);
            created
                .inspect_err(|error| {
                    tracing::warn!(
                        event = "epochs_not_kept",
                        tenant,
                        %error,
                        "cannot create {}; epochs are kept in memory \
                         only",
                        folder.display()
                    );
                })
                .ok()?;
            Some(folder.join(format!("{tenant}.epoch")))
        });
        Self { tenant: tenant.to_owned(), floor: EpochFloor::new(path) }
    }

    /// Reserves and returns the lower bound for the next writer of the logs.
    pub(super) fn reserve(&mut self) -> u64 {
        let (floor, kept) = self.floor.reserve();
        self.warn(kept);
        floor
    }

    /// Confirms that the writer has started its logs.
    pub(super) fn settle(&mut self) {
        let kept = self.floor.confirm();
        self.warn(kept);
    }

    /// Warns only: a lost bound causes false alarms if the clock is also set back; a P4 VM that does not
    /// start costs packets.
    fn warn(&self, kept: Result<(), EpochError>) {
        if let Err(error) = kept {
            let tenant = &self.tenant;
            tracing::warn!(
                event = "epochs_not_kept",
                tenant,
                "cannot store the epochs of logs for the next daemon: {}",
                chain(&error)
            );
        }
    }
}
