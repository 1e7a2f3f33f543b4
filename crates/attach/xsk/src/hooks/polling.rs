//! The functions that wait for several descriptors.

use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, size_t, timespec};

use crate::socket::SOCKETS;
use crate::{epoll, next_libc, poll};

/// Returns the entries of a call; an empty slice for a null pointer.
///
/// # Safety
/// As for `poll`.
unsafe fn entries<'c>(fds: *mut pollfd, count: nfds_t) -> &'c mut [pollfd] {
    if fds.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: the caller of `poll` promises `count` entries that no other thread uses meanwhile.
    unsafe { std::slice::from_raw_parts_mut(fds, count as usize) }
}

/// `poll`.
///
/// # Safety
/// As for `poll`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let set = unsafe { entries(fds, count) };
    if !poll::concerns_sockets(set) {
        // SAFETY: the caller's call.
        return unsafe { next_libc::poll()(fds, count, timeout) };
    }
    // A negative timeout waits without a limit.
    let timeout = u64::try_from(timeout).ok().map(|ms| ms * 1_000_000);
    poll::wait(set, timeout, None)
}

/// `ppoll`.
///
/// # Safety
/// As for `ppoll`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let set = unsafe { entries(fds, count) };
    if !poll::concerns_sockets(set) {
        // SAFETY: the caller's call.
        return unsafe { next_libc::ppoll()(fds, count, timeout, mask) };
    }
    // SAFETY: null, or the caller's time.
    let timeout = unsafe { timeout.as_ref() }.map(|t| {
        (t.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec.max(0) as u64)
    });
    // SAFETY: null, or the caller's mask.
    poll::wait(set, timeout, unsafe { mask.as_ref() })
}

/// `poll` in a program that was compiled with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As for `poll`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    bytes: size_t,
) -> c_int {
    if bytes / size_of::<pollfd>() < count as usize {
        std::process::abort();
    }
    // SAFETY: the caller's call.
    unsafe { poll(fds, count, timeout) }
}

/// `epoll_ctl`: for an AF_XDP socket, also registers its [`crate::ready_event`], with the same event
/// data.
///
/// # Safety
/// As for `epoll_ctl`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll_fd: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's call.
    let result = unsafe { next_libc::epoll_ctl()(epoll_fd, operation, fd, event) };
    if result == 0
        && let Some(ready_event) = SOCKETS.get(fd).and_then(|s| s.event.descriptor_for_epoll())
    {
        // SAFETY: the caller's event, which the kernel has just read. If this fails, the epoll reports a
        // held packet with the next one.
        let _ = unsafe { next_libc::epoll_ctl()(epoll_fd, operation, ready_event, event) };
    }
    result
}

/// `epoll_wait`.
///
/// # Safety
/// As for `epoll_wait`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_wait(
    epoll_fd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    epoll::service_sockets(timeout != 0);
    // SAFETY: the caller's call.
    let result = unsafe { next_libc::epoll_wait()(epoll_fd, events, most, timeout) };
    epoll::service_sockets(false);
    result
}

/// `epoll_pwait`.
///
/// # Safety
/// As for `epoll_pwait`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait(
    epoll_fd: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    epoll::service_sockets(timeout != 0);
    // SAFETY: the caller's call.
    let result = unsafe { next_libc::epoll_pwait()(epoll_fd, events, most, timeout, mask) };
    epoll::service_sockets(false);
    result
}
