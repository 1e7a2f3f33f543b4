//! A program's own functions in C, by the steps of docs/how-to/c-externs.md.

use std::path::Path;
use std::process::Command;

use crate::common::{code, p4shield, stderr, stdout};

fn program(ending: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lang/stf/tests/programs");
    folder.join("functions").with_extension(ending).display().to_string()
}

fn no_clang() -> bool {
    let missing = !Command::new("clang").arg("--version").output().is_ok_and(|run| run.status.success());
    if missing {
        p4shield_need::skip("clang", "clang is not installed");
    }
    missing
}

#[test]
fn c_is_compiled_with_the_programs_header_and_verified_with_it() {
    if no_clang() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let made =
        p4shield(&["compile", &program("p4"), "-o", &at("p.o"), "--c-header", &at("p4shield_program.h")]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let clang = Command::new("clang")
        .args(["-target", "bpf", "-O2", "-ffreestanding", "-I"])
        .arg(folder.path())
        .args(["-c", &program("c"), "-o", &at("f.o")])
        .output()
        .unwrap();
    assert!(clang.status.success(), "{}", String::from_utf8_lossy(&clang.stderr));
    let judged = p4shield(&["verify", &at("p.o"), &at("f.o")]);
    assert_eq!(code(&judged), 0, "{}", stderr(&judged));
}

#[test]
fn a_test_compiles_the_functions_itself() {
    if no_clang() {
        return;
    }
    let tested = p4shield(&["test", &program("p4"), &program("stf"), "--functions", &program("c")]);
    assert_eq!(code(&tested), 0, "{}{}", stdout(&tested), stderr(&tested));
    let wrong = p4shield(&["test", &program("p4"), &program("stf"), "--functions", &program("stf")]);
    assert_eq!(code(&wrong), 3, "what is no C is refused");
}
