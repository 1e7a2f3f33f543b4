//! The daemon's side: who may connect, and what they say.
//!
//! One thread hears all switches, each in its turn and no more than a bound at a time, so that one
//! that floods costs the others a little patience. A peer that breaks the protocol, or does not
//! read what it is told, is hung up on; it comes again and is told everything again.

use crate::listener::listener;
use crate::message::{Kind, LaneId, MAX_EACH, Order, PortId, Report, VERSION, cut, decode_report, encode};
use crate::setup::{Setup, SetupError};
use p4shield_abi::channel::Geometry;
use p4shield_channel::Doorbell;
use p4shield_config::{MAX_TUNNELS, Role, Tunnel};
use p4shield_control::{Request, Socket, SocketError, printable};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, SocketType, accept_with, shutdown};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Switches at a time.
const MAX_PEERS: usize = 32;
/// Switches of one user at a time, unless it is root's or the daemon's: it cannot keep the other
/// users' switches out.
const MAX_OF_A_USER: usize = MAX_PEERS / 4;
/// Reports of one peer that are heard before the others'.
const TURN: usize = 64;
/// Time to say hello.
const GREETING: Duration = Duration::from_secs(5);
/// How long a peer may not read before it is hung up on.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time to recover when a peer cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Who may connect, besides root and the user that the daemon runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Users.
    pub uids: Vec<u32>,
    /// Groups; the connecting process's effective one counts.
    pub gids: Vec<u32>,
}

impl Allowed {
    fn admits(&self, uid: u32, gid: u32) -> bool {
        is_ours(uid) || self.uids.contains(&uid) || self.gids.contains(&gid)
    }

    /// Who may open the socket's file: without others, nobody else gets as far as being refused.
    fn mode(&self) -> Mode {
        if self.uids.is_empty() && self.gids.is_empty() {
            Mode::from_raw_mode(0o600)
        } else {
            Mode::from_raw_mode(0o666)
        }
    }
}

/// Whether a user is root or the daemon's own.
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// What a peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It said hello, and was told the tenants.
    Came,
    /// It said something: no [`Report::Hello`], and only of ports and lanes that there are. A port
    /// that goes takes no lane along: lanes are said to go, before or after.
    Said(Report),
    /// It is gone, with its ports and lanes.
    Left,
}

/// Who hears what switches say. Called by the server's thread, which everybody waits for.
pub trait Host: Send + Sync {
    /// A peer did something.
    fn heard(&self, peer: &Arc<Peer>, heard: Heard);

    /// A peer's lane, which is told of next, has its packets in this memory, as its
    /// [`Report::LaneUp`] says. Who keeps no hold of it has headers copied.
    fn packets(&self, _peer: &Arc<Peer>, _lane: LaneId, _memory: OwnedFd) {}
}

/// Why the daemon cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The socket.
    #[error("switches cannot reach the daemon on {}", path.display())]
    Listen {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What switches are to be told.
    #[error("switches cannot be told the tenants")]
    Setup(#[from] SetupError),
}

/// A switch that is connected.
#[derive(Debug)]
pub struct Peer {
    /// Random number of its session; see [`Report::Hello`].
    pub session: u64,
    /// What it is.
    pub kind: Kind,
    /// What it calls itself, printable.
    pub application: String,
    /// Its process.
    pub pid: i32,
    /// The user that it runs as.
    pub uid: u32,
    socket: Socket,
    /// The same socket.
    fd: OwnedFd,
}

/// Where a P4 VM reads packets' headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// In the channel, which holds copies.
    Copied,
    /// In the lane's packet memory, which it has mapped.
    InPacketMemory,
}

impl Peer {
    /// Tells what a port is.
    pub fn role(&self, port: PortId, role: Role) {
        self.send(&Order::Role { port, role: role.into() }, &[]);
    }

    /// Gives a lane a channel to a tenant's P4 VM: its memory and the mediator's end of its doorbell.
    pub fn channel(
        &self,
        lane: LaneId,
        tenant: u16,
        (channel, geometry): (u32, Geometry),
        memory: BorrowedFd<'_>,
        doorbell: &Doorbell,
        headers: Headers,
    ) {
        let zero_copy = headers == Headers::InPacketMemory;
        let order = Order::Channel { lane, tenant, channel, geometry: geometry.into(), zero_copy };
        self.send(&order, &[memory, doorbell.fd()]);
    }

    /// Asks for something about a tenant's programs in the switch's process; the answer is heard as
    /// [`Report::Programs`] with this `id`.
    pub fn programs(
        &self,
        (tenant, id): (u16, u32),
        approved: Option<[u8; 32]>,
        geometry: Geometry,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) {
        self.send(&Order::Programs { tenant, id, approved, geometry: geometry.into(), request }, descriptors);
    }

    /// Has the programs judge that were begun with the last [`Request::Hello`].
    pub fn judge(&self, tenant: u16) {
        self.send(&Order::Judge { tenant }, &[]);
    }

    /// Tells where the switch ends tunnels itself: the first [`MAX_TUNNELS`].
    pub fn tunnels(&self, end_points: &[Tunnel]) {
        let end_points = end_points.iter().take(MAX_TUNNELS).copied().collect();
        self.send(&Order::Tunnels { end_points }, &[]);
    }

    /// Takes a lane's channel to a tenant's P4 VM away.
    pub fn no_channel(&self, lane: LaneId, tenant: u16) {
        self.send(&Order::NoChannel { lane, tenant }, &[]);
    }

    /// Hangs up, with a reason.
    pub fn refuse(&self, why: &str) {
        self.send(&Order::Refused { why: cut(why) }, &[]);
        self.hang_up();
    }

    /// One that does not read within a bound, or is gone, is hung up on; the server's thread notices.
    fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) {
        let end = Instant::now() + PATIENCE;
        // No order is too long.
        let Ok(bytes) = encode(order) else { return };
        loop {
            match self.socket.send(&bytes, descriptors) {
                Ok(()) => return,
                Err(SocketError::Kernel { source: Errno::AGAIN | Errno::NOBUFS, .. }) => {}
                Err(_) => return self.hang_up(),
            }
            let timeout = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            let ready = poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], timeout.as_ref());
            if ready == Ok(0) {
                tracing::warn!(pid = self.pid, "a switch does not read what it is told, and is hung up on");
                return self.hang_up();
            }
        }
    }

    fn hang_up(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

/// A connection, with what was heard on it.
struct Connection {
    socket: Socket,
    fd: OwnedFd,
    pid: i32,
    uid: u32,
    since: Instant,
    /// Once it said hello.
    peer: Option<Arc<Peer>>,
    ports: HashSet<PortId>,
    /// With the ports that they belong to.
    lanes: HashMap<LaneId, PortId>,
}

/// The thread that listens. Ends when dropped, and hangs up on everybody.
#[derive(Debug)]
pub struct Server {
    ending: Arc<AtomicBool>,
    bell: Doorbell,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `path`, in place of whatever socket is there: whether a daemon may is decided elsewhere.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(
        path: &Path,
        allowed: Allowed,
        setup: &Setup,
        host: Arc<dyn Host>,
    ) -> Result<Self, ServerError> {
        setup.mediator()?;
        let setup = setup.to_memory()?;
        let failed = |source: std::io::Error| ServerError::Listen { path: path.to_owned(), source };
        let listener =
            listener(path, SocketType::SEQPACKET, SocketFlags::NONBLOCK, allowed.mode()).map_err(failed)?;
        let (bell, rung) = Doorbell::pair().map_err(|e| failed(e.into()))?;
        let ending = Arc::new(AtomicBool::new(false));
        let work = Work {
            listener,
            rung,
            ending: Arc::clone(&ending),
            allowed,
            setup,
            host,
            connections: Vec::new(),
        };
        let thread =
            std::thread::Builder::new().name("attach".into()).spawn(|| work.run()).map_err(failed)?;
        Ok(Self { ending, bell, path: path.to_owned(), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

struct Work {
    listener: OwnedFd,
    rung: Doorbell,
    ending: Arc<AtomicBool>,
    allowed: Allowed,
    setup: (OwnedFd, u32),
    host: Arc<dyn Host>,
    connections: Vec<Connection>,
}

impl Work {
    fn run(mut self) {
        while !self.ending.load(Ordering::Acquire) {
            let ready = self.wait();
            // From behind, so that removing one leaves those that are still to be heard where they are.
            for at in (0..self.connections.len()).rev() {
                let spoke = ready.get(at).copied().unwrap_or(false);
                let connection = &mut self.connections[at];
                let heard = if spoke {
                    connection.hear(&self.setup, self.host.as_ref())
                } else {
                    connection.is_due()
                };
                if let Err(why) = heard {
                    self.connections.remove(at).end(&why, self.host.as_ref());
                }
            }
            self.accept();
        }
        for connection in self.connections.drain(..) {
            connection.end("the daemon stops", self.host.as_ref());
        }
    }

    /// Waits for anything. Which connections there is something to hear on.
    fn wait(&self) -> Vec<bool> {
        let waiting = self.connections.iter().any(|c| c.peer.is_none());
        let timeout = waiting.then(|| Timespec::try_from(GREETING).ok()).flatten();
        let mut fds: Vec<_> = self.connections.iter().map(|c| PollFd::new(&c.fd, PollFlags::IN)).collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.push(PollFd::new(&self.rung, PollFlags::IN));
        let _ = poll(&mut fds, timeout.as_ref());
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    }

    fn accept(&mut self) {
        // No more at a time than may stay: who connects without end keeps nobody else from being heard.
        for _ in 0..MAX_PEERS {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => match Connection::new(fd) {
                    Ok(connection) => self.admit(connection),
                    Err(error) => tracing::warn!(%error, "a switch cannot be spoken with"),
                },
                Err(Errno::AGAIN) => return,
                // No descriptors left, most likely; asking again at once would not help.
                Err(_) => return std::thread::sleep(PAUSE),
            }
        }
    }

    fn admit(&mut self, connection: Connection) {
        let (pid, uid) = (connection.pid, connection.uid);
        let gid = rustix::net::sockopt::socket_peercred(&connection.fd).map_or(u32::MAX, |c| c.gid.as_raw());
        let why = if !self.allowed.admits(uid, gid) {
            format!(
                "user {uid} and group {gid} are not in daemon.switch_uids or daemon.switch_gids; write one of them there"
            )
        } else if self.connections.len() >= MAX_PEERS {
            format!("{MAX_PEERS} switches are connected already")
        } else if !is_ours(uid) && self.connections.iter().filter(|c| c.uid == uid).count() >= MAX_OF_A_USER {
            format!("user {uid} has {MAX_OF_A_USER} switches connected already")
        } else {
            return self.connections.push(connection);
        };
        tracing::warn!(pid, "a switch is refused: {why}");
        let refused = encode(&Order::Refused { why });
        // Nobody waits for one that is refused.
        let _ = refused.and_then(|bytes| connection.socket.send(&bytes, &[]));
    }
}

impl Connection {
    fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let credentials = rustix::net::sockopt::socket_peercred(&fd)?;
        let second = rustix::io::fcntl_dupfd_cloexec(&fd, 0)?;
        Ok(Self {
            socket: Socket::new(second),
            fd,
            pid: credentials.pid.as_raw_pid(),
            uid: credentials.uid.as_raw(),
            since: Instant::now(),
            peer: None,
            ports: HashSet::new(),
            lanes: HashMap::new(),
        })
    }

    /// Whether it has said hello, or still has time to.
    fn is_due(&self) -> Result<(), String> {
        if self.peer.is_some() || self.since.elapsed() < GREETING {
            Ok(())
        } else {
            Err("it said nothing".to_owned())
        }
    }

    /// Hears what there is, up to a bound.
    fn hear(&mut self, setup: &(OwnedFd, u32), host: &dyn Host) -> Result<(), String> {
        for _ in 0..TURN {
            if poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&Timespec::default())) != Ok(1) {
                break;
            }
            let message = match self.socket.receive() {
                Err(SocketError::Closed) => return Err("it ended".to_owned()),
                other => other.map_err(|e| e.to_string())?,
            };
            let report =
                decode_report(&message.bytes, message.descriptors.len()).map_err(|e| e.to_string())?;
            self.take(report, message.descriptors, setup, host)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        report: Report,
        descriptors: Vec<OwnedFd>,
        setup: &(OwnedFd, u32),
        host: &dyn Host,
    ) -> Result<(), String> {
        let Some(peer) = self.peer.clone() else { return self.greet(report, setup, host) };
        if !self.follows(&report) {
            return Err(format!("it said what does not follow: {}", printable(&format!("{report:?}"))));
        }
        if let Report::LaneUp { lane, .. } = report {
            descriptors.into_iter().for_each(|memory| host.packets(&peer, lane, memory));
        }
        host.heard(&peer, Heard::Said(report));
        Ok(())
    }

    fn greet(&mut self, report: Report, setup: &(OwnedFd, u32), host: &dyn Host) -> Result<(), String> {
        let Report::Hello { version, session, kind, application } = report else {
            return Err("it did not say hello".to_owned());
        };
        let duplicate = || rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(|e| e.to_string());
        let peer = Arc::new(Peer {
            session,
            kind,
            application: printable(&application),
            pid: self.pid,
            uid: self.uid,
            socket: Socket::new(duplicate()?),
            fd: duplicate()?,
        });
        if version != VERSION {
            peer.refuse(&format!(
                "the daemon speaks version {VERSION} and this library {version}; restart the switch"
            ));
            return Err(format!("it speaks version {version}"));
        }
        peer.send(&Order::Setup { version: VERSION, len: setup.1 }, &[setup.0.as_fd()]);
        self.peer = Some(Arc::clone(&peer));
        host.heard(&peer, Heard::Came);
        Ok(())
    }

    /// Keeps count of ports and lanes. False if what was said is of none.
    fn follows(&mut self, report: &Report) -> bool {
        match report {
            Report::Hello { .. } => false,
            Report::PortUp { port, .. } => self.ports.len() < MAX_EACH && self.ports.insert(*port),
            Report::PortDown { port } => self.ports.remove(port),
            Report::LaneUp { lane, port, .. } => {
                let known = self.ports.contains(port) && self.lanes.len() < MAX_EACH;
                known && self.lanes.insert(*lane, *port).is_none()
            }
            Report::LaneDown { lane } => self.lanes.remove(lane).is_some(),
            Report::Fault { lane, .. } | Report::Counts { lane, .. } => self.lanes.contains_key(lane),
            // Whether it was asked for is known to whoever asked.
            Report::Programs { .. } => true,
            Report::Remark { port, .. } => port.is_none_or(|p| self.ports.contains(&p)),
        }
    }

    fn end(self, why: &str, host: &dyn Host) {
        tracing::info!(pid = self.pid, "a switch is no longer connected: {}", printable(why));
        if let Some(peer) = &self.peer {
            peer.hang_up();
            host.heard(peer, Heard::Left);
        }
    }
}
