//! An event for packets that the kernel's socket no longer tells of.
//!
//! Whoever takes a packet out of the kernel's ring, and a judge that holds it, leave the kernel's socket silent while the
//! packet stands in our ring, or is about to. So a socket that is waited for has a bell, an eventfd that is readable while
//! packets stand in our ring: in `poll` it is waited for as well, and in an application's epoll it stands beside the
//! kernel's socket, under the same name.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use p4shield_xsk_relay::sleep::LevelSignal;
use rustix::event::{EventfdFlags, eventfd};

use crate::socket::{self, Socket};
use crate::wait;

/// Whether any socket ever was in an epoll.
static ANY: AtomicBool = AtomicBool::new(false);

/// A socket's bell, made when it is first waited for.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    fd: OnceLock<Option<OwnedFd>>,
    rung: LevelSignal,
    /// Whether it stands in an epoll, where it has to be rung whether or not a thread waits.
    in_epoll: AtomicBool,
}

impl Bell {
    pub(crate) const fn new() -> Self {
        Self { fd: OnceLock::new(), rung: LevelSignal::new(), in_epoll: AtomicBool::new(false) }
    }

    /// Its descriptor; none where there are no descriptors left.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = self.fd.get_or_init(|| eventfd(0, flags).ok());
        fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Its descriptor, to be put into an epoll.
    pub(crate) fn for_epoll(&self) -> Option<RawFd> {
        self.in_epoll.store(true, Relaxed);
        ANY.store(true, Relaxed);
        self.descriptor()
    }

    /// Makes it readable while there are packets, or silences it.
    pub(crate) fn tell(&self, ready: &AtomicU32) {
        let Some(Some(fd)) = self.fd.get() else { return };
        // Neither fails but for a state that it is to be brought into.
        let set = |rung| {
            let _ = if rung {
                rustix::io::write(fd, &1_u64.to_ne_bytes()).map(drop)
            } else {
                rustix::io::read(fd, &mut [0_u8; 8]).map(drop)
            };
        };
        self.rung.update(|| ready.load(Relaxed) > 0, set);
    }

    /// Silences it if it is rung and there are no packets. One load if it is silent.
    pub(crate) fn silence(&self, ready: &AtomicU32) {
        if self.rung.shown() {
            self.tell(ready);
        }
    }

    /// Has an epoll that it stands in know whether packets stand in our ring.
    pub(crate) fn tell_epoll(&self, ready: &AtomicU32) {
        if self.in_epoll.load(Relaxed) {
            self.tell(ready);
        }
    }

    /// It is for another socket from now on, which has no packets.
    pub(crate) fn forget(&self, ready: &AtomicU32) {
        self.in_epoll.store(false, Relaxed);
        self.silence(ready);
    }
}

/// Before a thread waits in an epoll (`sleeps`), and after: moves what there is, and has the bells say it.
#[inline]
pub(crate) fn look_around(sleeps: bool) {
    if ANY.load(Relaxed) {
        let errno = crate::real::errno();
        look(sleeps);
        crate::real::fail(errno);
    }
}

#[cold]
fn look(sleeps: bool) {
    let belled = |s: &&Socket| s.bell.in_epoll.load(Relaxed);
    for socket in socket::all().into_iter().filter(belled) {
        if let Some(queue) = socket.queue() {
            wait::service(socket, queue);
            socket.bell.tell_epoll(&socket.ready);
            if sleeps && queue.is_unattended() {
                crate::drain::hand_over(queue);
            }
        }
    }
}
