//! `p4shield image`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_image::{
    Image, ImageError, Manifest, build, build_switch, build_tenant_switch, installed_kernel,
};
use p4shield_measure::{SnpMachine, TdxMachine, sev_snp, tdx};
use p4shield_qemu::Tee;
use serde::Serialize;

/// Build the image of virtual machines, of P4 VMs or of switches, and show what it consists of
///
/// An image has the distribution's kernel and one static program; that of a switch also the kernel's modules
/// of network devices, and that of tenants' switches this host's Open vSwitch.
/// docs/how-to/virtual-machines.md has the steps.
///
/// Example: p4shield image build -o /usr/lib/p4shield/image
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(Build),
    Show(Show),
    Measure(Measure),
}

/// Build an image; the same kernel and program give the same bytes everywhere
///
/// Prints the digests of the image and of what it consists of. Running P4 VMs keep the old image until they
/// restart.
///
/// Examples:
///
///   p4shield image build -o /usr/lib/p4shield/image
///   p4shield image build --kernel /boot/vmlinuz-6.1.0-40-amd64 -o image
///   p4shield image build --switch -o /usr/lib/p4shield/switch-image
///   p4shield image build --tenant-switch -o /usr/lib/p4shield/tenant-switch-image
///
/// Exit code 3 if the program or the kernel is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Build {
    /// The folder to build in; it is created, and files of an older image are replaced
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Build the image of P4 switches, `p4shield switch run --compartment vm`, instead of that of P4 VMs
    #[arg(long)]
    switch: bool,
    /// Build the image of tenants' switches (`compartment = "vm"`), with this host's Open vSwitch
    #[arg(long, conflicts_with = "switch")]
    tenant_switch: bool,
    /// The folder of the kernel's modules, of which switches need some; default: /lib/modules/VERSION
    #[arg(long, value_name = "FOLDER")]
    modules: Option<PathBuf>,
    /// The static program of the machines; default: the one that was installed with this binary
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The kernel; default: the newest one in /boot
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compare an image with its manifest, and print its digests
///
/// Examples:
///
///   p4shield image show
///   p4shield image show image --json | jq -r .image
///
/// Exit code 3 if a file is missing or another than the manifest says.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Show {
    /// The image's folder
    #[arg(default_value = "/usr/lib/p4shield/image")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compute what a host with SEV-SNP or TDX must report of a machine with an image
///
/// A tenant's attestation policy lists these values. SEV-SNP has one (`measurements` of `[sev-snp]`), which
/// depends on image, firmware, and number and model of processors; give those of the cloud's configuration.
/// Of TDX's registers, mrtd depends on the firmware, rtmr1 and rtmr2 on the image; they are printed as a
/// policy has them. rtmr0 covers tables that QEMU writes: read it once from a machine that you started.
/// Nothing is started, and no host with a TEE is needed.
///
/// The registers of TDX are those of QEMU 10.1 and Linux 6.16 or later on the host, and OVMF of
/// edk2-stable202508 or later.
///
/// Examples:
///
///   p4shield image measure
///   p4shield image measure image --firmware OVMF.amdsev.fd --processors 4 --processor EPYC-v4
///   p4shield image measure image --tee tdx --firmware OVMF.fd
///
/// Exit code 3 if a file is missing, the firmware is none for the TEE, or the image was changed.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Measure {
    /// The image's folder
    #[arg(default_value = "/usr/lib/p4shield/image")]
    folder: PathBuf,
    /// The TEE, sev-snp or tdx: `tee` of the configuration
    #[arg(long, default_value = "sev-snp")]
    tee: Tee,
    /// The firmware; default: the one of Debian's package ovmf-amdsev or ovmf-generic
    #[arg(long, value_name = "FILE")]
    firmware: Option<PathBuf>,
    /// The number of processors, for SEV-SNP: `processors` of the configuration; default: 2
    #[arg(long, value_name = "N")]
    processors: Option<u32>,
    /// QEMU's model of the processors, for SEV-SNP: `processor` of the configuration; default: EPYC-v4
    #[arg(long, value_name = "MODEL")]
    processor: Option<String>,
    /// The tenant's P4 VM polls: `busy` of the configuration
    #[arg(long)]
    busy: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Measured<'a> {
    image: &'a str,
    firmware: &'a Path,
    processor: &'a str,
    processors: u32,
    measurement: String,
}

#[derive(Serialize)]
struct Registers<'a> {
    image: &'a str,
    firmware: &'a Path,
    mrtd: String,
    rtmr1: String,
    rtmr2: String,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self.command {
            Command::Build(build) => build.run(),
            Command::Show(show) => show.run(),
            Command::Measure(measure) => measure.run(),
        }
    }
}

impl Build {
    fn run(self) -> anyhow::Result<Exit> {
        let kernel = match self.kernel {
            Some(kernel) => kernel,
            None => installed_kernel(Path::new("/boot")).map_err(refused)?,
        };
        let name = match (self.switch, self.tenant_switch) {
            (true, _) => "switchvm",
            (_, true) => "tenantvm",
            _ => "p4vm",
        };
        let program = self.program.map_or_else(|| installed_program(name), Ok)?;
        let modules = self.modules.as_deref();
        let manifest = match (self.switch, self.tenant_switch) {
            (true, _) => build_switch(&program, &kernel, modules, &self.output),
            (_, true) => build_tenant_switch(&program, &kernel, modules, &self.output),
            _ => build(&program, &kernel, &self.output),
        };
        let manifest = manifest.map_err(refused)?;
        print(&self.output, &manifest, self.json)
    }
}

impl Show {
    fn run(self) -> anyhow::Result<Exit> {
        let image = Image::open(&self.folder).map_err(refused)?;
        print(&self.folder, &image.manifest, self.json)
    }
}

impl Measure {
    fn run(self) -> anyhow::Result<Exit> {
        let Some((installed, _)) = self.tee.firmware() else {
            return Err(Refused(
                "a machine without a TEE has no measurement; write --tee sev-snp or tdx".to_owned(),
            )
            .into());
        };
        let firmware = self.firmware.clone().unwrap_or_else(|| installed.into());
        let image = Image::open(&self.folder).map_err(refused)?;
        let arguments = if self.busy { vec!["--busy".to_owned()] } else { Vec::new() };
        match self.tee {
            Tee::Tdx => self.tdx(&TdxMachine { firmware, image, arguments }),
            _ => self.sev_snp(firmware, image, arguments),
        }
    }

    fn sev_snp(self, firmware: PathBuf, image: Image, arguments: Vec<String>) -> anyhow::Result<Exit> {
        let (processors, processor) = (self.processors.unwrap_or(2), self.processor);
        let processor = processor.unwrap_or_else(|| "EPYC-v4".to_owned());
        let machine = SnpMachine { firmware, processor, processors, image, arguments };
        let measurement = sev_snp(&machine).map_err(|e| Refused::because(&e))?.to_string();
        let image = machine.image.manifest.image.as_str();
        if self.json {
            let (firmware, processor) = (machine.firmware.as_path(), machine.processor.as_str());
            output::json(&Measured { image, firmware, processor, processors, measurement })?;
        } else {
            output::line(format_args!("image         {image}"));
            output::line(format_args!("measurement   {measurement}"));
        }
        Ok(Exit::Done)
    }

    fn tdx(&self, machine: &TdxMachine) -> anyhow::Result<Exit> {
        if self.processors.is_some() || self.processor.is_some() {
            let text = "no register that can be computed depends on processors; leave --processors and \
                        --processor out";
            return Err(Refused(text.to_owned()).into());
        }
        let registers = tdx(machine).map_err(|e| Refused::because(&e))?;
        let (image, firmware) = (machine.image.manifest.image.as_str(), machine.firmware.as_path());
        let [mrtd, rtmr1, rtmr2] =
            [registers.mrtd, registers.rtmr1, registers.rtmr2].map(|register| register.to_string());
        if self.json {
            output::json(&Registers { image, firmware, mrtd, rtmr1, rtmr2 })?;
            return Ok(Exit::Done);
        }
        output::line(format_args!("# image {image}"));
        output::line("[tdx]");
        for (key, register) in [("mrtd", mrtd), ("rtmr1", rtmr1), ("rtmr2", rtmr2)] {
            output::line(format_args!("{key} = [\"{register}\"]"));
        }
        output::line(
            "# rtmr0: read it once from a machine that you started; it covers tables that QEMU writes",
        );
        Ok(Exit::Done)
    }
}

/// Returns where the packages and `make install` put the program.
fn installed_program(name: &str) -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find the path of this executable")?;
    let prefix = exe.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    Ok(prefix.join("lib/p4shield").join(name))
}

/// A file that cannot be written is a failure; all else is wrong input.
fn refused(error: ImageError) -> anyhow::Error {
    if error.is_output() { error.into() } else { Refused::because(&error).into() }
}

fn print(folder: &Path, manifest: &Manifest, json: bool) -> anyhow::Result<Exit> {
    if json {
        output::json(manifest)?;
        return Ok(Exit::Done);
    }
    let folder = std::path::absolute(folder).context("cannot find the current folder")?;
    output::line(format_args!("image         {}  {}", manifest.image, folder.display()));
    output::line(format_args!("kernel        {}", manifest.kernel));
    output::line(format_args!("initramfs     {}", manifest.initramfs));
    output::line(format_args!("program       {}", manifest.program));
    output::line(format_args!("command line  {}", manifest.command_line));
    if !manifest.modules.is_empty() {
        output::line(format_args!("modules       {}", manifest.modules.join(" ")));
    }
    for file in &manifest.files {
        output::line(format_args!("file          {file}"));
    }
    Ok(Exit::Done)
}
