//! The cache stores verification results, and ignores entries that another user can have written.

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

/// Returns whether the cache called the verifier, and the result.
fn check_cached(cache: &mut Cache, linked: &Linked) -> (bool, Result<Report, Refusal>) {
    let called = Cell::new(false);
    let result = cache.check(linked, &Limits::default(), |l| {
        called.set(true);
        check(l, &Limits::default())
    });
    (called.get(), result)
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
fn results_and_refusals_are_cached() {
    let mut cache = Cache::in_memory();
    for linked in [safe(), bad()] {
        let (called, first) = check_cached(&mut cache, &linked);
        assert!(called);
        let (called, second) = check_cached(&mut cache, &linked);
        assert!(!called);
        assert_eq!(first, second);
    }
}

#[test]
fn a_refusal_for_lack_of_resources_is_not_cached() {
    let mut cache = Cache::in_memory();
    let result = cache.check(&safe(), &Limits::default(), |_| Err(Refusal::Resources { limit: Limit::Cpu }));
    assert_eq!(result, Err(Refusal::Resources { limit: Limit::Cpu }));
    let unavailable = Refusal::Unavailable { cause: "gone".to_owned() };
    cache.check(&safe(), &Limits::default(), |_| Err(unavailable)).expect_err("unavailable");
    assert!(check_cached(&mut cache, &safe()).1.is_ok());
}

#[test]
fn other_limits_make_another_entry() {
    let mut cache = Cache::in_memory();
    let (_, result) = check_cached(&mut cache, &safe());
    result.expect("is safe");
    let small = Limits { instructions: 1, ..Limits::default() };
    cache.check(&safe(), &small, |l| check(l, &small)).expect_err("too long for these limits");
}

#[test]
fn a_cache_directory_outlasts_the_process() {
    let (_outer, path) = directory();
    for linked in [safe(), bad()] {
        let mut cache = Cache::in_directory(&path).expect("makes");
        let (called, first) = check_cached(&mut cache, &linked);
        assert!(called);
        let mut cache = Cache::in_directory(&path).expect("opens");
        let (called, second) = check_cached(&mut cache, &linked);
        assert!(!called);
        assert_eq!(first, second);
    }
    let modes: Vec<u32> =
        entries(&path).iter().map(|e| e.metadata().expect("is there").permissions().mode() & 0o777).collect();
    assert_eq!(modes, [0o600, 0o600]);
    assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_corrupt_entry_is_ignored() {
    let (_outer, path) = directory();
    check_cached(&mut Cache::in_directory(&path).expect("makes"), &bad()).1.expect_err("refused");
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
        let (called, result) = check_cached(&mut Cache::in_directory(&path).expect("opens"), &bad());
        assert!(called, "{bytes:x?} was accepted");
        result.expect_err("refused");
    }
}

#[test]
fn an_entry_of_another_program_is_ignored() {
    let (_outer, path) = directory();
    let mut cache = Cache::in_directory(&path).expect("makes");
    check_cached(&mut cache, &safe()).1.expect("is safe");
    let accepted = entries(&path).remove(0);
    check_cached(&mut cache, &bad()).1.expect_err("refused");
    let refused = entries(&path).into_iter().find(|e| *e != accepted).expect("is there");
    fs::copy(&accepted, &refused).expect("copies");
    let (called, result) = check_cached(&mut Cache::in_directory(&path).expect("opens"), &bad());
    assert!(called);
    result.expect_err("refused");
}

#[test]
fn entries_that_other_users_can_write_are_ignored() {
    let (outer, path) = directory();
    check_cached(&mut Cache::in_directory(&path).expect("makes"), &safe()).1.expect("is safe");
    let entry = entries(&path).remove(0);
    let calls_verifier = || check_cached(&mut Cache::in_directory(&path).expect("opens"), &safe()).0;
    assert!(!calls_verifier());
    // An entry that is writable by the group, one that is a link, one of another user.
    fs::set_permissions(&entry, Permissions::from_mode(0o660)).expect("ours");
    assert!(calls_verifier(), "an entry with mode 0660 was accepted");
    assert!(!calls_verifier(), "the cache wrote the entry again");
    let elsewhere = outer.path().join("elsewhere");
    fs::rename(&entry, &elsewhere).expect("ours");
    symlink(&elsewhere, &entry).expect("ours");
    assert!(calls_verifier(), "a link was accepted");
    std::os::unix::fs::chown(&entry, Some(12345), None).expect("we are root");
    assert!(calls_verifier(), "an entry of another user was accepted");
    // A directory that is writable by the group.
    fs::set_permissions(&path, Permissions::from_mode(0o770)).expect("ours");
    let refused = Cache::in_directory(&path).expect_err("open to the group");
    assert!(refused.to_string().contains("0700"), "{refused}");
}
