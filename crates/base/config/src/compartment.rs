//! What isolates a P4 VM, and what its virtual machine consists of.

use std::path::PathBuf;

/// Names of the accelerators in the configuration, which are QEMU's.
pub(super) const ACCELERATORS: [&str; 3] = ["auto", "kvm", "tcg"];
/// Most processors of a virtual machine.
pub(super) const MAX_PROCESSORS: u32 = 64;
/// Least memory of a virtual machine, in which Linux and the P4 VM's program start.
pub(super) const MIN_MEMORY: u64 = 192 << 20;

/// What isolates a P4 VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compartment {
    /// A sandboxed process.
    #[default]
    Process,
    /// A virtual machine.
    Vm,
}

impl Compartment {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Process, Self::Vm];

    /// Returns its name in the configuration and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Vm => "vm",
        }
    }
}

/// The trusted execution environment (TEE) that keeps a virtual machine's memory from its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tee {
    /// None: the host can read the memory.
    #[default]
    None,
    /// AMD SEV-SNP.
    SevSnp,
    /// Intel TDX.
    Tdx,
}

impl Tee {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::SevSnp, Self::Tdx];

    /// Returns its name in the configuration and in status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SevSnp => "sev-snp",
            Self::Tdx => "tdx",
        }
    }
}

/// What the virtual machines of P4 VMs consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The folder of the image, made by `p4shield image build`.
    pub image: PathBuf,
    /// QEMU's program, searched in `PATH` if it has no slash.
    pub qemu: PathBuf,
    /// QEMU's name of the accelerator; `None`: the best that works.
    pub accelerator: Option<&'static str>,
    /// Processors of each virtual machine.
    pub processors: u32,
    /// The firmware of machines with a TEE; `None`: the distribution's for that TEE.
    pub firmware: Option<PathBuf>,
    /// QEMU's model of the processor for SEV-SNP; `None`: QEMU's first one with all that SEV-SNP needs.
    pub processor: Option<String>,
    /// Where the host's Quote Generation Service for TDX listens; `None`: where Intel's package has it.
    pub quote_service: Option<String>,
}
