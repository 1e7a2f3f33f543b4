//! Sending and receiving: on an AF_XDP socket, calls by which the kernel is told to look at its rings.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::queue::Queue;
use crate::socket::Socket;
use crate::{drain, real, table, wait};

/// A bound AF_XDP socket, for a call that the kernel accepts: one that would wait it refuses, and says so itself.
#[inline]
fn bound(fd: c_int, flags: c_int) -> Option<(&'static Socket, &'static Queue)> {
    let socket = table::get(fd)?;
    Some((socket, socket.queue().filter(|_| flags & libc::MSG_DONTWAIT != 0)?))
}

/// The application has put packets into its transmit ring, or wants to know what became of them.
fn transmit(fd: c_int, (socket, queue): (&Socket, &Queue)) -> ssize_t {
    queue.called();
    let answer = queue.pump_transmit((socket.number, fd), true, |_| {});
    // One that sleeps in `poll` comes for what the kernel has sent when it sends again.
    if queue.is_unattended() || (queue.kernel_sends() && !socket.sleeps.load(Relaxed)) {
        drain::notify();
    }
    answer.unwrap_or_default()
}

/// The application has frames in its fill ring, or waits for packets: moves what there is. Returns whether the kernel is
/// to be called as well.
fn receive((socket, queue): (&Socket, &Queue)) -> bool {
    wait::service(socket, queue);
    if queue.is_unattended() {
        drain::notify();
    }
    let wanted = queue.kernel_wants.load(Relaxed) || socket.busy_polls.load(Relaxed);
    wanted && socket.ready.load(Relaxed) == 0
}

/// `sendto`.
///
/// # Safety
/// As for `sendto`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendto(
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    match bound(fd, flags) {
        Some(ours) => transmit(fd, ours),
        // SAFETY: the caller's call.
        None => unsafe { real::sendto()(fd, data, len, flags, to, to_len) },
    }
}

/// `send`.
///
/// # Safety
/// As for `send`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn send(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    match bound(fd, flags) {
        Some(ours) => transmit(fd, ours),
        // SAFETY: the caller's call.
        None => unsafe { real::send()(fd, data, len, flags) },
    }
}

/// `sendmsg`.
///
/// # Safety
/// As for `sendmsg`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    match bound(fd, flags) {
        Some(ours) => transmit(fd, ours),
        // SAFETY: the caller's call.
        None => unsafe { real::sendmsg()(fd, message, flags) },
    }
}

/// `recvfrom`.
///
/// # Safety
/// As for `recvfrom`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvfrom(
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    if let Some(ours) = bound(fd, flags)
        && !receive(ours)
    {
        return 0;
    }
    // SAFETY: the caller's call.
    unsafe { real::recvfrom()(fd, data, len, flags, from, from_len) }
}

/// `recv`.
///
/// # Safety
/// As for `recv`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recv(fd: c_int, data: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    if let Some(ours) = bound(fd, flags)
        && !receive(ours)
    {
        return 0;
    }
    // SAFETY: the caller's call.
    unsafe { real::recv()(fd, data, len, flags) }
}

/// `recvmsg`.
///
/// # Safety
/// As for `recvmsg`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if let Some(ours) = bound(fd, flags)
        && !receive(ours)
    {
        return 0;
    }
    // SAFETY: the caller's call.
    unsafe { real::recvmsg()(fd, message, flags) }
}
