//! TDX: what OVMF and Linux measure of an image, and kernels that do not measure it.

use crate::firmware::{OPTIONAL, PE, SECTIONS, TABLE, image_of, kernel, tdvf};
use p4shield_measure::{MeasureError, TdxMachine, TdxRegisters, tdx};
use proptest::prelude::*;

fn measured(kernel: &[u8], arguments: &[&str]) -> Result<TdxRegisters, MeasureError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("OVMF.fd");
    std::fs::write(&path, tdvf(&SECTIONS)).unwrap();
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    tdx(&TdxMachine { firmware: path, image: image_of(folder.path(), kernel), arguments })
}

/// Returns the kernel with bytes at a place.
fn with(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = kernel();
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

/// The figures are those of tdx-measure's functions (tinfoilsh/tdx-measure 33a8526) for the same files. Its
/// changes of the kernel, which are those of QEMU before 10.0, are left out, and `initrd=initrd` is at the
/// beginning of the command line, where newer OVMF has it.
#[test]
fn registers_of_an_image_are_those_of_an_independent_tool() {
    let (plain, busy) = (measured(&kernel(), &[]).unwrap(), measured(&kernel(), &["--busy"]).unwrap());
    assert_eq!([plain.rtmr1, plain.rtmr2, busy.rtmr2].map(|register| register.to_string()), REGISTERS);
    assert_eq!((plain.mrtd, plain.rtmr1), (busy.mrtd, busy.rtmr1));
}

/// Registers of tdx-measure.
const REGISTERS: [&str; 3] = [
    "9730ce11e565b88195a9893c1dc7a6b994a0410f2a7a6cb3fa3cd5caef446225afa586a55f540e5684d752a69bdaaaa9",
    "1f68352465f463e9b08eb39a1c12922b7fb1c2aca97777b2e109e0923e74c5c596148cd7bf2e5e9cb261805ff829fb36",
    "76269652937013f26fa0474be7fb1a681ada6624273c5837540405fef0cf24096da113285de743e0cddfbc4e3ef06baf",
];

#[test]
fn kernels_that_measure_nothing_are_refused() {
    for (version, accepted) in [("5.15.0", false), ("6.8.12", false), ("6.10.0", true), ("7.2.13", true)] {
        let result = measured(&with(0x400, version.as_bytes()), &[]);
        match result {
            Ok(_) => assert!(accepted, "{version}"),
            Err(error) => {
                assert!(!accepted && error.to_string().contains("build the image with Linux 6.9"), "{error}");
            }
        }
    }
}

#[test]
fn broken_kernels_name_what_is_wrong_and_where() {
    for (at, value, reason) in [
        (0x20e, &[0xff, 0xff][..], "the file ends before (byte 0x101ff)"),
        (0x400, b"none", "no version of Linux is there (byte 0x400)"),
        (0x3c, &[0; 4], "no EFI stub is there (byte 0x0)"),
        (0x3c, &[0xff; 4], "the file ends before"),
        (OPTIONAL, &[0x0b, 0x01], "no application of 64 bits"),
        (OPTIONAL + 68, &[11], "no application of 64 bits"),
        (OPTIONAL + 108, &[4], "no application of 64 bits"),
        (OPTIONAL + 60, &[0; 4], "the headers end within"),
        (OPTIONAL + 60, &[0xff; 4], "the file ends before"),
        (OPTIONAL + 112 + 36, &[0xff; 4], "sections and signatures are larger than the file"),
        (TABLE + 16, &[0xff; 4], "the file ends before"),
        (TABLE + 20, &[0xff; 4], "the file ends before"),
        (PE + 6, &[0xff; 2], "the file ends before"),
        (PE + 20, &[0xff; 2], "the file ends before"),
    ] {
        let text = measured(&with(at, value), &[]).unwrap_err().to_string();
        assert!(text.contains(reason) && text.contains("build the image with"), "{at:#x}: {text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn changed_kernels_never_keep_their_register(at in 0_usize..0x4a00, bit in 0_u8..8) {
        // The checksum and the place of the signatures are no part of the digest.
        let outside = [OPTIONAL + 64..OPTIONAL + 68, OPTIONAL + 144..OPTIONAL + 152];
        prop_assume!(!outside.iter().any(|range| range.contains(&at)) && !(0x202..0x206).contains(&at));
        let mut bytes = kernel();
        bytes[at] ^= 1 << bit;
        if let Ok(other) = measured(&bytes, &[]) {
            prop_assert_ne!(other.rtmr1.to_string(), REGISTERS[0]);
        }
    }

    #[test]
    fn broken_headers_are_errors_or_other_kernels(
        changes in proptest::collection::vec((0x3c..0x480_usize, any::<u8>()), 1..8),
    ) {
        let mut bytes = kernel();
        for (at, value) in changes.into_iter().filter(|(at, _)| !(0x202..0x206).contains(at)) {
            bytes[at] = value;
        }
        let _ = measured(&bytes, &[]);
    }
}

#[test]
fn signatures_are_no_part_of_the_register() {
    let signed = with(0x4a00, &[7; 0x600]);
    assert_eq!(measured(&signed, &[]).unwrap().rtmr1.to_string(), REGISTERS[0]);
}
