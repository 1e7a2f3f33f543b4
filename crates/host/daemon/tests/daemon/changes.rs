//! Changes of the configuration while packets flow.

use crate::Test;
use crate::attachment::TestAttachment;
use crate::fixture::{Fixture, wait_for};
use crate::operations::start;
use p4shield_daemon::status::{State, TenantStatus};
use p4shield_daemon::{Attachment, Daemon, api};
use p4shield_mediator::Reason;
use std::path::Path;
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = &[
    ("tenants_come_and_go_without_loss_for_others", tenants_come_and_go),
    ("vms_come_and_go_without_loss_for_others", vms_come_and_go),
    ("a_refused_program_undoes_the_whole_change", a_refused_program_undoes_the_whole_change),
    ("settings_change_without_a_new_p4_vm", settings_change_without_a_new_p4_vm),
    ("only_the_changed_tenants_p4_vm_is_restarted", only_the_changed_tenants_p4_vm_is_restarted),
    ("what_needs_a_restart_changes_nothing", what_needs_a_restart_changes_nothing),
    ("a_dry_run_reports_and_changes_nothing", a_dry_run_reports_and_changes_nothing),
    ("pages_move_to_other_paths", pages_move_to_other_paths),
    ("metrics_move_to_another_address", metrics_move_to_another_address),
    ("an_invalid_file_changes_nothing", an_invalid_file_changes_nothing),
];

/// A third tenant, with one VM at 10.0.0.3.
const CAROL: &str = r#"
[[tenant]]
name = "carol"
deadline = "10s"
[[tenant.vm]]
name = "mail"
addresses = ["10.0.0.3"]
ingress = ["drop.o"]
egress = ["pass.o"]
"#;

fn write(fixture: &Fixture, text: &str) {
    std::fs::write(fixture.at("p4shield.toml"), text).unwrap();
}

fn apply(daemon: &Daemon, fixture: &Fixture, text: &str) -> String {
    write(fixture, text);
    daemon.reload().unwrap_or_else(|e| panic!("{e}")).to_string()
}

fn refuse(daemon: &Daemon, fixture: &Fixture, text: &str) -> String {
    write(fixture, text);
    daemon.reload().expect_err("the change is refused")
}

fn tenant(daemon: &Daemon, name: &str) -> Option<TenantStatus> {
    daemon.status().tenants.into_iter().find(|t| t.name == name)
}

/// Asserts that no packet of alice's was lost and that she was not restarted.
fn alice_is_untouched(daemon: &Daemon, attachment: &TestAttachment, pid: Option<i32>) {
    let tally = attachment.tally(0);
    assert_eq!((tally.dropped.iter().sum::<u64>(), tally.let_through.iter().sum::<u64>()), (0, 0));
    assert_eq!(tenant(daemon, "alice").unwrap().pid, pid);
}

/// Waits until more of alice's packets have passed.
fn alice_passes(attachment: &TestAttachment) {
    let before = attachment.tally(0).passed;
    wait_for("alice's packets", || attachment.tally(0).passed > before + 1000);
}

fn tenants_come_and_go() {
    let fixture = Fixture::new("tenants");
    let text = fixture.text("drop");
    let (daemon, attachment) = start(&fixture, &text);
    let _traffic = attachment.traffic();
    let alice = tenant(&daemon, "alice").unwrap().pid;
    for round in 0..3 {
        let report = apply(&daemon, &fixture, &format!("{text}{CAROL}"));
        assert!(report.contains("+ tenant carol"), "{report}");
        let carol = tenant(&daemon, "carol").unwrap();
        assert_eq!(carol.state, State::Running, "round {round}");
        wait_for("carol's verdicts", || attachment.tally(2).dropped_for(Reason::Program) > 0);
        alice_passes(&attachment);
        let report = apply(&daemon, &fixture, &text);
        assert!(report.contains("- tenant carol"), "{report}");
        assert!(tenant(&daemon, "carol").is_none() && daemon.status().tenants.len() == 2);
        let pid = carol.pid.unwrap();
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "carol's P4 VM stayed behind");
        let advice = daemon.status().advice.join("\n");
        assert!(!advice.contains("tenant ,") && !advice.contains("carol"), "{advice}");
    }
    // Bob leaves; his pages do, too.
    let (only_alice, _) = text.split_once("[[tenant]]\nname = \"bob\"").unwrap();
    apply(&daemon, &fixture, only_alice);
    assert!(!fixture.at("db.info").exists() && !fixture.at("db.log").exists());
    alice_passes(&attachment);
    alice_is_untouched(&daemon, &attachment, alice);
}

fn vms_come_and_go() {
    let fixture = Fixture::new("vms");
    let text = fixture.text("drop");
    let (daemon, attachment) = start(&fixture, &text);
    let _traffic = attachment.traffic();
    let alice = tenant(&daemon, "alice").unwrap().pid;
    let web = "[[tenant.vm]]\nname = \"web\"";
    let db = "[[tenant.vm]]\nname = \"db\"";
    let app = "[[tenant.vm]]\nname = \"app\"\naddresses = [\"10.0.0.9\"]\ninfo_page = \"app.info\"\n\
               log_page = \"app.log\"\ningress = [\"drop.o\"]\n";
    let with = text.replace(web, &format!("[[tenant.vm]]\nname = \"a\"\naddresses = [\"10.0.0.8\"]\n{web}"));
    let with = with.replace(db, &format!("{app}{db}"));
    let bob = tenant(&daemon, "bob").unwrap().pid;
    for _ in 0..2 {
        let report = apply(&daemon, &fixture, &with);
        assert!(
            report.contains("+ tenant bob, vm app") && report.contains("+ tenant alice, vm a"),
            "{report}"
        );
        let names = |t: &str| tenant(&daemon, t).unwrap().vms.into_iter().map(|v| v.name).collect::<Vec<_>>();
        assert_eq!(
            (names("alice"), names("bob")),
            (vec!["web".into(), "a".into()], vec!["db".into(), "app".into()])
        );
        let app = tenant(&daemon, "bob").unwrap().vms.remove(1);
        assert!(app.ingress.program.is_some() && app.ingress.error.is_none(), "{app:?}");
        wait_for("records of the new VM's log", || tenant(&daemon, "bob").unwrap().vms[1].log_records > 0);
        alice_passes(&attachment);
        apply(&daemon, &fixture, &text);
        assert_eq!((names("alice"), names("bob")), (vec!["web".to_owned()], vec!["db".to_owned()]));
        assert!(!fixture.at("app.info").exists() && fixture.at("db.info").exists());
    }
    alice_passes(&attachment);
    alice_is_untouched(&daemon, &attachment, alice);
    assert_eq!(tenant(&daemon, "bob").unwrap().pid, bob);
}

fn a_refused_program_undoes_the_whole_change() {
    let fixture = Fixture::new("undone");
    let text = fixture.text("drop");
    let (daemon, attachment) = start(&fixture, &text);
    let _traffic = attachment.traffic();
    let before = daemon.status();
    let program = |status: &p4shield_daemon::status::Status| status.tenants[0].vms[0].ingress.program.clone();
    // Alice's new program is good, and so is carol's; bob's is refused.
    let changed = text.replacen("ingress = [\"pass.o\"]", "ingress = [\"drop.o\"]", 1);
    let (alice, bob) = changed.split_once("name = \"bob\"").unwrap();
    let changed = format!(
        "{alice}name = \"bob\"{}{CAROL}",
        bob.replace("egress = [\"pass.o\"]", "egress = [\"unsafe.o\"]")
    );
    let error = refuse(&daemon, &fixture, &changed);
    assert!(error.contains("bob db egress") && error.contains("nothing was changed"), "{error}");
    let now = daemon.status();
    assert_eq!((program(&now), now.tenants.len()), (program(&before), 2));
    assert!(tenant(&daemon, "carol").is_none());
    // A new tenant's program that is refused, and a file that is not there.
    let carol = CAROL.replace("drop.o", "unsafe.o");
    let error = refuse(&daemon, &fixture, &format!("{text}{carol}"));
    assert!(error.contains("tenant carol"), "{error}");
    let error = refuse(&daemon, &fixture, &text.replacen("pass.o", "missing.o", 1));
    assert!(error.contains("missing.o"), "{error}");
    alice_passes(&attachment);
    alice_is_untouched(&daemon, &attachment, before.tenants[0].pid);
    apply(&daemon, &fixture, &text);
}

fn settings_change_without_a_new_p4_vm() {
    let fixture = Fixture::new("settings");
    let text = fixture.text("drop");
    let (daemon, attachment) = start(&fixture, &text);
    let _traffic = attachment.traffic();
    let pids = || daemon.status().tenants.iter().map(|t| t.pid).collect::<Vec<_>>();
    let before = pids();
    let changes = [
        ("deadline = \"10s\"", "deadline = \"9s\""),
        ("deadline = \"10s\"", "deadline = \"10s\"\nmax_held = 100"),
        ("deadline = \"10s\"", "deadline = \"10s\"\nfail = \"pass\""),
        ("deadline = \"10s\"", "deadline = \"10s\"\ncpu_percent = 90"),
        ("[\"10.0.0.1\"]", "[\"10.0.0.1\", \"10.0.0.7\"]"),
        ("name = \"web\"", "name = \"web\"\niface_id = \"x\""),
    ];
    for (old, new) in changes {
        let report = apply(&daemon, &fixture, &text.replacen(old, new, 1));
        assert!(report.contains("tenant alice"), "{report}");
        alice_passes(&attachment);
    }
    alice_is_untouched(&daemon, &attachment, before[0]);
    // The policy of bob, whose P4 VM is killed.
    apply(&daemon, &fixture, &fixture.text("pass"));
    assert_eq!(pids(), before);
    let bob = rustix::process::Pid::from_raw(before[1].unwrap()).unwrap();
    rustix::process::kill_process(bob, rustix::process::Signal::KILL).unwrap();
    wait_for("bob's new policy", || attachment.tally(1).let_through.iter().sum::<u64>() > 0);
    wait_for("bob's next P4 VM", || tenant(&daemon, "bob").unwrap().state == State::Running);
    // Fewer header bytes: the channels are replaced.
    let report = apply(
        &daemon,
        &fixture,
        &text.replacen("deadline = \"10s\"", "deadline = \"10s\"\nheader_bytes = 64", 1),
    );
    assert!(report.contains("header_bytes"), "{report}");
    alice_passes(&attachment);
    assert_eq!(tenant(&daemon, "alice").unwrap().pid, before[0]);
}

fn only_the_changed_tenants_p4_vm_is_restarted() {
    let fixture = Fixture::new("restarted");
    let text = fixture.text("drop");
    let (daemon, attachment) = start(&fixture, &text);
    let _traffic = attachment.traffic();
    let alice = tenant(&daemon, "alice").unwrap().pid;
    for setting in ["budget = 100000", "memory = \"256MiB\"", "no_program = \"drop\"", "age_limit = \"3s\""] {
        let before = tenant(&daemon, "bob").unwrap().pid;
        let changed = text.replacen("deadline = \"5ms\"", &format!("deadline = \"5ms\"\n{setting}"), 1);
        let report = apply(&daemon, &fixture, &changed);
        assert!(report.contains("tenant bob: the P4 VM is restarted"), "{report}");
        wait_for("bob's next P4 VM", || {
            let bob = tenant(&daemon, "bob").unwrap();
            bob.state == State::Running && bob.pid != before
        });
        apply(&daemon, &fixture, &text);
        wait_for("bob's last P4 VM", || tenant(&daemon, "bob").unwrap().state == State::Running);
    }
    assert_eq!(tenant(&daemon, "bob").unwrap().restarts, 0, "none was unplanned");
    let passed = attachment.tally(1).passed;
    wait_for("bob's packets", || attachment.tally(1).passed > passed);
    alice_is_untouched(&daemon, &attachment, alice);
}

fn what_needs_a_restart_changes_nothing() {
    let fixture = Fixture::new("fixed");
    let text = fixture.text("drop");
    let (daemon, _attachment) = start(&fixture, &text);
    let changed = text.replace("socket = \"daemon.sock\"", "socket = \"other.sock\"");
    let error = refuse(&daemon, &fixture, &format!("{changed}{CAROL}"));
    assert!(error.contains("daemon.socket: ") && error.contains("restart the daemon"), "{error}");
    assert!(tenant(&daemon, "carol").is_none());
}

fn a_dry_run_reports_and_changes_nothing() {
    let fixture = Fixture::new("dry");
    let text = fixture.text("drop");
    let (daemon, _attachment) = start(&fixture, &text);
    let dry = || {
        let answer = api::ask(&fixture.at("daemon.sock"), &api::Command::Reload { dry_run: true });
        let Ok(api::Answer::Reloaded(report)) = answer else { panic!("{answer:?}") };
        report
    };
    assert_eq!(dry().to_string(), "the configuration is in force already");
    write(&fixture, &format!("{}{CAROL}", text.replace("5ms", "6ms")));
    assert_eq!(dry().changes, ["~ tenant bob: deadline = \"5ms\" -> \"6ms\"", "+ tenant carol"]);
    assert!(tenant(&daemon, "carol").is_none());
}

fn pages_move_to_other_paths() {
    let fixture = Fixture::new("moved");
    let text = fixture.text("drop");
    let (daemon, _attachment) = start(&fixture, &text);
    let before = tenant(&daemon, "bob").unwrap().pid;
    apply(&daemon, &fixture, &text.replace("db.info", "new.info"));
    assert!(fixture.at("new.info").exists() && fixture.at("db.log").exists());
    assert!(!fixture.at("db.info").exists(), "the old page is removed");
    assert_eq!(tenant(&daemon, "bob").unwrap().pid, before);
    assert!(tenant(&daemon, "bob").unwrap().vms[0].ingress.program.is_some());
    std::fs::create_dir(fixture.at("folder")).unwrap();
    std::fs::write(fixture.at("folder/x"), "").unwrap();
    let error = refuse(&daemon, &fixture, &text.replace("db.info", "folder"));
    assert!(error.contains("folder"), "{error}");
    assert!(fixture.at("new.info").exists());
    drop(daemon);
    for name in ["new.info", "db.log"] {
        assert!(!fixture.at(name).exists(), "{name} stayed behind");
    }
}

fn metrics_move_to_another_address() {
    let fixture = Fixture::new("metrics");
    let text = fixture.text("drop");
    let (daemon, _attachment) = start(&fixture, &text);
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (first, second) = (free(), free());
    let at = |address| text.replace("[daemon]", &format!("[daemon]\nmetrics = \"{address}\""));
    apply(&daemon, &fixture, &at(first));
    std::net::TcpStream::connect(first).unwrap();
    apply(&daemon, &fixture, &at(second));
    std::net::TcpStream::connect(second).unwrap();
    assert!(std::net::TcpStream::connect(first).is_err());
    apply(&daemon, &fixture, &text);
    assert!(std::net::TcpStream::connect(second).is_err());
}

fn an_invalid_file_changes_nothing() {
    let fixture = Fixture::new("invalid");
    let (daemon, attachment) = start(&fixture, &fixture.text("drop"));
    let error = refuse(&daemon, &fixture, "[[tenant]]\nname = 7\n");
    assert!(error.contains("2:8"), "{error}");
    let _traffic: crate::attachment::Traffic = Arc::clone(&attachment).traffic();
    alice_passes(&attachment);
    assert!(attachment.fault(0).is_none());
}
