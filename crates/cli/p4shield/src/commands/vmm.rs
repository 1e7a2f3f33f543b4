//! `p4shield vmm`: the host daemon starts it, never a user.

use std::os::fd::AsFd;
use std::path::PathBuf;

use clap::ValueEnum;
use p4shield_console::Exit;
use p4shield_image::{Image, ImageKind};
use p4shield_qemu::{Accelerator, Guest, QemuVersion, QuoteService, Request, TdxGuest, Tee, options};
use p4shield_vmm::{Machine, Options, run};

/// The P4 VM of one tenant, in a virtual machine. `p4shield run` starts it and controls it over standard
/// input.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// User to change to when started as root
    #[arg(long)]
    uid: u32,
    /// Memory of the virtual machine in bytes
    #[arg(long)]
    memory: u64,
    /// Folder of the image
    #[arg(long)]
    image: PathBuf,
    /// QEMU's program
    #[arg(long)]
    qemu: PathBuf,
    /// Processors of the virtual machine
    #[arg(long)]
    processors: u32,
    /// How QEMU executes instructions
    #[arg(long)]
    accelerator: Choice,
    /// What keeps its memory from the host
    #[arg(long, default_value_t = Tee::None)]
    tee: Tee,
    /// The firmware that the TEE measures
    #[arg(long)]
    firmware: Option<PathBuf>,
    /// QEMU's model of the processor, for sev-snp
    #[arg(long)]
    processor: Option<String>,
    /// The host's Quote Generation Service, for tdx
    #[arg(long, default_value_t = QuoteService::default())]
    quote_service: QuoteService,
    /// Poll without sleeping
    #[arg(long)]
    busy: bool,
    /// Map shared memory with write combining, to measure what the mapping costs
    #[arg(long)]
    write_combining: bool,
    /// Nanoseconds to add to each packet, to measure the cost of slow programs
    #[arg(long, default_value_t = 0)]
    delay_ns: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Choice {
    Kvm,
    Tcg,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let image = Image::of_kind(&self.image, ImageKind::P4Vm)?;
        let accelerator = match self.accelerator {
            Choice::Kvm => Accelerator::Kvm,
            Choice::Tcg => Accelerator::Tcg,
        };
        let mut arguments = Vec::new();
        if self.busy {
            arguments.push("--busy".to_owned());
        }
        if self.delay_ns > 0 {
            arguments.push(format!("--delay-ns={}", self.delay_ns));
        }
        let request = Request {
            guest: match self.tee {
                Tee::Tdx => Guest::Tdx(TdxGuest { quotes: Some(self.quote_service), config_id: None }),
                tee => Guest::for_this_host(tee, self.processor.as_deref()),
            },
            version: QemuVersion::of(&self.qemu)?,
            accelerator,
            memory: self.memory,
            processors: self.processors,
            firmware: self.firmware.as_deref().filter(|_| self.tee != Tee::None),
        };
        let options = options(&request)?;
        let (kernel, initramfs) = (image.kernel, image.initramfs);
        let machine = Machine { qemu: self.qemu, options, kernel, initramfs, arguments };
        let control = std::io::stdin().as_fd().try_clone_to_owned()?;
        run(control, &Options { uid: self.uid, machine, write_combining: self.write_combining })?;
        Ok(Exit::Done)
    }
}
