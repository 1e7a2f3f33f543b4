//! `poll`: looks into our rings, and waits with the kernel's.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, nfds_t, pollfd, sigset_t, timespec};

use crate::queue::{Queue, now};
use crate::socket::Socket;
use crate::{drain, real, table};

/// How long a thread sleeps while packets are with a judge or on their way out.
const NAP: u64 = 50_000;
/// Descriptors of one call that need no memory from the heap.
const FEW: usize = 16;

/// Whether a call is about one of ours at all.
#[inline]
pub(crate) fn concerns(fds: &[pollfd]) -> bool {
    fds.iter().any(|p| table::get(p.fd).is_some_and(|s| s.queue().is_some()))
}

/// Moves what a socket has, on the way of any call of the application's.
pub(crate) fn service(socket: &Socket, queue: &Queue) {
    queue.called();
    queue.pump_receive(|pump| {
        socket.ready.store(pump.ready(socket.number), Relaxed);
        socket.room.store(pump.has_room(socket.number), Relaxed);
        queue.kernel_wants.store(pump.kernel_needs_wakeup(), Relaxed);
    });
    if queue.sending.load(Relaxed) {
        queue.pump_transmit((socket.number, socket.fd.load(Relaxed)), false);
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
        let Ok(woken) = (unsafe { sleep(fds, if at_once { Some(0) } else { left }, mask) }) else {
            return -1;
        };
        if !at_once && woken {
            look(fds);
        }
        if fds.iter().filter_map(|p| bound(p.fd)).any(|(_, q)| q.busy()) {
            drain::nudge();
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
    queue.transmit.run(|pump| writable = pump.as_mut().is_some_and(|p| p.writable(socket.number)));
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

/// The kernel's `ppoll`: on other descriptors as asked, on ours until a packet comes that the application has room for.
///
/// # Safety
/// As for `ppoll`.
unsafe fn sleep(fds: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> Result<bool, ()> {
    let mut few = [pollfd { fd: -1, events: 0, revents: 0 }; FEW];
    let mut many = Vec::new();
    let set = if fds.len() <= FEW {
        &mut few[..fds.len()]
    } else {
        many.resize(fds.len(), few[0]);
        &mut many[..]
    };
    let mut longest = timeout;
    // Whether the kernel is to be asked although nobody is to sleep: for others, or because it wants a call to go on.
    let mut ask = false;
    for (ours, p) in set.iter_mut().zip(&*fds) {
        *ours = *p;
        ours.revents = 0;
        let Some((socket, queue)) = bound(p.fd) else {
            ask |= p.fd >= 0;
            continue;
        };
        ours.events = if socket.room.load(Relaxed) { libc::POLLIN } else { 0 };
        if queue.busy() || !socket.room.load(Relaxed) {
            longest = Some(longest.map_or(NAP, |t| t.min(NAP)));
        }
        ask |= queue.kernel_wants.load(Relaxed);
        queue.waiting.fetch_add(1, Relaxed);
    }
    let result = if timeout == Some(0) && !ask {
        Ok(false)
    } else {
        // SAFETY: the set is ours, the mask the caller's.
        unsafe { ppoll(set, longest, mask) }
    };
    for (ours, p) in set.iter().zip(fds) {
        match bound(p.fd) {
            None => p.revents = ours.revents,
            Some((_, queue)) => {
                queue.waiting.fetch_sub(1, Relaxed);
                // Of ours only errors are passed on: what is readable is in our ring, or will be.
                p.revents |= ours.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL);
            }
        }
    }
    result
}

/// # Safety
/// The mask is null or one.
unsafe fn ppoll(set: &mut [pollfd], timeout: Option<u64>, mask: *const sigset_t) -> Result<bool, ()> {
    let time = timeout.map(|t| timespec {
        tv_sec: (t / 1_000_000_000) as libc::time_t,
        tv_nsec: (t % 1_000_000_000) as libc::c_long,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a slice of entries, a time that lives, and the caller's mask.
    let n = unsafe { real::ppoll()(set.as_mut_ptr(), set.len() as nfds_t, time, mask) };
    if n < 0 { Err(()) } else { Ok(n > 0) }
}
