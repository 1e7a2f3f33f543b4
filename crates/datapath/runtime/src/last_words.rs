//! Standard error of a P4 VM, which the daemon keeps the last lines of.

use p4shield_control::SocketError;
use std::io::Write;
use std::os::fd::OwnedFd;

/// Directs standard error to `pipe`: the daemon at the end of the previous one is gone.
pub(crate) fn send_to(pipe: &OwnedFd) {
    // Without it the P4 VM goes on; its last words are lost.
    let _ = rustix::stdio::dup2_stderr(pipe);
}

/// Reports why a connection was of no use. Standard error may be a pipe that is closed.
pub(crate) fn report(error: &SocketError) {
    let _ = writeln!(std::io::stderr(), "a daemon that connected does not adopt this P4 VM: {error}");
}
