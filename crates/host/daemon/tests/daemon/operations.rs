//! What operators do with a daemon.

use crate::Test;
use crate::attachment::TestAttachment;
use crate::fixture::{Fixture, wait_for};
use p4shield_daemon::api::{self, ApiError};
use p4shield_daemon::status::{State, TenantStatus};
use p4shield_daemon::{Attachment, Daemon, DaemonError};
use p4shield_mediator::Reason;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = &[
    ("status_and_metrics_report_tenants_and_counters", status_and_metrics),
    ("programs_are_replaced_by_command_and_by_reload", programs_are_replaced),
    ("no_program_skip_bypasses_the_p4_vm", no_program_skip),
    ("a_hung_p4_vm_delays_no_other_tenants_reload", a_p4_vm_that_hangs),
    ("a_missing_page_costs_its_tenant_only", a_missing_page),
    ("everything_is_removed_at_the_end", everything_is_removed),
    ("a_daemon_whose_socket_was_removed_still_ends", ends_without_its_socket),
    ("a_second_daemon_on_the_socket_is_refused", a_second_daemon_is_refused),
    ("a_p4_vm_that_does_not_start_is_reported_with_advice", a_p4_vm_that_does_not_start),
    ("a_p4_vm_that_does_not_start_always_says_why", says_why),
    ("a_p4_vm_that_fails_in_its_sandbox_leaves_no_process", a_p4_vm_that_fails_in_its_sandbox),
    ("a_program_that_is_refused_leaves_its_vm_without_one", a_refused_program_at_start),
];

pub(crate) const SELF: &str = "/proc/self/exe";

pub(crate) fn start(fixture: &Fixture, text: &str) -> (Daemon, Arc<TestAttachment>) {
    let config = fixture.config(text);
    let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
    let daemon = Daemon::start(config, attachment.clone(), Path::new(SELF)).unwrap();
    wait_for("two P4 VMs", || daemon.status().tenants.iter().all(|t| t.state == State::Running));
    (daemon, attachment)
}

fn status_and_metrics() {
    let fixture = Fixture::new("status");
    let (_daemon, attachment) = start(&fixture, &fixture.text("drop"));
    let traffic = attachment.traffic();
    let socket = fixture.at("daemon.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    wait_for("counters", || {
        let status = api::status(&socket).unwrap();
        status.tenants.iter().all(|t| t.vms[0].ingress.passed > 0 && t.vms[0].ingress.judged > 0)
    });
    drop(traffic);
    let status = api::status(&socket).unwrap();
    let (alice, bob) = (&status.tenants[0], &status.tenants[1]);
    assert_ne!(alice.uid, bob.uid, "each P4 VM is a user of its own");
    assert!(alice.pid.is_some() && alice.missing.is_empty() && alice.landlock_abi > 0, "{alice:?}");
    assert_eq!(alice.vms[0].ingress.program.as_ref().map(String::len), Some(64));
    assert_eq!((alice.vms[0].info.status.as_str(), bob.vms[0].info.status.as_str()), ("none", "unread"));
    assert!(!status.advice.iter().any(|a| a.contains("p4shield agent")), "{:?}", status.advice);
    wait_for("log records", || api::status(&socket).unwrap().tenants[1].vms[0].log_records > 0);
    let metrics = api::metrics(&socket).unwrap();
    assert!(metrics.contains("p4shield_p4vm_up{tenant=\"bob\"} 1"), "{metrics}");
    if Path::new("/proc/self/schedstat").exists() {
        assert!(alice.core_time.is_some_and(|time| time.ran_us > 0), "{alice:?}");
        assert!(metrics.contains("p4shield_p4vm_core_wait_microseconds_total{tenant=\"bob\"} "), "{metrics}");
    }
    // The P4 VMs run without privileges.
    let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let text = status(alice.pid.unwrap());
    assert!(text.contains("CapEff:\t0000000000000000") && text.contains("Seccomp:\t2"), "{text}");
}

fn ends_without_its_socket() {
    let fixture = Fixture::new("socketless");
    let (daemon, _board) = start(&fixture, &fixture.text("drop"));
    std::fs::remove_file(fixture.at("daemon.sock")).unwrap();
    let end = std::thread::spawn(move || drop(daemon));
    wait_for("the daemon's end", || end.is_finished());
}

fn programs_are_replaced() {
    let fixture = Fixture::new("programs");
    let (_daemon, attachment) = start(&fixture, &fixture.text("drop"));
    let _traffic = attachment.traffic();
    let socket = fixture.at("daemon.sock");
    let digest = api::load(&socket, "bob", "db", "ingress", &[fixture.at("drop.o")]).unwrap();
    wait_for("drops", || attachment.tally(1).dropped_for(Reason::Program) > 0);
    assert_eq!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest.clone()));

    let refused = api::load(&socket, "bob", "db", "ingress", &[fixture.at("unsafe.o")]);
    assert!(matches!(&refused, Err(ApiError::Failed(why)) if why.contains("refused")), "{refused:?}");
    for (tenant, vm, direction, file) in [
        ("carol", "db", "ingress", "pass.o"),
        ("bob", "web", "ingress", "pass.o"),
        ("bob", "db", "sideways", "pass.o"),
        ("bob", "db", "ingress", "missing.o"),
    ] {
        let failed = api::load(&socket, tenant, vm, direction, &[fixture.at(file)]);
        assert!(matches!(failed, Err(ApiError::Failed(_))), "{failed:?}");
    }
    assert_eq!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest.clone()));

    // A program that a command loaded stays until it is reverted.
    api::ask(&socket, &api::Command::Reload { dry_run: false }).unwrap();
    assert_eq!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest.clone()));
    let [tenant, vm, direction] = ["bob", "db", "ingress"].map(str::to_owned);
    api::ask(&socket, &api::Command::Revert { tenant, vm, direction }).unwrap();
    assert_ne!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest));
    // Programs that run already keep their tables and counters.
    let same = api::ask(&socket, &api::Command::Reload { dry_run: false }).unwrap();
    let api::Answer::Reloaded(same) = same else { panic!("{same:?}") };
    assert_eq!((same.replaced, same.unchanged), (0, 4));
    assert_eq!(attachment.tally(0).dropped.iter().sum::<u64>(), 0, "alice lost nothing");
}

fn no_program_skip() {
    let fixture = Fixture::new("skipped");
    let text =
        fixture.text("drop").replacen("name = \"alice\"\n", "name = \"alice\"\nno_program = \"skip\"\n", 1);
    let text = text.replacen("egress = [\"pass.o\"]\n", "", 1);
    let skipped = |tenant: usize| {
        p4shield_attach::mediator_config(&fixture.config(&text)).tenants[tenant].vms[0].skipped
    };
    assert_eq!([skipped(0), skipped(1)], [[false, true], [false; 2]]);
    let (_daemon, _board) = start(&fixture, &text);
    let web = || api::status(&fixture.at("daemon.sock")).unwrap().tenants[0].vms[0].clone();
    assert_eq!((web().ingress.skipped, web().egress.skipped), (false, true));
    // No packet would reach a program there, so it is refused.
    let refused = api::load(&fixture.at("daemon.sock"), "alice", "web", "egress", &[fixture.at("drop.o")]);
    assert!(matches!(&refused, Err(ApiError::Failed(why)) if why.contains("no_program")), "{refused:?}");
    assert_eq!(web().egress.program, None);
}

/// alice's P4 VM hangs; her programs are reloaded before bob's.
fn a_p4_vm_that_hangs() {
    let fixture = Fixture::new("hangs");
    let (daemon, _board) = start(&fixture, &fixture.text("drop"));
    // The daemon replaces her P4 VM after seconds, in which a busy machine may not have bob's programs.
    let is_first = |attempt: usize| {
        let other = ["drop.o", "pass.o"][attempt % 2];
        let new = fixture.text("drop").replace("ingress = [\"pass.o\"]", &format!("ingress = [\"{other}\"]"));
        std::fs::write(fixture.at("p4shield.toml"), new).unwrap();
        bobs_program_is_first(&daemon)
    };
    assert!((0..5).any(is_first), "bob's programs waited for alice's P4 VM");
}

/// Reloads programs while alice's P4 VM hangs. Returns whether bob's were in force before hers was replaced.
fn bobs_program_is_first(daemon: &Daemon) -> bool {
    let program = |tenant: usize| daemon.status().tenants[tenant].vms[0].ingress.program.clone();
    let before = program(1);
    let hung = daemon.status().tenants[0].clone();
    let pid = hung.pid.and_then(Pid::from_raw).unwrap();
    let is_first = std::thread::scope(|scope| {
        kill_process(pid, Signal::STOP).unwrap();
        let reload = scope.spawn(|| daemon.reload());
        wait_for("bob's program", || program(1).is_some() && program(1) != before);
        let alice = daemon.status().tenants[0].clone();
        // A reload that waited for alice would have replaced her P4 VM before bob's programs.
        let is_first = (alice.pid, alice.restarts) == (hung.pid, hung.restarts);
        // It may have been replaced meanwhile.
        let _ = kill_process(pid, Signal::KILL);
        let error = reload.join().unwrap().err().unwrap_or_default();
        assert!(!error.contains("bob"), "{error}");
        is_first
    });
    wait_for("a reload without errors", || daemon.reload().is_ok());
    wait_for("alice's program", || program(0) == program(1));
    is_first
}

fn a_missing_page() {
    let fixture = Fixture::new("pageless");
    let info = fixture.at("db.info");
    // A folder is in the way.
    std::fs::create_dir_all(info.join("occupied")).unwrap();
    let config = fixture.config(&fixture.text("drop"));
    let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
    let daemon = Daemon::start(config, attachment.clone(), Path::new(SELF)).unwrap();
    let _traffic = attachment.traffic();
    let tenants = || <[TenantStatus; 2]>::try_from(daemon.status().tenants).unwrap();
    wait_for("alice's P4 VM and bob's error", || {
        let [alice, bob] = tenants();
        alice.state == State::Running && bob.error.is_some()
    });
    let [_, bob] = tenants();
    assert_eq!((bob.state, bob.pid), (State::Starting, None));
    let advice = daemon.status().advice.join("\n");
    for part in ["tenant bob", "db.info", "free the path", "fail policy"] {
        assert!(advice.contains(part), "{part}: {advice}");
    }
    wait_for("bob's policy", || attachment.tally(1).dropped_for(Reason::NoChannel) > 0);
    assert_eq!(attachment.tally(1).passed, 0);
    wait_for("alice's packets", || attachment.tally(0).passed > 1000);
    // The operator frees the path; the daemon does the rest.
    std::fs::remove_dir_all(&info).unwrap();
    wait_for("bob's P4 VM", || tenants()[1].state == State::Running);
    wait_for("bob's packets", || attachment.tally(1).passed > 0);
    assert!(info.is_file());
}

fn everything_is_removed() {
    let fixture = Fixture::new("removed");
    let (daemon, attachment) = start(&fixture, &fixture.text("drop"));
    let pids: Vec<_> = daemon.status().tenants.iter().map(|t| t.pid.unwrap()).collect();
    assert!(fixture.at("db.info").exists() && fixture.at("db.log").exists());
    let mode = std::fs::metadata(fixture.at("db.info")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(daemon);
    for name in ["db.info", "db.log", "daemon.sock"] {
        assert!(!fixture.at(name).exists(), "{name} stayed behind");
    }
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "P4 VM {pid} stayed behind");
    }
    assert!(attachment.fault(0).is_none());
}

fn a_second_daemon_is_refused() {
    let fixture = Fixture::new("second");
    let (_daemon, _board) = start(&fixture, &fixture.text("drop"));
    let config = fixture.config(&fixture.text("drop"));
    let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
    let second = Daemon::start(config, attachment, Path::new(SELF));
    assert!(matches!(second, Err(DaemonError::Running(_))));
    assert!(fixture.at("db.info").exists(), "the first one's pages are left alone");
}

fn a_p4_vm_that_does_not_start() {
    let fixture = Fixture::new("false");
    let config = fixture.config(&fixture.text("drop"));
    let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
    let daemon = Daemon::start(config, attachment, Path::new("/bin/false")).unwrap();
    wait_for("the error", || daemon.status().tenants.iter().all(|t| t.error.is_some()));
    let status = daemon.status();
    assert!(status.tenants.iter().all(|t| t.state == State::Starting && t.pid.is_none()), "{status:?}");
    assert!(status.advice.iter().any(|a| a.contains("fail policy")), "{:?}", status.advice);
}

/// Returns how many children of this process have ended and were not reaped.
fn zombies() -> usize {
    let text = |pid: std::fs::DirEntry| std::fs::read_to_string(pid.path().join("stat")).unwrap_or_default();
    let ours = format!("Z {} ", std::process::id());
    let stats = std::fs::read_dir("/proc").unwrap().flatten().map(text);
    stats.filter(|s| s.rsplit(") ").next().is_some_and(|s| s.starts_with(&ours))).count()
}

/// Starts daemons whose P4 VMs fail. Asserts that each of them says this.
fn fails_with(why: &str, fixture: &Fixture, text: &str, binary: &Path) {
    let config = fixture.config(text);
    for round in 0..4 {
        let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
        let daemon = Daemon::start(config.clone(), attachment, binary).unwrap();
        wait_for("the error", || daemon.status().tenants.iter().all(|t| t.error.is_some()));
        for tenant in daemon.status().tenants {
            let said = tenant.error.unwrap();
            assert!(said.contains(why), "round {round}: {said}");
        }
        let advice = daemon.status().advice;
        assert!(advice.iter().any(|a| a.contains(why)), "{advice:?}");
        drop(daemon);
        assert_eq!(zombies(), 0, "round {round}");
    }
}

/// The process writes its reason after it has closed the socket.
fn says_why() {
    let fixture = Fixture::new("why");
    let text = fixture.text("drop");
    let absent = text.replace("stall =", "cpu = 999\nstall =");
    fails_with("cannot bind the worker to core 999", &fixture, &absent, Path::new(SELF));
    // The kernel refuses user namespaces in a chroot.
    let root = fixture.at("root");
    std::fs::create_dir(&root).unwrap();
    let root = root.display();
    let inside = format!("mount --rbind / {root} && exec chroot {root} \"$0\" p4vm \"$@\"");
    let exe = std::env::current_exe().unwrap();
    let line = format!("exec unshare --mount sh -c '{inside}' {} \"$@\"", exe.display());
    let chrooted = script(&fixture, "in-a-chroot", &line);
    fails_with("allow_missing = [\"user-namespace\"]", &fixture, &text, &chrooted);
    let silent = script(&fixture, "silent", "exit 3");
    fails_with("it wrote no reason (exit status: 3)", &fixture, &text, &silent);
}

/// Makes a program that is started in place of a P4 VM, without the word `p4vm`.
fn script(fixture: &Fixture, name: &str, line: &str) -> PathBuf {
    let path = fixture.at(name);
    std::fs::write(&path, format!("#!/bin/sh\nshift\n{line}\n")).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn a_p4_vm_that_fails_in_its_sandbox() {
    let fixture = Fixture::new("strays");
    let exe = std::env::current_exe().unwrap();
    let starved = script(&fixture, "starved", &format!("exec {} p4vm-starved \"$@\"", exe.display()));
    let config = fixture.config(&fixture.text("drop"));
    let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
    let daemon = Daemon::start(config, attachment, &starved).unwrap();
    wait_for("the error", || daemon.status().tenants.iter().all(|t| t.error.is_some()));
    let mut seen = 0;
    wait_for("several attempts without a pile of zombies", || {
        seen += 1;
        seen > 150 && zombies() <= 2
    });
    assert!(daemon.status().tenants.iter().all(|t| t.pid.is_none()), "{:?}", daemon.status());
}

fn a_refused_program_at_start() {
    let fixture = Fixture::new("refused");
    let text = fixture.text("drop").replacen("ingress = [\"pass.o\"]", "ingress = [\"unsafe.o\"]", 1);
    // The program is configured, so the tenant's fail policy applies and not no_program.
    let text = text.replacen("name = \"alice\"\n", "name = \"alice\"\nno_program = \"pass\"\n", 1);
    let (daemon, attachment) = start(&fixture, &text);
    let _traffic = attachment.traffic();
    let alice = daemon.status().tenants[0].vms[0].clone();
    assert!(alice.ingress.program.is_none() && alice.ingress.error.is_some(), "{alice:?}");
    assert!(alice.egress.program.is_some());
    wait_for("drops", || daemon.status().tenants[0].vms[0].ingress.failed > 0);
    assert_eq!(daemon.status().tenants[0].vms[0].ingress.passed, 0);
    assert!(daemon.status().advice.iter().any(|a| a.contains("p4shield verify")));
}
