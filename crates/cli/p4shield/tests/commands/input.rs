//! Hostile input files: each command names the file and its error, returns the exit code of
//! docs/reference/exit-codes.md, and never panics.

use std::path::Path;

use crate::common::{code, example, p4shield, stderr, stdout};

/// Failed: the machine, a file, a peer is at fault. Refused: the file's contents are.
const FAILED: i32 = 1;
const REFUSED: i32 = 3;

/// Returns a folder of unusable files, and their names with the exit code that each leads to.
fn unwanted() -> (tempfile::TempDir, Vec<(String, i32)>) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("folder")).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("rubbish"), (0..4096_u32).map(|n| ((n * 193) >> 3) as u8 | 0x80).collect::<Vec<_>>())
        .unwrap();
    std::fs::write(at("cut"), b"\x7fELF\x02\x01").unwrap();
    let name = |name: &str| at(name).display().to_string();
    let files = vec![
        (name("missing"), FAILED),
        (name("folder"), FAILED),
        (name("empty"), REFUSED),
        (name("rubbish"), REFUSED),
        (name("cut"), REFUSED),
        // Longer than any input may be.
        ("/dev/zero".to_owned(), REFUSED),
    ];
    (folder, files)
}

fn assert_reported(arguments: &[&str], file: &str, wanted: i32) {
    let out = p4shield(arguments);
    let (said, heard) = (stderr(&out), stdout(&out));
    assert_eq!(out.status.code(), Some(wanted), "{arguments:?}\n{said}{heard}");
    assert!(
        said.contains(file) || heard.contains(file),
        "{arguments:?} does not name {file}:\n{said}{heard}"
    );
    assert!(!said.contains("panicked"), "{arguments:?}\n{said}");
}

#[test]
fn bad_programs_and_objects_are_refused_with_a_reason() {
    let (folder, files) = unwanted();
    let to = folder.path().join("x.o").display().to_string();
    let guard = example("programs/port_filter.p4");
    for (file, wanted) in &files {
        let name = Path::new(file).file_name().unwrap().to_str().unwrap();
        assert_reported(&["compile", file, "-o", &to], name, *wanted);
        assert_reported(&["verify", file], name, *wanted);
        assert_reported(&["test", &guard, "--pcap", file, "--expect", file], name, *wanted);
        // An empty file is valid text: a program without errors, a script without commands.
        if name != "empty" {
            assert_reported(&["check", file], name, *wanted);
            assert_reported(&["test", &guard, file], name, *wanted);
        }
    }
    assert!(!Path::new(&to).exists(), "nothing is written for what is refused");
}

#[test]
fn unreadable_configurations_are_refused_with_a_reason() {
    let (_folder, files) = unwanted();
    for (file, _) in files.iter().filter(|(file, _)| file != "/dev/zero") {
        for arguments in [&["run", "--check", "--config", file][..], &["run", "--config", file]] {
            assert_reported(arguments, file, REFUSED);
        }
    }
    let missing = p4shield(&["run", "--check", "--config", &files[0].0]);
    assert!(stderr(&missing).contains("No such file"), "{}", stderr(&missing));
}

#[test]
fn wrong_keys_pages_and_sockets_are_failures() {
    let (folder, files) = unwanted();
    let key = folder.path().join("key").display().to_string();
    assert_eq!(code(&p4shield(&["keygen", &key])), 0);
    for (file, _) in &files {
        assert_reported(&["status", "--socket", file], file, FAILED);
        assert_reported(&["agent", "status", "--socket", file], file, FAILED);
        assert_reported(&["program", "load", "a", "b", "ingress", &key, "--socket", file], file, FAILED);
        if file.ends_with("missing") {
            continue; // A page that is not there yet is made.
        }
        assert_reported(&["agent", "measure", "--info-page", file], file, FAILED);
        let identity = ["--tenant", "a", "--vm", "b", "--interface", "lo"];
        assert_reported(
            &[&["audit", "--log-page", file, "--key", &key][..], &identity].concat(),
            file,
            FAILED,
        );
        assert_reported(
            &[&["audit", "--log-page", &key, "--key", file][..], &identity].concat(),
            file,
            FAILED,
        );
        assert_reported(&["keygen", file], file, FAILED);
    }
}

#[test]
fn missing_and_empty_folders_are_reported() {
    let (folder, files) = unwanted();
    let nothing = folder.path().join("folder").display().to_string();
    let out = p4shield(&["conformance", "--corpus", &nothing]);
    assert_eq!(code(&out), REFUSED, "{}", stdout(&out));
    for (file, _) in files.iter().filter(|(file, _)| *file != nothing) {
        assert_reported(&["conformance", "--corpus", file], file, FAILED);
        let out = p4shield(&["detach", "dpdk", "--root", file]);
        assert_eq!(code(&out), 2, "{}", stderr(&out));
        if !file.ends_with("missing") {
            assert_reported(&["man", file], file, FAILED);
        }
    }
}
