//! The thread that moves rings for an application that makes no calls.
//!
//! It leaves a queue alone whose application comes by itself (calls were made since it last looked, or a thread waits in
//! `poll`), and looks again after a while. Queues that are left to it wake it when the kernel receives something; with
//! packets at a judge or on their way out it comes back in short naps. With nothing to do it sleeps for good.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Relaxed};

use p4shield_attach::spawn_without_signals;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use crate::queue::Queue;
use crate::socket::{self, Socket};

/// Nanoseconds until it looks again: packets are with a judge or on their way out,
const SOON: u64 = 50_000;
/// an application does its work itself, or has nothing that could wake us,
const LATER: u64 = 2_000_000;
/// an application waits.
const MUCH_LATER: u64 = 50_000_000;
/// Rounds without a packet, after one, in which it does not sleep for good: more may come.
const PATIENCE: u32 = 16;

/// Wakes the thread.
static BELL: OnceLock<OwnedFd> = OnceLock::new();
/// Whether it sleeps without an end.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Starts it.
pub(crate) fn start() -> io::Result<()> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let bell = BELL.get_or_init(|| bell);
    let drain = Drain { bell, sockets, seen: Vec::new(), quiet: 0 };
    spawn_without_signals("p4shield-drain", move || drain.run()).map(drop)
}

/// Has it look, if it sleeps for good: there is a new socket, or something is left that nobody may come for.
#[inline]
pub(crate) fn nudge() {
    if ASLEEP.load(Relaxed) && ASLEEP.swap(false, AcqRel) {
        ring();
    }
}

#[cold]
fn ring() {
    if let Some(bell) = BELL.get() {
        // A full counter wakes it as well.
        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
    }
}

/// What it knew of a socket when it last looked.
struct Seen {
    number: u32,
    life: u32,
    calls: u32,
    /// Whether the kernel's receiving wakes us.
    watched: bool,
}

struct Drain {
    bell: &'static OwnedFd,
    /// An epoll and not descriptors in `poll`, because a call that waits for a socket keeps the kernel from freeing its
    /// queue when the application closes it.
    sockets: OwnedFd,
    seen: Vec<Seen>,
    quiet: u32,
}

impl Drain {
    fn run(mut self) {
        loop {
            let rest = self.look();
            self.sleep(rest);
        }
    }

    /// Does what is left to it. Returns for how long it may sleep; none is for good.
    fn look(&mut self) -> Option<u64> {
        let mut rest = None;
        let mut moved = false;
        for socket in socket::all() {
            let Some(queue) = socket.queue() else { continue };
            let (time, some) = self.visit(socket, queue);
            moved |= some;
            rest = match (rest, time) {
                (Some(a), Some(b)) => Some(u64::min(a, b)),
                (a, b) => a.or(b),
            };
        }
        self.quiet = if moved { 0 } else { self.quiet.saturating_add(1) };
        if moved {
            std::thread::yield_now();
            return Some(0);
        }
        if self.quiet < PATIENCE { Some(rest.map_or(SOON, |r| r.min(SOON))) } else { rest }
    }

    /// Moves a socket's rings if nobody else does. Returns when to look again, and whether something moved.
    fn visit(&mut self, socket: &Socket, queue: &Queue) -> (Option<u64>, bool) {
        let (calls, life) = (queue.calls.load(Relaxed), socket.life.load(Relaxed));
        let at = self.seen.iter().position(|s| s.number == socket.number).unwrap_or_else(|| {
            self.seen.push(Seen { number: socket.number, life, calls, watched: false });
            self.seen.len() - 1
        });
        let seen = &mut self.seen[at];
        if seen.life != life {
            (seen.life, seen.watched) = (life, false);
        }
        let comes = seen.calls != calls;
        seen.calls = calls;
        let waits = queue.waiting.load(Relaxed) > 0;
        if comes || waits {
            watch(&self.sockets, socket, queue, seen, false);
            return (Some(if comes { LATER } else { MUCH_LATER }), false);
        }
        let mut starves = false;
        let moved = queue.pump_receive(|pump| {
            starves = pump.starves();
            socket.ready.store(pump.ready(socket.number), Relaxed);
        });
        socket.bell.set(socket.ready.load(Relaxed) > 0);
        queue.pump_transmit((socket.number, socket.fd.load(Relaxed)), false);
        let time = match (queue.busy(), starves) {
            (true, _) => Some(SOON),
            (false, true) => Some(LATER),
            (false, false) => None,
        };
        watch(&self.sockets, socket, queue, seen, !starves);
        (time, moved.unwrap_or_default())
    }

    fn sleep(&self, rest: Option<u64>) {
        if rest.is_none() {
            ASLEEP.store(true, Relaxed);
        }
        let time = rest.map(|t| Timespec { tv_sec: 0, tv_nsec: t.min(999_999_999) as i64 });
        let mut fds = [PollFd::new(self.bell, PollFlags::IN), PollFd::new(&self.sockets, PollFlags::IN)];
        // An error is an early end of sleep.
        let _ = poll(&mut fds, time.as_ref());
        ASLEEP.store(false, Relaxed);
        if !fds[0].revents().is_empty() {
            let _ = rustix::io::read(self.bell, &mut [0_u8; 8]);
        }
    }
}

/// Has the kernel's receiving wake us, or not. Inside the pump, so that the descriptor is not closed meanwhile.
fn watch(sockets: &OwnedFd, socket: &Socket, queue: &Queue, seen: &mut Seen, watched: bool) {
    if seen.watched == watched {
        return;
    }
    queue.receive.run(|pump| {
        if pump.is_none() || seen.watched == watched {
            return;
        }
        // SAFETY: a socket with a pump is open: closing it takes the pump away first, and we are inside.
        let fd = unsafe { BorrowedFd::borrow_raw(socket.fd.load(Relaxed)) };
        let data = epoll::EventData::new_u64(socket.number.into());
        // What fails leaves it as it is, and costs a nap or a wake-up too many.
        let _ = if watched {
            epoll::add(sockets.as_fd(), fd, data, epoll::EventFlags::IN)
        } else {
            epoll::delete(sockets.as_fd(), fd)
        };
        seen.watched = watched;
    });
}
