//! Why a machine cannot be measured.

use crate::MAX_PROCESSORS;
use std::path::PathBuf;

/// Reason why a machine cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The firmware cannot be read.
    #[error("cannot read {}; install the package {package}, or name another file", path.display())]
    Read {
        /// The firmware.
        path: PathBuf,
        /// Debian's package of such firmware.
        package: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The firmware's metadata are inconsistent.
    #[error(
        "{} is no firmware that SEV-SNP measures; use OVMF.amdsev.fd of the package ovmf-amdsev",
        path.display()
    )]
    Malformed {
        /// The firmware.
        path: PathBuf,
    },
    /// The firmware lacks what SEV-SNP needs.
    #[error(
        "{} does not support SEV-SNP with kernel hashes; use OVMF.amdsev.fd of the package ovmf-amdsev",
        path.display()
    )]
    Firmware {
        /// The firmware.
        path: PathBuf,
        /// The cause.
        #[source]
        source: sev::error::MeasurementError,
    },
    /// The firmware claims more memory than a machine has.
    #[error("{} describes so much memory that measuring it does not end; it is no OVMF", path.display())]
    Endless {
        /// The firmware.
        path: PathBuf,
    },
    /// The firmware is none for TDX.
    #[error(
        "{}: {what} (byte {at:#x}); use firmware with which QEMU starts TDX machines, such as \
         OVMF.fd of the package ovmf-generic",
        path.display()
    )]
    Tdvf {
        /// The firmware.
        path: PathBuf,
        /// The contradiction.
        what: &'static str,
        /// Where it is, in bytes from the beginning of the file.
        at: usize,
    },
    /// A file of the image cannot be read.
    #[error("cannot read {}; build the image again: p4shield image build", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The kernel is none that OVMF starts.
    #[error(
        "{}: {what} (byte {at:#x}); build the image with a kernel of a distribution, which has an EFI stub",
        path.display()
    )]
    Kernel {
        /// The kernel.
        path: PathBuf,
        /// The contradiction.
        what: &'static str,
        /// Where it is, in bytes from the beginning of the file.
        at: usize,
    },
    /// The kernel measures neither its command line nor its initial file system.
    #[error(
        "{} is Linux {major}.{minor}, whose initial file system is in no register of TDX: the host could \
         replace it; build the image with Linux 6.9 or later (--kernel)",
        path.display()
    )]
    OldKernel {
        /// The kernel.
        path: PathBuf,
        /// The version's first number.
        major: u32,
        /// The version's second number.
        minor: u32,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
    /// The model of processor is unknown.
    #[error("no model of processor is named `{0}`; write the name that QEMU gets, such as EPYC-v4")]
    Processor(String),
    /// The number of processors is outside the limits.
    #[error("{0} processors are not from 1 to {MAX_PROCESSORS}")]
    Processors(u32),
}
