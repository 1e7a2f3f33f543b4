//! The attachments `dpdk` and `xsk` in the daemon: switches that a library is preloaded into.
//!
//! ```text
//!   library ── control socket ──► server thread ──► registry: switches, ports, lanes ◄── supervisor, status
//!                    ▲                                │
//!                    └──────── roles thread ◄─────────┴──── Open vSwitch's database
//! ```
//!
//! The server's thread records what libraries report (`registry`) and never blocks. Each tenant's supervisor
//! sends the tenant's channels, and a thread of its own sends the roles of ports (`roles`). A switch that
//! does not read its socket therefore delays others for a bounded time only. A port is not mediated if the
//! switch uses none of its queues, or if its library says so (`registry`); `status` shows it. What `roles`
//! finds in Open vSwitch's database are problems of their own. Sockets that a library does not mediate belong
//! to no port, and are ways for packets to bypass the programs.

mod absent;
mod pending;
mod registry;
mod roles;

use crate::attachment::{self, Attachment, ChannelEnd, InlineRequest, LaneKey, PacketMemoryFile, SwitchKey};
use crate::config::{Config, Placement};
use crate::error::DaemonError;
use crate::status::problem::{Problem, ProblemKind};
use crate::status::totals::Totals;
use p4shield_attach::message::LibraryMessage;
use p4shield_attach::{Allowed, Headers, LaneId, Peer, Server, Setup, SwitchEvent, SwitchEvents};
use p4shield_channel::Doorbell;
use p4shield_control::{ClientError, Reply, SocketError};
use p4shield_ovsdb::{Monitor, State};
use p4shield_socket::SocketLock;
use p4shield_text::chain;
use pending::PendingRequests;
use registry::SwitchRegistry;
use roles::PortRoles;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

type Wake = Box<dyn Fn() + Send + Sync>;

/// What the threads share.
struct Shared {
    config: RwLock<Arc<Config>>,
    registry: Mutex<SwitchRegistry>,
    pending: PendingRequests,
    monitor: Mutex<Option<Arc<Monitor>>>,
    /// The newest contents of the database. Only the roles thread reads the monitor, as reading clears the
    /// change mark.
    database: Mutex<Option<Arc<p4shield_ovsdb::Switch>>>,
    wakes: Mutex<Vec<Wake>>,
    /// Wakes the roles thread.
    doorbell: Doorbell,
    ending: AtomicBool,
}

/// The attachment of all switches.
pub(crate) struct SwitchAttachment {
    shared: Arc<Shared>,
    /// `None` once the attachment has stopped.
    server: Mutex<Option<Server>>,
    roles: Mutex<Option<JoinHandle<()>>>,
    _lock: SocketLock,
}

impl SwitchAttachment {
    /// Listens on the control socket for switches.
    ///
    /// # Errors
    /// The socket cannot be opened, or another daemon has it.
    pub(crate) fn start(config: &Config) -> Result<Self, DaemonError> {
        let path = &config.daemon.attach_socket;
        let failed = DaemonError::listen(path);
        let lock = SocketLock::take(path)?;
        let monitor = start_monitor(config).map_err(&failed)?;
        let (doorbell, wakeup) = Doorbell::pair().map_err(|e| failed(e.into()))?;
        let shared = Arc::new(Shared {
            config: RwLock::new(Arc::new(config.clone())),
            registry: Mutex::new(SwitchRegistry::new(&p4shield_attach::mediator_config(config))),
            pending: PendingRequests::default(),
            monitor: Mutex::new(monitor),
            database: Mutex::new(None),
            wakes: Mutex::new(Vec::new()),
            doorbell,
            ending: AtomicBool::new(false),
        });
        let state = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("roles".into()).spawn(move || state.send_roles(&wakeup));
        let roles = Mutex::new(Some(thread.map_err(&failed)?));
        let switches = Self { shared, server: Mutex::default(), roles, _lock: lock };
        let host = Arc::clone(&switches.shared);
        *switches.server() = Some(Server::start(path, allowed(config), &Setup::from(config), host)?);
        Ok(switches)
    }
}

/// Reads the database of Open vSwitch, if the configuration names one.
fn start_monitor(config: &Config) -> std::io::Result<Option<Arc<Monitor>>> {
    config.daemon.ovsdb.as_ref().map(|socket| Monitor::start(socket).map(Arc::new)).transpose()
}

/// Returns whether both are the same monitor, or both are none.
fn same(a: &Option<Arc<Monitor>>, b: &Option<Arc<Monitor>>) -> bool {
    a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr)
}

fn allowed(config: &Config) -> Allowed {
    Allowed { uids: config.daemon.switch_uids.clone(), gids: config.daemon.switch_gids.clone() }
}

impl SwitchAttachment {
    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SwitchAttachment {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, SwitchRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn monitor(&self) -> Option<Arc<Monitor>> {
        self.monitor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts another configuration in force for roles, tunnels and status.
    fn set_config(&self, config: &Config) -> std::io::Result<()> {
        if self.config().daemon.ovsdb != config.daemon.ovsdb {
            let monitor = start_monitor(config)?;
            *self.monitor.lock().unwrap_or_else(PoisonError::into_inner) = monitor;
        }
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config.clone());
        self.doorbell.ring();
        Ok(())
    }

    fn wake(&self) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake());
    }

    fn roles(&self) -> PortRoles {
        let database = self.database.lock().unwrap_or_else(PoisonError::into_inner).clone();
        PortRoles::new(self.config(), database)
    }

    fn send_changed_roles(&self, read: bool) {
        let roles = self.roles();
        // Unread tunnels would replace those that a library knows from the daemon before.
        let changed = if read { self.registry().take_changed_tunnels(&roles) } else { Vec::new() };
        for (peer, tunnels) in changed {
            peer.tunnels(&tunnels);
        }
        let changed = self.registry().take_changed_roles(&roles, read);
        for (peer, port, role) in changed {
            peer.role(port, role);
        }
    }

    /// Sends each library the roles of its ports and the endpoints of tunnels whenever they change.
    fn send_roles(&self, wakeup: &Doorbell) {
        // The monitor that has read its database.
        let mut read = None;
        while !self.ending.load(Ordering::Acquire) {
            let monitor = self.monitor();
            let contents = monitor.as_ref().map(|m| m.snapshot());
            *self.database.lock().unwrap_or_else(PoisonError::into_inner) = contents;
            if monitor.as_ref().is_none_or(|m| m.state() == State::Connected) {
                read.clone_from(&monitor);
            }
            self.send_changed_roles(same(&read, &monitor));
            let mut fds = vec![PollFd::new(wakeup, PollFlags::IN)];
            fds.extend(monitor.as_ref().map(|m| PollFd::from_borrowed_fd(m.changed(), PollFlags::IN)));
            let _ = poll(&mut fds, None);
            wakeup.drain();
        }
    }
}

impl SwitchEvents for Shared {
    fn packets(&self, peer: &Arc<Peer>, lane: LaneId, memory: OwnedFd) {
        self.registry().announce_memory(peer, lane, memory);
    }

    fn event(&self, peer: &Arc<Peer>, heard: SwitchEvent) {
        if let SwitchEvent::Message(LibraryMessage::Programs { id, reply }) = heard {
            return self.pending.complete(peer, id, *reply);
        }
        if heard == SwitchEvent::Disconnected {
            self.pending.cancel(peer);
        }
        let change = self.registry().apply(peer, heard);
        if change.ports {
            self.doorbell.ring();
        }
        if change.lanes {
            self.wake();
        }
    }
}

impl Attachment for SwitchAttachment {
    fn check(&self, config: &Config) -> Result<(), String> {
        Setup::from(config).mediator().map(drop).map_err(|e| chain(&e))
    }

    fn reconfigure(&self, config: &Config) -> Result<(), String> {
        let server = self.server();
        let Some(server) = &*server else { return Ok(()) };
        self.shared.registry().set_tenants(&p4shield_attach::mediator_config(config));
        // The switches know a VM before roles and channels refer to it.
        server.change_setup(&Setup::from(config)).map_err(|e| chain(&e))?;
        server.change_allowed(allowed(config)).map_err(|e| chain(&e))?;
        self.shared.set_config(config).map_err(|e| chain(&e))
    }

    fn stop(&self) {
        drop(self.server().take());
        self.shared.ending.store(true, Ordering::Release);
        self.shared.doorbell.ring();
        let roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = roles {
            let _ = thread.join();
        }
    }

    /// Returns none if programs run in the switches, which need no channels.
    fn lanes(&self) -> Vec<LaneKey> {
        if self.shared.config().placement == Placement::Inline {
            return Vec::new();
        }
        self.shared.registry().lanes()
    }

    fn on_change(&self, wake: Wake) {
        self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    fn packet_memory(&self, lane: LaneKey, tenant: usize) -> Option<PacketMemoryFile> {
        self.shared.registry().shared_memory(lane, &self.shared.config(), tenant)
    }

    fn attach_channel(&self, lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        // Recorded first, so that a fault that the library reports at once is attributed to this channel.
        let found = self.shared.registry().note_attached(lane, tenant, (end.number, end.zero_copy));
        let (Some((peer, id)), Some(fd)) = (found, end.memory.fd()) else { return Ok(()) };
        let tenant = u16::try_from(tenant).map_err(|e| e.to_string())?;
        let headers = if end.zero_copy { Headers::InPacketMemory } else { Headers::Copied };
        peer.channel(id, tenant, (end.number, end.geometry), fd, &end.doorbell, headers);
        Ok(())
    }

    fn keep_channel(&self, lane: LaneKey, tenant: usize, serves: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.shared.registry().keep_channel(lane, tenant, serves)
    }

    fn detach_channels(&self, tenant: usize) {
        let lanes = self.shared.registry().note_detached(tenant);
        for (peer, lane) in lanes {
            peer.no_channel(lane, tenant as u16);
        }
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        self.shared.registry().fault(tenant)
    }

    fn polling_cores(&self) -> BTreeSet<u32> {
        self.shared.registry().polling_cores()
    }

    fn inline_switches(&self) -> Vec<SwitchKey> {
        if self.shared.config().placement == Placement::Inline {
            self.shared.registry().keys()
        } else {
            Vec::new()
        }
    }

    fn request_inline(&self, switch: SwitchKey, request: InlineRequest<'_>) -> Result<Reply, ClientError> {
        let peer = self.shared.registry().peer(switch).ok_or(SocketError::Closed)?;
        let tenant = u16::try_from(request.tenant).map_err(|e| ClientError::Failed(e.to_string()))?;
        let pending = self.shared.pending.open(&peer);
        let InlineRequest { approved, geometry, request, resources, timeout, .. } = request;
        peer.programs((tenant, pending.id), approved, geometry, request, resources)?;
        pending.wait(timeout)
    }

    fn activate_inline(&self, switch: SwitchKey, tenant: usize) {
        if let Some(peer) = self.shared.registry().peer(switch) {
            peer.judge(tenant as u16);
        }
    }

    fn totals(&self) -> Totals {
        self.shared.registry().totals()
    }

    fn switches(&self) -> attachment::SwitchesStatus {
        self.compare(&self.shared.roles())
    }

    fn preview(&self, config: &Config) -> Vec<Problem> {
        let database = self.shared.database.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.compare(&PortRoles::new(Arc::new(config.clone()), database)).problems
    }
}

impl SwitchAttachment {
    /// Compares the connected switches with a configuration.
    fn compare(&self, roles: &PortRoles) -> attachment::SwitchesStatus {
        let database = self.shared.monitor().map(|m| m.state());
        let registry = self.shared.registry();
        let connected = registry.status(roles);
        let absences = roles.absences(registry.ports(), &connected, database.as_ref());
        drop(registry);
        let mut problems = Vec::new();
        if connected.is_empty() {
            let kind = self.shared.config().attachment.name();
            let text = format!(
                "no switch is connected; set one up with `p4shield attach {kind}`, or read the reason in \
                 its log"
            );
            problems.push(Problem::new(ProblemKind::NoSwitch, format!("attachment {kind}"), text));
        }
        problems.extend(roles.problems(&connected, database));
        problems.extend(absences.problems);
        attachment::SwitchesStatus { connected, absent: absences.ports, problems }
    }
}
