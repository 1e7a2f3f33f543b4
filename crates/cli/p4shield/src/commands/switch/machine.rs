//! Options of `p4shield switch run` for a compartment that is a virtual machine.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use p4shield_console::Refused;
use p4shield_image::{Image, ImageKind};
use p4shield_p4switch::FunctionsMachine;
use p4shield_qemu::{Accelerator, Guest, MAX_PROCESSORS, QemuVersion, Request, options};
use p4shield_vmm::Machine;

/// The compartment's virtual machine.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The compartment is a process, or a virtual machine (docs/how-to/switch-service.md)
    #[arg(long, value_enum, default_value_t = Compartment::Process)]
    compartment: Compartment,
    /// With compartment vm: the folder of the image; default: /usr/lib/p4shield/switch-image for placement
    /// pipeline, and /usr/lib/p4shield/image for extern
    #[arg(long, value_name = "FOLDER")]
    image: Option<PathBuf>,
    /// With compartment vm: QEMU's program
    #[arg(long, value_name = "PROGRAM", default_value = p4shield_qemu::PROGRAM)]
    qemu: PathBuf,
    /// With compartment vm: how QEMU executes instructions; default: kvm if it runs guests here, or else tcg
    #[arg(long, value_enum)]
    accelerator: Option<AcceleratorName>,
    /// With compartment vm and placement pipeline: memory of the machine, MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    #[arg(value_parser = clap::value_parser!(u64).range(256..=1 << 20))]
    memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compartment {
    Process,
    Vm,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AcceleratorName {
    Kvm,
    Tcg,
}

impl Options {
    /// Returns whether the compartment is a virtual machine.
    pub(super) fn is_vm(&self) -> bool {
        self.compartment == Compartment::Vm
    }

    fn accelerator(&self) -> Accelerator {
        match self.accelerator {
            Some(AcceleratorName::Kvm) => Accelerator::Kvm,
            Some(AcceleratorName::Tcg) => Accelerator::Tcg,
            None => Accelerator::probe(&self.qemu),
        }
    }

    /// Returns the machine of a whole switch with this many packet threads.
    pub(super) fn of_switch(&self, threads: usize) -> anyhow::Result<Machine> {
        let folder = self.image.as_deref().unwrap_or(Path::new("/usr/lib/p4shield/switch-image"));
        let image = Image::of_kind(folder, ImageKind::Switch).map_err(|e| Refused::because(&e))?;
        // One more for clients, the verifier and the kernel.
        let processors = u32::try_from(threads + 1).unwrap_or(MAX_PROCESSORS).min(MAX_PROCESSORS);
        let request = Request {
            guest: Guest::Plain,
            version: QemuVersion::of(&self.qemu)?,
            accelerator: self.accelerator(),
            memory: self.memory << 20,
            processors,
            firmware: None,
        };
        let (options, qemu) = (options(&request)?, self.qemu.clone());
        let Image { kernel, initramfs, .. } = image;
        Ok(Machine { qemu, options, kernel, initramfs, arguments: Vec::new() })
    }

    /// Returns the machine of the functions of a switch, if they run in one.
    pub(super) fn of_functions(&self) -> anyhow::Result<Option<FunctionsMachine>> {
        if !self.is_vm() {
            return Ok(None);
        }
        let folder = self.image.as_deref().unwrap_or(Path::new("/usr/lib/p4shield/image"));
        Image::of_kind(folder, ImageKind::P4Vm).map_err(|e| Refused::because(&e))?;
        let accelerator = Some(self.accelerator().name());
        Ok(Some(FunctionsMachine { image: folder.to_owned(), qemu: self.qemu.clone(), accelerator }))
    }
}
