//! SEV-SNP: measurements against those of an independent tool, and firmware that is none.

use crate::firmware::{SIZE, TABLE_END, entry, image_of};
use p4shield_image::Image;
use p4shield_measure::{MAX_PROCESSORS, MeasureError, SnpMachine, sev_snp};
use proptest::prelude::*;
use std::path::Path;

/// Returns the least firmware that SEV-SNP measures: a table that names the kernel hashes' page, the address
/// of the first instruction, and the sections of memory.
fn firmware() -> Vec<u8> {
    let sections: [[u32; 3]; 4] =
        [[0x80_0000, 0x9000, 1], [0x80_a000, 0x1000, 2], [0x80_b000, 0x1000, 3], [0x81_0000, 0x1000, 0x10]];
    let mut metadata = b"ASEV".to_vec();
    for word in [16 + 12 * sections.len() as u32, 1, sections.len() as u32] {
        metadata.extend(word.to_le_bytes());
    }
    metadata.extend(sections.iter().flatten().flat_map(|word| word.to_le_bytes()));
    let at = 0x1000;
    let from_end = u32::try_from(SIZE - at).unwrap();
    let entries = [
        entry("dc886566-984a-4798-a75e-5585a7bf67cc", &from_end.to_le_bytes()),
        entry("7255371f-3a3b-4b04-927b-1da6efa8d454", &[0x00, 0x04, 0x81, 0, 0, 4, 0, 0]),
        entry("00f771de-1a7e-4fcb-890e-68c77e2fb44e", &0x80_b004_u32.to_le_bytes()),
    ];
    crate::firmware::firmware(at, &metadata, &entries)
}

/// Returns an image of a fixed kernel and program.
fn image(folder: &Path) -> Image {
    let mut kernel = vec![0; 4096];
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    image_of(folder, &kernel)
}

fn machine(folder: &Path, firmware: &[u8]) -> SnpMachine {
    let path = folder.join("OVMF.fd");
    std::fs::write(&path, firmware).unwrap();
    let (processor, image) = ("EPYC-v4".to_owned(), image(folder));
    SnpMachine { firmware: path, processor, processors: 2, image, arguments: Vec::new() }
}

/// The figures are those of sev-snp-measure 0.0.13 (PyPI) for the same files, with `--mode snp
/// --guest-features 0x1 --vmm-type QEMU`.
#[test]
fn measurements_are_those_of_an_independent_tool() {
    let folder = tempfile::tempdir().unwrap();
    let base = machine(folder.path(), &firmware());
    let with = |change: fn(&mut SnpMachine)| {
        let mut machine = base.clone();
        change(&mut machine);
        sev_snp(&machine).unwrap().to_string()
    };
    let measured = [
        with(|_| {}),
        with(|m| m.processors = 4),
        with(|m| m.processor = "EPYC-Genoa".to_owned()),
        with(|m| m.arguments = vec!["--busy".to_owned()]),
    ];
    assert_eq!(measured, MEASURED);
}

/// Measurements of sev-snp-measure.
const MEASURED: [&str; 4] = [
    "483153a5d3af3795eb3d7f78049facf512851426cbabbc67d69f78670cfab1b5fd5c0566269067371cb8056597b1ed3c",
    "c3dfcb55d3287ebf57fe2fbcf2211741763fef0b6e4f0ebdcdabdc7d7f4c60e4183ff69cfd3fb36e6f79c0b15ba81a59",
    "336661fac392332f89dcd9eed65cef2ed6ffda093bbca1bed572d6ac4c0652c3dd2c7806db40133cf3990e1d0a88bff2",
    "46cf1e726814e5e80d0fc4f4a587fd91b476d86581a9bfe51db185e2503affcc0b78515089383419c0255dd3073d9d2a",
];

#[test]
fn files_that_are_no_firmware_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| sev_snp(&machine(folder.path(), bytes)).unwrap_err();
    for len in [0, 1, 4095, 4096, 4097, 17 << 20] {
        let text = refused(&vec![0; len]).to_string();
        assert!(text.contains("ovmf-amdsev"), "{len}: {text}");
    }
    let mut without_hashes = firmware();
    without_hashes[0x1000 + 16 + 3 * 12 + 8] = 1;
    assert!(matches!(refused(&without_hashes), MeasureError::Firmware { .. }));
    std::fs::remove_file(folder.path().join("OVMF.fd")).unwrap();
    let mut machine = machine(folder.path(), &firmware());
    machine.firmware = folder.path().to_owned();
    assert!(matches!(sev_snp(&machine), Err(MeasureError::Malformed { .. })));
    machine.firmware = folder.path().join("none");
    assert!(matches!(sev_snp(&machine), Err(MeasureError::Read { .. })));
}

#[test]
fn processors_that_qemu_does_not_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut machine = machine(folder.path(), &firmware());
    for processors in [0, MAX_PROCESSORS + 1] {
        machine.processors = processors;
        assert!(matches!(sev_snp(&machine), Err(MeasureError::Processors(_))));
    }
    machine.processors = 1;
    machine.processor = "host".to_owned();
    assert!(sev_snp(&machine).unwrap_err().to_string().contains("`host`"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_firmware_never_keeps_its_measurement(at in 0..SIZE, bit in 0_u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let right = sev_snp(&machine(folder.path(), &firmware())).unwrap();
        let mut bytes = firmware();
        bytes[at] ^= 1 << bit;
        if let Ok(other) = sev_snp(&machine(folder.path(), &bytes)) {
            prop_assert_ne!(right, other);
        }
    }

    #[test]
    fn broken_tables_are_errors(changes in proptest::collection::vec((0..256_usize, any::<u8>()), 1..8)) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = firmware();
        for (at, value) in changes {
            bytes[TABLE_END - 256 + at] = value;
        }
        let _ = sev_snp(&machine(folder.path(), &bytes));
    }
}
