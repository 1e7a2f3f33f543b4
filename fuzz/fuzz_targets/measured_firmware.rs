//! Firmware whose measurement is computed. Only the end of a file is the fuzzer's: the table is there.
#![no_main]

use p4shield_image::{Image, build};
use p4shield_measure::{SnpMachine, mrtd, sev_snp};
use std::sync::OnceLock;

/// A folder with an image, made once.
fn folder() -> &'static tempfile::TempDir {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut kernel = vec![0; 4096];
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        let mut program = vec![0_u8; 64];
        program[..20]
            .copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0]);
        program[52] = 64;
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("kernel"), kernel).expect("a file");
        std::fs::write(at("program"), program).expect("a file");
        build(&at("program"), &at("kernel"), &at("image")).expect("an image");
        folder
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let folder = folder().path();
    let mut firmware = vec![0; 8192 - bytes.len().min(8192)];
    firmware.extend(&bytes[..bytes.len().min(8192)]);
    let path = folder.join("OVMF.fd");
    std::fs::write(&path, firmware).expect("a file");
    let _ = mrtd(&path);
    let image = Image::open(&folder.join("image")).expect("an image");
    let (processor, arguments) = ("EPYC-v4".to_owned(), Vec::new());
    let _ = sev_snp(&SnpMachine { firmware: path, processor, processors: 1, image, arguments });
});
