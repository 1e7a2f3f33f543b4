//! Network namespaces, links, switches and child processes for tests; all are removed on drop.
//!
//! The demo and the end-to-end tests build small clouds out of network namespaces. Everything is removed on
//! drop. Every name contains its creator's process id, so that a later process removes what a killed one left
//! ([`leftover::sweep`]). Nothing touches the machine's own interfaces.

pub mod allocations;
pub mod campaign;
pub mod closed;
pub mod console;
pub mod dpdk;
pub mod frames;
pub mod guest;
pub mod huge_pages;
pub mod leftover;
pub mod netns;
pub mod ovsdb;
pub mod packet;
pub mod ping;
pub mod process;
pub mod product;
pub mod switch;
pub mod vswitchd;

pub use campaign::campaign;
pub use closed::Closed;
pub use dpdk::Testpmd;
pub use frames::Frames;
pub use guest::Guest;
pub use huge_pages::HugePages;
pub use netns::NetNs;
pub use process::Guarded;
pub use product::Product;
pub use switch::Switch;
pub use vswitchd::OpenVswitch;

/// Reason why building or removing a test bed failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A command could not be started.
    #[error("cannot start `{command}`; is its package installed?")]
    Start {
        /// The command line.
        command: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A command ran and failed.
    #[error("`{command}` failed: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// Its error output.
        stderr: String,
    },
    /// A system call failed.
    #[error("cannot {what}")]
    System {
        /// The operation.
        what: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A condition did not come true in time.
    #[error("{what} did not happen within {seconds} s")]
    Timeout {
        /// The condition.
        what: String,
        /// The time limit.
        seconds: u64,
    },
}

impl Error {
    fn failed(command: impl Into<String>, stderr: impl Into<String>) -> Self {
        Self::Failed { command: command.into(), stderr: stderr.into() }
    }

    fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Checks whether this process may create network namespaces.
///
/// # Errors
/// The reason why not, for a `skipped:` line.
pub fn usable() -> std::result::Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces need root".into());
    }
    process::find("ip").map(drop).ok_or_else(|| "the command `ip` (package iproute2) is missing".into())
}

/// Checks whether a process accepts connections on the UNIX stream socket at `path`. Its file exists from
/// bind(2) on, before listen(2): a connection between the two is refused.
#[must_use]
pub fn listens(path: &std::path::Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_ok()
}

/// Waits until `done` returns true, polling every 10 ms.
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

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    use super::{leftover, listens};

    #[test]
    fn a_bound_socket_listens_only_after_listen() {
        let folder = leftover::folder("listens").unwrap();
        let path = folder.path().join("socket");
        let server = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        assert!(path.exists() && !listens(&path));
        listen(&server, 1).unwrap();
        assert!(listens(&path));
    }
}
