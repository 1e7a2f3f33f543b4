//! The image of P4 VMs in virtual machines, as an operator builds it.

use crate::common::{code, p4shield, stderr, stdout};
use object::{Object, ObjectSegment};
use p4shield_bpf::CODE_AREA;
use p4shield_need::extent;
use p4shield_testbed::guest::{p4vm_image, p4vm_program};
use p4shield_testbed::{Guest, leftover, process};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What the program is built from, relative to the source folder.
const SOURCES: [&str; 5] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates", "scripts"];

fn usable() -> bool {
    Guest::usable().map_err(|why| p4shield_need::skip("qemu", why)).is_ok()
}

/// Copies what is compiled to `target`, without the crates of this workspace.
fn copy_libraries(program: &Path, target: &Path) {
    std::fs::create_dir(target).unwrap();
    let compiled = program.parent().unwrap();
    process::run(Command::new("cp").arg("-a").arg(compiled).arg(target)).unwrap();
    let mut remove = Command::new("find");
    remove.arg(target).args(["-name", "*p4shield*", "-prune", "-exec", "rm", "-r", "{}", "+"]);
    process::run(&mut remove).unwrap();
}

/// Compiles the libraries of crates.io again, on the other path, only with `P4SHIELD_EFFORT=full`.
#[test]
fn the_program_is_the_same_whatever_the_path() {
    if !usable() {
        return;
    }
    let folder = leftover::folder("another-path").unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    for name in SOURCES {
        process::run(Command::new("cp").arg("-a").arg(source.join(name)).arg(folder.path())).unwrap();
    }
    let (program, target) = (p4vm_program().unwrap(), folder.path().join("target"));
    if extent(true, false) {
        copy_libraries(&program, &target);
    }
    let mut build = Command::new(folder.path().join("scripts/static.sh"));
    build.arg("p4vm").arg(folder.path().join("out")).env("CARGO_TARGET_DIR", &target);
    process::run(process::forget_cargo(&mut build)).unwrap();
    let [ours, theirs] = [program, folder.path().join("out/p4vm")].map(|p| std::fs::read(p).unwrap());
    assert!(ours == theirs, "the program contains something of the path");
}

/// The kernel places the heap behind the program, at random.
#[test]
fn program_and_heap_lie_above_the_machine_code() {
    if !usable() {
        return;
    }
    let program = std::fs::read(p4vm_program().unwrap()).unwrap();
    let file = object::File::parse(&*program).unwrap();
    assert_eq!(file.kind(), object::ObjectKind::Executable, "it has fixed addresses");
    let lowest = file.segments().map(|segment| segment.address()).min().unwrap();
    assert!(lowest >= CODE_AREA.end as u64, "{lowest:#x}");
}

#[test]
fn an_image_has_one_digest_and_shows_changes() {
    if !usable() {
        return;
    }
    let folder = leftover::folder("image").unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let program = p4vm_program().unwrap().display().to_string();
    let kernel = p4vm_image().unwrap().join("vmlinuz").display().to_string();
    let digest =
        |output: &str| serde_json::from_str::<Value>(output).unwrap()["image"].as_str().unwrap().to_owned();
    let built = ["a", "b/c"].map(|name| {
        let arguments = ["--program", &program, "--kernel", &kernel, "-o", &at(name), "--json"];
        let built = p4shield(&[&["image", "build"], &arguments[..]].concat());
        assert_eq!(code(&built), 0, "{}", stderr(&built));
        digest(&stdout(&built))
    });
    assert_eq!(built[0], built[1]);
    let shown = p4shield(&["image", "show", &at("a")]);
    assert!(code(&shown) == 0 && stdout(&shown).contains(&built[0]), "{}", stdout(&shown));

    std::fs::write(at("a/initramfs"), "another").unwrap();
    let changed = p4shield(&["image", "show", &at("a")]);
    assert_eq!(code(&changed), 3);
    assert!(stderr(&changed).contains("initramfs is not the file of the manifest"), "{}", stderr(&changed));
    let refused = p4shield(&["image", "build", "--program", "/bin/sh", "--kernel", &kernel, "-o", &at("d")]);
    assert!(code(&refused) == 3 && stderr(&refused).contains("is not static"), "{}", stderr(&refused));
    let file = at("a/initramfs/below");
    let unwritable = p4shield(&["image", "build", "--program", &program, "--kernel", &kernel, "-o", &file]);
    assert!(
        code(&unwritable) == 1 && stderr(&unwritable).contains("cannot create"),
        "{}",
        stderr(&unwritable)
    );
}

/// Returns the verdict on the claims about an area that begin with these words.
fn verdict(proofs: &Value, areas: &[&str], claim: &str) -> String {
    let is = |proof: &&Value| {
        areas.iter().any(|area| proof["area"] == *area)
            && proof["claim"].as_str().is_some_and(|text| text.starts_with(claim))
    };
    let found = proofs.as_array().unwrap().iter().find(is);
    found.unwrap_or_else(|| panic!("{areas:?}, {claim}: {proofs:#}"))["verdict"].as_str().unwrap().to_owned()
}

#[test]
fn a_host_proves_that_machines_boot_and_the_search_works() {
    if !usable() {
        return;
    }
    let image = p4vm_image().unwrap().display().to_string();
    let proved = p4shield(&["host", "check", "--prove", "--json", "--image", &image]);
    assert_eq!(code(&proved), 0, "{}", stderr(&proved));
    let proofs: Value = serde_json::from_str(&stdout(&proved)).unwrap();
    let machine = ["kvm", "qemu"];
    assert_eq!(verdict(&proofs, &machine, "the image of P4 VMs boots"), "proven");
    assert_eq!(verdict(&proofs, &machine, "without a TEE, the host finds"), "proven");
    let found: Value =
        serde_json::from_str(&stdout(&p4shield(&["host", "check", "--json"]))).expect("findings");
    for tee in ["sev-snp", "tdx"] {
        let works = found.as_array().unwrap().iter().any(|f| f["area"] == tee && f["state"] == "works");
        let expected = if works { "proven" } else { "open" };
        for claim in ["the image of P4 VMs boots", "the host finds nothing"] {
            assert_eq!(verdict(&proofs, &[tee], claim), expected, "{tee}, {claim}");
        }
    }
}

#[test]
fn what_cannot_be_proven_is_open_and_fails_if_required() {
    let prove = ["host", "check", "--prove", "--image", "/nonexistent", "--qemu", "/nonexistent"];
    let proved = p4shield(&prove);
    assert_eq!(code(&proved), 0, "{}", stderr(&proved));
    let said = stdout(&proved);
    assert!(
        said.contains("open     qemu") && said.contains("p4shield image build -o /nonexistent"),
        "{said}"
    );
    let required = p4shield(&[&prove[..], &["--require", "tdx"]].concat());
    assert_eq!(code(&required), 1);
    assert!(stderr(&required).contains("tdx: the claim that the image"), "{}", stderr(&required));
    let alone = p4shield(&["host", "check", "--processor", "EPYC-v4"]);
    assert!(code(&alone) == 2 && stderr(&alone).contains("--prove"), "{}", stderr(&alone));
}
