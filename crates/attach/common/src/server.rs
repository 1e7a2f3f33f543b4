//! The daemon's side: admission of switches, and their messages.
//!
//! One thread receives the messages of all switches in turn, a bounded number at a time, so that a
//! flood of one delays the others only briefly. The server closes the connection of a peer that
//! breaks the protocol or does not read; the peer reconnects and reports everything again.

use crate::listener::listener;
use crate::message::{
    DaemonMessage, Kind, LaneId, LibraryMessage, MAX_EACH, PortId, VERSION, cut, decode_report, encode,
};
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

/// The most connected switches.
const MAX_PEERS: usize = 32;
/// The most connected switches of one user other than root and the daemon's, so that one user
/// cannot exclude the switches of others.
const MAX_OF_A_USER: usize = MAX_PEERS / 4;
/// Messages of one peer that are received before those of the next peer.
const TURN: usize = 64;
/// Time within which a switch must send `Hello`.
const GREETING: Duration = Duration::from_secs(5);
/// Time within which a peer must read a message.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Users and groups that may connect, besides root and the daemon's user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Users.
    pub uids: Vec<u32>,
    /// Groups; the connecting process's effective group counts.
    pub gids: Vec<u32>,
}

impl Allowed {
    fn admits(&self, uid: u32, gid: u32) -> bool {
        is_ours(uid) || self.uids.contains(&uid) || self.gids.contains(&gid)
    }

    /// Returns the mode of the socket's file: closed to other users unless some are allowed.
    fn mode(&self) -> Mode {
        if self.uids.is_empty() && self.gids.is_empty() {
            Mode::from_raw_mode(0o600)
        } else {
            Mode::from_raw_mode(0o666)
        }
    }
}

/// Returns whether a user is root or the daemon's.
fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// An event of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchEvent {
    /// The peer sent `Hello`, and the server sent it the tenants.
    Connected,
    /// The peer sent a message other than [`LibraryMessage::Hello`], about ports and lanes that
    /// exist. The end of a port does not end its lanes: each lane's end is a message of its own,
    /// before or after.
    Message(LibraryMessage),
    /// The peer disconnected, with its ports and lanes.
    Disconnected,
}

/// Receiver of switches' events. The server's thread calls it, and all switches wait for that thread.
pub trait SwitchEvents: Send + Sync {
    /// Handles an event of a peer.
    fn event(&self, peer: &Arc<Peer>, event: SwitchEvent);

    /// Takes the packet memory of a lane, whose [`LibraryMessage::LaneUp`] is the next event. If
    /// the receiver drops it, the mediator copies headers.
    fn packets(&self, _peer: &Arc<Peer>, _lane: LaneId, _memory: OwnedFd) {}
}

/// Reason why switches cannot reach the daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The socket cannot be created.
    #[error("switches cannot reach the daemon on {}", path.display())]
    Listen {
        /// Its path.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The setup for switches is invalid.
    #[error("the configuration's tenants cannot be sent to switches")]
    Setup(#[from] SetupError),
}

/// A connected switch.
#[derive(Debug)]
pub struct Peer {
    /// Random number of its session; see [`LibraryMessage::Hello`].
    pub session: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its program name, printable.
    pub application: String,
    /// Its process.
    pub pid: i32,
    /// The user that it runs as.
    pub uid: u32,
    socket: Socket,
    /// The same socket.
    fd: OwnedFd,
}

/// Source of the headers that a P4 VM reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// Copies in the channel.
    Copied,
    /// The lane's packet memory, which the P4 VM maps.
    InPacketMemory,
}

impl Peer {
    /// Sends the role of a port.
    pub fn role(&self, port: PortId, role: Role) {
        self.send(&DaemonMessage::Role { port, role }, &[]);
    }

    /// Sends a lane's channel to a tenant's P4 VM: its memory and the mediator's end of its doorbell.
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
        let order = DaemonMessage::Channel { lane, tenant, channel, geometry: geometry.into(), zero_copy };
        self.send(&order, &[memory, doorbell.fd()]);
    }

    /// Sends a request to a tenant's programs in the switch's process; the reply is a
    /// [`LibraryMessage::Programs`] with this `id`.
    pub fn programs(
        &self,
        (tenant, id): (u16, u32),
        approved: Option<[u8; 32]>,
        geometry: Geometry,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) {
        self.send(
            &DaemonMessage::Programs { tenant, id, approved, geometry: geometry.into(), request },
            descriptors,
        );
    }

    /// Activates the programs that the last [`Request::Hello`] created.
    pub fn judge(&self, tenant: u16) {
        self.send(&DaemonMessage::Judge { tenant }, &[]);
    }

    /// Sends the endpoints of tunnels that the switch terminates: the first [`MAX_TUNNELS`].
    pub fn tunnels(&self, end_points: &[Tunnel]) {
        let end_points = end_points.iter().take(MAX_TUNNELS).copied().collect();
        self.send(&DaemonMessage::Tunnels { end_points }, &[]);
    }

    /// Detaches a lane's channel to a tenant's P4 VM.
    pub fn no_channel(&self, lane: LaneId, tenant: u16) {
        self.send(&DaemonMessage::NoChannel { lane, tenant }, &[]);
    }

    /// Closes the connection, with a reason.
    pub fn refuse(&self, why: &str) {
        self.send(&DaemonMessage::Refused { why: cut(why) }, &[]);
        self.disconnect();
    }

    /// Sends a message. Closes the connection of a peer that does not read in time; the server's
    /// thread notices.
    fn send(&self, order: &DaemonMessage, descriptors: &[BorrowedFd<'_>]) {
        let end = Instant::now() + PATIENCE;
        // No message is too long.
        let Ok(bytes) = encode(order) else { return };
        loop {
            match self.socket.send(&bytes, descriptors) {
                Ok(()) => return,
                Err(SocketError::Kernel { source: Errno::AGAIN | Errno::NOBUFS, .. }) => {}
                Err(_) => return self.disconnect(),
            }
            let timeout = Timespec::try_from(end.saturating_duration_since(Instant::now())).ok();
            let ready = poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], timeout.as_ref());
            if ready == Ok(0) {
                tracing::warn!(pid = self.pid, "a switch does not read its messages; closing its connection");
                return self.disconnect();
            }
        }
    }

    fn disconnect(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}

/// A connection, with the ports and lanes that its peer reported.
struct Connection {
    socket: Socket,
    fd: OwnedFd,
    pid: i32,
    uid: u32,
    since: Instant,
    /// Set once the peer sent `Hello`.
    peer: Option<Arc<Peer>>,
    ports: HashSet<PortId>,
    /// Lanes and their ports.
    lanes: HashMap<LaneId, PortId>,
}

/// The server's thread. Ends when dropped, and closes all connections.
#[derive(Debug)]
pub struct Server {
    ending: Arc<AtomicBool>,
    bell: Doorbell,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `path`, and replaces a socket that exists there: the caller checks that it may.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn start(
        path: &Path,
        allowed: Allowed,
        setup: &Setup,
        host: Arc<dyn SwitchEvents>,
    ) -> Result<Self, ServerError> {
        setup.mediator()?;
        let setup = setup.to_memory()?;
        let failed = |source: std::io::Error| ServerError::Listen { path: path.to_owned(), source };
        let listener =
            listener(path, SocketType::SEQPACKET, SocketFlags::NONBLOCK, allowed.mode()).map_err(failed)?;
        let (bell, rung) = Doorbell::pair().map_err(|e| failed(e.into()))?;
        let ending = Arc::new(AtomicBool::new(false));
        let work = ServerThread {
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

struct ServerThread {
    listener: OwnedFd,
    rung: Doorbell,
    ending: Arc<AtomicBool>,
    allowed: Allowed,
    setup: (OwnedFd, u32),
    host: Arc<dyn SwitchEvents>,
    connections: Vec<Connection>,
}

impl ServerThread {
    fn run(mut self) {
        while !self.ending.load(Ordering::Acquire) {
            let ready = self.wait();
            // Backwards, so that a removal does not move the remaining connections.
            for at in (0..self.connections.len()).rev() {
                let readable = ready.get(at).copied().unwrap_or(false);
                let connection = &mut self.connections[at];
                let result = if readable {
                    connection.receive(&self.setup, self.host.as_ref())
                } else {
                    connection.check_greeting()
                };
                if let Err(why) = result {
                    self.connections.remove(at).end(&why, self.host.as_ref());
                }
            }
            self.accept();
        }
        for connection in self.connections.drain(..) {
            connection.end("the daemon stops", self.host.as_ref());
        }
    }

    /// Waits for an event. Returns which connections are readable.
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
        // Bounded, so that a flood of connections does not delay messages.
        for _ in 0..MAX_PEERS {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => match Connection::new(fd) {
                    Ok(connection) => self.admit(connection),
                    Err(error) => tracing::warn!(%error, "a switch's connection fails"),
                },
                Err(Errno::AGAIN) => return,
                // Most likely no descriptor is left; an immediate retry would fail, too.
                Err(_) => return std::thread::sleep(PAUSE),
            }
        }
    }

    fn admit(&mut self, connection: Connection) {
        let (pid, uid) = (connection.pid, connection.uid);
        let gid = rustix::net::sockopt::socket_peercred(&connection.fd).map_or(u32::MAX, |c| c.gid.as_raw());
        let why = if !self.allowed.admits(uid, gid) {
            format!("user {uid} and group {gid} are not in daemon.switch_uids or daemon.switch_gids; add one")
        } else if self.connections.len() >= MAX_PEERS {
            format!("{MAX_PEERS} switches are connected already")
        } else if !is_ours(uid) && self.connections.iter().filter(|c| c.uid == uid).count() >= MAX_OF_A_USER {
            format!("user {uid} has {MAX_OF_A_USER} switches connected already")
        } else {
            return self.connections.push(connection);
        };
        tracing::warn!(pid, "a switch is refused: {why}");
        let refused = encode(&DaemonMessage::Refused { why });
        // Does not wait for a refused switch.
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

    /// Fails if the peer did not send `Hello` in time.
    fn check_greeting(&self) -> Result<(), String> {
        if self.peer.is_some() || self.since.elapsed() < GREETING {
            Ok(())
        } else {
            Err("it sent no Hello in time".to_owned())
        }
    }

    /// Receives the available messages, up to a bound.
    fn receive(&mut self, setup: &(OwnedFd, u32), host: &dyn SwitchEvents) -> Result<(), String> {
        for _ in 0..TURN {
            if poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&Timespec::default())) != Ok(1) {
                break;
            }
            let message = match self.socket.receive() {
                Err(SocketError::Closed) => return Err("it closed the connection".to_owned()),
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
        report: LibraryMessage,
        descriptors: Vec<OwnedFd>,
        setup: &(OwnedFd, u32),
        host: &dyn SwitchEvents,
    ) -> Result<(), String> {
        let Some(peer) = self.peer.clone() else { return self.greet(report, setup, host) };
        if !self.follows(&report) {
            return Err(format!("it sent a message out of order: {}", printable(&format!("{report:?}"))));
        }
        if let LibraryMessage::LaneUp { lane, .. } = report {
            descriptors.into_iter().for_each(|memory| host.packets(&peer, lane, memory));
        }
        host.event(&peer, SwitchEvent::Message(report));
        Ok(())
    }

    fn greet(
        &mut self,
        report: LibraryMessage,
        setup: &(OwnedFd, u32),
        host: &dyn SwitchEvents,
    ) -> Result<(), String> {
        let LibraryMessage::Hello { version, session, kind, application } = report else {
            return Err("its first message is not Hello".to_owned());
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
        peer.send(&DaemonMessage::Setup { version: VERSION, len: setup.1 }, &[setup.0.as_fd()]);
        self.peer = Some(Arc::clone(&peer));
        host.event(&peer, SwitchEvent::Connected);
        Ok(())
    }

    /// Tracks ports and lanes. Returns false if the message is about none that exists.
    fn follows(&mut self, report: &LibraryMessage) -> bool {
        match report {
            LibraryMessage::Hello { .. } => false,
            LibraryMessage::PortUp { port, .. } => self.ports.len() < MAX_EACH && self.ports.insert(*port),
            LibraryMessage::PortDown { port } => self.ports.remove(port),
            LibraryMessage::LaneUp { lane, port, .. } => {
                let known = self.ports.contains(port) && self.lanes.len() < MAX_EACH;
                known && self.lanes.insert(*lane, *port).is_none()
            }
            LibraryMessage::LaneDown { lane } => self.lanes.remove(lane).is_some(),
            LibraryMessage::Fault { lane, .. } | LibraryMessage::Counts { lane, .. } => {
                self.lanes.contains_key(lane)
            }
            // The receiver knows whether it sent the request.
            LibraryMessage::Programs { .. } | LibraryMessage::Polling { .. } => true,
            LibraryMessage::Notice { port, .. } => port.is_none_or(|p| self.ports.contains(&p)),
        }
    }

    fn end(self, why: &str, host: &dyn SwitchEvents) {
        tracing::info!(pid = self.pid, "a switch is no longer connected: {}", printable(why));
        if let Some(peer) = &self.peer {
            peer.disconnect();
            host.event(peer, SwitchEvent::Disconnected);
        }
    }
}
