//! Options and result of a run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

/// Options of a run.
#[derive(Debug)]
pub struct Options {
    /// Shorter phases.
    pub quick: bool,
    /// Folder of the report.
    pub report: PathBuf,
    /// The image of P4 VMs in virtual machines; none: the P4 VM is a process.
    pub image: Option<PathBuf>,
    /// Text of the P4 program.
    pub program: String,
    /// Flag that stops the run early.
    pub interrupted: Arc<AtomicBool>,
    /// Prints a line for the user.
    pub say: fn(&str),
}

impl Options {
    /// Ends a run that the user interrupted.
    pub(crate) fn check_interrupted(&self) -> anyhow::Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Waits until `done` returns true, at most `seconds`, and ends if the user interrupts.
    pub(crate) fn wait(
        &self,
        what: &str,
        seconds: u64,
        mut done: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs(seconds);
        while !done()? {
            self.check_interrupted()?;
            ensure!(Instant::now() < end, "{what} did not happen within {seconds} s");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Returns what isolates the P4 VM, for the report.
    pub(crate) const fn compartment(&self) -> &'static str {
        if self.image.is_some() { "a virtual machine" } else { "a sandboxed process" }
    }

    /// Returns the seconds of a phase: a third if quick.
    pub(crate) const fn seconds(&self, seconds: u64) -> u64 {
        if self.quick { seconds.div_ceil(3) } else { seconds }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct DemoResult {
    /// Whether every claim held.
    pub held: bool,
    /// The report's page.
    pub page: PathBuf,
}
