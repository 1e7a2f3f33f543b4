//! A tenant's QEMU is an attacker's (`stand_in`), beside a tenant whose P4 VM is a process: all packets of
//! the other tenant pass, status names the attacker's tenant with a remedy, logs stay short, and a new
//! machine judges again without intervention.

use crate::Test;
use crate::attacks::{BOB, Cloud};
use crate::fixture::{Fixture, wait_for};
use crate::stand_in::{ATTACK, Attack};
use p4shield_daemon::{ProblemKind, api};
use p4shield_qemu::{Accelerator, Guest, QemuVersion, Request, options};
use p4shield_testbed::{leftover, process};
use p4shield_vmm::{Machine, Options};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use tempfile::TempDir;

pub(crate) const TESTS: &[Test] = &[
    ("a_stopped_qemu_costs_its_tenant_only", || attacked(Attack::Stop, "")),
    ("a_qemu_that_floods_its_console_costs_its_tenant_only", || attacked(Attack::Console, "attack")),
    ("a_qemu_that_floods_its_lines_costs_its_tenant_only", || attacked(Attack::Lines, "")),
    ("a_qemu_that_talks_nonsense_costs_its_tenant_only", || {
        attacked(Attack::Nonsense, "a frame on the line to the virtual machine has 4294967295 bytes")
    }),
    ("a_qemu_that_overwrites_its_regions_costs_its_tenant_only", || attacked(Attack::Regions, "")),
    ("a_qemu_that_renounces_its_end_costs_its_tenant_only", || attacked(Attack::Outlive, "")),
];

/// Most bytes that the daemon logs for an attack with all the machines that it replaces meanwhile.
const MAX_LOG: usize = 64 << 10;

/// Everything that the daemon of this process logged.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs a P4 VM in a virtual machine, as `p4shield vmm` does. The stand-in boots nothing.
pub(crate) fn vmm(arguments: &[String]) -> Result<(), String> {
    let value = |name: &str| {
        let at = arguments.iter().position(|a| a == name).expect("an option");
        arguments[at + 1].clone()
    };
    let request = Request {
        guest: Guest::Plain,
        version: QemuVersion::new(9, 1, 0),
        accelerator: Accelerator::Tcg,
        memory: value("--memory").parse().unwrap(),
        processors: value("--processors").parse().unwrap(),
        firmware: None,
    };
    let options = options(&request).map_err(|e| e.to_string())?;
    let nothing = || "/dev/null".into();
    let qemu = value("--qemu").into();
    let machine = Machine { qemu, options, kernel: nothing(), initramfs: nothing(), arguments: Vec::new() };
    let control = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let options = Options { uid: value("--uid").parse().unwrap(), machine, write_combining: false };
    p4shield_vmm::run(control, &options).map_err(|e| e.to_string())
}

/// Makes a folder with a QEMU, into which the user of the machine can look.
fn qemu() -> TempDir {
    let folder = leftover::folder("qemu").unwrap();
    let readable = || PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable()).unwrap();
    let (binary, script) = (folder.path().join("tests"), folder.path().join("qemu"));
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let place = folder.path().display();
    std::fs::write(&script, format!("#!/bin/sh\nexec {} qemu {place} \"$@\"\n", binary.display())).unwrap();
    [binary, script].iter().for_each(|file| std::fs::set_permissions(file, readable()).unwrap());
    folder
}

/// Attacks from the machine of bob's P4 VM. Status then quotes `said`.
fn attacked(attack: Attack, said: &str) {
    let subscriber = tracing_subscriber::fmt().with_writer(|| Log).with_ansi(false);
    // The first test of this process decides.
    let _ = subscriber.try_init();
    let (fixture, qemu) = (Fixture::new(&format!("hostile-{attack:?}")), qemu());
    let machine = format!(
        "[machine]\nimage = \"image\"\naccelerator = \"tcg\"\nqemu = \"{}\"\n",
        qemu.path().join("qemu").display()
    );
    // Other users than those of the tests beside.
    let daemon = format!("[daemon]\nfirst_uid = {}\n", 0x1800_0000 + std::process::id() % 2048 * 0x1_0000);
    let text = fixture.text("drop").replace("stall = \"30s\"\n", "").replace("[daemon]\n", &daemon);
    let bobs = "name = \"bob\"\ncompartment = \"vm\"\nmemory = \"256MiB\"\n";
    let cloud = Cloud::with(fixture, &(machine + &text.replace("name = \"bob\"\n", bobs)));
    let socket = cloud.fixture.at("daemon.sock");
    let (logged, mut processes) = (LOG.lock().unwrap().len(), Vec::new());
    cloud.survives(|pid| {
        processes = process::children(pid.as_raw_pid().into());
        std::fs::write(qemu.path().join(ATTACK), format!("{attack:?}")).unwrap();
        wait_for("the problem in status", || {
            let status = api::status(&socket).unwrap();
            let names = |line: &&String| line.starts_with("tenant bob: its P4 VM does not run");
            let line = status.advice.iter().find(names).cloned().unwrap_or_default();
            let mut alices = status.problems.iter().filter(|p| p.tenant.as_deref() == Some("alice"));
            // The switch of these tests has no ports.
            assert!(alices.all(|p| p.kind == ProblemKind::VmWithoutPort), "{:?}", status.problems);
            ["remove the tenant", "fail policy", said].iter().all(|part| line.contains(part))
        });
        std::fs::remove_file(qemu.path().join(ATTACK)).unwrap();
    });
    assert!(!processes.is_empty(), "QEMU ran");
    wait_for("the end of QEMU", || !processes.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()));
    let error = cloud.daemon.status().tenants[BOB].error.clone().unwrap_or_default();
    assert!(error.len() < 10_000 && !error.contains(['\x1b', '\x07']), "{error:?}");
    let log = LOG.lock().unwrap().split_off(logged);
    assert!(log.len() < MAX_LOG, "{} bytes:\n{}", log.len(), String::from_utf8_lossy(&log));
    println!("{attack:?}: {} bytes of log; last error: {error}", log.len());
}
