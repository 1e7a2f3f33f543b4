//! Whatever file a command is given, it says which one it was and what is wrong with it, with the exit code that
//! docs/reference/exit-codes.md promises, and never panics.

mod common;

use std::path::Path;

use common::{code, example, p4shield, stderr, stdout};

/// Failed: the machine, a file, a peer. Refused: what is in the file.
const FAILED: i32 = 1;
const REFUSED: i32 = 3;

/// A folder with files that no command wants, and their names with the exit code that each deserves.
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
        // More than any input has.
        ("/dev/zero".to_owned(), REFUSED),
    ];
    (folder, files)
}

fn says(arguments: &[&str], file: &str, wanted: i32) {
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
fn compilers_and_verifiers_say_what_is_wrong_with_a_file() {
    let (folder, files) = unwanted();
    let to = folder.path().join("x.o").display().to_string();
    let guard = example("programs/port_filter.p4");
    for (file, wanted) in &files {
        let name = Path::new(file).file_name().unwrap().to_str().unwrap();
        says(&["compile", file, "-o", &to], name, *wanted);
        says(&["verify", file], name, *wanted);
        says(&["test", &guard, "--pcap", file, "--expect", file], name, *wanted);
        // An empty text is a text: a program without errors, a script without commands.
        if name != "empty" {
            says(&["check", file], name, *wanted);
            says(&["test", &guard, file], name, *wanted);
        }
    }
    assert!(!Path::new(&to).exists(), "nothing is written for what is refused");
}

#[test]
fn a_configuration_that_cannot_be_read_is_refused_with_the_reason() {
    let (_folder, files) = unwanted();
    for (file, _) in files.iter().filter(|(file, _)| file != "/dev/zero") {
        for arguments in [&["run", "--check", "--config", file][..], &["run", "--config", file]] {
            says(arguments, file, REFUSED);
        }
    }
    let missing = p4shield(&["run", "--check", "--config", &files[0].0]);
    assert!(stderr(&missing).contains("No such file"), "{}", stderr(&missing));
}

#[test]
fn keys_pages_and_sockets_that_are_none_are_failures() {
    let (folder, files) = unwanted();
    let key = folder.path().join("key").display().to_string();
    assert_eq!(code(&p4shield(&["keygen", &key])), 0);
    for (file, _) in &files {
        says(&["status", "--socket", file], file, FAILED);
        says(&["agent", "status", "--socket", file], file, FAILED);
        says(&["program", "load", "a", "b", "ingress", &key, "--socket", file], file, FAILED);
        if file.ends_with("missing") {
            continue; // A page that is not there yet is made.
        }
        says(&["agent", "measure", "--info-page", file], file, FAILED);
        let identity = ["--tenant", "a", "--vm", "b", "--interface", "lo"];
        says(&[&["audit", "--log-page", file, "--key", &key][..], &identity].concat(), file, FAILED);
        says(&[&["audit", "--log-page", &key, "--key", file][..], &identity].concat(), file, FAILED);
        says(&["keygen", file], file, FAILED);
    }
}

#[test]
fn folders_that_are_none_or_hold_nothing_are_told() {
    let (folder, files) = unwanted();
    let nothing = folder.path().join("folder").display().to_string();
    let out = p4shield(&["conformance", "--corpus", &nothing]);
    assert_eq!(code(&out), REFUSED, "{}", stdout(&out));
    for (file, _) in files.iter().filter(|(file, _)| *file != nothing) {
        says(&["conformance", "--corpus", file], file, FAILED);
        let out = p4shield(&["detach", "dpdk", "--root", file]);
        assert_eq!(code(&out), 2, "{}", stderr(&out));
        if !file.ends_with("missing") {
            says(&["man", file], file, FAILED);
        }
    }
}
