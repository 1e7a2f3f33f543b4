//! `p4shield image measure`.

#[path = "../../../../host/measure/tests/measure/firmware.rs"]
mod firmware;

use std::path::Path;
use std::process::Output;

use crate::common::{code, p4shield, stderr, stdout};
use firmware::{SECTIONS, image_of, kernel, tdvf};
use serde_json::Value;

/// Runs the command for TDX on an image with a kernel.
fn measure(folder: &Path, kernel: &[u8], more: &[&str]) -> Output {
    image_of(folder, kernel);
    let at = |name: &str| folder.join(name).display().to_string();
    std::fs::write(at("OVMF.fd"), tdvf(&SECTIONS)).unwrap();
    p4shield(
        &[&["image", "measure", &at("image"), "--tee", "tdx", "--firmware", &at("OVMF.fd")], more].concat(),
    )
}

#[test]
fn registers_of_tdx_are_printed_as_a_policy_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let printed = stdout(&measure(folder.path(), &kernel(), &[]));
    let collateral =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trust/attest/tests/data/tdx_quote_collateral.json");
    let policy = folder.path().join("policy.toml");
    std::fs::write(&policy, format!("{printed}collateral = [{collateral:?}]\n")).unwrap();
    let checked = p4shield(&["policy", "check", &policy.display().to_string()]);
    assert_eq!(code(&checked), 0, "{printed}{}", stderr(&checked));
    let json: Value = serde_json::from_str(&stdout(&measure(folder.path(), &kernel(), &["--json"]))).unwrap();
    for key in ["mrtd", "rtmr1", "rtmr2"] {
        let line = format!("{key} = [\"{}\"]", json[key].as_str().unwrap());
        assert!(printed.lines().any(|printed| printed == line), "{printed}");
    }
    assert!(printed.contains("# rtmr0: read it once"), "{printed}");
    let busy = stdout(&measure(folder.path(), &kernel(), &["--busy"]));
    let changed = printed.lines().zip(busy.lines()).filter(|(a, b)| a != b).map(|(a, _)| &a[..5]);
    assert_eq!(changed.collect::<Vec<_>>(), ["rtmr2"], "the command line is in one register");
}

#[test]
fn machines_that_have_no_such_registers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = kernel();
    old[0x400..0x406].copy_from_slice(b"6.1.0-");
    for (kernel, more, reason) in [
        (&old, &[][..], "the host could replace it; build the image with Linux 6.9 or later"),
        (&kernel(), &["--processors", "2"], "leave --processors and --processor out"),
        (&kernel(), &["--processor", "EPYC-v4"], "leave --processors and --processor out"),
    ] {
        let out = measure(folder.path(), kernel, more);
        assert_eq!(code(&out), 3);
        assert!(stderr(&out).contains(reason), "{}", stderr(&out));
    }
    let image = folder.path().join("image").display().to_string();
    let none = p4shield(&["image", "measure", &image, "--tee", "none"]);
    assert_eq!(code(&none), 3);
    assert!(stderr(&none).contains("--tee sev-snp or tdx"), "{}", stderr(&none));
}
