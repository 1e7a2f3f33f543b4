//! The start of the library in a process, its forks and its exit.
//!
//! The library starts with the first AF_XDP socket, so that it does not affect a process that makes none
//! or that still has to become a daemon.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use p4shield_attach::spawn_without_signals;

use crate::mediation::{self, Mediation, StartError};
use crate::socket::{self, SOCKETS};
use crate::{drain, umem};

/// The process that the sockets belong to.
static PROCESS: OnceLock<u32> = OnceLock::new();
static FORKED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was forked from one that had AF_XDP sockets.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Returns whether the caller runs in the process that the sockets belong to, and not in a child made by
/// `vfork`, which closes its own descriptors but shares its parent's memory.
pub(crate) fn owns_sockets() -> bool {
    std::process::id() == *PROCESS.get_or_init(std::process::id)
}

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
    SOCKETS.forget_all();
    umem::make_all_private();
}

/// Reports the frame owners of sockets that the application leaves to the kernel at its exit, as DPDK's
/// driver does.
extern "C" fn at_exit() {
    if is_forked() {
        return;
    }
    // On another thread: this one's thread-local storage, which logging needs, may be gone.
    if let Ok(thread) = spawn_without_signals("p4shield-exit", socket::report_all) {
        let _ = thread.join();
    }
}

/// Returns the mediation; the first call starts the library.
///
/// # Errors
/// Reason why it cannot start. The first call logs the error.
pub(crate) fn mediation() -> Result<&'static Mediation, &'static StartError> {
    mediation::start(|| {
        PROCESS.get_or_init(std::process::id);
        // SAFETY: the handler stores to atomics and maps memory, which a forked child may do (see
        // `make_all_private`), and is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // SAFETY: registers a function that cannot unwind into C: a panic stays on a thread of its own.
        unsafe { libc::atexit(at_exit) };
        drain::start().map_err(StartError::Thread)
    })
}

/// Decides whether an AF_XDP socket that cannot be mediated, because of `why`, may be used all the same,
/// and logs the decision.
pub(crate) fn allows_unmediated(why: &str) -> bool {
    let allowed = mediation().is_ok_and(|m| m.allows_unmediated(why));
    if !allowed {
        tracing::error!(
            event = "socket_refused",
            "an AF_XDP socket is refused, since it could not be mediated: {why}"
        );
    }
    allowed
}
