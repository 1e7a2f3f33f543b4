//! SEV-SNP: the `sev` crate computes the measurement. It reads firmware without checks of its own, so it runs
//! on a thread whose panic or delay is an error.

use crate::error::MeasureError;
use crate::{FIRMWARE, MAX_PROCESSORS, Measurement};
use p4shield_image::{Image, command_line};
use sev::measurement::snp::{SnpMeasurementArgs, snp_calc_launch_digest};
use sev::measurement::vcpu_types::CpuType;
use sev::measurement::vmsa::{GuestFeatures, VMMType};
use std::path::{Path, PathBuf};
use std::sync::{Once, mpsc};
use std::time::Duration;

/// Time limit. A measurement takes milliseconds, unless the firmware claims gigabytes of memory.
const LIMIT: Duration = Duration::from_secs(30);
/// Name of the thread that measures.
const THREAD: &str = "measure";
/// SEV_FEATURES of the machine: SNP is active, and nothing else. QEMU and KVM set no others by default.
const FEATURES: u64 = 1;

/// A machine to measure.
#[derive(Clone, Debug)]
pub struct SnpMachine {
    /// The firmware's file: OVMF for SEV-SNP.
    pub firmware: PathBuf,
    /// QEMU's model of the processors, such as `EPYC-v4`.
    pub processor: String,
    /// The number of processors, 1 to [`MAX_PROCESSORS`].
    pub processors: u32,
    /// The image.
    pub image: Image,
    /// Arguments of the P4 VM's program.
    pub arguments: Vec<String>,
}

/// Computes the measurement of a machine that QEMU launches with kernel hashes.
///
/// # Errors
/// A file cannot be read, the firmware is not one for SEV-SNP, or the processors are not QEMU's.
pub fn sev_snp(machine: &SnpMachine) -> Result<Measurement, MeasureError> {
    if !(1..=MAX_PROCESSORS).contains(&machine.processors) {
        return Err(MeasureError::Processors(machine.processors));
    }
    let processor = CpuType::try_from(machine.processor.as_str())
        .map_err(|_| MeasureError::Processor(machine.processor.clone()))?;
    check_size(&machine.firmware)?;
    let (machine, firmware) = (machine.clone(), machine.firmware.clone());
    let (result, received) = mpsc::channel();
    silence_panics();
    let work = move || drop(result.send(digest(&machine, processor)));
    let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(work);
    let thread = thread.map_err(MeasureError::Thread)?;
    match received.recv_timeout(LIMIT) {
        Ok(Ok(measurement)) => Ok(measurement),
        Ok(Err(source)) => Err(MeasureError::Firmware { path: firmware, source }),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(MeasureError::Endless { path: firmware }),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            // The thread panicked at a length or an offset in the firmware.
            let _ = thread.join();
            Err(MeasureError::Malformed { path: firmware })
        }
    }
}

/// Keeps panics of the measuring thread from standard error: the caller gets an error.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some(THREAD) {
                before(info);
            }
        }));
    });
}

fn check_size(firmware: &Path) -> Result<(), MeasureError> {
    let read = |source| MeasureError::Read { path: firmware.to_owned(), package: "ovmf-amdsev", source };
    let found = std::fs::metadata(firmware).map_err(read)?;
    if found.is_file() && FIRMWARE.contains(&found.len()) && found.len().is_multiple_of(4096) {
        return Ok(());
    }
    Err(MeasureError::Malformed { path: firmware.to_owned() })
}

fn digest(machine: &SnpMachine, vcpu_type: CpuType) -> Result<Measurement, sev::error::MeasurementError> {
    let append = command_line(&machine.arguments);
    let digest = snp_calc_launch_digest(SnpMeasurementArgs {
        vcpus: machine.processors,
        vcpu_type,
        ovmf_file: machine.firmware.clone(),
        guest_features: GuestFeatures(FEATURES),
        kernel_file: Some(machine.image.kernel.clone()),
        initrd_file: Some(machine.image.initramfs.clone()),
        append: Some(&append),
        ovmf_hash_str: None,
        vmm_type: Some(VMMType::QEMU),
    })?;
    let bytes: Vec<u8> = digest.try_into()?;
    let mut measurement = [0; 48];
    measurement.copy_from_slice(&bytes);
    Ok(Measurement(measurement))
}
