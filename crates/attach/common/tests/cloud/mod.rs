//! The test daemon and the test switch.
#![allow(dead_code, reason = "each test file uses some of it")]

use p4shield_abi::channel::Geometry;
use p4shield_attach::message::LibraryMessage;
use p4shield_attach::{
    Allowed, Headers, Kind, Lane, LaneId, Options, Peer, PortId, PortInfo, Server, Session, Setup,
    SwitchEvent, SwitchEvents,
};
use p4shield_channel::{Doorbell, RequestBatch, Responder, Response, SharedMemory, create_channel};
use p4shield_config::Config;
use p4shield_mediator::{Disposition, Reason, ReleasedPacket};
use p4shield_testbed::packet::udp;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

/// Two tenants: 10.0.0.1 is of the first, who drops, 10.0.0.2 of the second, who lets through.
pub(crate) const TENANTS: &str = r#"
attachment = "dpdk"
[daemon]
attach_socket = "attach.sock"
[[tenant]]
name = "alice"
deadline = "10s"
slots = 64
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
[[tenant]]
name = "bob"
fail = "pass"
deadline = "10s"
slots = 64
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
"#;

const GEOMETRY: Geometry = Geometry { slots: 64, header_bytes: 64, headroom: 32 };

pub(crate) fn wait_for(what: &str, done: impl FnMut() -> bool) {
    p4shield_testbed::wait_until(what, 30, done).unwrap();
}

pub(crate) fn passed() -> Disposition {
    Disposition::Pass
}

pub(crate) fn dropped(reason: Reason) -> Disposition {
    Disposition::Drop(reason)
}

/// A folder with a configuration.
pub(crate) struct Cloud {
    folder: tempfile::TempDir,
    socket: PathBuf,
}

impl Cloud {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("p4shield-seam").tempdir().unwrap();
        std::fs::write(folder.path().join("p4shield.toml"), TENANTS).unwrap();
        let socket = folder.path().join("attach.sock");
        Self { folder, socket }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn open_to_all(&self) {
        std::fs::set_permissions(self.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub(crate) fn daemon(&self) -> Daemon {
        self.daemon_with(TENANTS, Allowed::default())
    }

    pub(crate) fn daemon_with(&self, text: &str, allowed: Allowed) -> Daemon {
        let file = self.folder.path().join("p4shield.toml");
        let setup = Setup::from(&Config::parse(&file, text).unwrap());
        let p4vms = (0..2).map(|_| Mutex::new(P4Vm::default())).collect();
        let host = Arc::new(Keepers { p4vms, ..Keepers::default() });
        let server = Server::start(&self.socket, allowed, &setup, host.clone()).unwrap();
        Daemon { host, server }
    }
}

/// A daemon; dropping it hangs up first, then its P4 VMs end.
pub(crate) struct Daemon {
    pub(crate) server: Server,
    host: Arc<Keepers>,
}

/// Makes a channel to each tenant's P4 VM for each lane.
#[derive(Default)]
struct Keepers {
    p4vms: Vec<Mutex<P4Vm>>,
    heard: Mutex<Vec<SwitchEvent>>,
    lanes: Mutex<Vec<(Arc<Peer>, LaneId, PortId)>>,
    channels: AtomicU64,
}

impl SwitchEvents for Keepers {
    fn event(&self, peer: &Arc<Peer>, heard: SwitchEvent) {
        if let SwitchEvent::Message(LibraryMessage::LaneUp { lane, port, .. }) = heard {
            self.lanes.lock().unwrap().push((Arc::clone(peer), lane, port));
            self.connect(peer, lane);
        }
        self.heard.lock().unwrap().push(heard);
    }
}

impl Keepers {
    fn connect(&self, peer: &Peer, lane: LaneId) {
        for (tenant, p4vm) in self.p4vms.iter().enumerate() {
            let memory = create_channel("seam", GEOMETRY).unwrap();
            let (ours, theirs) = Doorbell::pair().unwrap();
            let number = self.channels.fetch_add(1, Ordering::Relaxed) as u32 + 1;
            let (channel, fd) = ((number, GEOMETRY), memory.fd().unwrap());
            peer.channel(lane, tenant as u16, channel, fd, &theirs, Headers::Copied);
            p4vm.lock().unwrap().serve(memory, ours);
        }
    }
}

impl Daemon {
    pub(crate) fn p4vm(&self, tenant: usize) -> std::sync::MutexGuard<'_, P4Vm> {
        self.host.p4vms[tenant].lock().unwrap()
    }

    pub(crate) fn judged(&self, tenant: usize) -> u64 {
        self.p4vm(tenant).state.judged.load(Ordering::Relaxed)
    }

    /// Ends all P4 VMs and gives each lane channels to new ones.
    pub(crate) fn replace_p4vms(&self) {
        self.host.p4vms.iter().for_each(|p| *p.lock().unwrap() = P4Vm::default());
        let lanes = self.host.lanes.lock().unwrap().clone();
        lanes.iter().for_each(|(peer, lane, _)| self.host.connect(peer, *lane));
    }

    /// The newest lane's port.
    pub(crate) fn port(&self) -> (Arc<Peer>, PortId) {
        let lanes = self.host.lanes.lock().unwrap();
        lanes.last().map(|(peer, _, port)| (Arc::clone(peer), *port)).unwrap()
    }

    pub(crate) fn count(&self, what: impl Fn(&SwitchEvent) -> bool) -> usize {
        self.host.heard.lock().unwrap().iter().filter(|h| what(h)).count()
    }

    pub(crate) fn heard(&self, what: impl Fn(&SwitchEvent) -> bool) -> bool {
        self.count(what) > 0
    }
}

// Moods of a P4 VM. It starts with the first one.
const PASSES: u8 = 0;
const DROPS: u8 = 1;
const STOPS: u8 = 2;
const SCRIBBLES: u8 = 3;
const ENDS: u8 = 4;

#[derive(Default)]
struct State {
    /// A thread holds it for one turn, so that none acts on an earlier mood after a change.
    mood: RwLock<u8>,
    judged: AtomicU64,
}

impl State {
    fn change(&self, mood: u8) {
        *self.mood.write().unwrap() = mood;
    }
}

/// A P4 VM: a thread for each channel. Ends when dropped.
#[derive(Default)]
pub(crate) struct P4Vm {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

impl P4Vm {
    fn serve(&mut self, memory: SharedMemory, bell: Doorbell) {
        let state = Arc::clone(&self.state);
        self.threads.push(std::thread::spawn(move || judge(memory, &bell, &state)));
    }

    pub(crate) fn drops(&self) {
        self.state.change(DROPS);
    }

    pub(crate) fn stops(&self) {
        self.state.change(STOPS);
    }

    pub(crate) fn passes(&self) {
        self.state.change(PASSES);
    }

    pub(crate) fn scribbles(&self) {
        self.state.change(SCRIBBLES);
    }
}

impl Drop for P4Vm {
    fn drop(&mut self) {
        self.state.change(ENDS);
        self.threads.drain(..).for_each(|t| t.join().unwrap());
    }
}

fn judge(memory: SharedMemory, bell: &Doorbell, state: &State) {
    let mut judge = Responder::new(memory, GEOMETRY).unwrap();
    let mut batch = RequestBatch::new(&GEOMETRY);
    loop {
        let mood = state.mood.read().unwrap();
        match *mood {
            ENDS => return,
            STOPS => {}
            SCRIBBLES => {
                let memory = judge.memory();
                use p4shield_channel::Memory;
                (0..memory.len()).step_by(8).for_each(|at| memory.copy_in(at, &[0xa5; 8]));
            }
            mood => {
                let Ok(fetched) = judge.fetch(&mut batch) else { return };
                for _ in 0..fetched {
                    judge.respond(if mood == DROPS { Response::Drop } else { Response::Pass }).unwrap();
                }
                if fetched > 0 {
                    state.judged.fetch_add(fetched as u64, Ordering::Relaxed);
                }
                if judge.publish() {
                    bell.ring();
                }
            }
        }
        drop(mood);
        std::thread::yield_now();
    }
}

/// From 10.0.0.99, an unowned address, to the first VM of a tenant.
pub(crate) fn packet_to(tenant: u8) -> Vec<u8> {
    let host = if tenant < 2 { tenant + 1 } else { tenant };
    udp([10, 0, 0, 99], [10, 0, 0, host])
}

/// A switch with one port.
pub(crate) struct Switch {
    pub(crate) lanes: Vec<Lane<Vec<u8>>>,
    pub(crate) session: Session,
    /// Packets sent, by tenant.
    pub(crate) sent: [u64; 16],
    started: Instant,
}

impl Switch {
    pub(crate) fn new(cloud: &Cloud, queues: u32) -> Self {
        let options = Options {
            config: cloud.folder.path().join("p4shield.toml"),
            kind: Kind::Dpdk,
            application: "seam".into(),
        };
        let session = Session::start(options).unwrap();
        let port = session.port_up(PortInfo { name: "port0".into(), ..PortInfo::default() });
        let lanes = (0..queues).map(|q| session.lane(port, q)).collect();
        Self { lanes, session, sent: [0; 16], started: Instant::now() }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sends one packet through a lane and waits for what becomes of it.
    pub(crate) fn send(&mut self, lane: usize, tenant: u8) -> Disposition {
        self.sent[usize::from(tenant)] += 1;
        let now = self.now();
        // Looks for changes first.
        self.lanes[lane].poll(now, 0, |r| panic!("{:?}", r.disposition));
        let mut out =
            self.lanes[lane].submit(now, packet_to(tenant)).map(|r: ReleasedPacket<Vec<u8>>| r.disposition);
        wait_for("a packet", || {
            let now = self.now();
            self.lanes[lane].poll(now, 32, |r| out = Some(r.disposition));
            out.is_some()
        });
        out.unwrap()
    }

    /// Sends packets until one has this end.
    pub(crate) fn until(&mut self, lane: usize, tenant: u8, disposition: Disposition) {
        wait_for("a disposition", || self.send(lane, tenant) == disposition);
    }

    /// Sends packets until the tenant's P4 VM passes one.
    pub(crate) fn until_judged(&mut self, lane: usize, tenant: u8) {
        wait_for("a channel", || {
            let now = self.now();
            self.lanes[lane].poll(now, 0, |_| {});
            let at_once = self.lanes[lane].submit(now, packet_to(tenant)).map(|r| r.disposition);
            self.sent[usize::from(tenant)] += 1;
            let Some(disposition) = at_once else {
                let mut out = None;
                wait_for("a verdict", || {
                    let now = self.now();
                    self.lanes[lane].poll(now, 32, |r| out = Some(r.disposition));
                    out.is_some()
                });
                return out == Some(Disposition::Pass);
            };
            let _unjudged = disposition;
            false
        });
    }

    /// Closes everything, and shows that nothing was lost.
    pub(crate) fn ends(mut self) {
        for lane in &mut self.lanes {
            lane.drain(|r| panic!("{:?} was forgotten", r.disposition));
        }
    }
}
