//! Outcomes of verification are remembered, and only where nobody else can have put them.

use std::cell::Cell;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use p4shield_bpf::Linked;
use p4shield_bpf::asm::assemble;
use p4shield_bpf::verify::{Cache, Limit, Limits, Refusal, Report, check};

fn safe() -> Linked {
    assemble("mov r0, 1\n exit").expect("assembles")
}

fn bad() -> Linked {
    assemble("ldxdw r2, [r1+0]\n ldxb r0, [r2+0]\n exit").expect("assembles")
}

/// Whether the cache asked for a new verdict, and the verdict.
fn ask(cache: &mut Cache, linked: &Linked) -> (bool, Result<Report, Refusal>) {
    let asked = Cell::new(false);
    let outcome = cache.check(linked, &Limits::default(), |l| {
        asked.set(true);
        check(l, &Limits::default())
    });
    (asked.get(), outcome)
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let outer = tempfile::tempdir().expect("makes");
    let path = outer.path().join("verified");
    (outer, path)
}

fn entries(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).expect("lists").map(|e| e.expect("reads").path()).collect()
}

#[test]
fn programs_and_refusals_are_remembered() {
    let mut cache = Cache::in_memory();
    for linked in [safe(), bad()] {
        let (asked, first) = ask(&mut cache, &linked);
        assert!(asked);
        let (asked, second) = ask(&mut cache, &linked);
        assert!(!asked);
        assert_eq!(first, second);
    }
}

#[test]
fn a_refusal_for_want_of_resources_is_not_remembered() {
    let mut cache = Cache::in_memory();
    let outcome = cache.check(&safe(), &Limits::default(), |_| Err(Refusal::Resources { limit: Limit::Cpu }));
    assert_eq!(outcome, Err(Refusal::Resources { limit: Limit::Cpu }));
    let unavailable = Refusal::Unavailable { cause: "gone".to_owned() };
    cache.check(&safe(), &Limits::default(), |_| Err(unavailable)).expect_err("unavailable");
    assert!(ask(&mut cache, &safe()).1.is_ok());
}

#[test]
fn other_limits_are_another_question() {
    let mut cache = Cache::in_memory();
    let (_, outcome) = ask(&mut cache, &safe());
    outcome.expect("is safe");
    let small = Limits { instructions: 1, ..Limits::default() };
    cache.check(&safe(), &small, |l| check(l, &small)).expect_err("too long for these limits");
}

#[test]
fn a_directory_outlasts_the_process() {
    let (_outer, path) = directory();
    for linked in [safe(), bad()] {
        let mut cache = Cache::in_directory(&path).expect("makes");
        let (asked, first) = ask(&mut cache, &linked);
        assert!(asked);
        let mut cache = Cache::in_directory(&path).expect("opens");
        let (asked, second) = ask(&mut cache, &linked);
        assert!(!asked);
        assert_eq!(first, second);
    }
    let modes: Vec<u32> =
        entries(&path).iter().map(|e| e.metadata().expect("is there").permissions().mode() & 0o777).collect();
    assert_eq!(modes, [0o600, 0o600]);
    assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_corrupt_entry_is_not_there() {
    let (_outer, path) = directory();
    ask(&mut Cache::in_directory(&path).expect("makes"), &bad()).1.expect_err("refused");
    let entry = entries(&path).remove(0);
    let good = fs::read(&entry).expect("reads");
    let mut broken = vec![Vec::new(), good[..good.len() - 1].to_vec(), vec![0xff; 200_000]];
    for at in 0..good.len() {
        let mut flipped = good.clone();
        flipped[at] ^= 1;
        broken.push(flipped);
    }
    for bytes in broken {
        fs::write(&entry, &bytes).expect("writes");
        let (asked, outcome) = ask(&mut Cache::in_directory(&path).expect("opens"), &bad());
        assert!(asked, "{bytes:x?} was believed");
        outcome.expect_err("refused");
    }
}

#[test]
fn an_entry_of_another_program_is_not_believed() {
    let (_outer, path) = directory();
    let mut cache = Cache::in_directory(&path).expect("makes");
    ask(&mut cache, &safe()).1.expect("is safe");
    let accepted = entries(&path).remove(0);
    ask(&mut cache, &bad()).1.expect_err("refused");
    let refused = entries(&path).into_iter().find(|e| *e != accepted).expect("is there");
    fs::copy(&accepted, &refused).expect("copies");
    let (asked, outcome) = ask(&mut Cache::in_directory(&path).expect("opens"), &bad());
    assert!(asked);
    outcome.expect_err("refused");
}

#[test]
fn what_others_can_write_is_not_believed() {
    let (outer, path) = directory();
    ask(&mut Cache::in_directory(&path).expect("makes"), &safe()).1.expect("is safe");
    let entry = entries(&path).remove(0);
    let asks = || ask(&mut Cache::in_directory(&path).expect("opens"), &safe()).0;
    assert!(!asks());
    // The entry is open to the group; it is a link; it belongs to another.
    fs::set_permissions(&entry, Permissions::from_mode(0o660)).expect("ours");
    assert!(asks(), "an entry with mode 0660 was believed");
    assert!(!asks(), "it was written again");
    let elsewhere = outer.path().join("elsewhere");
    fs::rename(&entry, &elsewhere).expect("ours");
    symlink(&elsewhere, &entry).expect("ours");
    assert!(asks(), "a link was believed");
    std::os::unix::fs::chown(&entry, Some(12345), None).expect("we are root");
    assert!(asks(), "an entry of another user was believed");
    // The directory.
    fs::set_permissions(&path, Permissions::from_mode(0o770)).expect("ours");
    let refused = Cache::in_directory(&path).expect_err("open to the group");
    assert!(refused.to_string().contains("0700"), "{refused}");
}
