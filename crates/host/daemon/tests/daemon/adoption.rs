//! P4 VMs that outlive their daemon: it is killed or upgraded under traffic, and the next one adopts them.

use crate::Test;
use crate::fixture::{Fixture, wait_for};
use crate::switches::{ALICE, BOB, Daemon, Switch, status, text};
use p4shield_daemon::api::{self, Answer, Command};
use p4shield_daemon::status::{State, Status};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_killed_daemons_p4_vms_judge_on_and_are_adopted", killed),
    ("an_upgrade_costs_no_packet", upgraded),
    ("an_upgrade_that_would_not_start_is_refused", refused_upgrade),
    ("what_changed_while_there_was_no_daemon_is_applied", changed_meanwhile),
    ("p4_vms_end_if_no_daemon_adopts_them_in_time", expired),
    ("a_p4_vm_that_ended_with_its_daemon_is_replaced", ended_meanwhile),
    ("a_hung_p4_vm_is_ended_by_the_next_daemon", hung_meanwhile),
    ("a_p4_vm_whose_page_was_replaced_is_not_adopted", page_replaced),
    ("a_daemon_that_ends_in_order_leaves_nothing", nothing_left),
    ("a_new_switch_is_served_by_adopted_p4_vms", new_switch),
];

/// How often a test kills or upgrades the daemon.
pub(crate) fn rounds() -> u32 {
    p4shield_need::extent(3, 50)
}

fn pids(status: &Status) -> Vec<i32> {
    status.tenants.iter().filter_map(|t| t.pid).collect()
}

fn runs(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn folder(fixture: &Fixture) -> PathBuf {
    fixture.at("daemon.sock.p4vms")
}

/// Asserts that the daemon has adopted all P4 VMs, and that they serve both queues of the switch.
fn are_adopted(fixture: &Fixture, switch: &Switch, before: &[i32]) {
    let now = status(fixture);
    assert_eq!(pids(&now), before, "{now:#?}");
    for tenant in &now.tenants {
        assert!(tenant.adopted && tenant.restarts == 0 && tenant.error.is_none(), "{tenant:#?}");
        assert_eq!(tenant.channels, None);
    }
    wait_for("the switch", || status(fixture).switches.len() == 1);
    switch.is_served();
}

fn killed() {
    let fixture = Fixture::new("killed");
    fixture.config(&text(&fixture));
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let mut daemon = Daemon::start(&fixture);
    switch.is_served();
    let (before, lost) = (pids(&status(&fixture)), switch.counts.dropped(ALICE));
    for _ in 0..rounds() {
        daemon.kill();
        switch.is_served();
        switch.flows(BOB, 100);
        daemon = Daemon::start(&fixture);
        are_adopted(&fixture, &switch, &before);
        assert_eq!(switch.counts.dropped(ALICE), lost, "the policy applied to alice's packets");
    }
    // The adopted P4 VMs are as manageable as others.
    kill_process(Pid::from_raw(before[ALICE]).unwrap(), Signal::KILL).unwrap();
    wait_for("another P4 VM", || {
        let alice = &status(&fixture).tenants[ALICE];
        alice.state == State::Running && alice.restarts == 1 && !alice.adopted
    });
    switch.is_served();
    drop(daemon);
    assert!(pids_end(&before) && !folder(&fixture).exists());
}

fn pids_end(pids: &[i32]) -> bool {
    wait_for("the end of all P4 VMs", || !pids.iter().any(|pid| runs(*pid)));
    true
}

fn upgrade(fixture: &Fixture, binary: Option<PathBuf>) -> Result<Answer, String> {
    let answer = api::ask(&fixture.at("daemon.sock"), &Command::Upgrade { binary });
    answer.map_err(|e| e.to_string())
}

fn upgraded() {
    let fixture = Fixture::new("upgraded");
    fixture.config(&text(&fixture));
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let _daemon = Daemon::start(&fixture);
    switch.is_served();
    let (before, lost) = (status(&fixture), switch.counts.dropped(ALICE));
    let mut started = before.started_ms;
    for round in 0..rounds() {
        // The daemon's own path, and another one.
        let binary = (round % 2 == 1).then(|| std::env::current_exe().unwrap());
        let answer = upgrade(&fixture, binary);
        assert!(matches!(answer, Ok(Answer::Upgrading { .. })), "{answer:?}");
        wait_for("the next release", || {
            let now = api::status(&fixture.at("daemon.sock"));
            now.is_ok_and(|now| {
                now.started_ms > started && now.tenants.iter().all(|t| t.state == State::Running)
            })
        });
        let now = status(&fixture);
        assert_eq!(now.pid, before.pid, "a service manager sees no restart");
        started = now.started_ms;
        are_adopted(&fixture, &switch, &pids(&before));
        assert_eq!(switch.counts.dropped(ALICE), lost, "the policy applied to alice's packets");
    }
}

fn refused_upgrade() {
    let fixture = Fixture::new("refused-upgrade");
    let text = text(&fixture);
    fixture.config(&text);
    let _daemon = Daemon::start(&fixture);
    let started = status(&fixture).started_ms;
    let refuses = |binary: &str, why: &str| {
        let answer = upgrade(&fixture, Some(binary.into()));
        assert!(answer.as_ref().is_err_and(|text| text.contains(why)), "{answer:?}");
    };
    refuses("/nonexistent", "cannot execute /nonexistent");
    refuses("/bin/true", "speaks version none of the protocol");
    std::fs::write(fixture.at("p4shield.toml"), format!("{text}\nnonsense = 1\n")).unwrap();
    refuses(std::env::current_exe().unwrap().to_str().unwrap(), "would not start");
    assert_eq!(status(&fixture).started_ms, started, "the same daemon goes on");
}

fn changed_meanwhile() {
    let fixture = Fixture::new("changed-meanwhile");
    let text = text(&fixture);
    fixture.config(&text);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let daemon = Daemon::start(&fixture);
    switch.is_served();
    let before = status(&fixture);
    daemon.kill();
    // A tenant in front of the others, another program for bob, and another file behind alice's path.
    let carol = "[[tenant]]\nname = \"carol\"\n[[tenant.vm]]\nname = \"mail\"\naddresses = [\"10.0.0.3\"]\n";
    let bobs = text.rfind("ingress = [\"pass.o\"]").unwrap();
    let changed = format!("{}ingress = [\"drop.o\"]{}", &text[..bobs], &text[bobs + 20..]);
    std::fs::write(
        fixture.at("p4shield.toml"),
        changed.replacen("[[tenant]]", &format!("{carol}[[tenant]]"), 1),
    )
    .unwrap();
    let lost = switch.counts.dropped(ALICE);
    let _daemon = Daemon::start(&fixture);
    wait_for("the change", || status(&fixture).tenants.len() == 3);
    let now = status(&fixture);
    let names: Vec<_> = now.tenants.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["alice", "bob", "carol"], "tenants keep their numbers");
    assert_eq!(pids(&now)[..2], pids(&before));
    assert_eq!(switch.counts.dropped(ALICE), lost, "alice lost packets");
    let dropped = switch.counts.dropped(BOB);
    wait_for("bob's new program", || switch.counts.dropped(BOB) > dropped + 100);
    switch.is_served();
}

fn expired() {
    let fixture = Fixture::new("expired");
    fixture.config(&text(&fixture).replace("[daemon]\n", "[daemon]\nadoption_time = \"300ms\"\n"));
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let daemon = Daemon::start(&fixture);
    switch.is_served();
    let before = pids(&status(&fixture));
    daemon.kill();
    let dropped = switch.counts.dropped(ALICE);
    assert!(pids_end(&before));
    wait_for("alice's policy", || switch.counts.dropped(ALICE) > dropped + 100);
    let _daemon = Daemon::start(&fixture);
    let now = status(&fixture);
    assert!(now.tenants.iter().all(|t| !t.adopted), "{now:#?}");
    switch.is_served();
}

fn ended_meanwhile() {
    let fixture = Fixture::new("ended-meanwhile");
    fixture.config(&text(&fixture));
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let daemon = Daemon::start(&fixture);
    switch.is_served();
    let before = pids(&status(&fixture));
    daemon.kill();
    kill_process(Pid::from_raw(before[ALICE]).unwrap(), Signal::KILL).unwrap();
    assert!(pids_end(&before[..1]));
    let _daemon = Daemon::start(&fixture);
    let now = status(&fixture);
    assert!(!now.tenants[ALICE].adopted && now.tenants[BOB].adopted, "{now:#?}");
    switch.is_served();
    switch.flows(BOB, 100);
}

fn hung_meanwhile() {
    let fixture = Fixture::new("hung-meanwhile");
    fixture.config(&text(&fixture));
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let daemon = Daemon::start(&fixture);
    switch.is_served();
    let before = pids(&status(&fixture));
    daemon.kill();
    kill_process(Pid::from_raw(before[ALICE]).unwrap(), Signal::STOP).unwrap();
    let _daemon = Daemon::start(&fixture);
    let now = status(&fixture);
    assert!(!now.tenants[ALICE].adopted && now.tenants[BOB].adopted, "{now:#?}");
    assert!(pids_end(&before[..1]));
    switch.is_served();
}

fn page_replaced() {
    let fixture = Fixture::new("page-replaced");
    fixture.config(&text(&fixture));
    let daemon = Daemon::start(&fixture);
    let before = pids(&status(&fixture));
    daemon.kill();
    std::fs::remove_file(fixture.at("db.info")).unwrap();
    std::fs::write(fixture.at("db.info"), vec![0; 4096]).unwrap();
    let _daemon = Daemon::start(&fixture);
    let now = status(&fixture);
    assert!(now.tenants[ALICE].adopted && !now.tenants[BOB].adopted, "{now:#?}");
    assert!(pids_end(&before[BOB..]), "one P4 VM writes bob's log");
}

fn nothing_left() {
    let fixture = Fixture::new("nothing-left");
    fixture.config(&text(&fixture));
    let mut all = Vec::new();
    for _ in 0..2 {
        let daemon = Daemon::start(&fixture);
        all.extend(pids(&status(&fixture)));
        daemon.kill();
        // Adopts the pages, too, which the first daemon made and did not remove.
        let daemon = Daemon::start(&fixture);
        all.extend(pids(&status(&fixture)));
        // A client that asks nothing keeps a thread of the daemon.
        let _client = UnixStream::connect(fixture.at("daemon.sock")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop(daemon);
        assert!(pids_end(&all));
        let left = |path: &Path| {
            std::fs::read_dir(path).unwrap().flatten().map(|e| e.file_name()).collect::<Vec<_>>()
        };
        let left: Vec<_> = left(&fixture.folder)
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| !name.ends_with(".c") && !name.ends_with(".o") && !name.ends_with(".toml"))
            .filter(|name| !name.ends_with(".key") && !name.ends_with(".lock"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn new_switch() {
    let fixture = Fixture::new("new-switch");
    fixture.config(&text(&fixture));
    let daemon = Daemon::start(&fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.is_served();
    let before = pids(&status(&fixture));
    daemon.kill();
    drop(switch);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    let _daemon = Daemon::start(&fixture);
    are_adopted(&fixture, &switch, &before);
    assert_eq!(status(&fixture).tenants[ALICE].restarts, 0, "channels of lanes that are gone are no fault");
}
