//! Threads to which no signal is delivered: signals are the application's own business.

use std::io;
use std::mem::MaybeUninit;

/// Starts one.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are ours to write, and the one that is read was filled. A thread inherits its maker's mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: `before` was filled by the call above, which cannot fail with a valid first argument.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    thread.map(drop)
}
