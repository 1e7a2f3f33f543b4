//! The functions that send and receive, by which an AF_XDP application makes the kernel read its rings.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use libc::{c_int, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::queue::XskQueue;
use crate::socket::{SOCKETS, XskSocket};
use crate::{drain_signal, next_libc};

/// Returns a bound AF_XDP socket for a call that the kernel accepts. The kernel itself refuses a call
/// without `MSG_DONTWAIT`.
#[inline]
fn bound(fd: c_int, flags: c_int) -> Option<(&'static XskSocket, &'static XskQueue)> {
    let socket = SOCKETS.get(fd)?;
    Some((socket, socket.queue().filter(|_| flags & libc::MSG_DONTWAIT != 0)?))
}

/// Handles a send call: the application has pushed packets, or waits for completions.
fn transmit(fd: c_int, (socket, queue): (&XskSocket, &XskQueue)) -> ssize_t {
    queue.count_call();
    let result = queue.pump_transmit((socket.number, fd), true, |_| {});
    // An application that sleeps in `poll` fetches completions when it sends again.
    if queue.is_unattended() || (queue.kernel_is_sending() && !socket.sleeps_in_poll.load(Relaxed)) {
        drain_signal::notify();
    }
    result.unwrap_or_default()
}

/// Handles a receive call: the application has filled frames, or waits for packets. Returns whether the
/// call must go to the kernel as well.
fn receive((socket, queue): (&XskSocket, &XskQueue)) -> bool {
    socket.service(queue);
    if queue.is_unattended() {
        drain_signal::notify();
    }
    let needs_call = queue.kernel_needs_wakeup.load(Relaxed) || socket.busy_polls.load(Relaxed);
    needs_call && socket.event.ready() == 0
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
        None => unsafe { next_libc::sendto()(fd, data, len, flags, to, to_len) },
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
        None => unsafe { next_libc::send()(fd, data, len, flags) },
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
        None => unsafe { next_libc::sendmsg()(fd, message, flags) },
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
    unsafe { next_libc::recvfrom()(fd, data, len, flags, from, from_len) }
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
    unsafe { next_libc::recv()(fd, data, len, flags) }
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
    unsafe { next_libc::recvmsg()(fd, message, flags) }
}
