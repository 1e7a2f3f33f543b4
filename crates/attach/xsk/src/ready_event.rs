//! The number of ready packets of each socket, and an event for threads that wait for them.
//!
//! A packet that this library has taken out of the kernel's ring no longer makes the kernel's socket
//! readable. So each socket that a thread waits for has an eventfd that is readable while packets are in
//! the application's receive ring. The replaced `poll` waits for it too; in an application's epoll it is
//! registered beside the socket, with the same event data.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use p4shield_xsk_relay::sleep::LevelSignal;
use rustix::event::{EventfdFlags, eventfd};

/// The events of all sockets, by the sockets' numbers.
static ALL: Mutex<Vec<&'static ReadyEvent>> = Mutex::new(Vec::new());
/// Whether any event was ever in an epoll.
static ANY_IN_EPOLL: AtomicBool = AtomicBool::new(false);

/// Returns whether any socket was ever in an epoll.
pub(crate) fn any_in_epoll() -> bool {
    ANY_IN_EPOLL.load(Relaxed)
}

/// Records the number of ready packets of a socket that another thread may wait for, and signals that thread.
pub(crate) fn signal(socket: u32, ready: u32) {
    let event = ALL.lock().unwrap_or_else(PoisonError::into_inner).get(socket as usize).copied();
    if let Some(event) = event {
        event.set_ready(ready);
        event.update();
    }
}

/// The ready packets of a socket, and its eventfd, which is created when a thread first waits for the socket.
#[derive(Debug, Default)]
pub(crate) struct ReadyEvent {
    /// Packets in the application's receive ring when a thread last checked.
    ready: AtomicU32,
    fd: OnceLock<Option<OwnedFd>>,
    level: LevelSignal,
    /// Whether the eventfd is in an epoll, so that it must be signalled whether or not a thread waits.
    in_epoll: AtomicBool,
}

impl ReadyEvent {
    /// Creates the event of the socket with the next number.
    pub(crate) fn register() -> &'static Self {
        let event: &'static Self = Box::leak(Box::default());
        ALL.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        event
    }

    /// Returns the number of ready packets.
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Relaxed)
    }

    /// Records the number of ready packets.
    pub(crate) fn set_ready(&self, ready: u32) {
        self.ready.store(ready, Relaxed);
    }

    /// Returns the eventfd; `None` if the process has no descriptor left for it.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = self.fd.get_or_init(|| eventfd(0, flags).ok());
        fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Returns the eventfd for an epoll.
    pub(crate) fn descriptor_for_epoll(&self) -> Option<RawFd> {
        self.in_epoll.store(true, Relaxed);
        ANY_IN_EPOLL.store(true, Relaxed);
        self.descriptor()
    }

    /// Returns whether the eventfd is in an epoll.
    pub(crate) fn is_in_epoll(&self) -> bool {
        self.in_epoll.load(Relaxed)
    }

    /// Makes the eventfd readable if packets are ready, else clears it.
    fn update(&self) {
        let Some(Some(fd)) = self.fd.get() else { return };
        // Each call fails only if the eventfd is already in the wanted state.
        let set = |readable| {
            let _ = if readable {
                rustix::io::write(fd, &1_u64.to_ne_bytes()).map(drop)
            } else {
                rustix::io::read(fd, &mut [0_u8; 8]).map(drop)
            };
        };
        self.level.update(|| self.ready() > 0, set);
    }

    /// Clears the eventfd if it is readable and no packet is ready. Costs one load if it is not readable.
    pub(crate) fn clear(&self) {
        if self.level.shown() {
            self.update();
        }
    }

    /// Updates the eventfd if it is in an epoll.
    pub(crate) fn update_epoll(&self) {
        if self.is_in_epoll() {
            self.update();
        }
    }

    /// Resets the event for a new socket that reuses the object.
    pub(crate) fn reset(&self) {
        self.set_ready(0);
        self.in_epoll.store(false, Relaxed);
        self.clear();
    }
}
