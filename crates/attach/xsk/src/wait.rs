//! `poll`: looks into our rings, and waits with the kernel's.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, pollfd, sigset_t};

use crate::queue::{Queue, SOON, now};
use crate::rest::Rest;
use crate::socket::Socket;
use crate::{drain, real, table};

/// Whether a call is about one of ours at all.
#[inline]
pub(crate) fn concerns(fds: &[pollfd]) -> bool {
    fds.iter().any(|p| table::get(p.fd).is_some_and(|s| s.queue().is_some()))
}

/// Moves what a socket has, on the way of any call of the application's.
pub(crate) fn service(socket: &Socket, queue: &Queue) {
    queue.called();
    queue.pump_receive(|pump| {
        socket.see(pump);
        queue.kernel_wants.store(pump.kernel_need_wakeup(), Relaxed);
    });
    if queue.sends() {
        queue.pump_transmit(socket.itself(), false, |_| {});
    }
}

/// What `poll` and `ppoll` do, for a call that [`concerns`] us. `timeout` in nanoseconds; none waits for ever.
///
/// # Safety
/// As for `ppoll`.
pub(crate) unsafe fn wait(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> c_int {
    let end = timeout.filter(|t| *t > 0).map(|t| now().saturating_add(t));
    let mut probing = timeout != Some(0);
    loop {
        let ready = look(fds);
        let left = if timeout == Some(0) { timeout } else { end.map(|e| e.saturating_sub(now())) };
        // The first call that would sleep may be made only because our flag asked for a call: it comes back at once, and
        // the flag is not set again for a socket that sleeps.
        let at_once = ready || left == Some(0) || (probing && found_asleep(fds));
        probing = false;
        // SAFETY: the caller's promise about the mask.
        let Ok(woken) = (unsafe { if at_once { glance(fds, mask) } else { sleep(fds, left, mask) } }) else {
            return -1;
        };
        if !at_once && woken {
            look(fds);
        }
        if fds.iter().filter_map(|p| bound(p.fd)).any(|(_, q)| q.is_unattended()) {
            drain::notify();
        }
        let answers = fds.iter().filter(|p| p.revents != 0).count();
        if at_once || answers > 0 {
            return answers as c_int;
        }
    }
}

/// Pumps, and says what of ours is ready. Leaves the answers for other descriptors as they are.
fn look(fds: &mut [pollfd]) -> bool {
    let mut ready = false;
    for p in fds {
        let Some((socket, queue)) = bound(p.fd) else { continue };
        service(socket, queue);
        let mut events = 0;
        if socket.ready.load(Relaxed) > 0 {
            events |= libc::POLLIN | libc::POLLRDNORM;
        } else {
            socket.bell.silence(&socket.ready);
        }
        if p.events & libc::POLLOUT != 0 && writable(socket, queue) {
            events |= libc::POLLOUT | libc::POLLWRNORM;
        }
        p.revents = events & p.events;
        ready |= p.revents != 0;
    }
    ready
}

fn writable(socket: &Socket, queue: &Queue) -> bool {
    let mut writable = false;
    queue.pump_transmit(socket.itself(), false, |pump| writable = pump.writable(socket.number));
    writable
}

fn bound(fd: RawFd) -> Option<(&'static Socket, &'static Queue)> {
    let socket = table::get(fd)?;
    Some((socket, socket.queue()?))
}

/// Notes that sockets are slept for. True if that is new for one of them.
fn found_asleep(fds: &[pollfd]) -> bool {
    let mut new = false;
    for p in fds {
        if let Some((socket, queue)) = bound(p.fd).filter(|(s, _)| !s.sleeps.load(Relaxed)) {
            socket.found_asleep(queue);
            new = true;
        }
    }
    new
}

/// Asks the kernel about the other descriptors, and about ours if it wants to be called for them; sleeps not.
///
/// # Safety
/// The mask is null or one.
unsafe fn glance(fds: &mut [pollfd], mask: *const sigset_t) -> Result<bool, ()> {
    let mut rest = Rest::new(Some(0));
    let asks = |p: &pollfd| match bound(p.fd) {
        Some((_, queue)) => queue.kernel_wants.load(Relaxed),
        None => p.fd >= 0,
    };
    if !fds.iter().any(asks) {
        return Ok(false);
    }
    kernels(fds, &mut rest);
    // SAFETY: the caller's mask.
    unsafe { ask(fds, &mut rest, mask) }
}

/// The kernel's `ppoll`: on other descriptors as asked, on ours until a packet comes that the application has room for, or
/// a judge has decided.
///
/// # Safety
/// The mask is null or one.
unsafe fn sleep(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> Result<bool, ()> {
    let mut rest = Rest::new(timeout);
    kernels(fds, &mut rest);
    // A socket may be closed meanwhile: what was announced for it is taken back all the same.
    let mut queues = Vec::with_capacity(fds.len());
    let mut may = true;
    for p in &*fds {
        let Some((socket, queue)) = bound(p.fd) else { continue };
        // Room in a ring is nothing that wakes.
        if !socket.room.load(Relaxed) || p.events & libc::POLLOUT != 0 {
            rest.at_most(SOON);
        }
        if let Some(bell) = socket.bell.descriptor() {
            rest.watch(bell, libc::POLLIN);
        }
        queue.sleepers.begin_wait();
        may &= queue.announce(socket.itself(), &mut rest, |pump| pump.ready(socket.number) == 0);
        queues.push(queue);
    }
    if !may {
        rest.time = Some(0);
    }
    // SAFETY: the caller's mask.
    let result = unsafe { ask(fds, &mut rest, mask) };
    let rang = rest.entries()[fds.len()..].iter().any(|p| p.revents != 0);
    for queue in queues {
        queue.slept(rang);
        queue.sleepers.end_wait();
    }
    result
}

/// What the kernel is asked for each of these.
fn kernels(fds: &[pollfd], rest: &mut Rest) {
    for p in fds {
        let events = match bound(p.fd) {
            None => p.events,
            Some((socket, _)) if socket.room.load(Relaxed) => libc::POLLIN,
            Some(_) => 0,
        };
        rest.watch(p.fd, events);
    }
}

/// Asks, and answers for all descriptors but ours, of which only errors are passed on: what is readable is in our ring, or
/// will be.
///
/// # Safety
/// The mask is null or one.
unsafe fn ask(fds: &mut [pollfd], rest: &mut Rest, mask: *const sigset_t) -> Result<bool, ()> {
    // SAFETY: the caller's mask.
    let n = unsafe { real::wait_for(rest, mask) };
    for (answer, p) in rest.entries().iter().zip(fds) {
        match bound(p.fd) {
            None => p.revents = answer.revents,
            Some(_) => p.revents |= answer.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL),
        }
    }
    if n < 0 { Err(()) } else { Ok(n > 0) }
}
