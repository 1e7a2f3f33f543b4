//! Why the daemon does not start.

use crate::config::ConfigError;
use p4shield_socket::{FolderError, ListenError};
use std::path::{Path, PathBuf};

/// Reason why the daemon does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The attachment `wire` cannot be set up.
    #[error("cannot set up the wires: {0}")]
    Wires(String),
    /// The control socket for switches cannot be set up.
    #[error(transparent)]
    Switches(#[from] p4shield_attach::ServerError),
    /// The thread that supervises a tenant's P4 VM cannot be started.
    #[error("tenant {tenant}: cannot start the thread that supervises its P4 VM")]
    Supervisor {
        /// The tenant's name.
        tenant: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The thread that keeps the tenants' own switches running cannot be started.
    #[error("cannot start the thread that keeps the tenants' switches running")]
    TenantSwitches(#[source] std::io::Error),
    /// The thread that logs problems cannot be started.
    #[error("cannot start the thread that logs problems")]
    Watcher(#[source] std::io::Error),
    /// A socket cannot be opened.
    #[error(
        "cannot listen on {address}; set another daemon.socket, daemon.attach_socket or daemon.metrics, \
         or free it"
    )]
    Listen {
        /// The path or network address.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Others could change what the daemon believes.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The folder of running P4 VMs cannot be used.
    #[error(
        "cannot use {}, in which the daemon records its P4 VMs; if no daemon runs, remove it", path.display()
    )]
    Adoption {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Another daemon holds the socket at this path.
    #[error(
        "a daemon already runs on {}; stop it, or set another daemon.socket and daemon.attach_socket",
        .0.display()
    )]
    Running(PathBuf),
    /// Signal handlers cannot be installed.
    #[error("cannot install signal handlers")]
    Signals(#[source] std::io::Error),
}

impl From<ListenError> for DaemonError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::Folder(e) => e.into(),
            ListenError::Running(path) => Self::Running(path),
            ListenError::Io { path, source } => Self::listen(&path)(source),
            other => Self::listen(Path::new(""))(std::io::Error::other(other)),
        }
    }
}

impl DaemonError {
    /// Returns a conversion from an I/O error on the socket at `path`.
    pub(crate) fn listen(path: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        |source| Self::Listen { address: path.display().to_string(), source }
    }
}
