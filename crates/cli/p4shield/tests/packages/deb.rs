//! The Debian packages: built from what cargo built for the tests, installed, upgraded, removed and purged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::deb::{build, cannot_build};
use p4shield_testbed::process::{find, run};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns what this machine lacks for the test.
fn missing() -> Option<String> {
    if let Err(why) = p4shield_testbed::usable() {
        return Some(why);
    }
    if let Some(why) = cannot_build(&["unshare"]) {
        return Some(why);
    }
    let overlay = "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w /mnt/r && \
                   mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r";
    let mounted = Command::new("unshare").args(["-m", "sh", "-c", overlay]).output();
    mounted.is_ok_and(|o| !o.status.success()).then(|| "this container must not mount an overlay".into())
}

/// Checks that no file is in two packages.
fn check_contents(packages: &[PathBuf]) {
    let mut owners: BTreeMap<String, &Path> = BTreeMap::new();
    for package in packages {
        let listed = run(Command::new("dpkg-deb").arg("-c").arg(package)).unwrap();
        for line in listed.lines().filter(|line| !line.starts_with('d')) {
            let file = line.split_whitespace().nth(5).unwrap().to_owned();
            assert!(line.contains(" root/root "), "{line}");
            let other = owners.insert(file.clone(), package);
            assert!(other.is_none(), "{file} is in {} and {}", package.display(), other.unwrap().display());
        }
    }
    for file in [
        "./usr/bin/p4shield",
        "./usr/share/man/man1/p4shield.1.gz",
        "./usr/share/zsh/vendor-completions/_p4shield",
        "./usr/share/doc/p4shield/docs/reference/configuration.md",
        "./usr/lib/systemd/system/p4shield-switch@.service",
        "./usr/share/p4shield/switch.conf",
        "./usr/share/p4shield/prometheus/p4shield.rules.yml",
        "./usr/share/p4shield/grafana/p4shield.json",
        "./usr/share/p4shield/mininet/p4shield_mininet.py",
    ] {
        assert!(owners.contains_key(file), "{file} is in no package");
    }
}

#[test]
fn packages_install_upgrade_and_leave_nothing_when_purged() {
    if let Some(why) = missing() {
        p4shield_need::skip("machine", why);
        return;
    }
    let folder = p4shield_testbed::leftover::folder("deb").unwrap();
    let packages = build(folder.path());
    assert_eq!(packages.len(), 8, "{packages:?}");
    check_contents(&packages);
    // The script's processes end with the first process of its PID namespace, and its mounts with them.
    let toured = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deb.sh"))
        .env("FOLDER", folder.path())
        .env("VERSION", VERSION)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&toured.stdout).into_owned();
    let complained = String::from_utf8_lossy(&toured.stderr).into_owned();
    assert!(toured.status.success() && said.ends_with("the tour is over\n"), "{said}\n---\n{complained}");
}

#[test]
fn debians_checks_find_no_error_in_the_packages() {
    if find("lintian").is_none() {
        p4shield_need::skip("lintian", "the package lintian is missing");
        return;
    }
    let folder = p4shield_testbed::leftover::folder("lintian").unwrap();
    let packages = build(folder.path());
    run(Command::new("lintian").args(["--allow-root", "--fail-on", "error"]).args(packages)).unwrap();
}

#[test]
fn systemd_accepts_the_units() {
    if find("systemd-analyze").is_none() {
        p4shield_need::skip("systemd-analyze", "the package systemd is missing");
        return;
    }
    // The units name the installed binary, and the check wants it to exist.
    let folder = p4shield_testbed::leftover::folder("units").unwrap();
    let mut command = Command::new("systemd-analyze");
    command.arg("verify").arg("--man=no");
    let services = [
        "p4shield.service",
        "p4shield-agent.service",
        "p4shield-audit@eth0.service",
        "p4shield-switch@s1.service",
    ];
    for unit in services {
        let source = unit.replace("@eth0", "@").replace("@s1", "@");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/systemd").join(source);
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::write(
            folder.path().join(unit),
            text.replace("/usr/local/bin/p4shield", env!("CARGO_BIN_EXE_p4shield")),
        )
        .unwrap();
        command.arg(folder.path().join(unit));
    }
    let checked = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&checked.stderr).into_owned();
    let ours: Vec<_> = complaint.lines().filter(|line| line.contains("p4shield")).collect();
    assert!(checked.status.success() && ours.is_empty(), "{complaint}");
}
