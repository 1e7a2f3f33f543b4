//! The control thread: connects to the daemon, exchanges messages, and reconnects when the connection
//! ends.

use crate::inline::{InlineLibrary, InlineTenants};
use crate::message::{
    DaemonMessage, Kind, LibraryMessage, MessageError, Notice, VERSION, cut, decode_order, encode,
};
use crate::polling::reserved_cores;
use crate::setup::{Setup, SetupError};
use crate::shared::Shared;
use backon::{BackoffBuilder, ExponentialBuilder};
use p4shield_abi::channel::Geometry;
use p4shield_channel::{Doorbell, Requester, SharedMemory};
use p4shield_control::{Received, Socket, SocketError};
use p4shield_text::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval of checks for faults.
const LOOK: Duration = Duration::from_millis(200);
/// The same interval while programs run in this process, so that their logs are published in time
/// without packets.
const INLINE_LOOK: Duration = Duration::from_millis(50);
/// Interval of counts.
const COUNT: Duration = Duration::from_secs(1);
/// Longest pause before a reconnection.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pauses before reconnections. A connection that lasted longer than the longest one starts them anew.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(LONGEST_PAUSE)
    .without_max_times();
/// Time within which the daemon must read a message.
const PATIENCE: Duration = Duration::from_secs(10);
/// This library's release.
const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Messages that are executed before the next check for faults.
const ORDERS: usize = 256;

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("cannot connect to the daemon")]
    Connect(#[source] Errno),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("the daemon speaks version {0} and this library {VERSION}; restart the switch, or the daemon")]
    Version(u32),
    #[error("the daemon closed the connection: {0}")]
    Refused(String),
    #[error("the daemon sent a message about {0} that never existed")]
    Unknown(&'static str),
    #[error("the daemon sent an invalid channel: {0}")]
    Channel(String),
    #[error("the daemon has not read its messages for {PATIENCE:?}")]
    PeerStalled,
    #[error("the daemon's socket belongs to user {0}, who is neither root nor the switch's own")]
    Impostor(u32),
    #[error("the session ends")]
    Stop,
}

pub(crate) struct ControlThread {
    shared: Arc<Shared>,
    rung: Doorbell,
    hello: LibraryMessage,
    /// Programs in this process. They continue while the daemon is away.
    inline: InlineTenants,
}

impl ControlThread {
    pub(crate) fn new(
        shared: Arc<Shared>,
        rung: Doorbell,
        kind: Kind,
        application: &str,
    ) -> std::io::Result<Self> {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let session = u64::from_ne_bytes(random);
        let hello = LibraryMessage::Hello {
            version: VERSION,
            session,
            kind,
            application: cut(application),
            release: RELEASE.to_owned(),
        };
        Ok(Self { shared, rung, hello, inline: InlineTenants::default() })
    }

    /// Runs until the session ends.
    pub(crate) fn run(mut self) {
        let mut pauses = PAUSES.build();
        // Logs a reason once, and again when it changes: a daemon may be away for long.
        let mut told = String::new();
        loop {
            let began = Instant::now();
            let ended = self.converse();
            self.shared.registry().lost();
            let Err(ended) = ended else { return };
            if matches!(ended, Ended::Stop) {
                return;
            }
            let text = printable(&ended.to_string());
            if text != told {
                tracing::warn!(
                    event = "daemon_unreachable",
                    "no connection to the daemon; P4 VMs that still run go on judging, and for the others \
                     the tenants' fail policies apply until there is one: {text}"
                );
                told = text;
            }
            if began.elapsed() > LONGEST_PAUSE {
                pauses = PAUSES.build();
            }
            if self.pause(pauses.next().unwrap_or(LONGEST_PAUSE)) {
                return;
            }
        }
    }

    /// Pauses. Returns true if the session ends.
    fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        self.inline.maintain();
        self.check_channels();
        while !self.shared.ending.load(Ordering::Acquire) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = Timespec::try_from(left).ok();
            let _ = poll(&mut [PollFd::new(&self.rung, PollFlags::IN)], timeout.as_ref());
            self.rung.drain();
        }
        true
    }

    /// Detaches channels that no longer work, so that the tenants' policies apply at once and the next daemon
    /// hears of the others only.
    fn check_channels(&self) {
        self.shared.registry().check_faults();
        // System calls, hence without the lock.
        let doorbells = self.shared.registry().doorbells();
        let mut fds: Vec<_> = doorbells.iter().map(|d| PollFd::new(&d.end, PollFlags::empty())).collect();
        let _ = poll(&mut fds, Some(&Timespec::default()));
        let ended: Vec<_> = fds.iter().map(|fd| fd.revents().contains(PollFlags::HUP)).collect();
        for (doorbell, _) in doorbells.iter().zip(ended).filter(|(_, ended)| *ended) {
            self.shared.registry().detach_ended(doorbell);
        }
    }

    fn converse(&mut self) -> Result<(), Ended> {
        let fd = self.connect()?;
        // Polls a duplicate descriptor, because the socket is borrowed while it receives.
        let watched = rustix::io::fcntl_dupfd_cloexec(&fd, 0).map_err(Ended::Connect)?;
        let mut socket = Socket::new(fd);
        self.shared.registry().connected(self.hello.clone());
        let (mut next_look, mut next_count, mut deaf_since) = (Instant::now(), Instant::now(), None);
        let mut configured = false;
        loop {
            if self.shared.ending.load(Ordering::Acquire) {
                return Err(Ended::Stop);
            }
            let now = Instant::now();
            if now >= next_look {
                next_look = now + if self.inline.is_empty() { LOOK } else { INLINE_LOOK };
                self.inline.maintain();
                self.shared.registry().check_faults();
            }
            if configured && now >= next_count {
                next_count = now + COUNT;
                self.shared.registry().count();
                // System calls, hence without the lock.
                let threads = self.shared.registry().polling_threads();
                let cores = reserved_cores(&threads);
                self.shared.registry().polling(cores);
            }
            let all_told = self.send_messages(&socket)?;
            let since = *deaf_since.get_or_insert_with(Instant::now);
            if all_told {
                deaf_since = None;
            } else if since.elapsed() > PATIENCE {
                return Err(Ended::PeerStalled);
            }
            if self.wait(&watched, !all_told, next_look) {
                self.receive_messages(&watched, &mut socket, &mut configured)?;
            }
        }
    }

    fn connect(&self) -> Result<OwnedFd, Ended> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(Ended::Connect)?;
        let address =
            SocketAddrUnix::new(&self.shared.config.daemon.attach_socket).map_err(Ended::Connect)?;
        connect(&fd, &address).map_err(Ended::Connect)?;
        // Another user's process at this path would learn of every port and could send channels.
        let owner = rustix::net::sockopt::socket_peercred(&fd).map_err(Ended::Connect)?.uid;
        if !owner.is_root() && owner != rustix::process::geteuid() {
            return Err(Ended::Impostor(owner.as_raw()));
        }
        Ok(fd)
    }

    /// Sends the queued messages. Returns false if some remain.
    fn send_messages(&self, socket: &Socket) -> Result<bool, Ended> {
        loop {
            let Some(report) = self.shared.registry().outbox() else { return Ok(true) };
            let descriptor = self.shared.registry().descriptor(&report);
            // A lane that ended since took its memory along; a later message reports its end.
            let report = if descriptor.is_none() { report.without_packets() } else { report };
            let descriptors: Vec<_> = descriptor.iter().map(|fd| fd.as_fd()).collect();
            match socket.send(&encode(&report)?, &descriptors) {
                Ok(()) => {}
                Err(SocketError::Kernel { source: Errno::AGAIN | Errno::NOBUFS, .. }) => {
                    self.shared.registry().unsent(report);
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Waits for the daemon, for room to send, for a message to send or for the next check. Returns
    /// true if the daemon sent a message or closed the connection.
    fn wait(&self, socket: &OwnedFd, room: bool, until: Instant) -> bool {
        let events = if room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
        let mut fds = [PollFd::new(socket, events), PollFd::new(&self.rung, PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref());
        let (said, rung) = (fds[0].revents(), fds[1].revents());
        if !rung.is_empty() {
            self.rung.drain();
        }
        said.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
    }

    /// Receives and executes the available messages, up to a bound.
    fn receive_messages(
        &mut self,
        watched: &OwnedFd,
        socket: &mut Socket,
        configured: &mut bool,
    ) -> Result<(), Ended> {
        for _ in 0..ORDERS {
            let mut fds = [PollFd::from_borrowed_fd(watched.as_fd(), PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec::default())) != Ok(1) {
                return Ok(());
            }
            self.execute(socket.receive()?, configured)?;
        }
        Ok(())
    }

    /// Loads the library of placement `inline` if the daemon's configuration needs it, and reports
    /// if it is missing.
    fn check_library(&self, setup: &Setup) {
        if let (true, Err(e)) = (setup.inline, InlineLibrary::load()) {
            tracing::error!(event = "inline_library_missing", "{e}");
            self.shared.registry().notice(None, Notice::Note(e.to_string()));
        }
    }

    fn execute(&mut self, message: Received, configured: &mut bool) -> Result<(), Ended> {
        let order = decode_order(&message.bytes, message.descriptors.len())?;
        match order {
            DaemonMessage::Setup { version, .. } if version != VERSION => {
                return Err(Ended::Version(version));
            }
            DaemonMessage::Setup { len, .. } => {
                for memory in &message.descriptors {
                    let setup = Setup::from_memory(memory, len)?;
                    self.check_library(&setup);
                    let adopted = self.shared.registry().adopt(setup)?;
                    if let Some(is_kept) = adopted {
                        self.inline.retain(is_kept);
                        self.shared.report_tunnels();
                    }
                }
                *configured = true;
            }
            DaemonMessage::Refused { why } => return Err(Ended::Refused(why)),
            // Tenants have no numbers before.
            _ if !*configured => return Err(Ended::Unknown("tenants")),
            DaemonMessage::Role { port, role } => {
                if !self.shared.registry().role(port, role) {
                    return Err(Ended::Unknown("a port or VM"));
                }
            }
            DaemonMessage::Channel { lane, tenant, channel, geometry, zero_copy } => {
                // Maps the memory before taking the lock.
                let link = link(geometry.into(), message.descriptors)?;
                if !self.shared.registry().channel(lane, tenant, Some(channel), (Some(link), zero_copy)) {
                    return Err(Ended::Unknown("a lane or tenant"));
                }
            }
            DaemonMessage::Programs { tenant, id, approved, geometry, request } => {
                // Without the lock: linking and compiling take time.
                let place = (tenant, geometry.into());
                let reply = self.inline.handle(place, approved, request, message.descriptors);
                self.shared.registry().answer(id, reply);
            }
            DaemonMessage::Judge { tenant } => {
                let engine = self.inline.activate(tenant);
                if !engine.is_some_and(|engine| self.shared.registry().judge(tenant, engine)) {
                    return Err(Ended::Unknown("a tenant's programs"));
                }
            }
            DaemonMessage::Tunnels { end_points } => self.shared.set_tunnels(&end_points),
            DaemonMessage::NoChannel { lane, tenant } => {
                if !self.shared.registry().channel(lane, tenant, None, (None, false)) {
                    return Err(Ended::Unknown("a lane or tenant"));
                }
            }
        }
        Ok(())
    }
}

/// Creates the mediator's end of a channel from a message.
fn link(geometry: Geometry, descriptors: Vec<OwnedFd>) -> Result<p4shield_mediator::P4VmChannel, Ended> {
    // Checked before computing its size, which numbers out of range would overflow.
    if !geometry.is_valid() {
        return Err(Ended::Channel(format!("its geometry is {geometry:?}")));
    }
    let failed = |e: &dyn std::error::Error| Ended::Channel(e.to_string());
    let [memory, bell] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|_| Ended::Channel("descriptors are missing".to_owned()))?;
    let memory = SharedMemory::from_fd(memory, geometry.size()).map_err(|e| failed(&e))?;
    let requester = Requester::new(memory, geometry).map_err(|e| failed(&e))?;
    Ok(p4shield_mediator::P4VmChannel { requester, doorbell: Doorbell::from_fd(bell) })
}
