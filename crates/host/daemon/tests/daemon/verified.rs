//! Switches that run programs themselves run what a P4 VM has verified, whatever becomes of the file it came from and
//! whatever a daemon says.

use crate::Test;
use crate::scene::{Scene, wait_for};
use crate::switches::{ALICE, Daemon, Switch, status, text};
use p4shield_abi::Direction;
use p4shield_abi::channel::Geometry;
use p4shield_attach::message::Report;
use p4shield_attach::{Allowed, Heard, Host, Peer, Server, Setup};
use p4shield_control::{Hello, PROTOCOL_VERSION, ProgramSlot, Reply, Request};
use p4shield_daemon::api;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

pub(crate) const TESTS: &[Test] = &[
    ("a_program_that_is_swapped_after_it_was_verified_is_not_loaded", swapped),
    ("a_program_that_is_only_said_to_be_verified_is_not_loaded", forged),
];

/// A scene whose switches run programs themselves.
fn scene(name: &str) -> Scene {
    let scene = Scene::new(name);
    scene.config(&format!("placement = \"inline\"\n{}", text(&scene)));
    scene
}

/// The digest of alice's program, which judges in a switch.
fn program(scene: &Scene) -> Option<String> {
    let ingress = status(scene).tenants[ALICE].vms[0].ingress.clone();
    ingress.program.filter(|_| ingress.judged > 0)
}

fn started(scene: &Scene) -> (Daemon, Switch, String) {
    let daemon = Daemon::start(scene);
    let switch = Switch::start(&scene.at("p4shield.toml"), "port0");
    switch.is_served();
    wait_for("what judges", || program(scene).is_some());
    let verified = program(scene).unwrap();
    (daemon, switch, verified)
}

fn swapped() {
    let scene = scene("swapped");
    let (_daemon, switch, verified) = started(&scene);
    std::fs::copy(scene.at("unsafe.o"), scene.at("pass.o")).unwrap();
    // It is read again, and refused.
    let told = api::ask(&scene.at("daemon.sock"), &api::Command::Reload).unwrap_err().to_string();
    assert!(told.contains("alice web ingress"), "{told}");
    assert_eq!(program(&scene).as_ref(), Some(&verified));
    switch.flows(ALICE, 500);
    // Another P4 VM has to verify everything again.
    let alice = status(&scene).tenants[ALICE].clone();
    kill_process(Pid::from_raw(alice.pid.unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for("another P4 VM", || status(&scene).tenants[ALICE].restarts > alice.restarts);
    wait_for("its program", || program(&scene).as_ref() == Some(&verified));
    // Another switch has nothing yet, and gets what was verified.
    let later = Switch::start(&scene.at("p4shield.toml"), "port0");
    later.is_served();
    drop(switch);
    wait_for("the other switch's program", || {
        status(&scene).switches.len() == 1 && program(&scene).as_ref() == Some(&verified)
    });
    later.flows(ALICE, 500);
}

/// A daemon that says what it is told to.
#[derive(Default)]
struct Liar {
    switch: Mutex<Option<Arc<Peer>>>,
    replies: Mutex<HashMap<u32, Reply>>,
}

impl Host for Liar {
    fn heard(&self, peer: &Arc<Peer>, heard: Heard) {
        match heard {
            Heard::Came => *self.switch.lock().unwrap() = Some(Arc::clone(peer)),
            Heard::Said(Report::Programs { id, reply }) => {
                self.replies.lock().unwrap().insert(id, *reply);
            }
            _ => {}
        }
    }
}

impl Liar {
    fn ask(&self, approved: Option<[u8; 32]>, request: Request, descriptors: &[BorrowedFd<'_>]) -> Reply {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let id = NUMBER.fetch_add(1, Ordering::Relaxed);
        wait_for("the switch", || self.switch.lock().unwrap().is_some());
        let switch = self.switch.lock().unwrap().clone().unwrap();
        switch.programs((ALICE as u16, id), approved, Geometry::default(), request, descriptors);
        let mut reply = None;
        wait_for("an answer", || {
            reply = self.replies.lock().unwrap().remove(&id);
            reply.is_some()
        });
        reply.unwrap()
    }

    /// Asks the switch to load the object of a file, and says that the program of this digest was verified.
    fn load(&self, file: &Path, approved: Option<[u8; 32]>) -> Reply {
        let bytes = std::fs::read(file).unwrap();
        let memory = memfd_create("object", MemfdFlags::CLOEXEC).unwrap();
        File::from(memory.try_clone().unwrap()).write_all(&bytes).unwrap();
        let slot = ProgramSlot::new(0, Direction::Ingress);
        let objects = vec![bytes.len() as u32];
        let request = Request::LoadProgram { slot, name: "program".into(), objects };
        self.ask(approved, request, &[memory.as_fd()])
    }
}

fn forged() {
    let scene = scene("forged");
    let (daemon, switch, verified) = started(&scene);
    let byte = |at: usize| u8::from_str_radix(&verified[at..at + 2], 16).unwrap();
    let verified: [u8; 32] = std::array::from_fn(|i| byte(2 * i));
    drop(daemon);
    let liar = Arc::new(Liar::default());
    let config = p4shield_daemon::config::Config::load(&scene.at("p4shield.toml")).unwrap();
    let setup = Setup::from(&config);
    let _server = Server::start(&scene.at("attach.sock"), Allowed::default(), &setup, liar.clone()).unwrap();
    let hello = Hello {
        version: PROTOCOL_VERSION,
        tenant: "alice".into(),
        key: false,
        no_program: 0,
        age_limit_ms: 1000,
        log_interval_ms: 100,
        budget: 1 << 16,
        min_epoch: 0,
    };
    assert!(matches!(liar.ask(None, Request::Hello(hello), &[]), Reply::Hello { .. }));
    let vm = Request::SetVm { vm: 0, name: "web".into(), info: false, log: false };
    assert_eq!(liar.ask(None, vm, &[]), Reply::Done);
    for (file, approved) in [
        ("unsafe.o", Some(verified)),
        ("unsafe.o", Some([0; 32])),
        ("unsafe.o", None),
        // What is fine by itself was not verified, either.
        ("drop.o", Some(verified)),
        ("pass.o", None),
    ] {
        let reply = liar.load(&scene.at(file), approved);
        assert!(matches!(&reply, Reply::Refused(why) if why.contains("verified")), "{file}: {reply:?}");
    }
    let reply = liar.load(&scene.at("pass.o"), Some(verified));
    assert!(matches!(&reply, Reply::Loaded { digest, .. } if *digest == verified), "{reply:?}");
    // One word is for one program.
    let again = liar.load(&scene.at("unsafe.o"), None);
    assert!(matches!(again, Reply::Refused(_)), "{again:?}");
    switch.flows(ALICE, 500);
}
