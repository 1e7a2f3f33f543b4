//! Kernels as OVMF measures them: a PE image whose Authenticode digest leaves its signature out. An image's
//! kernel may be damaged, so each offset is checked.

use crate::bytes::{Wrong, bytes, half, part, word};
use sha2::{Digest, Sha384};

/// The first Linux whose EFI stub measures command line and initial file system in TDX machines.
pub(crate) const MEASURES: (u32, u32) = (6, 9);
/// Magic number of images of 64 bits.
const PE32_PLUS: u16 = 0x20b;
/// Subsystem of EFI applications.
const EFI_APPLICATION: u16 = 10;
/// Size of PE's signature and of the COFF header after it.
const COFF: usize = 24;
/// Size of a section's header.
const SECTION: usize = 40;
/// Index of the directory that says where the signatures are, times its size.
const SIGNATURES: usize = 4 * 8;

/// Returns major and minor version in the setup header of a Linux kernel.
pub(crate) fn version(kernel: &[u8]) -> Result<(u32, u32), Wrong> {
    let at = 0x200 + usize::from(half(kernel, 0x20e)?);
    let text = String::from_utf8_lossy(part(kernel, at, 16)?);
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor)),
        _ => Err(Wrong { what: "no version of Linux is there", at }),
    }
}

/// Computes the Authenticode digest, as OVMF does: headers without checksum and place of the signatures,
/// sections in the order of the file, what follows them, but not the signatures at the end.
pub(crate) fn authenticode(kernel: &[u8]) -> Result<[u8; 48], Wrong> {
    let pe = word(kernel, 0x3c)? as usize;
    if bytes(kernel, pe)? != *b"PE\0\0" {
        return Err(Wrong { what: "no EFI stub is there", at: pe });
    }
    let optional = pe + COFF;
    let directories = optional + 112;
    let kind = (half(kernel, optional)?, half(kernel, optional + 68)?);
    if kind != (PE32_PLUS, EFI_APPLICATION) || word(kernel, directories - 4)? <= 4 {
        return Err(Wrong { what: "the EFI stub is no application of 64 bits", at: optional });
    }
    let (checksum, place) = (optional + 64, directories + SIGNATURES);
    let headers = word(kernel, optional + 60)? as usize;
    let mut digest = Sha384::new();
    for (from, to) in [(0, checksum), (checksum + 4, place), (place + 8, headers)] {
        let inside = to.checked_sub(from).ok_or(Wrong { what: "the headers end within", at: optional + 60 });
        digest.update(part(kernel, from, inside?)?);
    }
    let mut hashed = headers;
    for (at, size) in sections(kernel, pe)? {
        digest.update(part(kernel, at, size)?);
        hashed = hashed.saturating_add(size);
    }
    let signatures = word(kernel, place + 4)? as usize;
    let rest = kernel.len().checked_sub(hashed).and_then(|rest| rest.checked_sub(signatures));
    let Some(rest) = rest else {
        return Err(Wrong { what: "sections and signatures are larger than the file", at: place });
    };
    digest.update(part(kernel, hashed, rest)?);
    Ok(digest.finalize().into())
}

/// Returns place and size of the sections with contents, in the order of the file.
fn sections(kernel: &[u8], pe: usize) -> Result<Vec<(usize, usize)>, Wrong> {
    let table = pe + COFF + usize::from(half(kernel, pe + 20)?);
    let places = (0..usize::from(half(kernel, pe + 6)?)).map(|i| table + i * SECTION);
    let read = |at| Ok((word(kernel, at + 20)? as usize, word(kernel, at + 16)? as usize));
    let mut sections = places.map(read).collect::<Result<Vec<_>, _>>()?;
    sections.retain(|(_, size)| *size > 0);
    sections.sort_by_key(|(at, _)| *at);
    Ok(sections)
}
