//! The drain thread, which moves rings for an application that makes no calls.
//!
//! It skips a queue whose application comes by itself (it made calls since the last check, or a thread
//! waits in `poll`) and checks it again later. The other queues wake it when the kernel receives a
//! packet or a P4 VM has a verdict. With nothing to do it sleeps without a timeout.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use p4shield_attach::spawn_without_signals;
use p4shield_xsk_relay::sleep::SleepLimit;
use rustix::event::epoll;

use crate::drain_signal;
use crate::poll_set::PollSet;
use crate::queue::{RECHECK_SOON, XskQueue};
use crate::socket::{self, XskSocket};

/// Nanoseconds until the next check of a queue whose application made calls, or that no event would announce.
const RECHECK: u64 = 2_000_000;
/// Nanoseconds until the next check of a queue for which a thread waits in `poll`.
const RECHECK_LATE: u64 = 50_000_000;
/// Rounds without a packet before the thread sleeps without a timeout, since more packets may follow.
const IDLE_ROUNDS: u32 = 16;

/// Starts the thread.
pub(crate) fn start() -> io::Result<()> {
    let wake_event = drain_signal::create()?;
    let sockets = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let drain =
        DrainThread { wake_event, sockets, last_checks: Vec::new(), held: Vec::new(), idle_rounds: 0 };
    spawn_without_signals("p4shield-drain", move || drain.run()).map(drop)
}

/// What the thread saw of a socket at its last check.
struct SocketCheck {
    number: u32,
    generation: u32,
    calls: u32,
    /// Whether a packet that the kernel receives wakes the thread.
    watched: bool,
    /// Consecutive checks that found the kernel still sending.
    unsent_checks: u32,
}

struct DrainThread {
    wake_event: &'static OwnedFd,
    /// An epoll instead of descriptors in `poll`: a `poll` on a socket would keep the kernel from
    /// freeing the socket's queue when the application closes it.
    sockets: OwnedFd,
    last_checks: Vec<SocketCheck>,
    /// The queues that the thread serves and that hold packets.
    held: Vec<(&'static XskSocket, &'static XskQueue)>,
    idle_rounds: u32,
}

/// The result of checking one socket.
#[derive(Default)]
struct CheckResult {
    /// Nanoseconds until the next check; `None` if an event announces the next work.
    recheck: Option<u64>,
    moved: bool,
}

impl DrainThread {
    fn run(mut self) {
        loop {
            let timeout = self.check_all();
            self.sleep(timeout);
        }
    }

    /// Moves the rings of all queues that are left to the thread. Returns how long it may sleep; `None`
    /// without a limit.
    fn check_all(&mut self) -> Option<u64> {
        let mut timeout = None;
        let mut moved = false;
        self.held.clear();
        for socket in socket::all() {
            let Some(queue) = socket.queue() else { continue };
            let result = self.check(socket, queue);
            moved |= result.moved;
            timeout = match (timeout, result.recheck) {
                (Some(a), Some(b)) => Some(u64::min(a, b)),
                (a, b) => a.or(b),
            };
        }
        self.idle_rounds = if moved { 0 } else { self.idle_rounds.saturating_add(1) };
        if moved {
            std::thread::yield_now();
            return Some(0);
        }
        if self.idle_rounds < IDLE_ROUNDS {
            Some(timeout.map_or(RECHECK_SOON, |t| t.min(RECHECK_SOON)))
        } else {
            timeout
        }
    }

    /// Moves a socket's rings if no other thread does.
    fn check(&mut self, socket: &'static XskSocket, queue: &'static XskQueue) -> CheckResult {
        let last = last_check(&mut self.last_checks, socket, queue);
        let calls = queue.calls.load(Relaxed);
        let called = std::mem::replace(&mut last.calls, calls) != calls;
        let waited_for = queue.sleepers.has_waiters();
        let handed_over = queue.handed_over.swap(false, Relaxed);
        if !handed_over && (called || (waited_for && !queue.is_unattended())) {
            watch(&self.sockets, socket, queue, last, false);
            return CheckResult { recheck: Some(if called { RECHECK } else { RECHECK_LATE }), moved: false };
        }
        let mut stalled = false;
        let moved = queue.pump_receive(|pump| {
            stalled = pump.is_stalled();
            socket.update_readiness(pump);
        });
        socket.event.update_epoll();
        queue.pump_transmit(socket.number_and_fd(), false, |_| {});
        if queue.sleepers.holds_any() {
            self.held.push((socket, queue));
        }
        let recheck = if queue.has_unsent() || queue.never_calls.load(Relaxed) {
            Some(RECHECK_SOON)
        } else if queue.kernel_is_sending() {
            // No event announces completions, so the interval doubles from check to check.
            last.unsent_checks = (last.unsent_checks + 1).min(10);
            Some((RECHECK_SOON << last.unsent_checks).min(RECHECK_LATE))
        } else {
            last.unsent_checks = 0;
            stalled.then_some(RECHECK)
        };
        watch(&self.sockets, socket, queue, last, !stalled);
        CheckResult { recheck, moved: moved.unwrap_or_default() }
    }

    fn sleep(&self, timeout: Option<u64>) {
        let mut set = PollSet::new(timeout);
        set.watch(self.wake_event.as_raw_fd(), libc::POLLIN);
        set.watch(self.sockets.as_raw_fd(), libc::POLLIN);
        let own = set.entries().len();
        let mut may = true;
        for (socket, queue) in &self.held {
            may &= queue.enter_sleep(socket.number_and_fd(), &mut set, |pump| {
                socket.update_readiness(pump);
                true
            });
            socket.event.update_epoll();
        }
        if !may {
            set.timeout = Some(0);
        }
        match drain_signal::enter_sleep(set.timeout.is_none_or(|t| t > RECHECK)) {
            SleepLimit::AsPlanned => {}
            SleepLimit::Short => set.limit(RECHECK),
            SleepLimit::NoSleep => set.timeout = Some(0),
        }
        // An error ends the sleep early.
        let _ = set.poll(None);
        drain_signal::leave_sleep();
        let rang = set.entries()[own..].iter().any(|p| p.revents != 0);
        self.held.iter().for_each(|(_, queue)| queue.leave_sleep(rang));
        if set.entries()[0].revents != 0 {
            let _ = rustix::io::read(self.wake_event, &mut [0_u8; 8]);
        }
    }
}

/// Returns the last check of a socket; a fresh one if the socket object was reused since.
fn last_check<'c>(
    all: &'c mut Vec<SocketCheck>,
    socket: &XskSocket,
    queue: &XskQueue,
) -> &'c mut SocketCheck {
    let (number, generation) = (socket.number, socket.generation.load(Relaxed));
    let at = all.iter().position(|s| s.number == number).unwrap_or_else(|| {
        let calls = queue.calls.load(Relaxed);
        all.push(SocketCheck { number, generation, calls, watched: false, unsent_checks: 0 });
        all.len() - 1
    });
    let last = &mut all[at];
    if last.generation != generation {
        (last.generation, last.watched) = (generation, false);
    }
    last
}

/// Adds the kernel's socket to the thread's epoll, or removes it. Inside the pump, so that the
/// descriptor is not closed meanwhile.
fn watch(sockets: &OwnedFd, socket: &XskSocket, queue: &XskQueue, last: &mut SocketCheck, watched: bool) {
    if last.watched == watched {
        return;
    }
    queue.pump_receive(|pump| {
        socket.update_readiness(pump);
        if last.watched == watched {
            return;
        }
        let fd = socket.borrow_fd();
        let data = epoll::EventData::new_u64(socket.number.into());
        // A failure costs one sleep or one wake-up too many.
        let _ = if watched {
            epoll::add(sockets.as_fd(), fd, data, epoll::EventFlags::IN)
        } else {
            epoll::delete(sockets.as_fd(), fd)
        };
        last.watched = watched;
    });
}
