//! Waiting for several descriptors.

use libc::{c_int, epoll_event, nfds_t, pollfd, sigset_t, size_t, timespec};

use crate::{bell, real, table, wait};

/// The entries of a call, if there are any to be looked at.
///
/// # Safety
/// As for `poll`.
unsafe fn entries<'c>(fds: *mut pollfd, count: nfds_t) -> &'c mut [pollfd] {
    if fds.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: the caller of `poll` promises as many entries that nobody else uses meanwhile.
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
    if !wait::concerns(set) {
        // SAFETY: the caller's call.
        return unsafe { real::poll()(fds, count, timeout) };
    }
    // Below zero is for ever.
    let timeout = u64::try_from(timeout).ok().map(|ms| ms * 1_000_000);
    // SAFETY: no mask.
    unsafe { wait::wait(set, timeout, std::ptr::null()) }
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
    if !wait::concerns(set) {
        // SAFETY: the caller's call.
        return unsafe { real::ppoll()(fds, count, timeout, mask) };
    }
    // SAFETY: null, or the caller's time.
    let timeout = unsafe { timeout.as_ref() }.map(|t| {
        (t.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec.max(0) as u64)
    });
    // SAFETY: the caller's mask.
    unsafe { wait::wait(set, timeout, mask) }
}

/// `poll` of a program that was built to have its arrays checked.
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

/// `epoll_ctl`: beside a socket its bell is put into the epoll, under the same name.
///
/// # Safety
/// As for `epoll_ctl`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's call.
    let result = unsafe { real::epoll_ctl()(epoll, operation, fd, event) };
    if result == 0
        && let Some(bell) = table::get(fd).and_then(|s| s.bell.for_epoll())
    {
        // SAFETY: the caller's event, which the kernel has just read. Where this fails a packet that was held is told of
        // when the next one comes.
        let _ = unsafe { real::epoll_ctl()(epoll, operation, bell, event) };
    }
    result
}

/// `epoll_wait`.
///
/// # Safety
/// As for `epoll_wait`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    bell::look_around(timeout != 0);
    // SAFETY: the caller's call.
    let result = unsafe { real::epoll_wait()(epoll, events, most, timeout) };
    bell::look_around(false);
    result
}

/// `epoll_pwait`.
///
/// # Safety
/// As for `epoll_pwait`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    bell::look_around(timeout != 0);
    // SAFETY: the caller's call.
    let result = unsafe { real::epoll_pwait()(epoll, events, most, timeout, mask) };
    bell::look_around(false);
    result
}
