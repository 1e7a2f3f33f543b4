//! The daemon's side: admission of switches, and their messages.
//!
//! One thread receives the messages of all switches in turn, a bounded number at a time, so that a
//! flood of one delays the others only briefly. The server closes the connection of a peer that
//! breaks the protocol or does not read; the peer reconnects and reports everything again.

use crate::audience::Audience;
use crate::listener::{SocketFile, listener_with_file};
use crate::message::{
    DaemonMessage, LaneId, LibraryMessage, MAX_EACH, PortId, VERSION, decode_report, encode,
};
use crate::peer::{Allowed, Peer, is_ours};
use crate::setup::{Setup, SetupError};
use p4shield_channel::Doorbell;
use p4shield_control::{Socket, SocketError};
use p4shield_text::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, accept_with};
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
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

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

/// A connection, with the ports and lanes that its peer reported.
struct Connection {
    socket: Socket,
    fd: OwnedFd,
    pid: i32,
    uid: u32,
    gid: u32,
    since: Instant,
    /// Set once the peer sent `Hello`.
    peer: Option<Arc<Peer>>,
    ports: HashSet<PortId>,
    /// Lanes and their ports.
    lanes: HashMap<LaneId, PortId>,
}

/// The server's thread. Ends when dropped, and closes all connections.
pub struct Server {
    audience: Arc<Audience>,
    ending: Arc<AtomicBool>,
    bell: Doorbell,
    path: PathBuf,
    file: SocketFile,
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
        let mode = allowed.mode();
        let audience = Arc::new(Audience::new(setup.to_memory()?, allowed));
        let failed = |source: std::io::Error| ServerError::Listen { path: path.to_owned(), source };
        let (listener, file) =
            listener_with_file(path, SocketType::SEQPACKET, SocketFlags::NONBLOCK, mode).map_err(failed)?;
        let (bell, rung) = Doorbell::pair().map_err(|e| failed(e.into()))?;
        let ending = Arc::new(AtomicBool::new(false));
        let work = ServerThread {
            listener,
            rung,
            ending: Arc::clone(&ending),
            audience: Arc::clone(&audience),
            host,
            connections: Vec::new(),
        };
        let thread =
            std::thread::Builder::new().name("attach".into()).spawn(|| work.run()).map_err(failed)?;
        Ok(Self { audience, ending, bell, path: path.to_owned(), file, thread: Some(thread) })
    }

    /// Sends all switches another setup; those that connect later get it first. Messages that are sent after
    /// this returns may refer to it.
    ///
    /// # Errors
    /// The setup is invalid; nothing has changed.
    pub fn change_setup(&self, setup: &Setup) -> Result<(), SetupError> {
        setup.mediator()?;
        self.audience.change_setup(setup.to_memory()?);
        Ok(())
    }

    /// Changes which users and groups may connect. Closes the connections of others.
    ///
    /// # Errors
    /// The mode of the socket cannot be changed; nothing has changed.
    pub fn change_allowed(&self, allowed: Allowed) -> std::io::Result<()> {
        self.file.set_mode(allowed.mode())?;
        self.audience.change_allowed(allowed);
        Ok(())
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("path", &self.path).finish_non_exhaustive()
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
    audience: Arc<Audience>,
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
                    connection.receive(&self.audience, self.host.as_ref())
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
                    Err(error) => {
                        tracing::warn!(
                            event = "switch_connection_failed",
                            %error,
                            "a switch's connection fails"
                        )
                    }
                },
                Err(Errno::AGAIN) => return,
                // Most likely no descriptor is left; an immediate retry would fail, too.
                Err(_) => return std::thread::sleep(PAUSE),
            }
        }
    }

    fn admit(&mut self, connection: Connection) {
        let &Connection { pid, uid, gid, .. } = &connection;
        let why = if !self.audience.admits(uid, gid) {
            format!("user {uid} and group {gid} are not in daemon.switch_uids or daemon.switch_gids; add one")
        } else if self.connections.len() >= MAX_PEERS {
            format!("{MAX_PEERS} switches are connected already")
        } else if !is_ours(uid) && self.connections.iter().filter(|c| c.uid == uid).count() >= MAX_OF_A_USER {
            format!("user {uid} has {MAX_OF_A_USER} switches connected already")
        } else {
            return self.connections.push(connection);
        };
        tracing::warn!(event = "switch_refused", pid, "a switch is refused: {why}");
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
            gid: credentials.gid.as_raw(),
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
    fn receive(&mut self, audience: &Audience, host: &dyn SwitchEvents) -> Result<(), String> {
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
            self.take(report, message.descriptors, audience, host)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        report: LibraryMessage,
        descriptors: Vec<OwnedFd>,
        audience: &Audience,
        host: &dyn SwitchEvents,
    ) -> Result<(), String> {
        let Some(peer) = self.peer.clone() else { return self.greet(report, audience, host) };
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
        audience: &Audience,
        host: &dyn SwitchEvents,
    ) -> Result<(), String> {
        let LibraryMessage::Hello { version, session, kind, application, release } = report else {
            return Err("its first message is not Hello".to_owned());
        };
        let duplicate = || rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).map_err(|e| e.to_string());
        let peer = Arc::new(Peer {
            session,
            kind,
            application: printable(&application),
            pid: self.pid,
            uid: self.uid,
            gid: self.gid,
            release: printable(&release),
            socket: Socket::new(duplicate()?),
            fd: duplicate()?,
        });
        if version != VERSION {
            peer.refuse(&format!(
                "the daemon speaks version {VERSION} and this library {version}; restart the switch"
            ));
            return Err(format!("it speaks version {version}"));
        }
        audience.admit(&peer);
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
        tracing::info!(
            event = "switch_disconnected",
            pid = self.pid,
            "a switch is no longer connected: {}",
            printable(why)
        );
        if let Some(peer) = &self.peer {
            peer.disconnect();
            host.event(peer, SwitchEvent::Disconnected);
        }
    }
}
