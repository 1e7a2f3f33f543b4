//! TDX: MRTD covers the memory that a machine begins with, RTMR 1 and 2 what OVMF and Linux measure when QEMU
//! boots a kernel directly.

use crate::bytes::Wrong;
use crate::error::MeasureError;
use crate::kernel::{MEASURES, authenticode, version};
use crate::tdvf::{PAGE, Section, sections};
use crate::{FIRMWARE, Measurement};
use p4shield_image::{Image, command_line};
use sha2::{Digest, Sha384};
use std::path::{Path, PathBuf};

/// Size of what one call of TDH.MR.EXTEND measures.
const CHUNK: usize = 256;
/// Size of the record with which each call begins.
const RECORD: usize = 128;

/// Events in RTMR 1 after the kernel: OVMF starts it, separates it from what comes before, and gives it the
/// machine.
const EVENTS: [&[u8]; 4] = [
    b"Calling EFI Application from Boot Option",
    &[0; 4],
    b"Exit Boot Services Invocation",
    b"Exit Boot Services Returned with Success",
];
/// OVMF tells the kernel by this word that there is an initial file system.
const INITRD: &str = "initrd=initrd ";

/// A machine to measure.
#[derive(Clone, Debug)]
pub struct TdxMachine {
    /// The firmware's file: OVMF for TDX.
    pub firmware: PathBuf,
    /// The image.
    pub image: Image,
    /// Arguments of the P4 VM's program.
    pub arguments: Vec<String>,
}

/// Registers in a quote of TDX that depend on firmware and image only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TdxRegisters {
    /// MRTD: the firmware.
    pub mrtd: Measurement,
    /// RTMR 1: the kernel.
    pub rtmr1: Measurement,
    /// RTMR 2: command line and initial file system.
    pub rtmr2: Measurement,
}

/// Computes the registers of a machine whose kernel QEMU boots directly: QEMU 10.1 or later with OVMF of
/// edk2-stable202508 or later.
///
/// # Errors
/// A file cannot be read, the firmware is not one for TDX, or the kernel does not measure what it gets.
pub fn tdx(machine: &TdxMachine) -> Result<TdxRegisters, MeasureError> {
    let mrtd = mrtd(&machine.firmware)?;
    let rtmr1 = rtmr1(&machine.image.kernel)?;
    let options = format!("{INITRD}{}\0", command_line(&machine.arguments));
    let options: Vec<u8> = options.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let initramfs = image_file(&machine.image.initramfs)?;
    let rtmr2 = extended([options, initramfs].map(|event| Sha384::digest(event).into()));
    Ok(TdxRegisters { mrtd, rtmr1, rtmr2 })
}

/// Computes RTMR 1 of machines that boot a kernel directly.
///
/// # Errors
/// The file cannot be read, is no kernel with an EFI stub, or is one that does not measure what it gets.
pub fn rtmr1(kernel: &Path) -> Result<Measurement, MeasureError> {
    let bytes = image_file(kernel)?;
    let path = || kernel.to_owned();
    let wrong = |wrong: Wrong| MeasureError::Kernel { path: path(), what: wrong.what, at: wrong.at };
    let (major, minor) = version(&bytes).map_err(wrong)?;
    if (major, minor) < MEASURES {
        return Err(MeasureError::OldKernel { path: path(), major, minor });
    }
    Ok(started(authenticode(&bytes).map_err(wrong)?))
}

fn image_file(path: &Path) -> Result<Vec<u8>, MeasureError> {
    std::fs::read(path).map_err(|source| MeasureError::Image { path: path.to_owned(), source })
}

/// Returns RTMR 1 after the start of the kernel with a digest.
fn started(kernel: [u8; 48]) -> Measurement {
    let [start, separator, exit, end] = EVENTS.map(|event| Sha384::digest(event).into());
    extended([kernel, start, separator, exit, end])
}

/// Returns a register that is extended with digests of events.
fn extended<const N: usize>(events: [[u8; 48]; N]) -> Measurement {
    let extend = |register: [u8; 48], event: [u8; 48]| Sha384::digest([register, event].concat()).into();
    Measurement(events.into_iter().fold([0; 48], extend))
}

/// Computes MRTD of machines with a firmware, as QEMU and KVM start them: page by page, in the order of the
/// firmware's sections.
///
/// # Errors
/// The file cannot be read, or is no firmware with which QEMU starts TDX machines.
pub fn mrtd(firmware: &Path) -> Result<Measurement, MeasureError> {
    let bytes = read(firmware)?;
    let sections = sections(&bytes).map_err(|wrong| MeasureError::Tdvf {
        path: firmware.to_owned(),
        what: wrong.what,
        at: wrong.at,
    })?;
    let mut register = Sha384::new();
    sections.iter().for_each(|section| add(&mut register, section));
    Ok(Measurement(register.finalize().into()))
}

fn read(firmware: &Path) -> Result<Vec<u8>, MeasureError> {
    let path = || firmware.to_owned();
    let read = |source| MeasureError::Read { path: path(), package: "ovmf-generic", source };
    let size = std::fs::metadata(firmware).map_err(read)?.len();
    if !FIRMWARE.contains(&size) || !size.is_multiple_of(PAGE) {
        let what = "the size is no firmware's";
        return Err(MeasureError::Tdvf {
            path: path(),
            what,
            at: usize::try_from(size).unwrap_or(usize::MAX),
        });
    }
    std::fs::read(firmware).map_err(read)
}

/// Adds a section's pages. KVM calls TDH.MEM.PAGE.ADD for each, and TDH.MR.EXTEND for its chunks before the
/// next page.
fn add(register: &mut Sha384, section: &Section<'_>) {
    let mut contents = section.measured.unwrap_or_default().chunks_exact(CHUNK);
    for page in (section.address..section.address + section.size).step_by(PAGE as usize) {
        register.update(record(b"MEM.PAGE.ADD", page));
        let chunks = (page..page + PAGE).step_by(CHUNK);
        for (address, chunk) in chunks.zip(contents.by_ref().take(PAGE as usize / CHUNK)) {
            register.update(record(b"MR.EXTEND", address));
            register.update(chunk);
        }
    }
}

/// Returns a call's record: its name, the address in the machine, zeros.
fn record(name: &[u8], address: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..name.len()].copy_from_slice(name);
    record[16..24].copy_from_slice(&address.to_le_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digest of the kernel, digests of command line and initial file system, RTMR 1 and RTMR 2 of a machine
    /// whose event log and quote dstack publishes (Dstack-TEE/dstack 312dc60, `quote-report.json`).
    const PUBLISHED: [&str; 5] = [
        "0761fbfa317a42d8edbe9e404178d102adc059cface98c5e07d1d535371c145c3497fd2a19b8398568b8c8a6f95e0a86",
        "4027cb4ec64dbc24b6d98d9470daeefc749bbb6a9b011762d215f6ed3eb833d58fd72d9ad850958f72878182e6f61924",
        "63e06e29cf98f2fce71abd3a9629dff48457b47c010b64e11f7a2b42dd99bfa14ee35660b3f5d3fc376261d6ba9a6d6b",
        "a1b79d76021970f57c45c4a7c395f780bab37011a4df27fe44e8559bd1abb4d6e52f12f866d1d08405448eb797a5970f",
        "1e31b59d605df7ee8160cf7966be9bafa6d0e1905de7e09695a24cd9748e71a603a51fae1297619fa0c30517addbcd07",
    ];

    #[test]
    fn events_are_those_of_a_published_quote() {
        let digest =
            |text: &str| std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap());
        let [kernel, options, initramfs, rtmr1, rtmr2] = PUBLISHED.map(digest);
        assert_eq!(started(kernel), Measurement(rtmr1));
        assert_eq!(extended([options, initramfs]), Measurement(rtmr2));
    }
}
