//! TDX: registers against those of an independent tool, and firmware that is none.

use crate::firmware::{METADATA, SECTIONS, SIZE, TABLE_END, entry, tdvf};
use p4shield_measure::{MeasureError, mrtd};
use proptest::prelude::*;

fn measured(firmware: &[u8]) -> Result<String, MeasureError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("OVMF.fd");
    std::fs::write(&path, firmware).unwrap();
    mrtd(&path).map(|register| register.to_string())
}

/// Returns firmware with one number of its sections changed.
fn with(section: usize, field: usize, value: u64) -> Vec<u8> {
    let mut sections = SECTIONS;
    sections[section][field] = value;
    tdvf(&sections)
}

/// The figures are those of tdx-measure (tinfoilsh/tdx-measure 33a8526, a fork of dstack-mr) for the same
/// files, without `--two-pass-add-pages`: that is the order of patched kernels before Linux 6.16.
#[test]
fn mrtd_is_that_of_an_independent_tool() {
    let mut swapped = SECTIONS;
    swapped.swap(0, 4);
    let files = [tdvf(&SECTIONS), with(1, 5, 1), with(0, 5, 0), tdvf(&swapped), with(4, 2, 0x80_1000)];
    assert_eq!(files.map(|firmware| measured(&firmware).unwrap()), MRTD);
}

/// Registers of tdx-measure.
const MRTD: [&str; 5] = [
    "e0273e8129f8b846d264d65d69e597ca650f2aea1d1a1b2166e9396215f00575819f7123681591ac4cf28c03b01bdf99",
    "af5f4b288c8937f8aeea67f439a78ad140022b6077c2b1e11086799d7a7714e08654c0819ec342b028731f8ff9190e90",
    "0f310ef2caef39f8dd67974762a17710afd03ee594b71cd39a0237a6e9d0804bf133f98efea9c6057f1662bb660f1eb5",
    "9d67104cefcdea59479ec14a4ae2d2428cd7d95ef8e060868e5b5cad2bf00e8bcea0fa524c09959bb89cd0a129720329",
    "f9f47db657b82dcbfa27ba86f45b0bbfa326252de10f2a8fe6e0302feadb9a7c8b39a4a1be5a103358bdc10eb18d5b42",
];

/// Asserts that a file is refused, with a reason and a remedy.
fn refused(firmware: &[u8], reason: &str) {
    let text = measured(firmware).unwrap_err().to_string();
    assert!(text.contains(reason) && text.contains("ovmf-generic"), "{text}");
}

#[test]
fn files_that_are_no_tdx_firmware_are_refused() {
    for len in [0, 1, 4095, 4097, 17 << 20] {
        refused(&vec![0; len], "the size is no firmware's");
    }
    refused(&vec![0; 4096], "no table of OVMF ends (byte 0xfe0)");
    let snp =
        crate::firmware::firmware(METADATA, b"", &[entry("00f771de-1a7e-4fcb-890e-68c77e2fb44e", b"1234")]);
    refused(&snp, "names no metadata for TDX");
    let folder = tempfile::tempdir().unwrap();
    let error = mrtd(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, MeasureError::Read { .. }) && error.to_string().contains("ovmf-generic"));
}

#[test]
fn broken_metadata_name_what_is_wrong_and_where() {
    let at = |place: usize, bytes: &[u8]| {
        let mut firmware = tdvf(&SECTIONS);
        firmware[place..place + bytes.len()].copy_from_slice(bytes);
        firmware
    };
    refused(&at(METADATA, b"TDVG"), "the signature of the metadata for TDX is another (byte 0x3000)");
    refused(&at(METADATA + 8, &[2]), "version");
    refused(&at(METADATA + 4, &[0xff]), "number of sections disagree");
    refused(&at(METADATA + 12, &[0xff; 4]), "number of sections disagree");
    refused(&at(METADATA + 4, &[48, 0, 0, 0, 1, 0, 0, 0, 1]), "number of sections disagree");
    let (count, length) = (0x1000_u32, 16 + 32 * 0x1000_u32);
    let many = [length.to_le_bytes(), 1_u32.to_le_bytes(), count.to_le_bytes()].concat();
    refused(&at(METADATA + 4, &many), "go past the end of the file");
    // The table's last entry is SEV-SNP's, the one before it TDX's; each has 22 bytes, the footer 18.
    let (footer, last, tdx) = (TABLE_END - 18, TABLE_END - 36, TABLE_END - 58);
    refused(&at(footer, &[0xff; 2]), "longer than the file");
    refused(&at(last, &[0]), "an entry of OVMF's table has a wrong length");
    refused(&at(last, &[0xff]), "an entry of OVMF's table has a wrong length");
    refused(&at(tdx, &[18]), "outside the file");
    refused(&at(tdx - 4, &[0xff; 4]), "outside the file");
    refused(&at(tdx - 4, &[15, 0, 0, 0]), "outside the file");
}

#[test]
fn sections_that_no_machine_begins_with_are_refused() {
    for (section, field, value, reason) in [
        (0, 2, 0xffff_2001, "not of whole pages"),
        (0, 0, 0x2001, "not of whole pages"),
        (2, 3, 0, "not of whole pages"),
        (2, 3, 0x1_0001, "not of whole pages"),
        (2, 3, 1 << 40, "larger than any of OVMF's"),
        (2, 2, u64::MAX - 0xfff, "larger than any of OVMF's"),
        (2, 3, 0x1000_0000, "larger than all of OVMF's"),
        (0, 1, 0xd000, "more memory than contents"),
        (0, 0, 0x3000, "outside the file"),
        (0, 0, 0xffff_f000, "outside the file"),
        (2, 1, 0x1000, "without contents"),
        (3, 5, 1, "without contents"),
        (0, 5, 2, "unknown attributes"),
        (0, 4, 4, "unknown kind"),
        (2, 2, 0x80_a000, "overlap"),
    ] {
        refused(&with(section, field, value), reason);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn changed_code_never_keeps_its_mrtd(at in 0x2000..SIZE, bit in 0_u8..8) {
        let mut bytes = tdvf(&SECTIONS);
        bytes[at] ^= 1 << bit;
        if let Ok(other) = measured(&bytes) {
            prop_assert_ne!(other, MRTD[0]);
        }
    }

    #[test]
    fn broken_metadata_are_errors_or_other_memory(
        table in proptest::collection::vec((0..64_usize, any::<u8>()), 0..4),
        metadata in proptest::collection::vec((0..176_usize, any::<u8>()), 0..6),
    ) {
        let mut bytes = tdvf(&SECTIONS);
        for (at, value) in table {
            bytes[TABLE_END - 64 + at] = value;
        }
        for (at, value) in metadata {
            bytes[METADATA + at] = value;
        }
        if let Err(error) = measured(&bytes) {
            prop_assert!(error.to_string().contains("byte 0x"), "{error}");
        }
    }
}
