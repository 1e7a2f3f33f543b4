//! Functions on the switch's process as a whole: its forks, threads without signals, its end, and the
//! system's log.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Set in a forked child.
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked after [`watch_forks`]: its channels belong to the parent.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Marks forked children from now on.
pub(crate) fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler stores to an atomic, which is safe in a child at any time. It is
        // never unloaded: the code is in the program or in a preloaded library.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if failed != 0 {
            tracing::warn!(
                event = "fork_handler_missing",
                "out of memory for a fork handler; a forked child must not poll"
            );
        }
    });
}

/// Starts a thread without signals: the switch handles its signals itself.
///
/// # Errors
/// The system has no thread left.
pub fn spawn_without_signals(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are ours to write; `sigfillset` fills the one that is read. A thread
    // inherits the mask of who starts it.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    // SAFETY: `before` was filled by the call above, which cannot fail with a valid `how`.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    thread
}

/// Calls `last` when the process exits. `last` cannot unwind: its ABI turns a panic into an abort.
pub(crate) fn at_exit(last: extern "C" fn()) {
    // SAFETY: registers a function without arguments, which is never unloaded: the code is in the
    // program or in a preloaded library. A failure leaves it out.
    unsafe { libc::atexit(last) };
}

/// Writes one line to the system's log.
pub(crate) fn system_log(line: &CStr) {
    // SAFETY: the format takes one string, and `line` is one.
    unsafe { libc::syslog(libc::LOG_DAEMON | libc::LOG_NOTICE, c"%s".as_ptr(), line.as_ptr()) };
}
