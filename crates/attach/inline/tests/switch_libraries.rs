//! What is preloaded into a switch stays light: no compiler, verifier, JIT or sandbox, and little code.
//!
//! The symbols are those of the libraries that cargo built for the test, the sizes those of the profile that
//! is installed.

use object::{Object, ObjectSection, ObjectSymbol};
use p4shield_testbed::process;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that must not be part of a preloaded library; those of Cranelift are more.
const HEAVY: [&str; 9] = [
    "prevail",
    "p4shield_bpf",
    "p4shield_runtime",
    "p4shield_p4",
    "p4shield_attest",
    "p4shield_stf",
    "landlock",
    "seccompiler",
    "caps",
];
/// The most bytes of code and read-only data of a preloaded library.
const MAX_BYTES: u64 = 1_750_000;

/// Returns a library that cargo built for this test.
fn library(name: &str) -> Vec<u8> {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.with_file_name(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns whether a mangled symbol has a path component for which `f` holds; both of Rust's manglings write
/// the length before each component.
fn mentions(symbol: &str, f: impl Fn(&str) -> bool) -> bool {
    let bytes = symbol.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            at += 1;
            continue;
        }
        at += digits;
        let len: usize = symbol[at - digits..at].parse().unwrap_or(0);
        let text = symbol.get(at..).unwrap_or_default().trim_start_matches('_');
        if text.get(..len).or_else(|| symbol.get(at..at + len)).is_some_and(&f) {
            return true;
        }
    }
    false
}

/// Returns the heavy crates that have symbols in a library, dynamic ones or those of Rust.
fn heavy(library: &[u8]) -> Vec<String> {
    let file = object::File::parse(library).unwrap();
    let names: Vec<_> = file.symbols().chain(file.dynamic_symbols()).filter_map(|s| s.name().ok()).collect();
    assert!(names.len() > 1000, "the library has no symbols of Rust");
    let found = |f: &dyn Fn(&str) -> bool| names.iter().any(|n| mentions(n, f));
    let mut heavy: Vec<_> = HEAVY.iter().filter(|c| found(&|n| n == **c)).map(ToString::to_string).collect();
    heavy.extend(found(&|n| n.starts_with("cranelift_")).then(|| "cranelift".to_owned()));
    heavy
}

#[test]
fn switch_libraries_have_no_compiler_or_sandbox() {
    for name in ["libp4shield_dpdk.so", "libp4shield_xsk.so"] {
        assert_eq!(heavy(&library(name)), Vec::<String>::new(), "{name}");
    }
    // The check finds them where they are.
    let inline = heavy(&library(p4shield_abi::inline::LIBRARY));
    for due in ["cranelift", "p4shield_bpf", "p4shield_runtime"] {
        assert!(inline.iter().any(|c| c == due), "{due} is not in {inline:?}");
    }
}

#[test]
fn components_of_mangled_symbols_are_found() {
    let is = |name: &'static str| move |n: &str| n == name;
    assert!(mentions("_ZN4caps3set17h0123456789abcdefE", is("caps")));
    assert!(mentions("_RNvNtCs1234_4caps4base3set", is("caps")));
    assert!(!mentions("_ZN14capsule_filter3set17h0123456789abcdefE", is("caps")));
}

/// Builds the preloaded libraries as they are installed. Returns their folder.
fn installed_libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().find(|p| p.ends_with("deps")).and_then(|p| p.ancestors().nth(2)).unwrap();
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--locked", "--profile", "dist"]);
    build.args(["-p", "p4shield-attach-dpdk", "-p", "p4shield-attach-xsk", "--target-dir"]).arg(target);
    process::forget_cargo(&mut build).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."));
    process::run(&mut build).unwrap();
    target.join("dist")
}

#[test]
fn switch_libraries_are_small() {
    let folder = installed_libraries();
    for name in ["libp4shield_dpdk.so", "libp4shield_xsk.so"] {
        let library = std::fs::read(folder.join(name)).unwrap();
        let file = object::File::parse(library.as_slice()).unwrap();
        let size = |section| file.section_by_name(section).map_or(0, |s| s.size());
        let bytes = size(".text") + size(".rodata");
        println!("{name}: {bytes} bytes of code and read-only data");
        assert!(bytes <= MAX_BYTES, "{name}: {bytes} bytes, at most {MAX_BYTES} are allowed");
    }
}
