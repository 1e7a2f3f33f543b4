//! The public interface of the crates that outsiders use, against a snapshot.
//!
//! A change of an interface shows up in review as a change of `public-api.txt`. `P4SHIELD_BLESS=1` writes the
//! snapshots.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

/// The interface of a crate, one item a line.
///
/// Rustdoc's JSON output is unstable, so a wrapper allows the stable rustdoc that rust-toolchain.toml pins to
/// write it; the pinned version of `public-api` reads exactly that compiler's format. The variable reaches
/// rustdoc alone: the compiler would rebuild every dependency under it.
fn interface(package: &str) -> String {
    let root = Path::new(ROOT);
    let target = root.join("target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(target, |folder| root.join(folder));
    // By its name: a proxy of rustup then pins the toolchain for the crates of crates.io, too, some of which
    // name another one in their own folder.
    let built = Command::new("cargo")
        .current_dir(root)
        .env("RUSTDOC", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unstable-rustdoc.sh"))
        .args(["rustdoc", "--locked", "--quiet", "--lib", "-p", package, "--target-dir"])
        .arg(&target)
        .args(["--", "-Zunstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{package}: {}", String::from_utf8_lossy(&built.stderr));
    let json = target.join("doc").join(format!("{}.json", package.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .expect("rustdoc's output is of the expected format");
    api.items().fold(String::new(), |mut text, item| {
        let _ = writeln!(text, "{item}");
        text
    })
}

#[test]
fn public_interfaces_match_their_snapshots() {
    let mut changed = Vec::new();
    for folder in ["base/abi", "base/frame", "lang/bpf", "lang/p4"] {
        let name = folder.rsplit('/').next().expect("a path has a last part");
        let interface = interface(&format!("p4shield-{name}"));
        let snapshot = format!("crates/{folder}/public-api.txt");
        let path = Path::new(ROOT).join(&snapshot);
        if std::env::var_os("P4SHIELD_BLESS").is_some() {
            std::fs::write(&path, interface).expect("the snapshot can be written");
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&interface) {
            changed.push(snapshot);
        }
    }
    assert!(
        changed.is_empty(),
        "the public interface differs from {}; review it, then run \
         `P4SHIELD_BLESS=1 cargo test -p p4shield-lint --test public_api` and commit the files",
        changed.join(", ")
    );
}
