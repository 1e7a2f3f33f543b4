//! Errors of the agent, shared by the publisher and the access to pages.

use std::path::PathBuf;

use p4shield_channel::{ChannelError, PageFault, ShmError};
use p4shield_seal::{EpochError, KeyError};

use crate::config::ConfigError;
use crate::page::DeviceError;

/// Reason why the agent cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The epoch cannot be determined.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The attestation policy is unusable.
    #[error(transparent)]
    Policy(#[from] p4shield_attest::PolicyError),
    /// The note of a session cannot be written.
    #[error(transparent)]
    Note(#[from] crate::session_note::SessionNoteError),
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for the agent's key: {0}")]
    Random(getrandom::Error),
    /// The page cannot be mapped.
    #[error("cannot use page {}", path.display())]
    Page {
        /// File of the page.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ShmError,
    },
    /// The device cannot provide the page.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The page disappeared during the measurement.
    #[error("cannot measure the page")]
    Measure(#[source] PageFault),
    /// Size or layout of the page are invalid.
    #[error(transparent)]
    Layout(#[from] ChannelError),
    /// A folder for the agent's own files cannot be created.
    #[error(
        "cannot create the folder {}: run as root, or name other files with --state and --socket",
        path.display()
    )]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Another agent uses the socket.
    #[error("another agent already listens at {}: stop it first", .0.display())]
    AlreadyRunning(PathBuf),
    /// The socket cannot be created.
    #[error("cannot listen at {}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The system refuses the timer or the wait.
    #[error("cannot use the system's timer")]
    Time(#[source] std::io::Error),
}
