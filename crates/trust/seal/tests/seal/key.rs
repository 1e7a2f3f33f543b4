//! Which key files are accepted.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use p4shield_seal::{KEY_SIZE, KeyError, TenantKey};

fn key_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenant.key");
    (dir, path)
}

#[test]
fn a_generated_key_loads_and_is_unique() {
    let (_dir, path) = key_file();
    let made = TenantKey::generate(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(TenantKey::load(&path).unwrap().expose(), made.expose());
    let (_other_dir, other) = key_file();
    assert_ne!(TenantKey::generate(&other).unwrap().expose(), made.expose(), "keys are random");
}

#[test]
fn a_key_is_never_overwritten() {
    let (_dir, path) = key_file();
    let made = TenantKey::generate(&path).unwrap();
    assert!(matches!(TenantKey::generate(&path), Err(KeyError::Exists(_))));
    assert_eq!(TenantKey::load(&path).unwrap().expose(), made.expose());
}

#[test]
fn other_modes_are_refused_with_a_remedy() {
    let (_dir, path) = key_file();
    TenantKey::generate(&path).unwrap();
    for mode in [0o644, 0o640, 0o604, 0o660, 0o700, 0o400, 0o4600, 0o1600, 0o000] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = TenantKey::load(&path).unwrap_err();
        assert!(matches!(error, KeyError::Mode { mode: m, .. } if m == mode), "{mode:o}: {error:?}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(TenantKey::load(&path).is_ok());
}

#[test]
fn links_pipes_and_directories_are_refused_without_hanging() {
    let (dir, path) = key_file();
    TenantKey::generate(&path).unwrap();
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(TenantKey::load(&link), Err(KeyError::Symlink(_))));
    let pipe = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(matches!(TenantKey::load(&pipe), Err(KeyError::NotAFile(_))));
    assert!(matches!(TenantKey::load(dir.path()), Err(KeyError::NotAFile(_))));
    let dangling = dir.path().join("dangling");
    symlink("nowhere", &dangling).unwrap();
    assert!(matches!(TenantKey::generate(&dangling), Err(KeyError::Exists(_))));
}

#[test]
fn every_other_size_is_refused() {
    let (_dir, path) = key_file();
    for size in [0, 1, KEY_SIZE - 1, KEY_SIZE + 1, 4096] {
        fs::write(&path, vec![1; size]).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(TenantKey::load(&path), Err(KeyError::Size { size: s, .. }) if s == size as u64));
    }
}

#[test]
fn another_owner_is_refused() {
    if !rustix::process::geteuid().is_root() {
        p4shield_need::skip("root", "only root can give a file away");
        return;
    }
    let (_dir, path) = key_file();
    TenantKey::generate(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
    assert!(matches!(TenantKey::load(&path), Err(KeyError::Owner { owner: 12_345, .. })));
}

#[test]
fn keys_do_not_print() {
    let shown = format!("{:?}", TenantKey::from_bytes([0xab; KEY_SIZE]));
    assert!(!shown.contains("171") && !shown.to_lowercase().contains("ab, ab"), "{shown}");
}
