//! The functions that close and duplicate descriptors.

use libc::{c_int, c_uint, c_ulong};

use crate::next_libc;
use crate::process::owns_sockets;
use crate::socket::SOCKETS;

/// `close`.
///
/// # Safety
/// As for `close`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    forget(fd);
    // SAFETY: takes no pointers.
    unsafe { next_libc::close()(fd) }
}

/// Releases the entry of a descriptor that is about to be closed.
#[inline]
fn forget(fd: c_int) {
    if SOCKETS.get(fd).is_some() {
        forget_socket(fd);
    }
}

#[cold]
fn forget_socket(fd: c_int) {
    if let Some(socket) = owns_sockets().then(|| SOCKETS.take(fd)).flatten() {
        socket.descriptor_closing(fd);
    }
}

/// `close_range`.
///
/// # Safety
/// As for `close_range`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // Without CLOSE_RANGE_CLOEXEC the call closes the descriptors at once.
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        SOCKETS.within(first, last).for_each(forget);
    }
    // SAFETY: takes no pointers.
    unsafe { next_libc::close_range()(first, last, flags) }
}

/// Records a duplicated descriptor; returns `to`.
fn duplicated(from: c_int, to: c_int) -> c_int {
    if let Some(socket) = SOCKETS.get(from).filter(|_| to >= 0 && to != from) {
        socket.add_descriptor();
        if !SOCKETS.put(to, socket) {
            socket.descriptor_closing(to);
        }
    }
    to
}

/// `dup`.
///
/// # Safety
/// As for `dup`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: takes no pointers.
    duplicated(fd, unsafe { next_libc::dup()(fd) })
}

/// `dup2`, which may close an AF_XDP socket.
///
/// # Safety
/// As for `dup2`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        forget(to);
    }
    // SAFETY: takes no pointers.
    duplicated(from, unsafe { next_libc::dup2()(from, to) })
}

/// `dup3`, which may close an AF_XDP socket.
///
/// # Safety
/// As for `dup3`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    if from != to {
        forget(to);
    }
    // SAFETY: takes no pointers.
    duplicated(from, unsafe { next_libc::dup3()(from, to, flags) })
}

/// `fcntl`, two commands of which duplicate. Its optional third argument is one word, and is passed like
/// a fixed one in the calling conventions of x86-64 and arm64 Linux.
///
/// # Safety
/// As for `fcntl`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's call.
    let result = unsafe { next_libc::fcntl()(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { duplicated(fd, result) } else { result }
}

/// `fcntl64`.
///
/// # Safety
/// As for `fcntl`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's call.
    unsafe { fcntl(fd, command, argument) }
}
