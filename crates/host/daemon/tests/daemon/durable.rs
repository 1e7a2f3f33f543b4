//! Programs that commands loaded, across reloads and restarts.

use crate::Test;
use crate::attachment::TestAttachment;
use crate::fixture::{Fixture, wait_for};
use crate::operations::{SELF, start};
use p4shield_daemon::api::{self, Answer, ApiError, Command};
use p4shield_daemon::status::{DirectionStatus, State};
use p4shield_daemon::{Daemon, ProgramAction, ProgramRecord, ProgramSource};
use p4shield_mediator::Reason;
use std::path::Path;

pub(crate) const TESTS: &[Test] = &[
    ("a_loaded_program_survives_reload_and_restart", a_loaded_program_survives),
    ("a_temporary_program_ends_with_the_next_reload", a_temporary_program_ends),
    ("an_unloaded_program_stays_unloaded_after_a_restart", an_unloaded_program_stays_unloaded),
    ("a_damaged_stored_program_is_refused_not_ignored", a_damaged_stored_program_is_refused),
];

fn text(fixture: &Fixture) -> String {
    fixture.text("drop").replace("[daemon]", "[daemon]\nstate = \"state\"")
}

fn restart(fixture: &Fixture, daemon: Daemon) -> Daemon {
    drop(daemon);
    let config = fixture.config(&text(fixture));
    let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
    let daemon = Daemon::start(config, attachment, Path::new(SELF)).unwrap();
    wait_for("two P4 VMs", || daemon.status().tenants.iter().all(|t| t.state == State::Running));
    daemon
}

/// Sends a command about alice's ingress.
fn ask(fixture: &Fixture, command: fn(String, String, String) -> Command) -> Result<Answer, ApiError> {
    let command = command("alice".to_owned(), "web".to_owned(), "ingress".to_owned());
    api::ask(&fixture.at("daemon.sock"), &command)
}

fn load(fixture: &Fixture, object: &str, temporary: bool) -> String {
    let objects = if object.is_empty() { Vec::new() } else { vec![fixture.at(object)] };
    let [tenant, vm, direction] = ["alice", "web", "ingress"].map(str::to_owned);
    let command = Command::Load { tenant, vm, direction, objects, contents: Vec::new(), temporary };
    match api::ask(&fixture.at("daemon.sock"), &command).unwrap() {
        Answer::Loaded { program, .. } => program,
        other => panic!("{other:?}"),
    }
}

fn ingress(daemon: &Daemon) -> DirectionStatus {
    daemon.status().tenants[0].vms[0].ingress.clone()
}

fn record(daemon: &Daemon) -> Option<ProgramRecord> {
    match ingress(daemon).source {
        ProgramSource::Command(record) => Some(record),
        ProgramSource::Configuration => None,
    }
}

fn a_loaded_program_survives() {
    let fixture = Fixture::new("durable");
    let (mut daemon, attachment) = start(&fixture, &text(&fixture));
    let configured = ingress(&daemon).program;
    let digest = load(&fixture, "drop.o", false);
    let traffic = attachment.traffic();
    wait_for("drops", || attachment.tally(0).dropped_for(Reason::Program) > 0);
    drop(traffic);
    let report = daemon.reload().unwrap();
    assert_eq!((report.replaced, report.unchanged), (0, 4));
    for _ in 0..2 {
        assert_eq!(
            (ingress(&daemon).program, configured != Some(digest.clone())),
            (Some(digest.clone()), true)
        );
        let record = record(&daemon).unwrap();
        assert_eq!((record.uid, record.program, record.temporary), (0, Some(digest.clone()), false));
        assert_eq!(record.objects[0].path, fixture.at("drop.o"));
        daemon = restart(&fixture, daemon);
    }
    // The file that was loaded may be gone.
    std::fs::remove_file(fixture.at("drop.o")).unwrap();
    daemon = restart(&fixture, daemon);
    assert_eq!(ingress(&daemon).program, Some(digest));
    ask(&fixture, |tenant, vm, direction| Command::Revert { tenant, vm, direction }).unwrap();
    assert_eq!((ingress(&daemon).program, record(&daemon)), (configured.clone(), None));
    daemon = restart(&fixture, daemon);
    assert_eq!((ingress(&daemon).program, record(&daemon)), (configured, None));
    let history = ask(&fixture, |tenant, vm, direction| Command::History { tenant, vm, direction });
    let Ok(Answer::History(records)) = history else { panic!("{history:?}") };
    let actions: Vec<_> = records.iter().map(|r| r.action).collect();
    assert_eq!(actions, [ProgramAction::Revert, ProgramAction::Load]);
    let other = |tenant: String, vm, _| Command::History { tenant, vm, direction: "sideways".to_owned() };
    assert!(ask(&fixture, other).is_err());
}

fn a_temporary_program_ends() {
    let fixture = Fixture::new("temporary");
    let (daemon, _attachment) = start(&fixture, &text(&fixture));
    let configured = ingress(&daemon).program;
    let digest = load(&fixture, "drop.o", true);
    assert_eq!(ingress(&daemon).program, Some(digest));
    assert!(record(&daemon).unwrap().temporary);
    let report = daemon.reload().unwrap();
    assert_eq!((report.replaced, ingress(&daemon).program, record(&daemon)), (1, configured, None));
}

fn an_unloaded_program_stays_unloaded() {
    let fixture = Fixture::new("unloaded");
    let (daemon, _attachment) = start(&fixture, &text(&fixture));
    assert_eq!(load(&fixture, "", false), "no program");
    daemon.reload().unwrap();
    let daemon = restart(&fixture, daemon);
    let ingress = ingress(&daemon);
    assert_eq!((ingress.program, ingress.error), (None, None));
    assert_eq!(record(&daemon).unwrap().action, ProgramAction::Unload);
}

fn a_damaged_stored_program_is_refused() {
    let fixture = Fixture::new("damaged");
    let (daemon, _attachment) = start(&fixture, &text(&fixture));
    load(&fixture, "drop.o", false);
    let folder = fixture.at("state").join("programs");
    let files = std::fs::read_dir(&folder).unwrap().flatten().map(|f| f.path());
    let object = files.into_iter().find(|p| p.extension().is_some_and(|e| e == "o")).unwrap();
    std::fs::write(object, "damaged").unwrap();
    let daemon = restart(&fixture, daemon);
    let ingress = ingress(&daemon);
    assert!(ingress.program.is_none() && ingress.error.is_some_and(|e| e.contains("is damaged")));
    assert!(daemon.reload().unwrap_err().contains("is damaged"));
    ask(&fixture, |tenant, vm, direction| Command::Revert { tenant, vm, direction }).unwrap();
    assert!(daemon.reload().is_ok());
}
