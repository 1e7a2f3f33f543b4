//! `p4shield metrics`.

use p4shield_console::{Exit, output};
use p4shield_daemon::api;

use super::socket::Socket;

/// Print Prometheus metrics
///
/// docs/reference/metrics.md explains each metric. With `daemon.metrics` in the configuration the daemon
/// also serves them over HTTP.
///
/// Example: p4shield metrics | grep dropped
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: Socket,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        output::text(&api::metrics(&self.socket.socket)?);
        Ok(Exit::Done)
    }
}
