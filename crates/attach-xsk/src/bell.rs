//! `epoll`: an event for packets that the kernel's socket no longer tells of.
//!
//! The kernel's socket in the application's epoll says that a packet came. Whoever takes it out of the kernel's ring, and
//! a judge that holds it, leave that socket silent while a packet stands in our ring, or is about to. So each such socket
//! has a bell, an eventfd that is in the same epoll under the same name, and is readable while packets stand in our ring.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

use rustix::event::{EventfdFlags, eventfd};

use crate::socket::{self, Socket};
use crate::wait;

/// Whether any socket ever was in an epoll.
static ANY: AtomicBool = AtomicBool::new(false);

/// A socket's bell, made when it first is in an epoll.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    fd: OnceLock<Option<OwnedFd>>,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) const fn new() -> Self {
        Self { fd: OnceLock::new(), rung: AtomicBool::new(false) }
    }

    /// Its descriptor, to be put into an epoll; none where there are no descriptors left.
    pub(crate) fn descriptor(&self) -> Option<RawFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = self.fd.get_or_init(|| eventfd(0, flags).ok());
        ANY.store(true, Relaxed);
        fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Makes it readable, or not.
    pub(crate) fn set(&self, rung: bool) {
        let Some(Some(fd)) = self.fd.get() else { return };
        if self.rung.swap(rung, AcqRel) != rung {
            // Neither fails but for a state that it is to be brought into.
            let _ = if rung {
                rustix::io::write(fd, &1_u64.to_ne_bytes()).map(drop)
            } else {
                rustix::io::read(fd, &mut [0_u8; 8]).map(drop)
            };
        }
    }

    /// Whether it was made.
    pub(crate) fn exists(&self) -> bool {
        self.fd.get().is_some()
    }
}

/// Before a thread waits in an epoll, and after: moves what there is, and has the bells say it.
#[inline]
pub(crate) fn look_around() {
    if ANY.load(Relaxed) {
        let errno = crate::real::errno();
        look();
        crate::real::fail(errno);
    }
}

#[cold]
fn look() {
    let belled = |s: &&Socket| s.bell.exists();
    for socket in socket::all().into_iter().filter(belled) {
        if let Some(queue) = socket.queue() {
            wait::service(socket, queue);
            socket.bell.set(socket.ready.load(Acquire) > 0);
            if queue.busy() {
                crate::drain::nudge();
            }
        }
    }
}
