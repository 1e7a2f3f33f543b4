//! `poll` and `ppoll`: check the replaced rings, then wait with the kernel's.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, pollfd, sigset_t};

use crate::drain_signal;
use crate::poll_set::PollSet;
use crate::queue::{RECHECK_SOON, XskQueue, now};
use crate::socket::{SOCKETS, XskSocket};

/// Returns whether a call includes a bound AF_XDP socket.
#[inline]
pub(crate) fn concerns_sockets(fds: &[pollfd]) -> bool {
    fds.iter().any(|p| bound(p.fd).is_some())
}

/// Implements `poll` and `ppoll` for a call that [concerns](concerns_sockets) an AF_XDP socket.
/// `timeout` in nanoseconds; `None` waits without a limit.
pub(crate) fn wait(fds: &mut [pollfd], timeout: Option<u64>, mask: Option<&sigset_t>) -> c_int {
    let end = timeout.filter(|t| *t > 0).map(|t| now().saturating_add(t));
    let mut first = timeout != Some(0);
    loop {
        let ready = check_sockets(fds);
        let left = if timeout == Some(0) { timeout } else { end.map(|e| e.saturating_sub(now())) };
        // The need_wakeup flag may have caused the first call that would sleep. That call returns at
        // once, and the flag is not set again for a socket for which a thread sleeps in `poll`.
        let at_once = ready || left == Some(0) || (first && note_poll_sleep(fds));
        first = false;
        let result = if at_once { query(fds, mask) } else { sleep(fds, left, mask) };
        let Ok(woken) = result else { return -1 };
        if !at_once && woken {
            check_sockets(fds);
        }
        if fds.iter().filter_map(|p| bound(p.fd)).any(|(_, q)| q.is_unattended()) {
            drain_signal::notify();
        }
        let answers = fds.iter().filter(|p| p.revents != 0).count();
        if at_once || answers > 0 {
            return answers as c_int;
        }
    }
}

/// Pumps the AF_XDP sockets and sets their `revents`. Returns whether one of them is ready. Leaves the
/// other entries as they are.
fn check_sockets(fds: &mut [pollfd]) -> bool {
    let mut ready = false;
    for p in fds {
        let Some((socket, queue)) = bound(p.fd) else { continue };
        socket.service(queue);
        let mut events = 0;
        if socket.event.ready() > 0 {
            events |= libc::POLLIN | libc::POLLRDNORM;
        } else {
            socket.event.clear();
        }
        if p.events & libc::POLLOUT != 0 && is_writable(socket, queue) {
            events |= libc::POLLOUT | libc::POLLWRNORM;
        }
        p.revents = events & p.events;
        ready |= p.revents != 0;
    }
    ready
}

fn is_writable(socket: &XskSocket, queue: &XskQueue) -> bool {
    let mut writable = false;
    queue.pump_transmit(socket.number_and_fd(), false, |pump| writable = pump.writable(socket.number));
    writable
}

fn bound(fd: RawFd) -> Option<(&'static XskSocket, &'static XskQueue)> {
    let socket = SOCKETS.get(fd)?;
    Some((socket, socket.queue()?))
}

/// Records that a thread sleeps in `poll` for these sockets. Returns true if that is new for one of them.
fn note_poll_sleep(fds: &[pollfd]) -> bool {
    let mut new = false;
    for p in fds {
        if let Some((socket, queue)) = bound(p.fd).filter(|(s, _)| !s.sleeps_in_poll.load(Relaxed)) {
            socket.note_poll_sleep(queue);
            new = true;
        }
    }
    new
}

/// Queries the kernel for the other descriptors, and for AF_XDP sockets whose fill ring needs a call,
/// without sleeping.
fn query(fds: &mut [pollfd], mask: Option<&sigset_t>) -> Result<bool, ()> {
    let mut set = PollSet::new(Some(0));
    let needs_query = |p: &pollfd| match bound(p.fd) {
        Some((_, queue)) => queue.kernel_needs_wakeup.load(Relaxed),
        None => p.fd >= 0,
    };
    if !fds.iter().any(needs_query) {
        return Ok(false);
    }
    add_kernel_events(fds, &mut set);
    poll_kernel(fds, &mut set, mask)
}

/// Sleeps in the kernel's `ppoll`: on other descriptors as the application requested; on AF_XDP sockets
/// until a packet comes that the receive ring has room for, or a P4 VM has a verdict.
fn sleep(fds: &mut [pollfd], timeout: Option<u64>, mask: Option<&sigset_t>) -> Result<bool, ()> {
    let mut set = PollSet::new(timeout);
    add_kernel_events(fds, &mut set);
    // Kept, since a socket may be closed meanwhile: its queue's sleep must end all the same.
    let mut queues = Vec::with_capacity(fds.len());
    let mut may = true;
    for p in &*fds {
        let Some((socket, queue)) = bound(p.fd) else { continue };
        // No event announces free ring entries.
        if !socket.has_room.load(Relaxed) || p.events & libc::POLLOUT != 0 {
            set.limit(RECHECK_SOON);
        }
        if let Some(event) = socket.event.descriptor() {
            set.watch(event, libc::POLLIN);
        }
        queue.sleepers.begin_wait();
        may &= queue.enter_sleep(socket.number_and_fd(), &mut set, |pump| pump.ready(socket.number) == 0);
        queues.push(queue);
    }
    if !may {
        set.timeout = Some(0);
    }
    let result = poll_kernel(fds, &mut set, mask);
    let rang = set.entries()[fds.len()..].iter().any(|p| p.revents != 0);
    for queue in queues {
        queue.leave_sleep(rang);
        queue.sleepers.end_wait();
    }
    result
}

/// Adds the events to request from the kernel for each entry.
fn add_kernel_events(fds: &[pollfd], set: &mut PollSet) {
    for p in fds {
        let events = match bound(p.fd) {
            None => p.events,
            Some((socket, _)) if socket.has_room.load(Relaxed) => libc::POLLIN,
            Some(_) => 0,
        };
        set.watch(p.fd, events);
    }
}

/// Polls the kernel and copies `revents`. For AF_XDP sockets copies only errors: a packet that makes the
/// kernel's socket readable is, or will be, in the replaced ring.
fn poll_kernel(fds: &mut [pollfd], set: &mut PollSet, mask: Option<&sigset_t>) -> Result<bool, ()> {
    let n = set.poll(mask);
    for (answer, p) in set.entries().iter().zip(fds) {
        match bound(p.fd) {
            None => p.revents = answer.revents,
            Some(_) => p.revents |= answer.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL),
        }
    }
    if n < 0 { Err(()) } else { Ok(n > 0) }
}
