//! Tenants that pin a key: their P4 VMs run signed bundles only, through start, reload, command and crash.

use crate::Test;
use crate::attachment::TestAttachment;
use crate::fixture::{Fixture, wait_for};
use crate::operations::{SELF, start};
use crate::switches::{self, ALICE};
use p4shield_bundle::author::SigningKey;
use p4shield_bundle::{BundledProgram, Contents, HealthCheck};
use p4shield_daemon::api::{self, Answer, ApiError, Command};
use p4shield_daemon::config::Config;
use p4shield_daemon::status::{State, VmStatus};
use p4shield_daemon::{Daemon, preflight};
use p4shield_mediator::Reason;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

pub(crate) const TESTS: &[Test] = &[
    ("a_bundle_runs_and_survives_the_p4_vm", a_bundle_runs_and_survives_the_p4_vm),
    ("a_reload_replaces_a_bundle_or_changes_nothing", a_reload_replaces_a_bundle_or_changes_nothing),
    ("an_older_bundle_is_refused_after_a_restart", an_older_bundle_is_refused_after_a_restart),
    ("commands_load_bundles_and_nothing_else", commands_load_bundles_and_nothing_else),
    ("a_new_pinned_key_takes_a_new_p4_vm", a_new_pinned_key_takes_a_new_p4_vm),
    ("an_adopted_p4_vm_keeps_its_key_and_bundle", an_adopted_p4_vm_keeps_its_key_and_bundle),
    ("a_check_reports_bundles_that_would_be_refused", a_check_reports_bundles_that_would_be_refused),
];

/// Alice pins a key and has the bundle `web.bundle`.
struct Host {
    fixture: Fixture,
    text: String,
}

impl Host {
    fn new(name: &str) -> Self {
        Self::with(name, |fixture| fixture.text("drop"))
    }

    /// Changes a configuration of the fixture.
    fn with(name: &str, text: fn(&Fixture) -> String) -> Self {
        let fixture = Fixture::new(name);
        let text = text(&fixture).replace("[daemon]", "[daemon]\nstate = \"state\"");
        let objects = "ingress = [\"pass.o\"]\negress = [\"pass.o\"]\n";
        let text = text.replacen(objects, "bundle = \"web.bundle\"\n", 1);
        let text = text.replacen("deadline = \"10s\"", "deadline = \"10s\"\nbundle_key = \"alice.pub\"", 1);
        let host = Self { fixture, text };
        host.pin(7);
        host
    }

    fn pin(&self, seed: u8) {
        let key = SigningKey::from_bytes(&[seed; 32]).public();
        std::fs::write(self.fixture.at("alice.pub"), format!("{key}\n")).unwrap();
    }

    /// Writes a bundle of which ingress is an object of the fixture, and egress passes.
    fn bundle(&self, file: &str, (version, seed): (u64, u8), ingress: &str, checks: Vec<HealthCheck>) {
        let program = |name: &str| {
            let object = std::fs::read(self.fixture.at(&format!("{name}.o"))).unwrap();
            Some(BundledProgram { objects: vec![object], ..BundledProgram::default() })
        };
        let contents = Contents {
            version,
            tenant: "alice".into(),
            vm: Some("web".into()),
            header_bytes: 64,
            programs: [program(ingress), program("pass")],
            checks,
        };
        let bytes = SigningKey::from_bytes(&[seed; 32]).sign(&contents).unwrap();
        std::fs::write(self.fixture.at(file), bytes).unwrap();
    }

    fn start(&self) -> (Daemon, std::sync::Arc<TestAttachment>) {
        start(&self.fixture, &self.text)
    }

    /// Starts another daemon, whose P4 VM has no memory of the one before.
    fn restart(&self, daemon: Daemon) -> Daemon {
        drop(daemon);
        let config = self.fixture.config(&self.text);
        let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
        let daemon = Daemon::start(config, attachment, Path::new(SELF)).unwrap();
        wait_for("two P4 VMs", || daemon.status().tenants.iter().all(|t| t.state == State::Running));
        daemon
    }

    fn load(&self, direction: &str, file: &str) -> Result<String, String> {
        let objects = if file.is_empty() { Vec::new() } else { vec![self.fixture.at(file)] };
        let [tenant, vm, direction] = ["alice", "web", direction].map(str::to_owned);
        let command =
            Command::Load { tenant, vm, direction, objects, contents: Vec::new(), temporary: false };
        match api::ask(&self.fixture.at("daemon.sock"), &command) {
            Ok(Answer::Loaded { program, .. }) => Ok(program),
            Err(ApiError::Failed(why)) => Err(why),
            other => panic!("{other:?}"),
        }
    }
}

fn check(passes: bool) -> HealthCheck {
    HealthCheck { name: "any".into(), direction: 0, packet: vec![0; 60], passes, information: None }
}

fn web(daemon: &Daemon) -> VmStatus {
    daemon.status().tenants[0].vms[0].clone()
}

/// Returns the programs that run, by direction.
fn programs(daemon: &Daemon) -> [Option<String>; 2] {
    let web = web(daemon);
    [web.ingress.program, web.egress.program]
}

fn error(daemon: &Daemon) -> String {
    web(daemon).ingress.error.unwrap_or_default()
}

fn a_bundle_runs_and_survives_the_p4_vm() {
    let host = Host::new("bundle");
    host.bundle("web.bundle", (1, 7), "pass", vec![check(true)]);
    let (daemon, attachment) = host.start();
    let running = programs(&daemon);
    assert!(running.iter().all(Option::is_some) && error(&daemon).is_empty(), "{running:?}");
    let traffic = attachment.traffic();
    wait_for("alice's packets", || attachment.tally(0).passed > 1000);
    drop(traffic);
    let alice = daemon.status().tenants[0].clone();
    kill_process(Pid::from_raw(alice.pid.unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for("another P4 VM", || {
        let tenant = &daemon.status().tenants[0];
        tenant.restarts > alice.restarts && tenant.state == State::Running
    });
    assert_eq!(programs(&daemon), running);
}

fn a_reload_replaces_a_bundle_or_changes_nothing() {
    let host = Host::new("bundle-reload");
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    let (daemon, attachment) = host.start();
    let pid = daemon.status().tenants[0].pid;
    let first = programs(&daemon);
    let refuse = |why: &str| {
        let refusal = daemon.reload().expect_err("the bundle is refused");
        assert!(refusal.contains(why) && refusal.contains("nothing was changed"), "{refusal}");
        assert_eq!((programs(&daemon), error(&daemon)), (first.clone(), String::new()));
    };
    host.bundle("web.bundle", (2, 7), "drop", vec![check(true)]);
    refuse("health check \"any\" (ingress) fails");
    host.bundle("web.bundle", (2, 8), "drop", vec![]);
    refuse("is pinned");
    host.bundle("web.bundle", (2, 7), "unsafe", vec![]);
    refuse("ingress: ");
    host.bundle("web.bundle", (2, 7), "drop", vec![check(false)]);
    assert_eq!(daemon.reload().unwrap().replaced, 1);
    assert_ne!(programs(&daemon)[0], first[0]);
    let traffic = attachment.traffic();
    wait_for("drops", || attachment.tally(0).dropped_for(Reason::Program) > 0);
    drop(traffic);
    // The version that was replaced is an older one now.
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    let refusal = daemon.reload().unwrap_err();
    assert!(refusal.contains("version 2 ran before"), "{refusal}");
    assert_eq!(daemon.status().tenants[0].pid, pid, "one P4 VM did all this");
}

fn an_older_bundle_is_refused_after_a_restart() {
    let host = Host::new("bundle-floor");
    host.bundle("web.bundle", (5, 7), "pass", vec![]);
    let (daemon, _attachment) = host.start();
    let running = programs(&daemon);
    host.bundle("web.bundle", (4, 7), "pass", vec![]);
    let daemon = host.restart(daemon);
    assert_eq!(programs(&daemon), [None, None]);
    assert!(error(&daemon).contains("version 5 ran before"), "{}", error(&daemon));
    // Meanwhile the tenant's `fail` policy applies, not `no_program`.
    host.bundle("web.bundle", (5, 7), "pass", vec![]);
    daemon.reload().unwrap();
    assert_eq!((programs(&daemon), error(&daemon)), (running, String::new()));
}

fn commands_load_bundles_and_nothing_else() {
    let host = Host::new("bundle-load");
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    host.bundle("next.bundle", (2, 7), "drop", vec![]);
    let (daemon, _attachment) = host.start();
    let first = programs(&daemon);
    for (direction, file, why) in [
        ("ingress", "drop.o", "write both in the place of ingress"),
        ("both", "drop.o", "this is no bundle"),
        ("sideways", "next.bundle", "write both"),
    ] {
        let refusal = host.load(direction, file).unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    }
    assert_eq!(programs(&daemon), first);
    let text = host.load("both", "next.bundle").unwrap();
    let second = programs(&daemon);
    assert!(text.starts_with("bundle version 2: ingress ") && second[0] != first[0], "{text}");
    assert!(second.iter().flatten().all(|digest| text.contains(digest)), "{text}");
    // It lasts, and the configuration's is an older one now.
    let daemon = host.restart(daemon);
    assert_eq!(programs(&daemon), second);
    let [tenant, vm, direction] = ["alice", "web", "both"].map(str::to_owned);
    let revert = Command::Revert { tenant, vm, direction };
    let refusal = api::ask(&host.fixture.at("daemon.sock"), &revert).unwrap_err().to_string();
    assert!(refusal.contains("version 2 ran before"), "{refusal}");
    assert_eq!(programs(&daemon), second);
    assert_eq!(host.load("both", "").unwrap(), "no program");
    assert_eq!(programs(&daemon), [None, None]);
    // A tenant without a key has no bundle.
    let [tenant, vm, direction] = ["bob", "db", "both"].map(str::to_owned);
    let objects = vec![host.fixture.at("next.bundle")];
    let load = Command::Load { tenant, vm, direction, objects, contents: Vec::new(), temporary: false };
    let refusal = api::ask(&host.fixture.at("daemon.sock"), &load).unwrap_err().to_string();
    assert!(refusal.contains("has no bundle_key"), "{refusal}");
}

fn a_new_pinned_key_takes_a_new_p4_vm() {
    let host = Host::new("bundle-key");
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    let (daemon, _attachment) = host.start();
    let before = programs(&daemon);
    let pid = daemon.status().tenants[0].pid;
    host.pin(8);
    host.bundle("web.bundle", (2, 8), "drop", vec![]);
    assert_eq!(daemon.reload().unwrap().restarted, ["alice"]);
    wait_for("the new bundle", || programs(&daemon)[0].is_some() && programs(&daemon)[0] != before[0]);
    assert_ne!(daemon.status().tenants[0].pid, pid);
    // A file that is no key changes nothing.
    std::fs::write(host.fixture.at("alice.pub"), "no key").unwrap();
    let refusal = daemon.reload().unwrap_err();
    assert!(refusal.contains("this is no public key of bundles"), "{refusal}");
}

fn an_adopted_p4_vm_keeps_its_key_and_bundle() {
    let host = Host::with("bundle-adopted", switches::text);
    let fixture = &host.fixture;
    fixture.config(&host.text);
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    let alice = || switches::status(fixture).tenants[ALICE].clone();
    let ingress = || alice().vms[0].ingress.clone();
    let next = |daemon: switches::Daemon| {
        daemon.kill();
        switches::Daemon::start(fixture)
    };
    let daemon = switches::Daemon::start(fixture);
    let (pid, first) = (alice().pid, ingress().program);
    assert!(first.is_some());
    let daemon = next(daemon);
    assert_eq!((alice().pid, alice().adopted, ingress().program), (pid, true, first.clone()));
    // A bundle that was exchanged while there was no daemon.
    host.bundle("web.bundle", (2, 7), "drop", vec![]);
    let daemon = next(daemon);
    let second = ingress().program;
    assert!(alice().pid == pid && second.is_some() && second != first);
    // The P4 VM knows what it has run, whatever a daemon says.
    std::fs::remove_file(fixture.at("state/p4vm/alice.bundles")).unwrap();
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    let daemon = next(daemon);
    assert_eq!((alice().pid, ingress().program), (pid, second.clone()));
    assert!(ingress().error.is_some_and(|e| e.contains("version 2 ran before")));
    // Another key takes another P4 VM.
    host.pin(8);
    host.bundle("web.bundle", (3, 8), "pass", vec![]);
    let _daemon = next(daemon);
    assert!(alice().pid != pid && !alice().adopted);
    assert_eq!(ingress().program, first);
}

fn a_check_reports_bundles_that_would_be_refused() {
    let host = Host::new("bundle-check");
    host.bundle("web.bundle", (1, 7), "pass", vec![]);
    let problems = || {
        let config = Config::parse(&host.fixture.at("p4shield.toml"), &host.text).unwrap();
        let found = preflight(&config, &mut |_| Ok(()));
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(problems(), "");
    host.bundle("web.bundle", (1, 8), "pass", vec![]);
    assert!(problems().contains("bundle: ") && problems().contains("is pinned"), "{}", problems());
    std::fs::write(host.fixture.at("alice.pub"), "no key").unwrap();
    assert!(problems().contains("bundle_key: "), "{}", problems());
}
