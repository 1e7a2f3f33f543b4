//! `p4shield keygen`.

use std::path::PathBuf;

use p4shield_seal::TenantKey;

use p4shield_console::{Exit, output};

/// Generate a tenant's key
///
/// Writes 32 random bytes to a new file of mode 0600. User VM and P4 VM need the same key. Refuses to
/// overwrite a file.
///
/// Example: p4shield keygen /etc/p4shield/alice.key
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The file to write
    path: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        TenantKey::generate(&self.path)?;
        output::line(format_args!("wrote {}", self.path.display()));
        Ok(Exit::Done)
    }
}
