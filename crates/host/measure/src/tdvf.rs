//! The metadata with which firmware tells the host what memory a TDX machine begins with (Intel's TDVF
//! design guide, chapter 11). A file from outside is hostile: each offset is checked, and what QEMU or KVM
//! refuse is refused here.

use crate::bytes::{Wrong, bytes, word};

/// Size of a page.
pub(crate) const PAGE: u64 = 4096;
/// The most memory that a machine begins with. OVMF has about 5 MiB; a limit bounds the work.
const MOST_MEMORY: u64 = 256 << 20;
/// The table of GUIDs ends here, counted from the end of the file: the processor's reset vector follows.
const AFTER_TABLE: usize = 32;
/// Size of an entry's end in the table: a length and a GUID.
const ENTRY_END: usize = 18;
/// GUID of the table's footer, 96b582de-1fb2-45f7-baea-a366c55a082d, as in the file.
const FOOTER: [u8; 16] =
    [0xde, 0x82, 0xb5, 0x96, 0xb2, 0x1f, 0xf7, 0x45, 0xba, 0xea, 0xa3, 0x66, 0xc5, 0x5a, 0x08, 0x2d];
/// GUID of the metadata's place, e47a6535-984a-4798-865e-4685a7bf8ec2, as in the file.
const METADATA: [u8; 16] =
    [0x35, 0x65, 0x7a, 0xe4, 0x4a, 0x98, 0x98, 0x47, 0x86, 0x5e, 0x46, 0x85, 0xa7, 0xbf, 0x8e, 0xc2];
/// Size of the metadata's header.
const HEADER: usize = 16;
/// Size of a section's description.
const SECTION: usize = 32;

/// Memory that a machine begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section<'a> {
    /// Its address in the machine, a multiple of [`PAGE`].
    pub(crate) address: u64,
    /// Its size, a multiple of [`PAGE`].
    pub(crate) size: u64,
    /// Its contents, if they are measured: as many bytes as `size`.
    pub(crate) measured: Option<&'a [u8]>,
}

/// Returns the sections in the order in which QEMU adds them.
pub(crate) fn sections(firmware: &[u8]) -> Result<Vec<Section<'_>>, Wrong> {
    let start = metadata(firmware)?;
    let wrong = |what| Err(Wrong { what, at: start });
    if bytes(firmware, start)? != *b"TDVF" {
        return wrong("the signature of the metadata for TDX is another");
    }
    let [length, version, count] = [4, 8, 12].map(|at| word(firmware, start + at));
    let (length, version, count) = (length? as usize, version?, count? as usize);
    if version != 1 {
        return wrong("the version of the metadata for TDX is not 1");
    }
    if count < 2 || count.checked_mul(SECTION).and_then(|n| n.checked_add(HEADER)) != Some(length) {
        return wrong("the length of the metadata for TDX and its number of sections disagree");
    }
    if firmware.len() - start < length {
        return wrong("the metadata for TDX go past the end of the file");
    }
    let places = (0..count).map(|i| start + HEADER + i * SECTION);
    let sections = places.clone().map(|at| section(firmware, at)).collect::<Result<Vec<_>, _>>()?;
    disjoint(&sections, start)?;
    Ok(sections)
}

/// Finds the metadata by the table of GUIDs, whose entries are read from the last one backwards.
fn metadata(firmware: &[u8]) -> Result<usize, Wrong> {
    let end = firmware.len().saturating_sub(AFTER_TABLE);
    let Some((length, FOOTER)) = entry(firmware, end) else {
        return Err(Wrong { what: "no table of OVMF ends", at: end });
    };
    let Some(first) = end.checked_sub(length) else {
        return Err(Wrong { what: "the table of OVMF is longer than the file", at: end });
    };
    let mut at = end - ENTRY_END;
    while at > first {
        let Some((length, guid)) = entry(firmware, at).filter(|(length, _)| *length <= at - first) else {
            return Err(Wrong { what: "an entry of OVMF's table has a wrong length", at });
        };
        if guid == METADATA {
            let wrong = Wrong { what: "the place of the metadata for TDX is outside the file", at };
            let from_end = if length == ENTRY_END + 4 { word(firmware, at - length)? } else { 0 };
            let place = firmware.len().checked_sub(from_end as usize);
            return place.filter(|place| firmware.len() - place >= HEADER).ok_or(wrong);
        }
        at -= length;
    }
    Err(Wrong { what: "OVMF's table names no metadata for TDX", at: end })
}

/// Returns length and GUID of the table's entry that ends at a place, if an entry fits there.
fn entry(firmware: &[u8], end: usize) -> Option<(usize, [u8; 16])> {
    let tail: &[u8; ENTRY_END] = firmware.get(..end)?.last_chunk()?;
    let (length, guid) = tail.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    Some((length, guid.try_into().ok()?)).filter(|_| length >= ENTRY_END)
}

/// Reads the description of a section.
fn section(firmware: &[u8], at: usize) -> Result<Section<'_>, Wrong> {
    let wrong = |what| Err(Wrong { what, at });
    let (offset, length) = (word(firmware, at)? as usize, word(firmware, at + 4)?);
    let address = u64::from_le_bytes(bytes(firmware, at + 8)?);
    let size = u64::from_le_bytes(bytes(firmware, at + 16)?);
    let (kind, attributes) = (word(firmware, at + 24)?, word(firmware, at + 28)?);
    if size == 0 || [address, size, offset as u64].iter().any(|n| !n.is_multiple_of(PAGE)) {
        return wrong("a section of the firmware is not of whole pages");
    }
    if size > MOST_MEMORY || address.checked_add(size).is_none() {
        return wrong("a section of the firmware is larger than any of OVMF's");
    }
    let measured = match attributes {
        0 => false,
        1 => true,
        _ => return wrong("a section of the firmware has unknown attributes"),
    };
    match kind {
        // Code and variables come from the file. QEMU would fill a longer section with what follows.
        0 | 1 if u64::from(length) != size => wrong("a section has more memory than contents"),
        0 | 1 => {
            let contents = offset.checked_add(length as usize).and_then(|end| firmware.get(offset..end));
            let Some(contents) = contents else {
                return wrong("the contents of a section are outside the file");
            };
            Ok(Section { address, size, measured: measured.then_some(contents) })
        }
        // The list of memory, which QEMU writes, and memory of zeros.
        2 | 3 if length != 0 || measured => wrong("a section without contents has some, or measures them"),
        2 | 3 => Ok(Section { address, size, measured: None }),
        _ => wrong("a section of the firmware is of an unknown kind"),
    }
}

/// Refuses pages that are added twice, as KVM does, and more memory than OVMF has.
fn disjoint(sections: &[Section<'_>], at: usize) -> Result<(), Wrong> {
    if sections.iter().map(|s| s.size).try_fold(0, u64::checked_add).is_none_or(|sum| sum > MOST_MEMORY) {
        return Err(Wrong { what: "the sections of the firmware are larger than all of OVMF's", at });
    }
    let mut ranges: Vec<_> = sections.iter().map(|s| (s.address, s.address + s.size)).collect();
    ranges.sort_unstable();
    if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(Wrong { what: "sections of the firmware overlap", at });
    }
    Ok(())
}
