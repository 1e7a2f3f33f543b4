//! Firmware, kernels and images that tests make, also those of the command.

use p4shield_image::{Image, build};
use std::path::Path;

/// Size of the firmware.
pub(crate) const SIZE: usize = 64 << 10;
/// Where its table ends: before the last 32 bytes.
pub(crate) const TABLE_END: usize = SIZE - 32;

/// Returns the bytes of a GUID as firmware has them: the first three parts are little-endian.
fn guid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
    }
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

/// Returns an entry of the table: data, length, name.
pub(crate) fn entry(name: &str, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len() + 18).unwrap();
    [data, &len.to_le_bytes(), &guid(name)].concat()
}

/// Returns firmware with metadata at a place, and with entries in its table.
pub(crate) fn firmware(at: usize, metadata: &[u8], entries: &[Vec<u8>]) -> Vec<u8> {
    let mut table = entries.concat();
    let footer = entry("96b582de-1fb2-45f7-baea-a366c55a082d", &[]);
    // The footer's length is that of the whole table.
    let len = u16::try_from(table.len() + footer.len()).unwrap();
    table.extend(len.to_le_bytes());
    table.extend(&footer[2..]);
    let mut bytes: Vec<u8> = (0..SIZE).map(|i| (i % 251) as u8).collect();
    bytes[at..at + metadata.len()].copy_from_slice(metadata);
    bytes[TABLE_END - table.len()..TABLE_END].copy_from_slice(&table);
    bytes
}

/// Returns an image of a kernel and a fixed program.
pub(crate) fn image_of(folder: &Path, kernel: &[u8]) -> Image {
    let mut program = vec![0_u8; 64];
    program[..20].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0]);
    program[52] = 64;
    for (name, bytes) in [("kernel", kernel), ("program", &program)] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    build(&folder.join("program"), &folder.join("kernel"), &folder.join("image")).unwrap();
    Image::open(&folder.join("image")).unwrap()
}

/// Where the metadata for TDX are.
pub(crate) const METADATA: usize = 0x3000;
/// Sections as OVMF has them: code, variables, stack, list of memory, page tables. A section has offset and
/// size in the file, address, size in the machine, kind, attributes.
pub(crate) const SECTIONS: [[u64; 6]; 5] = [
    [0x2000, 0xe000, 0xffff_2000, 0xe000, 0, 1],
    [0, 0x2000, 0xffff_0000, 0x2000, 1, 0],
    [0, 0, 0x81_0000, 0x1_0000, 3, 0],
    [0, 0, 0x80_9000, 0x2000, 2, 0],
    [0, 0, 0x80_0000, 0x6000, 3, 0],
];

/// Returns firmware with sections. The table has an entry of SEV-SNP's as well, as OVMF's.
pub(crate) fn tdvf(sections: &[[u64; 6]]) -> Vec<u8> {
    let mut metadata = b"TDVF".to_vec();
    for word in [16 + 32 * sections.len() as u32, 1, sections.len() as u32] {
        metadata.extend(word.to_le_bytes());
    }
    for [offset, length, address, size, kind, attributes] in sections {
        metadata.extend([offset, length].iter().flat_map(|n| (**n as u32).to_le_bytes()));
        metadata.extend([address, size].iter().flat_map(|n| n.to_le_bytes()));
        metadata.extend([kind, attributes].iter().flat_map(|n| (**n as u32).to_le_bytes()));
    }
    let from_end = u32::try_from(SIZE - METADATA).unwrap();
    let entries = [
        entry("e47a6535-984a-4798-865e-4685a7bf8ec2", &from_end.to_le_bytes()),
        entry("00f771de-1a7e-4fcb-890e-68c77e2fb44e", &0x80_b004_u32.to_le_bytes()),
    ];
    firmware(METADATA, &metadata, &entries)
}

/// Size of the kernel.
const KERNEL: usize = 0x5000;
/// Where its PE header is.
pub(crate) const PE: usize = 0x300;
/// Where its optional header is.
pub(crate) const OPTIONAL: usize = PE + 24;
/// Where its table of sections is.
pub(crate) const TABLE: usize = OPTIONAL + 160;

/// Returns a kernel of Linux 6.9 with an EFI stub: sections that are not in order, an empty one, bytes that
/// are in no section, and signatures.
pub(crate) fn kernel() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..KERNEL).map(|i| (i % 241) as u8).collect();
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"MZ");
    put(0x3c, &(PE as u32).to_le_bytes());
    put(0x202, b"HdrS");
    put(0x20e, &[0x00, 0x02]);
    put(0x400, b"6.9.0-1-cloud-amd64 (builder)\0");
    put(PE, b"PE\0\0\x64\x86\x04\x00");
    put(PE + 20, &160_u16.to_le_bytes());
    put(OPTIONAL, &[0x0b, 0x02]);
    put(OPTIONAL + 60, &0x1000_u32.to_le_bytes());
    put(OPTIONAL + 68, &[10, 0]);
    put(OPTIONAL + 108, &6_u32.to_le_bytes());
    put(OPTIONAL + 112 + 32, &[0x4a00_u32.to_le_bytes(), 0x600_u32.to_le_bytes()].concat());
    for (i, (at, size)) in
        [(0x3000_u32, 0x1800_u32), (0x1000, 0x1000), (0, 0), (0x2000, 0x1000)].iter().enumerate()
    {
        put(TABLE + 40 * i + 16, &[size.to_le_bytes(), at.to_le_bytes()].concat());
    }
    bytes
}
