//! A connected switch as the daemon sees it, and who may connect.

use crate::message::{DaemonMessage, Kind, LaneId, PortId, cut, encode};
use p4shield_abi::channel::Geometry;
use p4shield_channel::Doorbell;
use p4shield_config::{MAX_TUNNELS, Role, Tunnel};
use p4shield_control::{Request, Resources, Socket, SocketError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use std::time::{Duration, Instant};

/// Time within which a peer must read a message.
const PATIENCE: Duration = Duration::from_secs(2);

/// Users and groups that may connect, besides root and the daemon's user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Users.
    pub uids: Vec<u32>,
    /// Groups; the connecting process's effective group counts.
    pub gids: Vec<u32>,
}

impl Allowed {
    /// Returns whether this user may connect, with this effective group.
    #[must_use]
    pub fn admits(&self, uid: u32, gid: u32) -> bool {
        is_ours(uid) || self.uids.contains(&uid) || self.gids.contains(&gid)
    }

    /// Returns the mode of the socket's file: closed to other users unless some are allowed.
    #[must_use]
    pub fn mode(&self) -> Mode {
        if self.uids.is_empty() && self.gids.is_empty() {
            Mode::from_raw_mode(0o600)
        } else {
            Mode::from_raw_mode(0o666)
        }
    }
}

/// Returns whether a user is root or the daemon's.
pub(crate) fn is_ours(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// A connected switch.
#[derive(Debug)]
pub struct Peer {
    /// Random number of its session; see [`crate::message::LibraryMessage::Hello`].
    pub session: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its program name, printable.
    pub application: String,
    /// Its process.
    pub pid: i32,
    /// The user that it runs as.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// The release of its library.
    pub release: String,
    pub(crate) socket: Socket,
    /// The same socket.
    pub(crate) fd: OwnedFd,
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
    /// [`crate::message::LibraryMessage::Programs`] with this `id`.
    ///
    /// # Errors
    /// The resources cannot be sent.
    pub fn programs(
        &self,
        (tenant, id): (u16, u32),
        approved: Option<[u8; 32]>,
        geometry: Geometry,
        request: Request,
        resources: &Resources<'_>,
    ) -> Result<(), SocketError> {
        let message = DaemonMessage::Programs { tenant, id, approved, geometry: geometry.into(), request };
        resources.with_descriptors(|descriptors| {
            self.send(&message, descriptors);
            Ok(())
        })
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
    pub(crate) fn send(&self, order: &DaemonMessage, descriptors: &[BorrowedFd<'_>]) {
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
                tracing::warn!(
                    event = "switch_stalled",
                    pid = self.pid,
                    "a switch does not read its messages; closing its connection"
                );
                return self.disconnect();
            }
        }
    }

    pub(crate) fn disconnect(&self) {
        let _ = shutdown(&self.fd, Shutdown::Both);
    }
}
