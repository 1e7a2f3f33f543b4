//! The attachments `dpdk` and `xsk`: switches that a library of ours is preloaded into, as the daemon runs them.
//!
//! ```text
//!   library ── control socket ──► server thread ──► book: switches, ports, lanes, counts ◄── keepers, status
//!                    ▲                                │
//!                    └──────── roles thread ◄─────────┴──── Open vSwitch's database
//! ```
//!
//! The server's thread writes down what is said and waits for nobody. Channels are sent by the keeper of the tenant that
//! they belong to, and what a port is by a thread of its own, so that a switch that does not read costs others a
//! bounded pause and not more.

mod asks;
mod book;
mod roles;

use crate::attachment::{self, Ask, Attachment, ChannelEnd, LaneKey, Packets, SwitchKey};
use crate::config::{Config, Placement};
use crate::daemon::DaemonError;
use crate::lock::SocketLock;
use crate::totals::Totals;
use asks::Asks;
use book::Book;
use p4shield_attach::message::Report;
use p4shield_attach::{Allowed, Headers, Heard, Host, LaneId, Peer, Server, Setup};
use p4shield_channel::Doorbell;
use p4shield_control::{ClientError, Reply, SocketError};
use p4shield_ovsdb::Monitor;
use roles::Roles;
use rustix::event::{PollFd, PollFlags, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

type Wake = Box<dyn Fn() + Send + Sync>;

/// What the threads share.
struct Shared {
    config: Config,
    book: Mutex<Book>,
    asks: Asks,
    monitor: Option<Monitor>,
    /// What the database said last. Read from the monitor by the roles thread alone: reading takes the news of a change.
    database: Mutex<Option<Arc<p4shield_ovsdb::Switch>>>,
    wakes: Mutex<Vec<Wake>>,
    /// Wakes the roles thread.
    bell: Doorbell,
    ending: AtomicBool,
}

/// All switches.
pub(crate) struct Switches {
    shared: Arc<Shared>,
    /// None only while it is being dropped.
    server: Option<Server>,
    roles: Option<JoinHandle<()>>,
    _lock: SocketLock,
}

impl Switches {
    /// Listens for switches.
    ///
    /// # Errors
    /// The socket, or another daemon that has it.
    pub(crate) fn start(config: &Config) -> Result<Self, DaemonError> {
        let path = &config.daemon.attach_socket;
        let failed = |source| DaemonError::Listen { place: path.display().to_string(), source };
        let lock = SocketLock::take(path)?;
        let monitor = config.daemon.ovsdb.as_ref().map(Monitor::start).transpose().map_err(failed)?;
        let (bell, rung) = Doorbell::pair().map_err(|e| failed(e.into()))?;
        let shared = Arc::new(Shared {
            config: config.clone(),
            book: Mutex::new(Book::new(&config.mediator())),
            asks: Asks::default(),
            monitor,
            database: Mutex::new(None),
            wakes: Mutex::new(Vec::new()),
            bell,
            ending: AtomicBool::new(false),
        });
        let work = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("roles".into()).spawn(move || work.tell_roles(&rung));
        let mut switches = Self { shared, server: None, roles: Some(thread.map_err(failed)?), _lock: lock };
        let daemon = &config.daemon;
        let allowed = Allowed { uids: daemon.switch_uids.clone(), gids: daemon.switch_gids.clone() };
        let host = Arc::clone(&switches.shared);
        switches.server = Some(Server::start(path, allowed, &Setup::from(config), host)?);
        Ok(switches)
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        drop(self.server.take());
        self.shared.ending.store(true, Ordering::Release);
        self.shared.bell.ring();
        if let Some(thread) = self.roles.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake());
    }

    fn roles(&self) -> Roles<'_> {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Roles::new(&self.config, database)
    }

    /// Tells each library what its ports are, when that changes.
    fn tell_roles(&self, rung: &Doorbell) {
        while !self.ending.load(Ordering::Acquire) {
            let news = self.monitor.as_ref().map(Monitor::snapshot);
            *self.database.lock().unwrap_or_else(PoisonError::into_inner) = news;
            let roles = self.roles();
            let due = self.book().tunnels_due(&roles);
            for (peer, tunnels) in due {
                peer.tunnels(&tunnels);
            }
            let due = self.book().roles_due(&roles);
            for (peer, port, role) in due {
                peer.role(port, role);
            }
            let mut fds = vec![PollFd::new(rung, PollFlags::IN)];
            fds.extend(self.monitor.as_ref().map(|m| PollFd::from_borrowed_fd(m.changed(), PollFlags::IN)));
            let _ = poll(&mut fds, None);
            rung.drain();
        }
    }
}

impl Host for Shared {
    fn packets(&self, peer: &Arc<Peer>, lane: LaneId, memory: OwnedFd) {
        self.book().packets(peer, lane, memory);
    }

    fn heard(&self, peer: &Arc<Peer>, heard: Heard) {
        if let Heard::Said(Report::Programs { id, reply }) = heard {
            return self.asks.answered(peer, id, *reply);
        }
        if heard == Heard::Left {
            self.asks.left(peer);
        }
        let change = self.book().heard(peer, heard);
        if change.ports {
            self.bell.ring();
        }
        if change.lanes {
            self.wake();
        }
    }
}

impl Attachment for Switches {
    /// None if programs run in the switches: nobody needs a channel then.
    fn lanes(&self) -> Vec<LaneKey> {
        if self.shared.config.placement == Placement::Inline {
            return Vec::new();
        }
        self.shared.book().lanes()
    }

    fn on_change(&self, wake: Wake) {
        self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    fn packets(&self, lane: LaneKey, tenant: usize) -> Option<Packets> {
        self.shared.book().packets_of(lane, &self.shared.config, tenant)
    }

    fn attach(&self, lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        // Written down first, so that a fault that is told at once is known to be this channel's.
        let found = self.shared.book().attached(lane, tenant, (end.number, end.zero_copy));
        let (Some((peer, id)), Some(fd)) = (found, end.memory.fd()) else { return Ok(()) };
        let tenant = u16::try_from(tenant).map_err(|e| e.to_string())?;
        let headers = if end.zero_copy { Headers::InPacketMemory } else { Headers::Copied };
        peer.channel(id, tenant, (end.number, end.geometry), fd, &end.doorbell, headers);
        Ok(())
    }

    fn detach(&self, tenant: usize) {
        let lanes = self.shared.book().detached(tenant);
        for (peer, lane) in lanes {
            peer.no_channel(lane, tenant as u16);
        }
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        self.shared.book().fault(tenant)
    }

    fn inline(&self) -> Vec<SwitchKey> {
        if self.shared.config.placement == Placement::Inline { self.shared.book().keys() } else { Vec::new() }
    }

    fn ask(&self, switch: SwitchKey, ask: Ask<'_>) -> Result<Reply, ClientError> {
        let peer = self.shared.book().peer(switch).ok_or(SocketError::Closed)?;
        let tenant = u16::try_from(ask.tenant).map_err(|e| ClientError::Failed(e.to_string()))?;
        let asked = self.shared.asks.ask(&peer);
        peer.programs((tenant, asked.id), ask.approved, ask.geometry, ask.request, ask.descriptors);
        asked.wait(ask.timeout)
    }

    fn judge(&self, switch: SwitchKey, tenant: usize) {
        if let Some(peer) = self.shared.book().peer(switch) {
            peer.judge(tenant as u16);
        }
    }

    fn totals(&self) -> Totals {
        self.shared.book().totals()
    }

    fn switches(&self) -> attachment::Switches {
        let roles = self.shared.roles();
        let connected = self.shared.book().status(&roles);
        let mut advice = roles.advice(&connected, self.shared.monitor.as_ref().map(Monitor::state));
        if connected.is_empty() {
            let kind = self.shared.config.attachment.name();
            advice.push(format!(
                "no switch is connected; set one up with `p4shield attach {kind}`, or see its log for why not"
            ));
        }
        attachment::Switches { connected, advice }
    }
}
