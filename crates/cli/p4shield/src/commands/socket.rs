//! The option that names the daemon's socket.

use std::path::PathBuf;

/// The daemon's socket.
#[derive(Debug, clap::Args)]
pub(super) struct Socket {
    /// The daemon's socket: `daemon.socket` of the configuration
    #[arg(long, value_name = "PATH", default_value = "/run/p4shield/p4shield.sock")]
    pub(super) socket: PathBuf,
}
