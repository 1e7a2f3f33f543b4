//! The thread that moves rings for an application that makes no calls.
//!
//! It leaves a queue alone whose application comes by itself (calls were made since it last looked, or a thread waits in
//! `poll`), and looks again after a while. Queues that are left to it wake it when the kernel receives something or a judge
//! has decided. With nothing to do it sleeps for good.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use p4shield_attach::spawn_without_signals;
use p4shield_xsk_relay::sleep::{SleepLimit, StandbyThread};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::queue::{Queue, SOON};
use crate::real;
use crate::rest::Rest;
use crate::socket::{self, Socket};

/// Nanoseconds until it looks again: an application does its work itself, or has nothing that could wake us,
const LATER: u64 = 2_000_000;
/// an application waits.
const MUCH_LATER: u64 = 50_000_000;
/// Rounds without a packet, after one, in which it does not sleep for good: more may come.
const PATIENCE: u32 = 16;

/// Wakes the thread.
static BELL: OnceLock<OwnedFd> = OnceLock::new();
/// Whether it sleeps (for long: longer than [`LATER`]), and what was left to it meanwhile.
static STANDBY: StandbyThread = StandbyThread::new();

/// Starts it.
pub(crate) fn start() -> io::Result<()> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let bell = BELL.get_or_init(|| bell);
    let drain = Drain { bell, sockets, seen: Vec::new(), mine: Vec::new(), quiet: 0 };
    spawn_without_signals("p4shield-drain", move || drain.run()).map(drop)
}

/// Has it look, if it sleeps for long: there is a new socket, or something is left that nobody may come for.
#[inline]
pub(crate) fn notify() {
    if STANDBY.notify() {
        ring();
    }
}

/// Has it look at once: the thread that came for this queue until now is about to sleep elsewhere.
pub(crate) fn hand_over(queue: &Queue) {
    queue.handed_over.store(true, Relaxed);
    if STANDBY.notify_urgently() {
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
    /// Looks in a row after which the kernel had sent nothing.
    unsent: u32,
}

struct Drain {
    bell: &'static OwnedFd,
    /// An epoll and not descriptors in `poll`, because a call that waits for a socket keeps the kernel from freeing its
    /// queue when the application closes it.
    sockets: OwnedFd,
    seen: Vec<Seen>,
    /// Queues that are left to us, with packets at judges.
    mine: Vec<(&'static Socket, &'static Queue)>,
    quiet: u32,
}

/// What came of a look at a socket.
#[derive(Default)]
struct Visit {
    /// When to look again; none is when something wakes us.
    time: Option<u64>,
    moved: bool,
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
        self.mine.clear();
        for socket in socket::all() {
            let Some(queue) = socket.queue() else { continue };
            let visit = self.visit(socket, queue);
            moved |= visit.moved;
            rest = match (rest, visit.time) {
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

    /// Moves a socket's rings if nobody else does.
    fn visit(&mut self, socket: &'static Socket, queue: &'static Queue) -> Visit {
        let seen = seen(&mut self.seen, socket, queue);
        let calls = queue.calls.load(Relaxed);
        let comes = std::mem::replace(&mut seen.calls, calls) != calls;
        let waits = queue.sleepers.has_waiters();
        let handed_over = queue.handed_over.swap(false, Relaxed);
        if !handed_over && (comes || (waits && !queue.is_unattended())) {
            watch(&self.sockets, socket, queue, seen, false);
            return Visit { time: Some(if comes { LATER } else { MUCH_LATER }), moved: false };
        }
        let mut is_stalled = false;
        let moved = queue.pump_receive(|pump| {
            is_stalled = pump.is_stalled();
            socket.see(pump);
        });
        socket.bell.tell_epoll(&socket.ready);
        queue.pump_transmit(socket.itself(), false, |_| {});
        if queue.sleepers.holds_any() {
            self.mine.push((socket, queue));
        }
        let time = if queue.unsent() || queue.never_calls.load(Relaxed) {
            Some(SOON)
        } else if queue.kernel_sends() {
            // Nothing tells of what the kernel has sent: it is looked for ever less often.
            seen.unsent = (seen.unsent + 1).min(10);
            Some((SOON << seen.unsent).min(MUCH_LATER))
        } else {
            seen.unsent = 0;
            is_stalled.then_some(LATER)
        };
        watch(&self.sockets, socket, queue, seen, !is_stalled);
        Visit { time, moved: moved.unwrap_or_default() }
    }

    fn sleep(&self, time: Option<u64>) {
        let mut rest = Rest::new(time);
        rest.watch(self.bell.as_raw_fd(), libc::POLLIN);
        rest.watch(self.sockets.as_raw_fd(), libc::POLLIN);
        let own = rest.entries().len();
        let mut may = true;
        for (socket, queue) in &self.mine {
            may &= queue.announce(socket.itself(), &mut rest, |pump| {
                socket.see(pump);
                true
            });
            socket.bell.tell_epoll(&socket.ready);
        }
        if !may {
            rest.time = Some(0);
        }
        match STANDBY.mark_asleep(rest.time.is_none_or(|t| t > LATER)) {
            SleepLimit::AsPlanned => {}
            SleepLimit::Short => rest.at_most(LATER),
            SleepLimit::NoSleep => rest.time = Some(0),
        }
        // SAFETY: no mask. An error is an early end of sleep.
        let _ = unsafe { real::wait_for(&mut rest, std::ptr::null()) };
        STANDBY.mark_awake();
        let rang = rest.entries()[own..].iter().any(|p| p.revents != 0);
        self.mine.iter().for_each(|(_, queue)| queue.slept(rang));
        if rest.entries()[0].revents != 0 {
            let _ = rustix::io::read(self.bell, &mut [0_u8; 8]);
        }
    }
}

/// What is known of a socket; nothing of one whose place is used again.
fn seen<'s>(all: &'s mut Vec<Seen>, socket: &Socket, queue: &Queue) -> &'s mut Seen {
    let (number, life) = (socket.number, socket.life.load(Relaxed));
    let at = all.iter().position(|s| s.number == number).unwrap_or_else(|| {
        let calls = queue.calls.load(Relaxed);
        all.push(Seen { number, life, calls, watched: false, unsent: 0 });
        all.len() - 1
    });
    let seen = &mut all[at];
    if seen.life != life {
        (seen.life, seen.watched) = (life, false);
    }
    seen
}

/// Has the kernel's receiving wake us, or not. Inside the pump, so that the descriptor is not closed meanwhile.
fn watch(sockets: &OwnedFd, socket: &Socket, queue: &Queue, seen: &mut Seen, watched: bool) {
    if seen.watched == watched {
        return;
    }
    queue.pump_receive(|pump| {
        socket.see(pump);
        if seen.watched == watched {
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
