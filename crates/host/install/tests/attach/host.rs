//! A host's files in a folder.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use p4shield_install::{
    Finding, OVS_UNIT, PreloadedAttachment, Report, Request, Root, Severity, Target, examine,
};
use p4shield_testbed::process::run;
use tempfile::TempDir;

/// Debian's Open vSwitch with DPDK.
pub(crate) const OVS_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// The package's unit.
const OVS_UNIT_FILE: &str = "/lib/systemd/system/ovs-vswitchd.service";

/// A host with Open vSwitch with DPDK as installed by Debian, and P4 Shield as installed by `make install`.
pub(crate) struct Host {
    folder: TempDir,
}

/// Returns what this machine lacks for the test.
pub(crate) fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        Some("the test must run as root, which owns the files that a service loads")
    } else if !Path::new(OVS_DPDK).exists() || !Path::new(OVS_UNIT_FILE).exists() {
        Some("the package openvswitch-switch-dpdk is not installed")
    } else {
        None
    }
}

/// Skips a test that this machine cannot run.
macro_rules! host {
    () => {
        match crate::host::missing() {
            None => crate::host::Host::new(),
            Some(why) => {
                p4shield_need::skip("machine", why);
                return;
            }
        }
    };
}
pub(crate) use host;

impl Host {
    pub(crate) fn new() -> Self {
        let host = Self { folder: p4shield_testbed::leftover::folder("attach").unwrap() };
        for (from, to) in [(OVS_DPDK, OVS_DPDK), (OVS_UNIT_FILE, OVS_UNIT_FILE)] {
            host.write(to, &std::fs::read(from).unwrap());
        }
        host.write("/usr/share/openvswitch/scripts/ovs-ctl", b"#!/bin/sh\n");
        host.write("/etc/passwd", b"root:x:0:0::/:/bin/sh\nopenvswitch:x:112:118::/:/bin/false\n");
        host.write(
            "/usr/local/lib/systemd/system/p4shield.service",
            b"[Service]\nExecStart=/usr/local/bin/p4shield run\n",
        );
        host.write("/etc/default/openvswitch-switch", b"# OVS_CTL_OPTS=\n");
        host.configure("dpdk", "");
        host.link("/usr/sbin/ovs-vswitchd", "/etc/alternatives/ovs-vswitchd");
        host.link("/etc/alternatives/ovs-vswitchd", OVS_DPDK);
        for kind in PreloadedAttachment::ALL {
            let hook = if kind == PreloadedAttachment::Dpdk { "rte_eth_dev_start" } else { "setsockopt" };
            let text = format!("int {hook}(void) {{ return 0; }}");
            host.compile(
                &text,
                &format!("/usr/local/lib/p4shield/{}", kind.library()),
                &["-shared", "-fPIC"],
            );
        }
        host
    }

    pub(crate) fn root(&self) -> Root {
        Root::new(self.folder.path())
    }

    /// Returns the real path of a host's file.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        let at = self.at(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, bytes).unwrap();
    }

    pub(crate) fn link(&self, path: &str, to: &str) {
        let at = self.at(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(&at);
        symlink(to, at).unwrap();
    }

    pub(crate) fn mode(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.at(path), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Writes a configuration with an attachment and lines for `[daemon]`.
    pub(crate) fn configure(&self, attachment: &str, daemon: &str) {
        let text = format!(
            "attachment = \"{attachment}\"\n[daemon]\n{daemon}\n[[tenant]]\nname = \
             \"alice\"\n[[tenant.vm]]\nname = \"web\"\n\
             addresses = [\"10.0.0.2\"]\n"
        );
        self.write("/etc/p4shield/p4shield.toml", text.as_bytes());
    }

    /// Compiles C code to a program or library of the host.
    pub(crate) fn compile(&self, text: &str, path: &str, flags: &[&str]) {
        let at = self.at(path);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        let source = self.folder.path().join("source.c");
        std::fs::write(&source, text).unwrap();
        run(Command::new("cc").arg("-o").arg(at).arg(&source).args(flags)).unwrap();
        std::fs::remove_file(source).unwrap();
    }

    pub(crate) fn request(&self, kind: PreloadedAttachment) -> Request {
        Request {
            root: self.root(),
            kind,
            target: Target::Unit(OVS_UNIT.into()),
            program: None,
            library: None,
            config: "/etc/p4shield/p4shield.toml".into(),
            database: None,
        }
    }

    /// Examines the DPDK switch.
    pub(crate) fn examine(&self) -> Report {
        examine(&self.request(PreloadedAttachment::Dpdk))
    }

    /// Examines another program.
    pub(crate) fn examine_program(&self, kind: PreloadedAttachment, program: &str) -> Report {
        examine(&Request { program: Some(program.into()), ..self.request(kind) })
    }

    /// Returns all files with mode and contents, all links and all folders.
    pub(crate) fn everything(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        walk(self.folder.path(), &mut all);
        all
    }
}

fn walk(folder: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let content = if meta.is_symlink() {
            format!("{:?}", std::fs::read_link(&path).unwrap())
        } else if meta.is_dir() {
            walk(&path, all);
            String::new()
        } else {
            format!("{:?}", std::fs::read(&path).unwrap())
        };
        all.insert(path, format!("{:o} {content}", meta.permissions().mode()));
    }
}

/// Returns the only problem of a report.
#[track_caller]
pub(crate) fn problem(report: &Report) -> Finding {
    let problems: Vec<_> = report.problems().cloned().collect();
    assert_eq!(problems.len(), 1, "{:#?}", report.findings);
    problems[0].clone()
}

/// Returns whether there is such a finding.
pub(crate) fn found(report: &Report, outcome: Severity, part: &str) -> bool {
    report.findings.iter().any(|f| f.outcome == outcome && f.what.contains(part))
}
