//! Firmware and images that tests make.

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

/// Returns an image of a fixed kernel and program.
pub(crate) fn image(folder: &Path) -> Image {
    let mut kernel = vec![0; 4096];
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    let mut program = vec![0_u8; 64];
    program[..20].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0]);
    program[52] = 64;
    for (name, bytes) in [("kernel", &kernel), ("program", &program)] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    build(&folder.join("program"), &folder.join("kernel"), &folder.join("image")).unwrap();
    Image::open(&folder.join("image")).unwrap()
}
