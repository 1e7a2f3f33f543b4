//! `make install` and `make uninstall`, below a folder.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::deb::built;

/// Runs a script of the repository.
fn script(name: &str, arguments: &[&Path]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts").join(name);
    let output = Command::new(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns all files below a folder, relative to it.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found
}

#[test]
fn what_is_installed_is_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let binary = built(folder.path()).join("p4shield");
    let others = root.join("usr/local/share/doc/other");
    std::fs::create_dir_all(&others).unwrap();
    std::fs::write(others.join("README"), "").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    std::fs::set_permissions(root.join("usr/local/share"), PermissionsExt::from_mode(0o2775)).unwrap();
    let before = files(&root);

    script("install.sh", &[&binary, &root]);
    let installed = files(&root);
    for file in [
        "bin/p4shield",
        "lib/p4shield/libp4shield_dpdk.so",
        "lib/p4shield/libp4shield_ethdev.so",
        "lib/p4shield/p4vm",
        "lib/p4shield/switchvm",
        "lib/p4shield/tenantvm",
        "lib/systemd/system/p4shield.service",
        "lib/systemd/system/p4shield-switch@.service",
        "share/man/man1/p4shield.1",
        "share/man/man1/p4shield-reload.1",
        "share/bash-completion/completions/p4shield",
        "share/doc/p4shield/docs/reference/configuration.md",
        "share/doc/p4shield/README.md",
        "share/p4shield/p4shield.toml",
        "share/p4shield/switch.conf",
        "share/p4shield/prometheus/p4shield.rules.yml",
        "share/p4shield/grafana/p4shield.json",
        "share/p4shield/mininet/p4shield_mininet.py",
        "share/p4shield/installed-files",
    ] {
        assert!(installed.contains(&Path::new("usr/local").join(file)), "{file} is not installed");
    }
    assert_eq!(mode(&root.join("usr/local/share")), 0o2775, "a folder's mode has changed");
    assert_eq!(mode(&root.join("usr/local/bin/p4shield")), 0o755);
    // A second installation removes what only the first one had.
    let prefix = root.join("usr/local");
    let list = prefix.join("share/p4shield/installed-files");
    let old = std::fs::read_to_string(&list).unwrap() + "./share/p4shield/old\n";
    std::fs::write(&list, old).unwrap();
    std::fs::write(prefix.join("share/p4shield/old"), "").unwrap();
    script("install.sh", &[&binary, &root]);
    assert_eq!(files(&root), installed);

    script("uninstall.sh", &[&root]);
    assert_eq!(files(&root), before);
    assert!(!prefix.join("share/p4shield").exists() && !prefix.join("lib").exists(), "folders stayed behind");
    let again = script("uninstall.sh", &[&root]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing is installed"));
}
