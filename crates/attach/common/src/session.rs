//! The session: a switch library's connection to the daemon, and the factory of its lanes.

use crate::control_thread::ControlThread;
use crate::lane::Lane;
use crate::message::{Kind, LaneId, Notice, PortId, PortInfo, QueueSide};
use crate::process;
use crate::registry::{Packets, Registry};
use crate::setup::{Setup, SetupError};
use crate::shared::Shared;
use crate::sides::receive_spec;
use p4shield_channel::Doorbell;
use p4shield_config::{Config, ConfigError, Role, Tunnel};
use p4shield_mediator::{self as mediator, Packet, PortSpec};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Options of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file, which the daemon reads, too; see [`p4shield_config::FILE_VARIABLE`].
    pub config: PathBuf,
    /// The kind of the switch.
    pub kind: Kind,
    /// The switch's program name, for status.
    pub application: String,
}

/// Reason why a session cannot start. The library must not let packets pass then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The tenants are invalid.
    #[error("the configuration's tenants are invalid")]
    Tenants(#[from] SetupError),
    /// The configured attachment is another one.
    #[error(
        "{} has attachment = {configured:?}, and this library is {due:?}; write attachment = {due:?}",
        file.display()
    )]
    Attachment {
        /// The configuration file.
        file: PathBuf,
        /// The configured attachment.
        configured: &'static str,
        /// This library's attachment.
        due: &'static str,
    },
    /// The system refuses a resource.
    #[error("cannot {what}")]
    System {
        /// What failed.
        what: &'static str,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}

/// The port's description for a lane of a forked child.
const NO_PORT: PortSpec = receive_spec(Role::Shared, 0);

/// A switch library's session. Any thread may call any method; none waits, and none is for the way of
/// a packet. The session ends when dropped; lanes that outlive it continue without channels.
pub struct Session {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Reads the configuration and starts the control thread, which connects to the daemon and
    /// reconnects.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn start(options: Options) -> Result<Self, SessionError> {
        let config = Config::load(&options.config)?;
        let (configured, due) = (config.attachment.name(), options.kind.name());
        if configured != due {
            return Err(SessionError::Attachment { file: options.config, configured, due });
        }
        process::watch_forks();
        let system = |what| move |source| SessionError::System { what, source };
        let registry = Registry::new(Setup::from(&config), config.attachment)?;
        let (bell, rung) = Doorbell::pair().map_err(|e| system("make a doorbell")(e.into()))?;
        let shared = Arc::new(Shared {
            config,
            registry: Mutex::new(registry),
            ending: AtomicBool::new(false),
            tunnels: Mutex::default(),
            bell,
        });
        shared.set_tunnels(&shared.config.tunnels);
        let control = ControlThread::new(Arc::clone(&shared), rung, options.kind, &options.application)
            .map_err(system("make a random number"))?;
        let thread = process::spawn_without_signals("p4shield-link", move || control.run())
            .map_err(system("start a thread"))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the configuration at the start of the session. The daemon may have sent other tenants and
    /// ports since.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Returns the present tenants. Those without a name are vacant numbers.
    #[must_use]
    pub fn tenants(&self) -> Arc<mediator::Config> {
        self.shared.registry().tenants()
    }

    /// Returns the tenant whose P4 VM may read the packet memory of a port with this name; `None`: copies
    /// only.
    #[must_use]
    pub fn packet_memory_of(&self, port: &str) -> Option<String> {
        self.shared.registry().setup().packet_memory_of(port).map(str::to_owned)
    }

    /// Returns whether a P4 VM may read the packet memory of any port.
    #[must_use]
    pub fn shares_packet_memory(&self) -> bool {
        self.shared.registry().setup().shares_packet_memory()
    }

    /// Adds a port. Called before its lanes are made.
    pub fn port_up(&self, port: PortInfo) -> PortId {
        self.shared.change(|r| r.port_up(port)).unwrap_or(PortId(0))
    }

    /// Removes a port. Called after its lanes ended.
    pub fn port_down(&self, port: PortId) {
        self.shared.change(|r| r.port_down(port));
    }

    /// Makes the lane of what a port's queue receives. The lane mediates at once, without a channel
    /// at first.
    #[must_use]
    pub fn lane<P: Packet + Send + 'static>(&self, port: PortId, queue: u32) -> Lane<P> {
        self.make_lane(QueueSide::Receive, port, queue, None)
    }

    /// Makes the lane of one side of a port's queue, as [`Self::lane`] and [`Self::transmit_lane`]
    /// do, whose packets are in memory that a P4 VM may read.
    #[must_use]
    pub fn lane_in<P: Packet + Send + 'static>(
        &self,
        packets: Option<Packets>,
        side: QueueSide,
        port: PortId,
        queue: u32,
    ) -> Option<Lane<P>> {
        let wanted = match side {
            QueueSide::Receive => true,
            QueueSide::Transmit => self.wants_transmit(port),
        };
        wanted.then(|| self.make_lane(side, port, queue, packets))
    }

    /// Reports whether a port's transmit side may have lanes, whose packets are judged there.
    #[must_use]
    pub fn wants_transmit(&self, port: PortId) -> bool {
        self.shared.change(|r| r.wants_transmit(port)).unwrap_or_default()
    }

    /// Makes the lane of what a port's queue sends, as [`Self::lane`] does. Returns `None` if the
    /// configuration judges these packets at the receive lanes.
    #[must_use]
    pub fn transmit_lane<P: Packet + Send + 'static>(&self, port: PortId, queue: u32) -> Option<Lane<P>> {
        self.lane_in(None, QueueSide::Transmit, port, queue)
    }

    fn make_lane<P: Packet + Send + 'static>(
        &self,
        side: QueueSide,
        port: PortId,
        queue: u32,
        packets: Option<Packets>,
    ) -> Lane<P> {
        let due = self.shared.change(|r| r.lane_due(port, side));
        let (id, config, spec) = due.unwrap_or_else(|| (LaneId::default(), Arc::default(), NO_PORT));
        // Allocates the lane's memory without the lock.
        let owner = Arc::downgrade(&self.shared);
        let (lane, control) = Lane::new(id, &config, spec, owner);
        self.shared.change(|r| r.lane_up(id, (port, queue, side), packets, &config, control));
        lane
    }

    /// Calls `watch` with the endpoints of the switch's tunnels and the host's tenants: now, and in
    /// the control thread whenever the daemon sends endpoints. It must not call the session.
    pub fn watch_tunnels(&self, watch: impl Fn(&[Tunnel], &mediator::Config) + Send + 'static) {
        let tenants = self.shared.registry().tenants();
        let mut tunnels = self.shared.tunnels();
        tunnels.watch = Some(Box::new(watch));
        tunnels.report(&tenants);
    }

    /// Adds to a lane's counts the packets that its queue received and the lane never got: the
    /// increase of `refused` from now on. The session calls `refused` while it holds its lock, so
    /// `refused` must not call the session.
    pub fn count_refused(&self, lane: LaneId, refused: impl Fn() -> u64 + Send + 'static) {
        self.shared.change(|r| r.count_refused(lane, Box::new(refused)));
    }

    /// Notifies the operator about a port, or about the switch.
    pub fn notify(&self, port: Option<PortId>, notice: Notice) {
        self.shared.change(|r| r.notice(port, notice));
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("config", &self.shared.config.file).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        self.shared.bell.ring();
        // A forked child does not have the thread.
        if let Some(thread) = self.thread.take().filter(|_| !process::is_forked()) {
            let _ = thread.join();
        }
    }
}
