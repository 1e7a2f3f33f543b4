//! The system calls that the standard library does not offer safely: fork, and closing all descriptors.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::Pid;

/// Whether this process has one thread: only then may it fork and go on to run any code in the child.
pub(super) fn is_single_threaded() -> bool {
    // SAFETY: no memory is involved. In a process of one thread this flag does nothing, otherwise the call fails.
    unsafe { libc::unshare(libc::CLONE_THREAD) == 0 }
}

/// Forks, and runs `child` in the new process, which ends with it.
///
/// # Safety
/// This process has one thread.
pub(super) unsafe fn fork(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: nobody else can hold a lock, by contract.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(101);
        // SAFETY: ends the process. What the parent registered to run at exit is not ours to run.
        unsafe { libc::_exit(code) }
    }
    Pid::from_raw(pid).ok_or_else(io::Error::last_os_error)
}

/// Has panics and failed allocations print nothing: standard error is closed, the owner is told what matters, and a
/// backtrace would look for files.
///
/// # Safety
/// This process has one thread.
pub(super) unsafe fn be_quiet() {
    std::panic::set_hook(Box::new(|_| {}));
    // SAFETY: nobody else reads the environment, by contract.
    unsafe { std::env::set_var("RUST_BACKTRACE", "0") };
}

/// Moves the descriptors out of the way of the three standard ones, and closes everything else.
///
/// # Safety
/// Nothing in this process uses any other descriptor again.
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
    moved.try_into().map_err(|_| io::Error::other("descriptors got lost"))
}

fn close_range(from: RawFd, to: RawFd) -> io::Result<()> {
    if from > to {
        return Ok(());
    }
    // SAFETY: the caller vouches that these descriptors are not used again.
    let done = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
