//! Threads of ours in somebody else's process.

use std::io;
use std::mem::MaybeUninit;

/// Starts a thread that gets none of the process's signals: those are for the switch's own threads.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are ours, and `sigfillset` fills the one that is read. A thread inherits its maker's mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: `before` was filled above, by a call that cannot fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    thread.map(drop)
}
