//! `p4shield keygen`.

use std::path::PathBuf;

use p4shield_seal::TenantKey;

use p4shield_console::Exit;
use p4shield_console::output;

/// Make a tenant's key
///
/// 32 random bytes in a new file that only its owner may read (mode 0600). User VM and P4 VM need the
/// same key, until keys come from an attested exchange. An existing file is never overwritten.
///
/// Example: p4shield keygen /etc/p4shield/alice.key
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The file to make
    path: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        TenantKey::generate(&self.path)?;
        output::line(format_args!("made {}", self.path.display()));
        Ok(Exit::Done)
    }
}
