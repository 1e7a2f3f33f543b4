//! A daemon with one P4 VM that runs a function of the test, over the real attach protocol and real
//! channels.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use p4shield_abi::channel::Geometry;
use p4shield_attach::message::LibraryMessage;
use p4shield_attach::{Allowed, Headers, LaneId, Notice, Peer, Server, Setup, SwitchEvent, SwitchEvents};
use p4shield_channel::{Doorbell, PacketMemory, RequestBatch, Responder, Response, create_channel};
use p4shield_config::Config;

const GEOMETRY: Geometry = Geometry { slots: 1024, header_bytes: 128, headroom: 32 };

/// Decides about a packet from its header and the number of packets before it.
pub(crate) type Program = fn(&[u8], u64) -> bool;

/// A folder with a configuration: one tenant whose VMs are 10.9.3.1 and 10.9.3.2.
pub(crate) struct Cloud {
    folder: tempfile::TempDir,
}

impl Cloud {
    /// `fail` and `deadline` as in the configuration.
    pub(crate) fn new(fail: &str, deadline: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("p4shield-xsk").tempdir().expect("a folder");
        let text = format!(
            "attachment = \"xsk\"\n[daemon]\nattach_socket = \"attach.sock\"\n[[tenant]]\nname = \"alice\"\n\
             fail = \"{fail}\"\ndeadline = \"{deadline}\"\nstall = \"60s\"\nmax_held = 1024\nslots = 1024\n\
             [[tenant.vm]]\nname = \"one\"\naddresses = [\"10.9.3.1\"]\n\
             [[tenant.vm]]\nname = \"two\"\naddresses = [\"10.9.3.2\"]\n"
        );
        std::fs::write(folder.path().join("p4shield.toml"), text).expect("the folder is ours");
        Self { folder }
    }

    /// Appends these tables to the configuration.
    pub(crate) fn with(self, tables: &str) -> Self {
        let text = std::fs::read_to_string(self.config()).expect("a configuration");
        std::fs::write(self.config(), text + tables).expect("the folder is ours");
        self
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("p4shield.toml")
    }

    /// Starts a daemon.
    pub(crate) fn daemon(&self, program: Program) -> Daemon {
        let config = Config::load(&self.config()).expect("a configuration");
        let host = Arc::new(P4Vm::default());
        let setup = Setup::from(&config);
        let socket = self.folder.path().join("attach.sock");
        let server = Server::start(&socket, Allowed::default(), &setup, host.clone()).expect("a server");
        let works = Arc::clone(&host);
        let thread = std::thread::spawn(move || works.work(program));
        Daemon { server: Some(server), host, thread: Some(thread) }
    }
}

/// A daemon; dropping it ends it and its P4 VM.
pub(crate) struct Daemon {
    server: Option<Server>,
    host: Arc<P4Vm>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Returns the number of judged packets.
    pub(crate) fn judged(&self) -> u64 {
        self.host.judged.load(Ordering::Acquire)
    }

    /// Returns the number of lanes whose packets the P4 VM reads in place.
    pub(crate) fn zero_copy(&self) -> u32 {
        self.host.zero_copy.load(Ordering::Acquire)
    }

    /// Returns why lanes detached the P4 VM.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.host.faults.lock().expect("no panic").clone()
    }

    /// Returns the number of refused frame transitions that the library reported.
    pub(crate) fn refused(&self) -> u64 {
        self.host.refused.lock().expect("no panic").values().sum()
    }

    /// Returns the notices for the operator.
    pub(crate) fn remarks(&self) -> Vec<Notice> {
        self.host.remarks.lock().expect("no panic").clone()
    }

    /// Waits until there are `count` lanes.
    pub(crate) fn wait_lanes(&self, count: usize) {
        let lanes = || self.host.lines.lock().expect("no panic").len();
        p4shield_testbed::wait_until("the lanes", 30, || lanes() == count).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.server.take());
        self.host.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

/// The P4 VM's end of a lane's channel.
struct Line {
    session: u64,
    lane: LaneId,
    channel: u32,
    judge: Responder,
    doorbell: Doorbell,
}

#[derive(Default)]
struct P4Vm {
    lines: Mutex<Vec<Line>>,
    judged: AtomicU64,
    faults: Mutex<Vec<String>>,
    remarks: Mutex<Vec<Notice>>,
    refused: Mutex<BTreeMap<LaneId, u64>>,
    ends: AtomicBool,
    /// The UMEM of the lane that the next message announces.
    handed: Mutex<Option<OwnedFd>>,
    /// Lanes whose packets the P4 VM reads in place.
    zero_copy: AtomicU32,
}

impl SwitchEvents for P4Vm {
    fn packets(&self, _: &Arc<Peer>, _: LaneId, memory: OwnedFd) {
        *self.handed.lock().expect("no panic") = Some(memory);
    }

    fn event(&self, peer: &Arc<Peer>, heard: SwitchEvent) {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        match heard {
            SwitchEvent::Message(LibraryMessage::LaneUp { lane, packets, .. }) => {
                let memory = create_channel("test", GEOMETRY).expect("memory");
                let (ours, theirs) = Doorbell::pair().expect("a doorbell");
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let (channel, fd) = ((number, GEOMETRY), memory.fd().expect("a descriptor"));
                let handed = packets.zip(self.handed.lock().expect("no panic").take());
                let mut judge =
                    Responder::new(memory.map_again().expect("memory"), GEOMETRY).expect("a channel");
                let headers = if handed.is_some() { Headers::InPacketMemory } else { Headers::Copied };
                if let Some((told, packets)) = handed {
                    let len = told.len as usize;
                    judge =
                        judge.with_packet_memory(PacketMemory::from_fd(&packets, len).expect("it is sealed"));
                    self.zero_copy.fetch_add(1, Ordering::Release);
                }
                peer.channel(lane, 0, channel, fd, &theirs, headers);
                let line = Line { session: peer.session, lane, channel: number, judge, doorbell: ours };
                self.lines.lock().expect("no panic").push(line);
            }
            SwitchEvent::Message(LibraryMessage::LaneDown { lane }) => {
                self.lines.lock().expect("no panic").retain(|l| (l.session, l.lane) != (peer.session, lane));
            }
            SwitchEvent::Message(LibraryMessage::Counts { lane, unowned, .. }) => {
                self.refused.lock().expect("no panic").insert(lane, unowned.refused);
            }
            SwitchEvent::Message(LibraryMessage::Notice { notice, .. }) => {
                self.remarks.lock().expect("no panic").push(notice);
            }
            // The previous daemon's channels may fail before this one's replace them.
            SwitchEvent::Message(fault @ LibraryMessage::Fault { channel, .. })
                if self.lines.lock().expect("no panic").iter().any(|l| l.channel == channel) =>
            {
                self.faults.lock().expect("no panic").push(format!("{fault:?}"));
            }
            _ => {}
        }
    }
}

impl P4Vm {
    fn work(&self, program: Program) {
        let mut batch = RequestBatch::new(&GEOMETRY);
        while !self.ends.load(Ordering::Acquire) {
            let mut worked = 0;
            for Line { judge, doorbell, .. } in self.lines.lock().expect("no panic").iter_mut() {
                worked += judge.fetch(&mut batch).unwrap_or_default();
                for entry in batch.iter_mut() {
                    let count = self.judged.fetch_add(1, Ordering::AcqRel);
                    let front = &entry.frame[entry.start..entry.start + entry.len];
                    let reply = if program(front, count) { Response::Pass } else { Response::Drop };
                    judge.respond(reply).expect("verdicts fit");
                }
                if judge.publish() {
                    doorbell.ring();
                }
            }
            if worked == 0 {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
}
