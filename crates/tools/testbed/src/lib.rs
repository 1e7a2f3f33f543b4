//! Network namespaces, links, switches and child processes that clean up after themselves.
//!
//! The demo and the end-to-end tests build small clouds out of network namespaces. Everything made here is removed
//! on drop; what a killed process could not remove is swept by the next one ([`leftover::sweep`]), because every
//! name carries its maker's process id. Nothing touches the machine's own interfaces.

pub mod afxdp;
pub mod allocations;
pub mod campaign;
pub mod closed;
pub mod console;
pub mod dpdk;
pub mod frames;
pub mod guest;
pub mod leftover;
pub mod netns;
pub mod ovsdb;
pub mod packet;
pub mod process;
pub mod switch;
mod vswitchd;

pub use afxdp::OvsAfxdp;
pub use campaign::campaign;
pub use closed::Closed;
pub use dpdk::{OvsDpdk, Testpmd};
pub use frames::Frames;
pub use guest::Guest;
pub use netns::NetNs;
pub use process::Guarded;
pub use switch::Switch;

/// What went wrong while building or taking down a testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command could not be started.
    #[error("cannot start `{command}`; is its package installed?")]
    Start {
        /// The command line.
        command: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A command ran and failed.
    #[error("`{command}` failed: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// What it said.
        stderr: String,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// What was attempted.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something that was waited for did not happen.
    #[error("{what} did not happen within {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Whether this process may make network namespaces; otherwise why not, for a `skipped:` line.
///
/// # Errors
/// A sentence that says what is missing.
pub fn usable() -> std::result::Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces need root".into());
    }
    process::find("ip").map(drop).ok_or_else(|| "the command `ip` (package iproute2) is missing".into())
}

/// Waits until `done` holds, looking every 10 ms.
///
/// # Errors
/// [`Error::Timeout`] after `seconds`.
pub fn wait_until(what: &str, seconds: u64, mut done: impl FnMut() -> bool) -> Result<()> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    while !done() {
        if std::time::Instant::now() > end {
            return Err(Error::Timeout { what: what.into(), seconds });
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}
