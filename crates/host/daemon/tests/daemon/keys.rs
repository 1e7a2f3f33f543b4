//! Rotation of keys while the daemon runs.

use crate::Test;
use crate::fixture::{Fixture, wait_for};
use crate::operations::start;
use crate::switches;
use crate::wires::{Cloud, Flow};
use p4shield_abi::info::Snapshot;
use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_agent::audit::expect::ExpectedProgram;
use p4shield_agent::audit::finding::{Notice, exit_code};
use p4shield_agent::config::VmConfig;
use p4shield_agent::{AgentConfig, AuditConfig, Event, Summary, run_agent, run_audit};
use p4shield_channel::{PageWriter, SharedMemory};
use p4shield_daemon::api::{self, Answer, ApiError, Command};
use p4shield_daemon::status::{KeyStatus, State, VmStatus};
use p4shield_daemon::{Daemon, KeyOrder, KeyRotation, ProblemKind};
use p4shield_seal::{Epoch, Identity, InfoSealer, Now, PreviousKey, TenantKey};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_key_rotates_by_command_without_a_restart", a_key_rotates_by_command),
    ("a_changed_key_file_rotates_at_a_reload", a_changed_key_file_rotates_at_a_reload),
    ("a_window_survives_the_p4_vm_and_the_daemon", a_window_survives),
    ("a_window_that_ends_before_the_agent_follows_is_a_problem", an_agent_that_stays_behind),
    ("a_second_rotation_waits_or_ends_both_keys", a_second_rotation_waits),
    ("a_stolen_key_ends_at_any_time_without_an_agent", a_stolen_key_ends),
    ("vms_with_keys_of_their_own_rotate_alone", vms_with_keys_of_their_own),
    ("a_rotation_goes_on_in_an_adopted_p4_vm", a_rotation_is_adopted),
    ("a_key_rotates_under_traffic_and_the_auditor_finds_nothing", a_key_rotates_under_traffic),
];

/// Bob's database VM, whose agent publishes.
struct Agent {
    sealer: InfoSealer,
    page: PageWriter,
}

const DB: Identity<'_> = Identity { tenant: "bob", vm: "db" };

impl Agent {
    fn new(fixture: &Fixture, key: &TenantKey) -> Self {
        let page = SharedMemory::open_file(&fixture.at("db.info"), INFO_PAGE_SIZE).unwrap();
        let page = PageWriter::new(page, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE).unwrap();
        Self { sealer: InfoSealer::new(key, &DB, Epoch::from_clock().unwrap()), page }
    }

    fn publish(&mut self) {
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = Now::read().real_ns;
        let sealed = self.sealer.seal(&snapshot);
        self.page.publish(sealed.epoch, sealed.counter, sealed.bytes).unwrap();
    }

    /// Publishes until the daemon shows this.
    fn until(&mut self, daemon: &Daemon, what: &str, mut shown: impl FnMut(&VmStatus) -> bool) {
        wait_for(what, || {
            self.publish();
            shown(&db(daemon))
        });
    }

    fn is_known(&mut self, daemon: &Daemon) {
        let before = db(daemon).info.accepted;
        self.until(daemon, "the agent's information", |vm| vm.info.accepted > before + 1);
    }
}

fn db(daemon: &Daemon) -> VmStatus {
    daemon.status().tenants.into_iter().find(|t| t.name == "bob").unwrap().vms.remove(0)
}

fn keys(daemon: &Daemon) -> KeyStatus {
    db(daemon).keys.unwrap_or_default()
}

fn pid(daemon: &Daemon) -> i32 {
    daemon.status().tenants[1].pid.unwrap()
}

fn load(fixture: &Fixture) -> TenantKey {
    TenantKey::load(&fixture.at("bob.key")).unwrap()
}

fn rotate(fixture: &Fixture, window_ms: u64) -> Result<KeyRotation, ApiError> {
    order(fixture, KeyOrder { tenant: "bob".into(), vm: None, new_key: None, window_ms: Some(window_ms) })
}

fn order(fixture: &Fixture, order: KeyOrder) -> Result<KeyRotation, ApiError> {
    api::rotate_key(&fixture.at("daemon.sock"), order)
}

fn refused(result: Result<KeyRotation, ApiError>) -> String {
    match result {
        Err(ApiError::Failed(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn a_key_rotates_by_command() {
    let fixture = Fixture::new("rotates");
    let (daemon, _attachment) = start(&fixture, &fixture.text("drop"));
    let old = load(&fixture);
    let mut agent = Agent::new(&fixture, &old);
    agent.is_known(&daemon);
    assert_eq!(keys(&daemon).key, old.id().to_string());
    let p4vm = pid(&daemon);
    let rotation = rotate(&fixture, 60_000).unwrap();
    let new = load(&fixture);
    assert_eq!((rotation.key, rotation.previous), (new.id().to_string(), old.id().to_string()));
    assert_eq!((rotation.vms, rotation.key_file), (vec!["db".to_owned()], fixture.at("bob.key")));
    let now = Now::read().real_ns / 1_000_000_000;
    assert!(rotation.until.is_some_and(|until| (now + 50..=now + 61).contains(&until)));
    // The previous key is kept for its owner alone.
    let previous = PreviousKey::path(&fixture.at("bob.key"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&previous), mode(&fixture.at("bob.key"))), (0o600, 0o600));
    agent.is_known(&daemon);
    let status = keys(&daemon);
    assert_eq!((&status.key, status.window_until), (&new.id().to_string(), rotation.until));
    assert!(!status.agent_follows && !status.log_follows && !status.overdue);
    let metrics = api::metrics(&fixture.at("daemon.sock")).unwrap();
    assert!(metrics.contains("p4shield_key_window_end{tenant=\"bob\",vm=\"db\"}"), "{metrics}");
    // The agent follows, and the log after it. Then the rotation is over, long before its window.
    agent.sealer.rotate(&new, &DB);
    agent.until(&daemon, "the log's new key", |vm| vm.keys.as_ref().is_some_and(|k| k.log_follows));
    wait_for("the end of the previous key", || !previous.exists());
    let status = keys(&daemon);
    assert!(status.agent_follows && status.window_until.is_none(), "{status:?}");
    assert_eq!((db(&daemon).info.forged, pid(&daemon)), (0, p4vm));
    // A key of the tenant's choice.
    let chosen = TenantKey::generate(&fixture.at("chosen.key")).unwrap();
    let new_key = Some(fixture.at("chosen.key"));
    let rotation = order(&fixture, KeyOrder { tenant: "bob".into(), vm: None, new_key, window_ms: None });
    assert_eq!(rotation.unwrap().key, chosen.id().to_string());
    assert_eq!(load(&fixture).id(), chosen.id());
}

fn a_changed_key_file_rotates_at_a_reload() {
    let fixture = Fixture::new("rekeyed");
    let (daemon, _attachment) = start(&fixture, &fixture.text("drop"));
    let old = load(&fixture);
    let mut agent = Agent::new(&fixture, &old);
    agent.is_known(&daemon);
    let p4vm = pid(&daemon);
    assert!(daemon.reload().unwrap().rotated.is_empty());
    let new = TenantKey::random(&fixture.at("bob.key")).unwrap();
    new.replace(&fixture.at("bob.key")).unwrap();
    // A command would undo what the file says.
    assert!(refused(rotate(&fixture, 60_000)).contains("p4shield reload"));
    let report = daemon.reload().unwrap();
    assert_eq!(report.rotated, [fixture.at("bob.key").display().to_string()]);
    assert!(report.restarted.is_empty() && report.to_string().contains("the key rotates"), "{report}");
    agent.is_known(&daemon);
    agent.sealer.rotate(&new, &DB);
    agent.is_known(&daemon);
    assert!(keys(&daemon).agent_follows);
    assert_eq!((db(&daemon).info.forged, pid(&daemon)), (0, p4vm));
    // A file that is no key is refused; the present keys stay.
    std::fs::write(fixture.at("bob.key"), "short").unwrap();
    assert!(daemon.reload().unwrap_err().contains("bob.key"));
    agent.is_known(&daemon);
}

fn a_window_survives() {
    let fixture = Fixture::new("survives");
    let text = fixture.text("drop");
    let (daemon, attachment) = start(&fixture, &text);
    let old = load(&fixture);
    rotate(&fixture, 600_000).unwrap();
    let killed = pid(&daemon);
    kill_process(Pid::from_raw(killed).unwrap(), Signal::KILL).unwrap();
    wait_for("another P4 VM", || daemon.status().tenants[1].pid.is_some_and(|p| p != killed));
    wait_for("it runs", || daemon.status().tenants[1].state == State::Running);
    let mut agent = Agent::new(&fixture, &old);
    agent.is_known(&daemon);
    drop((daemon, attachment));
    let (daemon, _attachment) = start(&fixture, &text);
    let until = keys(&daemon).window_until;
    let now = Now::read().real_ns / 1_000_000_000;
    assert!(until.is_some_and(|until| (now + 500..=now + 601).contains(&until)), "{until:?}");
    let mut agent = Agent::new(&fixture, &old);
    agent.is_known(&daemon);
    agent.sealer.rotate(&load(&fixture), &DB);
    agent.until(&daemon, "the log's new key", |vm| vm.keys.as_ref().is_some_and(|k| k.log_follows));
    wait_for("the end of the previous key", || !PreviousKey::path(&fixture.at("bob.key")).exists());
    drop(daemon);
    // A previous key whose window has ended, or that another key followed, is removed and not accepted.
    for (until, successor) in [(now - 10, load(&fixture).id()), (now + 500, old.id())] {
        let window = Duration::from_secs(600);
        let kept = PreviousKey { key: old.duplicate(), successor, until, window };
        kept.store(&fixture.at("bob.key")).unwrap();
        let (daemon, _attachment) = start(&fixture, &text);
        assert_eq!(keys(&daemon).window_until, None);
        assert!(!PreviousKey::path(&fixture.at("bob.key")).exists());
        let mut agent = Agent::new(&fixture, &old);
        agent.until(&daemon, "the refusal", |vm| vm.info.forged > 1);
        assert_eq!(db(&daemon).info.accepted, 0);
    }
}

fn an_agent_that_stays_behind() {
    let fixture = Fixture::new("behind");
    let (daemon, _attachment) = start(&fixture, &fixture.text("drop"));
    let mut agent = Agent::new(&fixture, &load(&fixture));
    agent.is_known(&daemon);
    rotate(&fixture, 1_000).unwrap();
    agent.is_known(&daemon);
    let problem = |daemon: &Daemon| {
        daemon.status().problems.into_iter().find(|p| p.kind == ProblemKind::KeyNotFollowed)
    };
    assert!(problem(&daemon).is_none(), "within the window");
    let is_reported = |_: &VmStatus| problem(&daemon).is_some();
    agent.until(&daemon, "the problem", is_reported);
    let problem_text = problem(&daemon).unwrap().text;
    assert!(problem_text.contains("copy the key file to the VM"), "{problem_text}");
    let status = keys(&daemon);
    assert!(status.overdue && status.log_follows && status.window_until.is_none(), "{status:?}");
    assert!(!PreviousKey::path(&fixture.at("bob.key")).exists());
    // The remedy works.
    agent.sealer.rotate(&load(&fixture), &DB);
    agent.is_known(&daemon);
    wait_for("the end of the problem", || {
        agent.publish();
        problem(&daemon).is_none() && db(&daemon).info.status == "unread"
            || db(&daemon).info.status == "known"
    });
    assert!(!keys(&daemon).overdue);
}

fn a_second_rotation_waits() {
    let fixture = Fixture::new("second");
    let (daemon, _attachment) = start(&fixture, &fixture.text("drop"));
    let first = load(&fixture);
    let mut agent = Agent::new(&fixture, &first);
    agent.is_known(&daemon);
    rotate(&fixture, 600_000).unwrap();
    let second = load(&fixture);
    let error = refused(rotate(&fixture, 600_000));
    assert!(error.contains("rotates already") && error.contains("--window 0s"), "{error}");
    assert_eq!(load(&fixture).id(), second.id());
    agent.is_known(&daemon);
    // Without a window both former keys end at once.
    let rotation = rotate(&fixture, 0).unwrap();
    assert_eq!(rotation.until, None);
    assert!(!PreviousKey::path(&fixture.at("bob.key")).exists());
    let forged = db(&daemon).info.forged;
    agent.until(&daemon, "the first key's end", |vm| vm.info.forged > forged + 1);
    agent.sealer.rotate(&second, &DB);
    let forged = db(&daemon).info.forged;
    agent.until(&daemon, "the second key's end", |vm| vm.info.forged > forged + 1);
    agent.sealer.rotate(&load(&fixture), &DB);
    agent.is_known(&daemon);
    assert!(refused(rotate(&fixture, 100_000_000)).contains("too long"));
}

/// The thief publishes with the stolen key; no agent runs in the VM that would follow a rotation. The
/// operator has rotated with a long window before the theft is known.
fn a_stolen_key_ends() {
    for by_reload in [true, false] {
        let fixture = Fixture::new("stolen");
        let (daemon, _attachment) = start(&fixture, &fixture.text("drop"));
        let file = fixture.at("bob.key");
        let mut thief = Agent::new(&fixture, &load(&fixture));
        thief.is_known(&daemon);
        rotate(&fixture, 600_000).unwrap();
        thief.is_known(&daemon);
        // A key from elsewhere, which the VM gets first.
        let new = TenantKey::random(&file).unwrap();
        new.replace(&file).unwrap();
        let mut agent = Agent::new(&fixture, &new);
        agent.until(&daemon, "the refusal", |vm| vm.info.status == "forged");
        let blamed = daemon.status().problems.into_iter().find(|p| p.kind == ProblemKind::InfoForged);
        let text = blamed.unwrap().text;
        assert!(text.contains("another key than the P4 VM; run `p4shield reload`"), "{text}");
        assert!(!text.contains("attacker"), "{text}");
        let asked = api::ask(&fixture.at("daemon.sock"), &Command::Reload { dry_run: true });
        let Ok(Answer::Reloaded(dry)) = asked else { panic!("no report") };
        assert!(
            dry.rotated == [file.display().to_string()] && !dry.to_string().contains("in force"),
            "{dry}"
        );
        if by_reload {
            let report = daemon.reload().unwrap();
            assert_eq!(report.rotated, [file.display().to_string()]);
        } else {
            let with_window = refused(rotate(&fixture, 600_000));
            assert!(with_window.contains("`p4shield key rotate bob --window 0s`"), "{with_window}");
            assert_eq!(rotate(&fixture, 0).unwrap().key, new.id().to_string());
        }
        assert_eq!(load(&fixture).id(), new.id(), "the file stays");
        agent.is_known(&daemon);
        let forged = db(&daemon).info.forged;
        thief.until(&daemon, "the stolen key's end", |vm| vm.info.forged > forged + 1);
        let accepted = db(&daemon).info.accepted;
        thief.until(&daemon, "further refusals", |vm| vm.info.forged > forged + 3);
        assert_eq!(db(&daemon).info.accepted, accepted);
    }
}

fn vms_with_keys_of_their_own() {
    let fixture = Fixture::new("own");
    let own = TenantKey::generate(&fixture.at("db.key")).unwrap();
    let text = fixture.text("drop").replace("info_page", "key_file = \"db.key\"\ninfo_page");
    let (daemon, _attachment) = start(&fixture, &text);
    assert_eq!(keys(&daemon).key, own.id().to_string());
    // The tenant's key opens nothing of a VM that has its own.
    let mut agent = Agent::new(&fixture, &load(&fixture));
    agent.until(&daemon, "the refusal", |vm| vm.info.forged > 1);
    let mut agent = Agent::new(&fixture, &own);
    agent.is_known(&daemon);
    let vm = |tenant: &str, vm: Option<&str>| KeyOrder {
        tenant: tenant.into(),
        vm: vm.map(str::to_owned),
        new_key: None,
        window_ms: Some(60_000),
    };
    let rotation = order(&fixture, vm("bob", Some("db"))).unwrap();
    assert_eq!((rotation.key_file, rotation.previous), (fixture.at("db.key"), own.id().to_string()));
    agent.is_known(&daemon);
    agent.sealer.rotate(&TenantKey::load(&fixture.at("db.key")).unwrap(), &DB);
    agent.is_known(&daemon);
    // The tenant's key is no VM's, and rotates without one.
    assert!(order(&fixture, vm("bob", None)).unwrap().vms.is_empty());
    agent.is_known(&daemon);
    for (tenant, name, why) in [
        ("bob", Some("web"), "has no VM \"web\""),
        ("alice", Some("web"), "no key of its own"),
        ("alice", None, "tenant \"alice\" has no key"),
        ("carol", None, "no tenant \"carol\""),
    ] {
        let error = refused(order(&fixture, vm(tenant, name)));
        assert!(error.contains(why), "{error}");
    }
    // A VM that returns to its tenant's key rotates to it.
    let p4vm = pid(&daemon);
    wait_for("the end of the rotation", || {
        agent.publish();
        keys(&daemon).log_follows
    });
    std::fs::write(fixture.at("p4shield.toml"), fixture.text("drop")).unwrap();
    daemon.reload().unwrap();
    assert_eq!(keys(&daemon).key, load(&fixture).id().to_string());
    agent.is_known(&daemon);
    agent.sealer.rotate(&load(&fixture), &DB);
    agent.is_known(&daemon);
    assert_eq!(pid(&daemon), p4vm);
}

fn a_rotation_is_adopted() {
    let fixture = Fixture::new("adopts");
    fixture.config(&switches::text(&fixture));
    let daemon = switches::Daemon::start(&fixture);
    let tenant = || switches::status(&fixture).tenants.remove(1);
    let mut agent = Agent::new(&fixture, &load(&fixture));
    let known = |agent: &mut Agent| {
        let before = tenant().vms[0].info.accepted;
        wait_for("the agent's information", || {
            agent.publish();
            tenant().vms[0].info.accepted > before + 1
        });
    };
    known(&mut agent);
    let p4vm = tenant().pid;
    rotate(&fixture, 600_000).unwrap();
    let new = load(&fixture);
    daemon.kill();
    let daemon = switches::Daemon::start(&fixture);
    assert_eq!(tenant().pid, p4vm, "the next daemon adopts the P4 VM");
    known(&mut agent);
    let keys = || tenant().vms[0].keys.clone().unwrap();
    let now = Now::read().real_ns / 1_000_000_000;
    let until = keys().window_until;
    assert!(until.is_some_and(|until| (now + 500..=now + 601).contains(&until)), "{until:?}");
    agent.sealer.rotate(&new, &DB);
    wait_for("the log's new key", || {
        agent.publish();
        keys().log_follows
    });
    wait_for("the end of the previous key", || !PreviousKey::path(&fixture.at("bob.key")).exists());
    // A key file that is replaced while there is no daemon rotates at the adoption.
    daemon.kill();
    let newer = TenantKey::random(&fixture.at("bob.key")).unwrap();
    newer.replace(&fixture.at("bob.key")).unwrap();
    let _daemon = switches::Daemon::start(&fixture);
    wait_for("the newer key", || keys().key == newer.id().to_string());
    assert!(keys().window_until.is_some() && tenant().pid == p4vm);
    known(&mut agent);
    agent.sealer.rotate(&newer, &DB);
    known(&mut agent);
    assert!(keys().agent_follows);
    assert_eq!(tenant().vms[0].info.forged, 0);
}

/// Everything real: wires, a P4 VM, agent and auditor in the VM, a flow of datagrams.
fn a_key_rotates_under_traffic() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let patient = "deadline = \"10s\"\nage_limit = \"60s\"";
    let cloud = Cloud::with(|text| text.replace("deadline = \"5ms\"", patient));
    let at = |name: &str| cloud.fixture.at(name);
    // The VM's copy of the key.
    load(&cloud.fixture).replace(&at("vm.key")).unwrap();
    let vm = VmConfig { tenant: "bob".into(), name: "db".into(), key: at("vm.key") };
    let mut agent = AgentConfig::new(vm.clone(), at("db.info"));
    (agent.epoch_file, agent.socket) = (at("vm.epoch"), at("vm.sock"));
    let mut audit = AuditConfig::new(vm, at("db.log"), "eth0".into(), Vec::new());
    audit.hold_ms = 1_000;
    audit.expected.settings.age_limit_ms = 60_000;
    audit.expected.programs = [ExpectedProgram::Unknown, ExpectedProgram::Unknown];
    let (stop, events) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (flow, summary) = std::thread::scope(|s| {
        let end = EndOnDrop(&stop);
        let agent = s.spawn(|| run_agent(&agent, &stop));
        let auditor = s.spawn(|| {
            let sink = |event: &Event| events.lock().unwrap().push(event.clone());
            cloud.vms[1].inside(|| run_audit(&audit, sink, &stop))
        });
        let status = || cloud.status().tenants[1].vms[0].clone();
        wait_for("information", || status().info.accepted > 10);
        let flow = Flow::start(&cloud, 1);
        let notices = |wanted: &Notice| {
            let is_it = |e: &Event| matches!(e, Event::Noticed(n) if n == wanted);
            events.lock().unwrap().iter().filter(|e| is_it(e)).count()
        };
        wait_for("the audit's alignment", || {
            notices(&Notice::Aligned { direction: p4shield_abi::Direction::Ingress }) > 0
        });
        for round in 1..=2 {
            rotate(&cloud.fixture, 60_000).unwrap();
            flow.goes_on(300);
            load(&cloud.fixture).replace(&at("vm.key")).unwrap();
            let mut stale = Vec::new();
            wait_for("the log's new key", || {
                let vm = status();
                if vm.info.stale + vm.info.forged + vm.info.replayed > 0 {
                    stale.push(vm.info.clone());
                }
                vm.keys.is_some_and(|keys| keys.agent_follows && keys.log_follows)
            });
            assert!(stale.is_empty(), "round {round}: {stale:?}");
            wait_for("the auditor's notice", || notices(&Notice::KeyRotated) == round);
            flow.goes_on(500);
        }
        let flow = flow.stop();
        std::thread::sleep(Duration::from_millis(500));
        drop(end);
        agent.join().unwrap().unwrap();
        (flow, auditor.join().unwrap().unwrap())
    });
    let (sent, arrived) = flow;
    let ingress = &cloud.status().tenants[1].vms[0].ingress;
    assert_eq!(sent, arrived, "no packet was lost, or judged by the fail policy: {ingress:?}");
    let Summary { findings, standing, .. } = summary;
    // A loaded machine delays records.
    let accuses = |code: u8| ![exit_code::UNPROVEN, exit_code::LOG_STOPPED].contains(&code);
    let findings: Vec<_> = findings.into_iter().filter(|f| accuses(f.exit_code())).collect();
    assert!(findings.is_empty(), "{findings:?}");
    let ingress = standing.ingress.unwrap();
    assert!(ingress.verified > 1_600 && ingress.aligned, "what arrived since the alignment: {ingress:?}");
    assert_eq!((ingress.uncompared, ingress.lost), (0, 0));
    let tenant = &cloud.status().tenants[1];
    assert_eq!((tenant.restarts, &tenant.vms[0].ingress.let_through), (0, &Vec::new()));
    println!("  {arrived} of {sent} datagrams, {} compared across two rotations", ingress.verified);
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
