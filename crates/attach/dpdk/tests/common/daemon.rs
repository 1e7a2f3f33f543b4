//! A daemon with P4 VMs that do what a test tells them: the real seam and real channels, the
//! program a function.

use p4shield_abi::channel::{Geometry, VERDICT_HEAD};
use p4shield_attach::message::LibraryMessage;
use p4shield_attach::{
    Allowed, Headers, LaneId, Notice, Peer, PortInfo, Server, Setup, SwitchEvent, SwitchEvents, UnownedCounts,
};
use p4shield_channel::{Doorbell, Memory, RequestBatch, Responder, Response, SharedMemory, create_channel};
use p4shield_config::{Config, FILE_VARIABLE, Tunnel};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Of every channel: enough for the tests that count each packet.
const GEOMETRY: Geometry = Geometry { slots: 16_384, header_bytes: 128, headroom: 32 };

/// What a program does with a packet's front.
pub(crate) enum Does {
    Pass,
    Drop,
    /// Puts this in the place of the front.
    Rewrite(Vec<u8>),
}

/// A program: of the front of a packet.
pub(crate) type Program = fn(&[u8]) -> Does;

/// How a P4 VM behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    /// Runs the program.
    Honest,
    /// Takes nothing, answers nothing.
    Stops,
    /// As that, and burns its core.
    Spins,
    /// Fills its memory with nonsense.
    Garbage,
    /// Fills the present channels with garbage, and is honest to those that follow.
    GarbageOnce,
    /// Gives each answer again.
    Twice,
    /// Answers what it was not asked.
    NeverAsked,
}

/// A folder with a configuration. Tenant 0, alice, has 10.0.1.1 (and what testpmd's `flowgen` sends
/// to) and drops what is not judged; tenant 1, bob, has 10.0.2.1 and lets it through.
pub(crate) struct Cloud {
    folder: tempfile::TempDir,
}

impl Cloud {
    /// `deadline` as the configuration has it, and further lines for it.
    pub(crate) fn new(deadline: &str, more: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("p4shield-dpdk").tempdir().expect("a folder");
        let tenant = |name, fail, address| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nfail = \"{fail}\"\n\
                 deadline = \"{deadline}\"\nstall = \"60s\"\n\
                 max_held = 16384\nslots = 16384\n[[tenant.vm]]\nname = \"vm\"\naddresses = [\"{address}\"]\n"
            )
        };
        let tenants =
            tenant("alice", "drop", "10.0.1.1\", \"10.253.0.0") + &tenant("bob", "pass", "10.0.2.1");
        let text =
            format!("attachment = \"dpdk\"\n[daemon]\nattach_socket = \"attach.sock\"\n{tenants}{more}");
        std::fs::write(folder.path().join("p4shield.toml"), text).expect("the folder is ours");
        Self { folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.file("p4shield.toml")
    }

    /// The variables of a switch's environment.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", library()), (FILE_VARIABLE, self.config())]
    }

    /// Starts a daemon whose tenants all have this program.
    pub(crate) fn daemon(&self, program: Program) -> Daemon {
        let config = Config::load(&self.config()).expect("a configuration");
        let p4vms = config.tenants.iter().map(|_| P4Vm::start(program)).collect();
        let host = Arc::new(Keepers { config, p4vms, heard: Mutex::default() });
        let setup = Setup::from(&host.config);
        let server = Server::start(&self.file("attach.sock"), Allowed::default(), &setup, host.clone());
        Daemon { _server: server.expect("a server"), host }
    }
}

/// The library under test, which cargo puts beside the tests.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    let library = test.parent().map(|folder| folder.join("libp4shield_dpdk.so")).expect("a folder");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

/// A daemon. Dropping it hangs up first, then its P4 VMs end.
pub(crate) struct Daemon {
    _server: Server,
    host: Arc<Keepers>,
}

struct Keepers {
    config: Config,
    p4vms: Vec<P4Vm>,
    heard: Mutex<Account>,
}

/// What switches said.
#[derive(Default)]
struct Account {
    peers: Vec<Arc<Peer>>,
    ports: Vec<PortInfo>,
    remarks: Vec<Notice>,
    /// By lane, what it counted last.
    unowned: HashMap<(u64, LaneId), UnownedCounts>,
}

impl SwitchEvents for Keepers {
    fn event(&self, peer: &Arc<Peer>, heard: SwitchEvent) {
        let report = match heard {
            SwitchEvent::Connected => return self.heard().peers.push(Arc::clone(peer)),
            SwitchEvent::Message(report) => report,
            // It comes again, and tells everything again.
            SwitchEvent::Disconnected => {
                return self.p4vms.iter().for_each(|p| p.leave(peer.session, |_| true));
            }
        };
        match report {
            LibraryMessage::PortUp { port, info } => {
                if let Some(role) = info.names().find_map(|n| self.config.role_of_name(n)) {
                    peer.role(port, role);
                }
                self.heard().ports.push(info);
            }
            LibraryMessage::LaneUp { lane, .. } => self.connect(peer, lane),
            LibraryMessage::LaneDown { lane } => {
                self.p4vms.iter().for_each(|p| p.leave(peer.session, |l| l == lane));
            }
            LibraryMessage::Notice { notice, .. } => self.heard().remarks.push(notice),
            LibraryMessage::Counts { lane, unowned, .. } => {
                self.heard().unowned.insert((peer.session, lane), unowned);
            }
            _ => {}
        }
    }
}

impl Keepers {
    fn heard(&self) -> MutexGuard<'_, Account> {
        self.heard.lock().expect("no panic")
    }

    fn connect(&self, peer: &Peer, lane: LaneId) {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        for (tenant, p4vm) in (0..).zip(&self.p4vms) {
            let memory = create_channel("test", GEOMETRY).expect("memory");
            let (ours, theirs) = Doorbell::pair().expect("a doorbell");
            let number = NUMBER.fetch_add(1, Ordering::Relaxed) as u32;
            let (channel, fd) = ((number, GEOMETRY), memory.fd().expect("a descriptor"));
            peer.channel(lane, tenant, channel, fd, &theirs, Headers::Copied);
            p4vm.serve(peer.session, lane, memory, ours);
        }
    }
}

impl Daemon {
    pub(crate) fn p4vm(&self, tenant: usize) -> &P4Vm {
        &self.host.p4vms[tenant]
    }

    /// Names of the ports that were heard of.
    pub(crate) fn ports(&self) -> HashSet<String> {
        self.host.heard().ports.iter().map(|p| p.name.clone()).collect()
    }

    pub(crate) fn remarks(&self) -> Vec<Notice> {
        self.host.heard().remarks.clone()
    }

    /// Returns the number of packets that switches dropped before their owner was known.
    pub(crate) fn refused(&self) -> u64 {
        self.host.heard().unowned.values().map(|n| n.refused).sum()
    }

    /// Tells all switches where they end tunnels.
    pub(crate) fn tell_tunnels(&self, end_points: &[Tunnel]) {
        self.host.heard().peers.iter().for_each(|peer| peer.tunnels(end_points));
    }

    /// Waits until each tenant's P4 VM has so many channels.
    pub(crate) fn wait_lanes(&self, count: usize) {
        let lanes = |p: &P4Vm| p.shared.lines.lock().expect("no panic").len();
        p4shield_testbed::wait_until("the lanes", 30, || self.host.p4vms.iter().all(|p| lanes(p) == count))
            .unwrap_or_else(|e| panic!("{e}: {} of {count}", lanes(self.p4vm(0))));
    }
}

/// A channel to a lane.
struct Line {
    session: u64,
    lane: LaneId,
    judge: Responder,
    hostile: SharedMemory,
    bell: Doorbell,
}

#[derive(Default)]
struct Shared {
    lines: Mutex<Vec<Line>>,
    mood: AtomicU8,
    judged: AtomicU64,
    ends: AtomicBool,
}

/// A P4 VM: one thread for all its channels. Ends when dropped.
pub(crate) struct P4Vm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl P4Vm {
    fn start(program: Program) -> Self {
        let shared = Arc::new(Shared::default());
        let works = Arc::clone(&shared);
        Self { shared, thread: Some(std::thread::spawn(move || work(&works, program))) }
    }

    fn serve(&self, session: u64, lane: LaneId, memory: SharedMemory, bell: Doorbell) {
        let hostile = memory.map_again().expect("memory");
        let judge = Responder::new(memory, GEOMETRY).expect("a channel");
        self.shared.lines.lock().expect("no panic").push(Line { session, lane, judge, hostile, bell });
    }

    /// Forgets lanes of a switch.
    fn leave(&self, session: u64, which: impl Fn(LaneId) -> bool) {
        let mut lines = self.shared.lines.lock().expect("no panic");
        lines.retain(|l| l.session != session || !which(l.lane));
    }

    /// Gives it another mood.
    pub(crate) fn becomes(&self, mood: Mood) {
        self.shared.mood.store(mood as u8, Ordering::Release);
    }

    /// Packets that its program has judged.
    pub(crate) fn judged(&self) -> u64 {
        self.shared.judged.load(Ordering::Acquire)
    }
}

impl Drop for P4Vm {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

fn work(shared: &Shared, program: Program) {
    let mut batch = RequestBatch::new(&GEOMETRY);
    while !shared.ends.load(Ordering::Acquire) {
        let mood = shared.mood.load(Ordering::Acquire);
        let mut worked = 0;
        for line in shared.lines.lock().expect("no panic").iter_mut() {
            worked += if mood == Mood::Honest as u8 {
                judge(line, &mut batch, program, &shared.judged)
            } else {
                offend(line, mood);
                0
            };
        }
        if mood == Mood::GarbageOnce as u8 {
            shared.mood.store(Mood::Honest as u8, Ordering::Release);
        }
        if worked == 0 && mood != Mood::Spins as u8 {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// Judges one batch.
fn judge(line: &mut Line, batch: &mut RequestBatch, program: Program, judged: &AtomicU64) -> u64 {
    let Ok(count) = line.judge.fetch(batch) else { return 0 };
    for entry in batch.iter_mut() {
        let front = &entry.frame[entry.start..entry.start + entry.len];
        let len = entry.request.packet_len;
        let done = match program(front) {
            Does::Pass => line.judge.respond(Response::Pass),
            Does::Drop => line.judge.respond(Response::Drop),
            Does::Rewrite(new) => {
                let longer = new.len() as i32 - front.len() as i32;
                let packet_len = len.saturating_add_signed(longer);
                line.judge.respond(Response::Rewritten { header: &new, packet_len })
            }
        };
        done.expect("the tests' programs fit");
    }
    // Before a switch can deliver the packets.
    judged.fetch_add(count as u64, Ordering::AcqRel);
    if line.judge.publish() {
        line.bell.ring();
    }
    count as u64
}

/// Writes into shared memory what an honest P4 VM never would.
fn offend(line: &Line, mood: u8) {
    let memory = &line.hostile;
    let answered = memory.load_u32(VERDICT_HEAD, Ordering::Relaxed);
    if [Mood::Garbage as u8, Mood::GarbageOnce as u8].contains(&mood) {
        (0..memory.len()).step_by(64).for_each(|at| memory.copy_in(at, &[0xa5; 64]));
    } else if mood == Mood::Twice as u8 {
        memory.store_u32(VERDICT_HEAD, answered.wrapping_sub(1), Ordering::Release);
    } else if mood == Mood::NeverAsked as u8 {
        memory.store_u32(VERDICT_HEAD, answered.wrapping_add(60_000), Ordering::Release);
    }
}

/// Whether the machine can run a test over a DPDK program; says why not.
pub(crate) fn usable(what: Result<(), String>) -> bool {
    if let Err(why) = &what {
        p4shield_need::skip("machine", why);
    }
    what.is_ok()
}

/// A path in a command's argument.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
