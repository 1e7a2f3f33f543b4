//! `p4shield image`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use p4shield_console::{Exit, Refused, output};
use p4shield_image::{Image, ImageError, Manifest, build, installed_kernel};
use p4shield_measure::{SnpMachine, sev_snp};
use serde::Serialize;

/// Build the image of P4 VMs in virtual machines, and show what it consists of
///
/// An image has the distribution's kernel and one static program. docs/how-to/virtual-machines.md has the
/// steps.
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
///
/// Exit code 3 if the program or the kernel is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Build {
    /// The folder to build in; it is created, and files of an older image are replaced
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// The static program of P4 VMs; default: the one that was installed with this binary
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

/// Compute what a SEV-SNP host must report of a machine with an image
///
/// A tenant's attestation policy lists the measurement (`measurements` of `[sev-snp]`). It depends on
/// image, firmware, and number and model of processors; give those of the cloud's configuration. Nothing
/// is started, and no SEV-SNP host is needed.
///
/// Examples:
///
///   p4shield image measure
///   p4shield image measure image --firmware OVMF.amdsev.fd --processors 4 --processor EPYC-v4
///
/// Exit code 3 if a file is missing, the firmware is none for SEV-SNP, or the image was changed.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct Measure {
    /// The image's folder
    #[arg(default_value = "/usr/lib/p4shield/image")]
    folder: PathBuf,
    /// The firmware
    #[arg(long, value_name = "FILE", default_value = "/usr/share/ovmf/OVMF.amdsev.fd")]
    firmware: PathBuf,
    /// The number of processors: `processors` of the configuration
    #[arg(long, value_name = "N", default_value_t = 2)]
    processors: u32,
    /// QEMU's model of the processors: `processor` of the configuration
    #[arg(long, value_name = "MODEL", default_value = "EPYC-v4")]
    processor: String,
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
        let program = self.program.map_or_else(installed_program, Ok)?;
        let manifest = build(&program, &kernel, &self.output).map_err(refused)?;
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
        let image = Image::open(&self.folder).map_err(refused)?;
        let digest = image.manifest.image.clone();
        let machine = SnpMachine {
            firmware: self.firmware.clone(),
            processor: self.processor.clone(),
            processors: self.processors,
            image,
            arguments: if self.busy { vec!["--busy".to_owned()] } else { Vec::new() },
        };
        let measurement = sev_snp(&machine).map_err(|e| Refused::because(&e))?.to_string();
        if self.json {
            let (firmware, processor) = (self.firmware.as_path(), self.processor.as_str());
            output::json(&Measured {
                image: &digest,
                firmware,
                processor,
                processors: self.processors,
                measurement,
            })?;
        } else {
            output::line(format_args!("image         {digest}"));
            output::line(format_args!("measurement   {measurement}"));
        }
        Ok(Exit::Done)
    }
}

/// Returns where the packages and `make install` put the program.
fn installed_program() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe().context("cannot find the path of this executable")?;
    let prefix = exe.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    Ok(prefix.join("lib/p4shield/p4vm"))
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
    Ok(Exit::Done)
}
