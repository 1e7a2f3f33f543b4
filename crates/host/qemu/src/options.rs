//! From a machine to QEMU's options.

use crate::accelerator::Accelerator;
use crate::error::OptionsError;
use crate::guest::Guest;
use crate::tee::Tee;
use crate::version::QemuVersion;
use std::path::Path;

/// The most processors of a machine: the number that needs no interrupt remapping.
pub const MAX_PROCESSORS: u32 = 255;

/// The identifier of the TEE's object.
const TEE: &str = "tee0";
/// The identifier of the memory's object.
const MEMORY: &str = "ram0";

/// A machine to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The TEE and its settings.
    pub guest: Guest,
    /// QEMU's version.
    pub version: QemuVersion,
    /// How QEMU executes instructions.
    pub accelerator: Accelerator,
    /// Bytes of memory, a whole number of MiB.
    pub memory: u64,
    /// Processors, 1 to [`MAX_PROCESSORS`].
    pub processors: u32,
    /// The firmware's file: OVMF with support of the TEE. A plain machine needs none.
    pub firmware: Option<&'a Path>,
}

/// QEMU's options for a machine. The launcher adds kernel, devices and channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The value of `-machine`.
    pub machine: String,
    /// The value of `-accel`.
    pub accelerator: &'static str,
    /// The value of `-cpu`.
    pub cpu: String,
    /// The value of `-m`.
    pub memory: String,
    /// The value of `-smp`.
    pub processors: String,
    /// The values of `-object`: memory and TEE.
    pub objects: Vec<String>,
    /// The value of `-bios`. A TEE loads firmware into measured memory, which a flash device is not.
    pub firmware: Option<String>,
    /// The host's devices that QEMU opens.
    pub devices: Vec<&'static Path>,
}

impl Options {
    /// Returns the options of a plain machine whose memory other processes can map, as a switch does with
    /// vhost-user. That of a TEE is its own.
    #[must_use]
    pub fn with_shared_memory(mut self) -> Self {
        if self.objects.is_empty() {
            self.objects.push(shared_memory(&self.memory));
            self.machine = format!("{},memory-backend={MEMORY}", self.machine);
        }
        self
    }

    /// Returns the arguments, in the order in which QEMU's documentation has them.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let one = |name: &str, value: &str| [format!("-{name}"), value.to_owned()];
        let mut all = Vec::new();
        all.extend(one("machine", &self.machine));
        all.extend(one("accel", self.accelerator));
        all.extend(one("cpu", &self.cpu));
        all.extend(one("m", &self.memory));
        all.extend(one("smp", &self.processors));
        all.extend(self.objects.iter().flat_map(|object| one("object", object)));
        all.extend(self.firmware.iter().flat_map(|file| one("bios", file)));
        all
    }
}

/// Returns QEMU's options for a machine.
///
/// # Errors
/// QEMU is too old for the TEE or the processor, the accelerator is not KVM, or a setting is out of its
/// limits.
pub fn options(request: &Request<'_>) -> Result<Options, OptionsError> {
    check(request)?;
    let firmware = request.firmware.map(text).transpose()?;
    let mebibytes = format!("{}M", request.memory >> 20);
    let (objects, cpu) = match &request.guest {
        Guest::Plain => (Vec::new(), plain_cpu(request.accelerator).to_owned()),
        Guest::SevSnp(guest) => {
            // Shared pages are a memfd, private ones a guest_memfd that QEMU adds by itself.
            (vec![shared_memory(&mebibytes), guest.object(TEE)], guest.cpu.clone())
        }
        Guest::Tdx(guest) => {
            let memory = format!("memory-backend-ram,id={MEMORY},size={mebibytes}");
            (vec![memory, guest.object(TEE)?], "host".to_owned())
        }
    };
    Ok(Options {
        machine: machine(request.guest.tee()),
        accelerator: accelerator(request.accelerator, request.guest.tee()),
        cpu,
        memory: mebibytes,
        processors: request.processors.to_string(),
        objects,
        firmware,
        devices: devices(request),
    })
}

/// Returns the object of memory that a descriptor stands for.
fn shared_memory(size: &str) -> String {
    format!("memory-backend-memfd,id={MEMORY},size={size},share=on")
}

fn devices(request: &Request<'_>) -> Vec<&'static Path> {
    let kvm = (request.accelerator == Accelerator::Kvm).then_some(Path::new("/dev/kvm"));
    let sev = (request.guest.tee() == Tee::SevSnp).then_some(Path::new("/dev/sev"));
    kvm.into_iter().chain(sev).collect()
}

fn check(request: &Request<'_>) -> Result<(), OptionsError> {
    let (tee, version) = (request.guest.tee(), request.version);
    if version < tee.first_qemu() {
        return Err(OptionsError::OldQemu { tee, version, needed: tee.first_qemu() });
    }
    if request.memory == 0 || !request.memory.is_multiple_of(1 << 20) {
        return Err(OptionsError::Memory(request.memory));
    }
    if !(1..=MAX_PROCESSORS).contains(&request.processors) {
        return Err(OptionsError::Processors { processors: request.processors, most: MAX_PROCESSORS });
    }
    if tee == Tee::None {
        return Ok(());
    }
    if request.accelerator != Accelerator::Kvm {
        return Err(OptionsError::NeedsKvm(tee));
    }
    if request.firmware.is_none() {
        return Err(OptionsError::NoFirmware(tee));
    }
    if let Guest::SevSnp(guest) = &request.guest { guest.check(version) } else { Ok(()) }
}

/// Machine options. All machines have the same devices and buses, so that those that run by emulation test
/// the others. A TEE has no system management mode.
fn machine(tee: Tee) -> String {
    const SHARED: &str = "q35,usb=off,vmport=off,smbus=off,sata=off,hpet=off,dump-guest-core=off";
    match tee {
        Tee::None => SHARED.to_owned(),
        Tee::SevSnp | Tee::Tdx => {
            format!("{SHARED},smm=off,memory-backend={MEMORY},confidential-guest-support={TEE}")
        }
    }
}

const fn accelerator(accelerator: Accelerator, tee: Tee) -> &'static str {
    match (accelerator, tee) {
        (Accelerator::Kvm, Tee::None) => "kvm",
        (Accelerator::Kvm, _) => "kvm,kernel-irqchip=split",
        // QEMU's default takes an eighth of the host's memory for translated code.
        (Accelerator::Tcg, _) => "tcg,tb-size=64",
    }
}

const fn plain_cpu(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    }
}

fn text(path: &Path) -> Result<String, OptionsError> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\0']));
    text.map(str::to_owned).ok_or_else(|| OptionsError::Path(path.to_owned()))
}
