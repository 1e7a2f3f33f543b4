//! System calls without a safe wrapper in the standard library: fork, and closing all descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::Pid;

/// Returns whether this process has one thread, which is the condition for running any code after a fork.
pub(super) fn is_single_threaded() -> bool {
    // SAFETY: the call accesses no memory. It changes nothing with one thread, and fails otherwise.
    unsafe { libc::unshare(libc::CLONE_THREAD) == 0 }
}

/// Forks, and runs `child` in the new process, which ends with it.
///
/// # Safety
/// This process has one thread.
pub(super) unsafe fn fork(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: by contract no other thread can hold a lock.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
        // SAFETY: ends the process without the parent's exit handlers.
        unsafe { libc::_exit(code) }
    }
    Pid::from_raw(pid).ok_or_else(io::Error::last_os_error)
}

/// Silences panics and failed allocations: standard error is closed, and a backtrace would open files.
///
/// # Safety
/// This process has one thread.
pub(super) unsafe fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
    // SAFETY: by contract no other thread reads the environment.
    unsafe { std::env::set_var("RUST_BACKTRACE", "0") };
}

/// Moves the descriptors past the three standard ones, and closes all others.
///
/// # Safety
/// This process uses no other descriptor again.
pub(super) unsafe fn keep_only<const N: usize>(keep: [OwnedFd; N]) -> io::Result<[OwnedFd; N]> {
    let mut moved = Vec::with_capacity(N);
    for fd in keep {
        moved.push(rustix::io::fcntl_dupfd_cloexec(&fd, 3)?);
    }
    let mut numbers: Vec<RawFd> = moved.iter().map(AsRawFd::as_raw_fd).collect();
    numbers.sort_unstable();
    let mut from = 0;
    for n in numbers {
        close_range(from, n - 1)?;
        from = n + 1;
    }
    close_range(from, RawFd::MAX)?;
    moved.try_into().map_err(|_| io::Error::other("cannot keep the descriptors"))
}

fn close_range(from: RawFd, to: RawFd) -> io::Result<()> {
    if from > to {
        return Ok(());
    }
    // SAFETY: the caller guarantees that these descriptors are not used again.
    let done = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
