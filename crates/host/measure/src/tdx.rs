//! TDX: MRTD covers the memory that a machine begins with.

use crate::error::MeasureError;
use crate::tdvf::{PAGE, Section, sections};
use crate::{FIRMWARE, Measurement};
use sha2::{Digest, Sha384};
use std::path::Path;

/// Size of what one call of TDH.MR.EXTEND measures.
const CHUNK: usize = 256;
/// Size of the record with which each call begins.
const RECORD: usize = 128;

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
    let read = |source| MeasureError::Read { path: path(), package: "ovmf-inteltdx", source };
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
