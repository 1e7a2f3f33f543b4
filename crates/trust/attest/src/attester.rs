//! The attester: what asks a machine's hardware for evidence.

use std::io;
use std::path::PathBuf;

use crate::evidence::Evidence;
use crate::tee::{ReportData, Tee};

/// Produces evidence about the machine that it runs in.
pub trait Attester {
    /// Returns the kind of TEE.
    fn tee(&self) -> Tee;

    /// Produces evidence that is bound to `report_data`.
    ///
    /// # Errors
    ///
    /// If the kernel or the hardware produces no report for this report data.
    fn evidence(&self, report_data: &ReportData) -> Result<Evidence, AttestError>;
}

/// Reason why an attester produces no evidence. None of these falls back to a sample.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttestError {
    /// The kernel has no folder for reports.
    #[error(
        "{} does not exist: this machine has no TEE, its kernel is older than 6.7, or configfs is not \
         mounted; run in a confidential VM, and try `mount -t configfs none /sys/kernel/config` and \
         `modprobe sev-guest` or `modprobe tdx-guest`",
        .0.display()
    )]
    NoTee(PathBuf),
    /// The kernel's provider of reports is none that this version knows.
    #[error("the kernel's provider of reports is {0:?}; this version knows sev_guest and tdx_guest")]
    Provider(String),
    /// The kernel refused an operation.
    #[error("cannot {doing} {attribute} of a report entry in {}", folder.display())]
    Io {
        /// The folder of the entries.
        folder: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The entry's attribute.
        attribute: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another process wrote to the entry meanwhile, so the report may be of that process's data.
    #[error(
        "another process used the report entry: its generation is {found} in place of {expected}; retry, and \
         look for the other process if this lasts"
    )]
    Generation {
        /// The generation after the attester's own writes.
        expected: u64,
        /// The generation that the kernel reports.
        found: u64,
    },
    /// The kernel's answer is not what its interface promises.
    #[error("the kernel's {attribute} is unusable: {why}; report this with the kernel's version")]
    Answer {
        /// The entry's attribute.
        attribute: &'static str,
        /// What is wrong with it.
        why: String,
    },
}
