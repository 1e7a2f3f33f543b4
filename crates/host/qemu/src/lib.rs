//! QEMU: its version, the accelerators that work on this machine, and its options for a virtual machine with
//! or without a trusted execution environment (TEE).
//!
//! [`options`] is a pure function: from a TEE, QEMU's version and the machine's size to the options for
//! machine, memory, processors, firmware and the TEE's object. A QEMU that lacks the TEE is an
//! [`OptionsError`], never a machine without it.
//!
//! [`UserVm`] is what the definition of a user VM needs: its pages and its port, for QEMU or libvirt.
//!
//! The names of properties are QEMU's own (`qapi/qom.json` and the manual's "i386 System emulator"); tests of
//! the vmm crate compare complete command lines with golden files. No machine with SEV-SNP or TDX has been
//! started: no such hardware was there.
#![forbid(unsafe_code)]

mod accelerator;
mod devices;
mod error;
mod guest;
mod options;
mod process;
mod snp;
mod tdx;
mod tee;
mod user_vm;
mod version;

pub use accelerator::{Accelerator, PATIENCE};
pub use devices::missing_devices;
pub use error::OptionsError;
pub use guest::Guest;
pub use options::{MAX_PROCESSORS, Options, Request, options};
pub use snp::{CPU_MODELS, SnpGuest};
pub use tdx::{NoQuoteService, QuoteService, TdxGuest};
pub use tee::{Tee, UnknownTee};
pub use user_vm::{Port, UserVm, UserVmError};
pub use version::{NoVersion, QemuVersion, VersionError};

/// QEMU's program.
pub const PROGRAM: &str = "qemu-system-x86_64";
