//! What an operator does with a daemon.

use crate::Test;
use crate::board::Board;
use crate::scene::{Scene, wait_for};
use p4shield_daemon::api::{self, ApiError};
use p4shield_daemon::status::{State, TenantStatus};
use p4shield_daemon::{Attachment, Daemon, DaemonError};
use p4shield_mediator::Reason;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = &[
    ("status_and_metrics_tell_how_everything_is", status_and_metrics),
    ("programs_are_replaced_by_command_and_by_reload", programs_are_replaced),
    (
        "nobody_is_asked_where_there_is_no_program_and_the_tenant_says_so",
        nobody_is_asked_where_there_is_no_program,
    ),
    ("a_p4_vm_that_hangs_holds_nobody_elses_programs_up", a_p4_vm_that_hangs),
    ("a_page_that_cannot_be_made_costs_its_tenant_only", a_page_that_cannot_be_made),
    ("everything_is_removed_at_the_end", everything_is_removed),
    ("a_daemon_whose_socket_was_removed_still_ends", ends_without_its_socket),
    ("a_second_daemon_on_the_socket_is_refused", a_second_daemon_is_refused),
    ("a_p4_vm_that_does_not_start_is_told_with_advice", a_p4_vm_that_does_not_start),
    ("a_p4_vm_that_fails_in_its_sandbox_leaves_nothing_behind", a_p4_vm_that_fails_in_its_sandbox),
    ("a_program_that_is_refused_leaves_its_vm_without_one", a_refused_program_at_start),
];

const SELF: &str = "/proc/self/exe";

fn start(scene: &Scene, text: &str) -> (Daemon, Arc<Board>) {
    let config = scene.config(text);
    let board = Board::new(&config.mediator());
    let daemon = Daemon::start(config, board.clone(), Path::new(SELF)).unwrap();
    wait_for("two P4 VMs", || daemon.status().tenants.iter().all(|t| t.state == State::Running));
    (daemon, board)
}

fn status_and_metrics() {
    let scene = Scene::new("status");
    let (_daemon, board) = start(&scene, &scene.text("drop"));
    let traffic = board.traffic();
    let socket = scene.at("daemon.sock");
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
    assert_eq!((alice.vms[0].info.status.as_str(), bob.vms[0].info.status.as_str()), ("none", "missing"));
    assert!(status.advice.iter().any(|a| a.contains("p4shield agent")), "{:?}", status.advice);
    wait_for("log records", || api::status(&socket).unwrap().tenants[1].vms[0].log_records > 0);
    let metrics = api::metrics(&socket).unwrap();
    assert!(metrics.contains("p4shield_p4vm_up{tenant=\"bob\"} 1"), "{metrics}");
    // The processes are not who started them, and not each other.
    let status = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let text = status(alice.pid.unwrap());
    assert!(text.contains("CapEff:\t0000000000000000") && text.contains("Seccomp:\t2"), "{text}");
}

fn ends_without_its_socket() {
    let scene = Scene::new("socketless");
    let (daemon, _board) = start(&scene, &scene.text("drop"));
    std::fs::remove_file(scene.at("daemon.sock")).unwrap();
    let end = std::thread::spawn(move || drop(daemon));
    wait_for("the daemon's end", || end.is_finished());
}

fn programs_are_replaced() {
    let scene = Scene::new("programs");
    let (_daemon, board) = start(&scene, &scene.text("drop"));
    let _traffic = board.traffic();
    let socket = scene.at("daemon.sock");
    let digest = api::load(&socket, "bob", "db", "ingress", &[scene.at("drop.o")]).unwrap();
    wait_for("drops", || board.tally(1).dropped_for(Reason::Program) > 0);
    assert_eq!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest.clone()));

    let refused = api::load(&socket, "bob", "db", "ingress", &[scene.at("unsafe.o")]);
    assert!(matches!(&refused, Err(ApiError::Failed(why)) if why.contains("refused")), "{refused:?}");
    for (tenant, vm, direction, file) in [
        ("carol", "db", "ingress", "pass.o"),
        ("bob", "web", "ingress", "pass.o"),
        ("bob", "db", "sideways", "pass.o"),
        ("bob", "db", "ingress", "missing.o"),
    ] {
        let failed = api::load(&socket, tenant, vm, direction, &[scene.at(file)]);
        assert!(matches!(failed, Err(ApiError::Failed(_))), "{failed:?}");
    }
    assert_eq!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest.clone()));

    // The configuration's program comes back with a reload.
    api::ask(&socket, &api::Command::Reload).unwrap();
    assert_ne!(api::status(&socket).unwrap().tenants[1].vms[0].ingress.program, Some(digest));
    // What runs already is left alone, with its tables and counters.
    let same = api::ask(&socket, &api::Command::Reload).unwrap();
    assert_eq!(same, api::Answer::Done("0 programs replaced, 4 as before".to_owned()));
    std::fs::write(scene.at("p4shield.toml"), scene.text("pass")).unwrap();
    let error = api::ask(&socket, &api::Command::Reload).unwrap_err().to_string();
    assert!(error.contains("restart the daemon"), "{error}");
    assert_eq!(board.tally(0).dropped.iter().sum::<u64>(), 0, "alice lost nothing");
}

fn nobody_is_asked_where_there_is_no_program() {
    let scene = Scene::new("skipped");
    let text =
        scene.text("drop").replacen("name = \"alice\"\n", "name = \"alice\"\nno_program = \"skip\"\n", 1);
    let text = text.replacen("egress = [\"pass.o\"]\n", "", 1);
    let skipped = |tenant: usize| scene.config(&text).mediator().tenants[tenant].vms[0].skipped;
    assert_eq!([skipped(0), skipped(1)], [[false, true], [false; 2]]);
    let (_daemon, _board) = start(&scene, &text);
    let web = || api::status(&scene.at("daemon.sock")).unwrap().tenants[0].vms[0].clone();
    assert_eq!((web().ingress.skipped, web().egress.skipped), (false, true));
    // A program there would be asked by nobody, which is said rather than done.
    let refused = api::load(&scene.at("daemon.sock"), "alice", "web", "egress", &[scene.at("drop.o")]);
    assert!(matches!(&refused, Err(ApiError::Failed(why)) if why.contains("no_program")), "{refused:?}");
    assert_eq!(web().egress.program, None);
}

/// alice's, whose turn is before bob's.
fn a_p4_vm_that_hangs() {
    let scene = Scene::new("hangs");
    let (daemon, _board) = start(&scene, &scene.text("drop"));
    let program = |tenant: usize| daemon.status().tenants[tenant].vms[0].ingress.program.clone();
    let before = program(1);
    let new = scene.text("drop").replace("ingress = [\"pass.o\"]", "ingress = [\"drop.o\"]");
    std::fs::write(scene.at("p4shield.toml"), new).unwrap();
    let hung = daemon.status().tenants[0].pid.and_then(Pid::from_raw).unwrap();
    std::thread::scope(|scope| {
        kill_process(hung, Signal::STOP).unwrap();
        let reload = scope.spawn(|| daemon.reload());
        wait_for("bob's program", || program(1).is_some() && program(1) != before);
        let alice = daemon.status().tenants[0].clone();
        kill_process(hung, Signal::KILL).unwrap();
        // Whoever waits for alice first sees her P4 VM replaced before bob's programs change.
        assert_eq!((alice.pid, alice.restarts), (Some(hung.as_raw_pid()), 0), "{:?}", alice.error);
        let told = reload.join().unwrap().err().unwrap_or_default();
        assert!(!told.contains("bob"), "{told}");
    });
    wait_for("a reload with all well", || daemon.reload().is_ok());
    wait_for("alice's program", || program(0) == program(1));
}

fn a_page_that_cannot_be_made() {
    let scene = Scene::new("pageless");
    let info = scene.at("db.info");
    // Of something else.
    std::fs::create_dir_all(info.join("somebody's")).unwrap();
    let config = scene.config(&scene.text("drop"));
    let board = Board::new(&config.mediator());
    let daemon = Daemon::start(config, board.clone(), Path::new(SELF)).unwrap();
    let _traffic = board.traffic();
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
    wait_for("bob's policy", || board.tally(1).dropped_for(Reason::NoChannel) > 0);
    assert_eq!(board.tally(1).passed, 0);
    wait_for("alice's packets", || board.tally(0).passed > 1000);
    // The operator sees to it, and that is all.
    std::fs::remove_dir_all(&info).unwrap();
    wait_for("bob's P4 VM", || tenants()[1].state == State::Running);
    wait_for("bob's packets", || board.tally(1).passed > 0);
    assert!(info.is_file());
}

fn everything_is_removed() {
    let scene = Scene::new("removed");
    let (daemon, board) = start(&scene, &scene.text("drop"));
    let pids: Vec<_> = daemon.status().tenants.iter().map(|t| t.pid.unwrap()).collect();
    assert!(scene.at("db.info").exists() && scene.at("db.log").exists());
    let mode = std::fs::metadata(scene.at("db.info")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(daemon);
    for name in ["db.info", "db.log", "daemon.sock"] {
        assert!(!scene.at(name).exists(), "{name} stayed behind");
    }
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "P4 VM {pid} stayed behind");
    }
    assert!(board.fault(0).is_none());
}

fn a_second_daemon_is_refused() {
    let scene = Scene::new("second");
    let (_daemon, _board) = start(&scene, &scene.text("drop"));
    let config = scene.config(&scene.text("drop"));
    let board = Board::new(&config.mediator());
    let second = Daemon::start(config, board, Path::new(SELF));
    assert!(matches!(second, Err(DaemonError::Running(_))));
    assert!(scene.at("db.info").exists(), "the first one's pages are left alone");
}

fn a_p4_vm_that_does_not_start() {
    let scene = Scene::new("false");
    let config = scene.config(&scene.text("drop"));
    let board = Board::new(&config.mediator());
    let daemon = Daemon::start(config, board, Path::new("/bin/false")).unwrap();
    wait_for("the error", || daemon.status().tenants.iter().all(|t| t.error.is_some()));
    let status = daemon.status();
    assert!(status.tenants.iter().all(|t| t.state == State::Starting && t.pid.is_none()), "{status:?}");
    assert!(status.advice.iter().any(|a| a.contains("fail policy")), "{:?}", status.advice);
}

fn a_p4_vm_that_fails_in_its_sandbox() {
    let scene = Scene::new("strays");
    let starved = scene.at("starved");
    let exe = std::env::current_exe().unwrap();
    std::fs::write(&starved, format!("#!/bin/sh\nshift\nexec {} p4vm-starved \"$@\"\n", exe.display()))
        .unwrap();
    std::fs::set_permissions(&starved, PermissionsExt::from_mode(0o755)).unwrap();
    let config = scene.config(&scene.text("drop"));
    let board = Board::new(&config.mediator());
    let daemon = Daemon::start(config, board, &starved).unwrap();
    wait_for("the error", || daemon.status().tenants.iter().all(|t| t.error.is_some()));
    // Children of this process that ended and that nobody has asked about.
    let zombies = || {
        let text =
            |pid: std::fs::DirEntry| std::fs::read_to_string(pid.path().join("stat")).unwrap_or_default();
        let ours = format!("Z {} ", std::process::id());
        let stats = std::fs::read_dir("/proc").unwrap().flatten().map(text);
        stats.filter(|s| s.rsplit(") ").next().is_some_and(|s| s.starts_with(&ours))).count()
    };
    let mut seen = 0;
    wait_for("some tries, and none too many dead", || {
        seen += 1;
        seen > 400 && zombies() <= 2
    });
    assert!(daemon.status().tenants.iter().all(|t| t.pid.is_none()), "{:?}", daemon.status());
}

fn a_refused_program_at_start() {
    let scene = Scene::new("refused");
    let text = scene.text("drop").replacen("ingress = [\"pass.o\"]", "ingress = [\"unsafe.o\"]", 1);
    let (daemon, board) = start(&scene, &text);
    let _traffic = board.traffic();
    let alice = daemon.status().tenants[0].vms[0].clone();
    assert!(alice.ingress.program.is_none() && alice.ingress.error.is_some(), "{alice:?}");
    assert!(alice.egress.program.is_some());
    wait_for("drops", || daemon.status().tenants[0].vms[0].ingress.failed > 0);
    assert!(daemon.status().advice.iter().any(|a| a.contains("p4shield verify")));
}
