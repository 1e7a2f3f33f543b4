//! Tenants at their own sockets: what they see, what they may do, and what they try beyond that.

use crate::Test;
use crate::fixture::{Fixture, wait_for};
use crate::operations::start;
use p4shield_daemon::api::{self, Answer, ApiError, Command, ObjectBytes};
use p4shield_daemon::status::Status;
use p4shield_daemon::{Daemon, ProblemKind, ProgramSource};
use p4shield_tables::view::Inspection;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_tenant_sees_its_own_vms_only", sees_its_own),
    ("a_tenant_replaces_its_own_programs_only", replaces_its_own),
    ("a_tenants_path_is_never_opened", no_path_is_opened),
    ("the_operators_requests_are_refused_at_a_tenants_socket", operators_requests),
    ("a_tenant_that_floods_its_socket_delays_no_other", flood),
    ("sockets_of_tenants_come_and_go_with_a_reload", come_and_go),
    ("a_tenants_socket_that_cannot_be_opened_is_a_problem", not_opened),
];

fn text(fixture: &Fixture) -> String {
    let socket = |text: String, tenant: &str| {
        let name = format!("name = \"{tenant}\"\n");
        text.replacen(&name, &format!("{name}socket = \"{tenant}.sock\"\n"), 1)
    };
    socket(socket(fixture.text("drop"), "alice"), "bob")
}

fn ask(fixture: &Fixture, tenant: &str, command: &Command) -> Result<Answer, ApiError> {
    api::ask(&fixture.at(&format!("{tenant}.sock")), command)
}

fn refusal(answer: Result<Answer, ApiError>) -> String {
    match answer {
        Err(ApiError::Failed(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn names() -> [String; 3] {
    ["alice", "web", "ingress"].map(str::to_owned)
}

fn load(fixture: &Fixture, object: &str) -> Command {
    let [tenant, vm, direction] = names();
    let contents = vec![ObjectBytes(std::fs::read(fixture.at(object)).unwrap())];
    Command::Load { tenant, vm, direction, objects: vec![object.into()], contents, temporary: false }
}

fn source(daemon: &Daemon) -> ProgramSource {
    daemon.status().tenants[0].vms[0].ingress.source.clone()
}

fn sees_its_own() {
    let fixture = Fixture::new("sees-its-own");
    let (_daemon, _attachment) = start(&fixture, &text(&fixture));
    let Ok(Answer::Status(status)) = ask(&fixture, "alice", &Command::Status) else { panic!("no status") };
    let names: Vec<_> = status.tenants.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["alice"]);
    let json = serde_json::to_string(&status).unwrap();
    assert!(!json.contains("bob") && !json.contains("\"db\""), "{json}");
    let Status { config, cgroup, pid, wires, switches, .. } = *status;
    assert_eq!((config.as_str(), cgroup.as_str(), pid), ("", "", 0), "the host's affairs");
    assert!(wires.is_empty() && switches.is_empty());
    let inspection = Inspection { vm: "db".to_owned(), ..Inspection::default() };
    let other = refusal(ask(&fixture, "alice", &Command::Inspect(inspection.clone())));
    assert!(other.contains("\"alice\" has no VM \"db\""), "{other}");
    let named = Inspection { tenant: Some("bob".to_owned()), ..inspection };
    let other = refusal(ask(&fixture, "alice", &Command::Inspect(named)));
    assert_eq!(other, "there is no tenant \"bob\"");
}

fn replaces_its_own() {
    let fixture = Fixture::new("replaces-its-own");
    let (daemon, attachment) = start(&fixture, &text(&fixture));
    let _traffic = attachment.traffic();
    let check = |object: &str| {
        let [tenant, vm, direction] = names();
        let contents = vec![ObjectBytes(std::fs::read(fixture.at(object)).unwrap())];
        Command::Check { tenant, vm, direction, contents }
    };
    let [tenant, vm, direction] = names();
    let Ok(Answer::Checked(digest)) = ask(&fixture, "alice", &check("drop.o")) else { panic!("refused") };
    let refused = refusal(ask(&fixture, "alice", &check("unsafe.o")));
    assert!(refused.contains("refused"), "{refused}");
    assert_eq!(source(&daemon), ProgramSource::Configuration, "a check changes nothing");
    let Ok(Answer::Loaded { program, .. }) = ask(&fixture, "alice", &load(&fixture, "drop.o")) else {
        panic!("not loaded")
    };
    assert_eq!(program, digest);
    assert!(matches!(source(&daemon), ProgramSource::Command(_)));
    wait_for("the new program", || attachment.tally(0).dropped_for(p4shield_mediator::Reason::Program) > 0);
    let history = Command::History { tenant: tenant.clone(), vm: vm.clone(), direction: direction.clone() };
    assert!(matches!(ask(&fixture, "alice", &history), Ok(Answer::History(records)) if records.len() == 1));
    let revert = Command::Revert { tenant, vm, direction };
    assert!(matches!(ask(&fixture, "alice", &revert), Ok(Answer::Loaded { .. })));
    // Bob, at his own socket, has no tenant alice.
    for command in [load(&fixture, "drop.o"), check("drop.o"), revert, history] {
        assert_eq!(refusal(ask(&fixture, "bob", &command)), "there is no tenant \"alice\"");
    }
    assert_eq!(source(&daemon), ProgramSource::Configuration);
}

fn no_path_is_opened() {
    let fixture = Fixture::new("no-path");
    let (daemon, _attachment) = start(&fixture, &text(&fixture));
    // Objects that the daemon could read, and that the tenant's request does not contain.
    let Command::Load { tenant, vm, direction, .. } = load(&fixture, "drop.o") else { return };
    let objects: Vec<PathBuf> = vec![fixture.at("drop.o")];
    let command = Command::Load { tenant, vm, direction, objects, contents: Vec::new(), temporary: false };
    let why = refusal(ask(&fixture, "alice", &command));
    assert!(why.contains("contains its objects"), "{why}");
    assert_eq!(source(&daemon), ProgramSource::Configuration);
}

fn operators_requests() {
    let fixture = Fixture::new("operators-requests");
    let (_daemon, _attachment) = start(&fixture, &text(&fixture));
    let file = fixture.at("p4shield.toml");
    let commands = [
        Command::Metrics,
        Command::Reload { dry_run: true },
        Command::Preview { file },
        Command::Upgrade { binary: None },
    ];
    for command in commands {
        let why = refusal(ask(&fixture, "alice", &command));
        assert!(why.contains("the operator's"), "{command:?}: {why}");
    }
    let mode = std::fs::metadata(fixture.at("alice.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "no other user was allowed");
}

fn flood() {
    let fixture = Fixture::new("tenant-flood");
    let (daemon, attachment) = start(&fixture, &text(&fixture));
    let _traffic = attachment.traffic();
    let mut stream = UnixStream::connect(fixture.at("bob.sock")).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut refused = 0;
    // It may make a hundred and fifty in the first second, and as many after each one without a core.
    for _ in 0..10_000 {
        stream.write_all(b"{\"command\":\"status\"}\n").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        refused += usize::from(answer.contains("too many requests"));
        if refused > 100 {
            break;
        }
    }
    assert!(refused > 100, "{refused} requests were refused");
    // Connections that stay silent, lines without end, and rubbish.
    let mut open: Vec<_> = (0..50).filter_map(|_| UnixStream::connect(fixture.at("bob.sock")).ok()).collect();
    let line = vec![b'x'; 8 << 20];
    for stream in &mut open {
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let _ = stream.write_all(&line);
    }
    let before = attachment.tally(0).passed;
    let asked = std::time::Instant::now();
    assert!(matches!(ask(&fixture, "alice", &Command::Status), Ok(Answer::Status(_))));
    assert!(api::status(&fixture.at("daemon.sock")).is_ok());
    assert!(asked.elapsed() < crate::fixture::PATIENCE);
    wait_for("alice's packets", || attachment.tally(0).passed > before + 1000);
    let alice = &daemon.status().tenants[0];
    assert_eq!((alice.restarts, attachment.tally(0).dropped.iter().sum::<u64>()), (0, 0));
}

fn come_and_go() {
    let fixture = Fixture::new("sockets-come-and-go");
    let plain = fixture.text("drop");
    let (daemon, _attachment) = start(&fixture, &plain);
    assert!(!fixture.at("alice.sock").exists());
    let reload = |text: &str| {
        std::fs::write(fixture.at("p4shield.toml"), text).unwrap();
        daemon.reload().unwrap_or_else(|e| panic!("{e}"));
    };
    reload(&text(&fixture));
    assert!(ask(&fixture, "alice", &Command::Status).is_ok());
    reload(&plain);
    assert!(!fixture.at("alice.sock").exists());
    assert!(matches!(ask(&fixture, "alice", &Command::Status), Err(ApiError::Connect { .. })));
    reload(&text(&fixture));
    drop(daemon);
    assert!(!fixture.at("alice.sock").exists() && !fixture.at("bob.sock").exists());
}

fn not_opened() {
    let fixture = Fixture::new("socket-not-opened");
    std::fs::write(fixture.at("alice.sock"), "precious").unwrap();
    let (daemon, _attachment) = start(&fixture, &text(&fixture));
    let status = daemon.status();
    let problem = status.problems.iter().find(|p| p.kind == ProblemKind::TenantSocket).expect("a problem");
    assert!(
        problem.text.contains("is not a socket") && problem.text.contains("p4shield reload"),
        "{problem:?}"
    );
    assert_eq!(std::fs::read_to_string(fixture.at("alice.sock")).unwrap(), "precious");
    assert!(ask(&fixture, "bob", &Command::Status).is_ok(), "other tenants are not affected");
    std::fs::remove_file(fixture.at("alice.sock")).unwrap();
    daemon.reload().unwrap();
    assert!(ask(&fixture, "alice", &Command::Status).is_ok());
}
