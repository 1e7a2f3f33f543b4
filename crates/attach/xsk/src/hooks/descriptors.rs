//! Closing and duplicating descriptors.

use libc::{c_int, c_uint, c_ulong};

use crate::{real, table};

/// `close`.
///
/// # Safety
/// As for `close`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close(fd: c_int) -> c_int {
    forget(fd);
    // SAFETY: takes no pointers.
    unsafe { real::close()(fd) }
}

/// Lets go of a socket that is about to lose a descriptor.
#[inline]
fn forget(fd: c_int) {
    if table::get(fd).is_some() {
        forget_socket(fd);
    }
}

#[cold]
fn forget_socket(fd: c_int) {
    // A child of `vfork` closes its own descriptors in the parent's memory.
    let ours = std::process::id() == *crate::library::PROCESS.get_or_init(std::process::id);
    if let Some(socket) = ours.then(|| table::take(fd)).flatten() {
        socket.closing(fd);
    }
}

/// `close_range`.
///
/// # Safety
/// As for `close_range`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // Other flags than "close on exec" close at once.
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        table::within(first, last).for_each(forget);
    }
    // SAFETY: takes no pointers.
    unsafe { real::close_range()(first, last, flags) }
}

/// A descriptor was duplicated.
fn duplicated(from: c_int, to: c_int) -> c_int {
    if let Some(socket) = table::get(from).filter(|_| to >= 0 && to != from) {
        socket.duplicated();
        if !table::put(to, socket) {
            socket.closing(to);
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
    duplicated(fd, unsafe { real::dup()(fd) })
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
    duplicated(from, unsafe { real::dup2()(from, to) })
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
    duplicated(from, unsafe { real::dup3()(from, to, flags) })
}

/// `fcntl`, of which two commands duplicate. Its third argument, where there is one, is one word: so are those of a
/// function with a variable number of them, in the calling conventions of x86-64 and arm64 Linux.
///
/// # Safety
/// As for `fcntl`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: the caller's call.
    let result = unsafe { real::fcntl()(fd, command, argument) };
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
