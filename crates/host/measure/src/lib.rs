//! Values that a confidential host must report of a P4 VM's machine, computed offline: the measurement of
//! SEV-SNP from image, firmware and the number and model of processors, and registers of TDX from image and
//! firmware. Firmware comes from outside, so it is hostile.
//!
//! RTMR 0 of TDX is not here: it covers tables that QEMU writes for the machine (decision 040). Kernels that
//! leave the initial file system out of TDX's registers are refused: the host could replace it.
#![forbid(unsafe_code)]

mod bytes;
mod error;
mod kernel;
mod snp;
mod tdvf;
mod tdx;

pub use error::MeasureError;
pub use snp::{SnpMachine, sev_snp};
pub use tdx::{TdxMachine, TdxRegisters, mrtd, rtmr1, tdx};

use std::fmt;

/// The most processors of a machine.
pub const MAX_PROCESSORS: u32 = 255;
/// Sizes of firmware that can be at the end of the first 4 GiB.
const FIRMWARE: std::ops::RangeInclusive<u64> = 4096..=16 << 20;

/// MEASUREMENT in a report of SEV-SNP, or a register of TDX. [`fmt::Display`] writes it in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measurement(pub [u8; 48]);

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
