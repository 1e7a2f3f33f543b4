//! `p4shield keygen`.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use p4shield_seal::TenantKey;

use p4shield_console::{Exit, output};

/// Generate a tenant's key
///
/// Writes 32 random bytes to a new file of mode 0600. User VM and P4 VM need the same key. Refuses to
/// overwrite a file. Creates the folder if it does not exist, for its owner alone.
///
/// Example: p4shield keygen /etc/p4shield/alice.key
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The file to write
    path: PathBuf,
}

impl Args {
    /// Runs the command.
    ///
    /// # Errors
    /// It fails; the error names what, and what to do.
    pub fn run(self) -> anyhow::Result<Exit> {
        if let Some(folder) = self.path.parent().filter(|folder| *folder != Path::new("")) {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            created.with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        TenantKey::generate(&self.path)?;
        output::line(format_args!("wrote {}", self.path.display()));
        Ok(Exit::Done)
    }
}
