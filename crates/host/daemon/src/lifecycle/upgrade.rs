//! Upgrades: the daemon executes another release of itself, which adopts the P4 VMs.
//!
//! The process stays the same, so a service manager sees no restart. The checks come first: what would not
//! start is never executed.

use crate::lifecycle::state::DaemonState;
use p4shield_control::PROTOCOL_VERSION;
use p4shield_text::{chain, printable_lines};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;

/// The signal by which the daemon's main thread learns of an upgrade.
pub(crate) const UPGRADE_SIGNAL: i32 = signal_hook::consts::SIGUSR2;

impl DaemonState {
    /// Checks a binary, which [`Self::start_upgrade`] then has the main thread execute. Returns the path.
    ///
    /// # Errors
    /// The binary cannot adopt the P4 VMs, or would not start with the present configuration file.
    pub(crate) fn upgrade(&self, binary: Option<PathBuf>) -> Result<PathBuf, String> {
        let _no_reload = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let binary = match (binary, &self.path) {
            (Some(binary), _) => binary,
            (None, Some(path)) => path.clone(),
            (None, None) => return Err("the daemon does not know its own path; name the binary".to_owned()),
        };
        check(&binary, &self.running().config.file)?;
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(binary.clone());
        Ok(binary)
    }

    /// Has the main thread execute the binary that was checked, after the client has its answer.
    pub(crate) fn start_upgrade(&self) {
        if let Err(error) = rustix::process::kill_process(rustix::process::getpid(), Signal::USR2) {
            tracing::error!(event = "upgrade_failed", %error, "cannot start the upgrade");
        }
    }

    /// Executes the binary of an upgrade. Returns only if there is none or it cannot be executed.
    pub(crate) fn execute_successor(&self) {
        let binary = self.successor.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(binary) = binary else { return };
        tracing::info!(event = "upgrade_started", "executing {}, which adopts the P4 VMs", binary.display());
        let error = Command::new(&binary).args(std::env::args_os().skip(1)).exec();
        tracing::error!(
            event = "upgrade_failed",
            "cannot execute {}: {error}; this release goes on",
            binary.display()
        );
    }
}

/// Checks that a binary speaks this daemon's protocol with P4 VMs and accepts the configuration.
fn check(binary: &Path, config: &Path) -> Result<(), String> {
    let shown = binary.display();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(binary);
        command.args(arguments).stdin(Stdio::null());
        command.output().map_err(|e| format!("cannot execute {shown}: {}", chain(&e)))
    };
    let protocol = run(&["p4vm", "--protocol"])?;
    let theirs = String::from_utf8_lossy(&protocol.stdout).trim().to_owned();
    if !protocol.status.success() || theirs != PROTOCOL_VERSION.to_string() {
        let theirs = printable_lines(if theirs.is_empty() { "none" } else { &theirs });
        return Err(format!(
            "{shown} speaks version {theirs} of the protocol with P4 VMs, and the running ones speak version \
             {PROTOCOL_VERSION}: it cannot adopt them; restart the daemon instead, and the tenants' fail \
             policies apply until their new P4 VMs run"
        ));
    }
    let config = config.to_str().ok_or("the path of the configuration is not UTF-8")?;
    let checked = run(&["run", "--check", "--config", config])?;
    if !checked.status.success() {
        let why = printable_lines(String::from_utf8_lossy(&checked.stderr).trim());
        return Err(format!("{shown} would not start: {why}"));
    }
    Ok(())
}
