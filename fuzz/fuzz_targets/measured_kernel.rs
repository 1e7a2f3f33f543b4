//! Kernels of images, whose register of TDX is computed.
#![no_main]

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let path = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder")).path().join("vmlinuz");
    std::fs::write(&path, bytes).expect("a file");
    let _ = p4shield_measure::rtmr1(&path);
});
