//! Switches with placement `inline` run only programs that a P4 VM has verified, whatever happens to the
//! object file and whatever a daemon claims.

use crate::Test;
use crate::fixture::{Fixture, wait_for};
use crate::switches::{ALICE, Daemon, Switch, status, text};
use p4shield_abi::Direction;
use p4shield_abi::channel::Geometry;
use p4shield_attach::message::LibraryMessage;
use p4shield_attach::{Allowed, Peer, Server, Setup, SwitchEvent, SwitchEvents};
use p4shield_control::{Hello, PROTOCOL_VERSION, ProgramSlot, Reply, Request, Resources};
use p4shield_daemon::api;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const TESTS: &[Test] = &[
    ("a_program_swapped_after_verification_is_not_loaded", swapped),
    ("a_program_only_claimed_to_be_verified_is_not_loaded", forged),
];

/// Returns a fixture with placement `inline`.
fn fixture(name: &str) -> Fixture {
    let fixture = Fixture::new(name);
    fixture.config(&format!("placement = \"inline\"\n{}", text(&fixture)));
    fixture
}

/// Returns the digest of alice's program once it judges packets in a switch.
fn program(fixture: &Fixture) -> Option<String> {
    let ingress = status(fixture).tenants[ALICE].vms[0].ingress.clone();
    ingress.program.filter(|_| ingress.judged > 0)
}

fn started(fixture: &Fixture) -> (Daemon, Switch, String) {
    let daemon = Daemon::start(fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.is_served();
    wait_for("judged packets", || program(fixture).is_some());
    let verified = program(fixture).unwrap();
    (daemon, switch, verified)
}

fn swapped() {
    let fixture = fixture("swapped");
    let (_daemon, switch, verified) = started(&fixture);
    std::fs::copy(fixture.at("unsafe.o"), fixture.at("pass.o")).unwrap();
    // A reload reads the file again and refuses it.
    let error = api::ask(&fixture.at("daemon.sock"), &api::Command::Reload { dry_run: false })
        .unwrap_err()
        .to_string();
    assert!(error.contains("alice web ingress"), "{error}");
    assert_eq!(program(&fixture).as_ref(), Some(&verified));
    switch.flows(ALICE, 500);
    // A new P4 VM verifies everything again.
    let alice = status(&fixture).tenants[ALICE].clone();
    kill_process(Pid::from_raw(alice.pid.unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for("another P4 VM", || status(&fixture).tenants[ALICE].restarts > alice.restarts);
    wait_for("its program", || program(&fixture).as_ref() == Some(&verified));
    // A new switch gets the verified program.
    let later = Switch::start(&fixture.at("p4shield.toml"), "port0");
    later.is_served();
    drop(switch);
    wait_for("the other switch's program", || {
        status(&fixture).switches.len() == 1 && program(&fixture).as_ref() == Some(&verified)
    });
    later.flows(ALICE, 500);
}

/// A daemon that sends what the test wants.
#[derive(Default)]
struct HostileDaemon {
    switch: Mutex<Option<Arc<Peer>>>,
    replies: Mutex<HashMap<u32, Reply>>,
}

impl SwitchEvents for HostileDaemon {
    fn event(&self, peer: &Arc<Peer>, heard: SwitchEvent) {
        match heard {
            SwitchEvent::Connected => *self.switch.lock().unwrap() = Some(Arc::clone(peer)),
            SwitchEvent::Message(LibraryMessage::Programs { id, reply }) => {
                self.replies.lock().unwrap().insert(id, *reply);
            }
            _ => {}
        }
    }
}

impl HostileDaemon {
    fn ask(&self, approved: Option<[u8; 32]>, request: Request, resources: &Resources<'_>) -> Reply {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let id = NUMBER.fetch_add(1, Ordering::Relaxed);
        wait_for("the switch", || self.switch.lock().unwrap().is_some());
        let switch = self.switch.lock().unwrap().clone().unwrap();
        switch.programs((ALICE as u16, id), approved, Geometry::default(), request, resources).unwrap();
        let mut reply = None;
        wait_for("an answer", || {
            reply = self.replies.lock().unwrap().remove(&id);
            reply.is_some()
        });
        reply.unwrap()
    }

    /// Requests that the switch loads the object of a file, and claims that the program with this digest is
    /// verified.
    fn load(&self, file: &Path, approved: Option<[u8; 32]>) -> Reply {
        let bytes = std::fs::read(file).unwrap();
        let mut resources = Resources::none();
        let objects = resources.add_bytes(&bytes);
        let slot = ProgramSlot::new(0, Direction::Ingress);
        let lengths = vec![bytes.len() as u32];
        let request = Request::LoadProgram { slot, name: "program".into(), objects, lengths };
        self.ask(approved, request, &resources)
    }
}

fn forged() {
    let fixture = fixture("forged");
    let (daemon, switch, verified) = started(&fixture);
    let byte = |at: usize| u8::from_str_radix(&verified[at..at + 2], 16).unwrap();
    let verified: [u8; 32] = std::array::from_fn(|i| byte(2 * i));
    drop(daemon);
    let hostile = Arc::new(HostileDaemon::default());
    let config = p4shield_daemon::config::Config::load(&fixture.at("p4shield.toml")).unwrap();
    let setup = Setup::from(&config);
    let _server =
        Server::start(&fixture.at("attach.sock"), Allowed::default(), &setup, hostile.clone()).unwrap();
    let hello = Hello {
        version: PROTOCOL_VERSION,
        tenant: "alice".into(),
        door: None,
        no_program: 0,
        age_limit_ms: 1000,
        log_interval_ms: 100,
        budget: 1 << 16,
        min_epoch: 0,
    };
    assert!(matches!(hostile.ask(None, Request::Hello(hello), &Resources::none()), Reply::Hello { .. }));
    let vm = Request::SetVm { vm: 0, name: "web".into(), info: None, log: None, handshake: None, keys: None };
    assert_eq!(hostile.ask(None, vm, &Resources::none()), Reply::Done);
    for (file, approved) in [
        ("unsafe.o", Some(verified)),
        ("unsafe.o", Some([0; 32])),
        ("unsafe.o", None),
        // A harmless program is refused, too, as it was not verified.
        ("drop.o", Some(verified)),
        ("pass.o", None),
    ] {
        let reply = hostile.load(&fixture.at(file), approved);
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("verified")), "{file}: {reply:?}");
    }
    let reply = hostile.load(&fixture.at("pass.o"), Some(verified));
    assert!(matches!(&reply, Reply::Loaded { digest, .. } if *digest == verified), "{reply:?}");
    // One approval is for one program.
    let again = hostile.load(&fixture.at("unsafe.o"), None);
    assert!(matches!(again, Reply::Refused(_)), "{again:?}");
    switch.flows(ALICE, 500);
}
