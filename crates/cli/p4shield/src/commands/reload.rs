//! `p4shield reload`: applies a changed configuration.

use std::path::PathBuf;

use p4shield_console::{Exit, Refused, output};
use p4shield_daemon::api::{self, Answer, ApiError, Command};

/// Apply the changed configuration while traffic flows
///
/// Reads the file that `p4shield run` was started with and applies every change: tenants, VMs,
/// addresses, ports, wires, programs, policies, limits and keys. Other tenants lose no packet. A tenant whose
/// P4 VM has to be restarted for the change is listed. If any part is refused, nothing is changed. SIGHUP
/// does the same.
///
/// Examples:
///
///   p4shield reload --dry-run    show what would change
///   p4shield reload
///
/// What the configuration names and is absent is shown as a problem, as `p4shield status` does.
///
/// Exit code 1 if a program is still refused as before, 3 if the change is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Reload {
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The daemon's socket: `daemon.socket` of the configuration
    #[arg(long, value_name = "PATH", default_value = "/run/p4shield/p4shield.sock")]
    socket: PathBuf,
}

impl Reload {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let report = match api::ask(&self.socket, &Command::Reload { dry_run: self.dry_run }) {
            Ok(Answer::Reloaded(report)) => report,
            Ok(_) => return Err(ApiError::Unexpected.into()),
            Err(ApiError::Failed(why)) => return Err(Refused(why).into()),
            Err(e) => return Err(e.into()),
        };
        if self.json {
            output::json(&report)?;
        } else {
            output::line(&report);
        }
        Ok(if report.refused.is_empty() { Exit::Done } else { Exit::Failed })
    }
}
