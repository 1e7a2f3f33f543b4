//! Machines that QEMU cannot start as asked.

use crate::tee::Tee;
use crate::version::QemuVersion;
use std::path::PathBuf;

/// Reason why there are no options for a machine. Each refusal says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// QEMU is older than its support of the TEE.
    #[error("QEMU {version} is too old for tee = \"{tee}\"; install QEMU {needed} or later")]
    OldQemu {
        /// The TEE.
        tee: Tee,
        /// QEMU's version.
        version: QemuVersion,
        /// The first version that has it.
        needed: QemuVersion,
    },
    /// The TEE needs a processor, and the machine was to be emulated.
    #[error("machines of {0} run on KVM only, not by emulation; see `p4shield host check`")]
    NeedsKvm(Tee),
    /// The TEE measures firmware, and none is named.
    #[error("a machine of {0} needs firmware that supports it; name an OVMF file")]
    NoFirmware(Tee),
    /// The amount of memory is no whole number of MiB, or 0.
    #[error("{0} bytes of memory are no whole number of MiB; give at least 1 MiB")]
    Memory(u64),
    /// The number of processors is outside the limits.
    #[error("{processors} processors are not from 1 to {most}")]
    Processors {
        /// The number.
        processors: u32,
        /// The highest one.
        most: u32,
    },
    /// QEMU's command line cannot carry the path.
    #[error("the path {0:?} is not UTF-8 or contains a line end; move the file")]
    Path(PathBuf),
    /// SEV-SNP measures the processor's model, and this one is unknown.
    #[error(
        "no model of processor for sev-snp is named `{0}`; choose one of QEMU's EPYC models, such as EPYC-v4"
    )]
    UnknownCpu(String),
    /// QEMU is older than the model of the processor.
    #[error(
        "QEMU {version} has no processor {cpu}; install QEMU {needed} or later, or choose an older model"
    )]
    NewCpu {
        /// The model.
        cpu: String,
        /// QEMU's version.
        version: QemuVersion,
        /// The first version that has it.
        needed: QemuVersion,
    },
    /// A position of the C-bit that no processor has.
    #[error("the C-bit of a page table's entry is at 32 to 63, not at {0}; CPUID 8000001F has the host's")]
    EncryptionBit(u8),
}
