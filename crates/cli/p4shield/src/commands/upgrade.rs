//! `p4shield upgrade`: replaces the running daemon by another release.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use p4shield_console::{Exit, Refused, output};
use p4shield_daemon::api::{self, Answer, ApiError, Command};
use p4shield_daemon::status::{State, Status};
use serde::Serialize;

/// Longest time until the next release runs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(50);

/// Replace the running daemon by another release, without a gap
///
/// The daemon executes the new binary in its own process, which adopts the running P4 VMs and wires: they
/// judge and forward packets meanwhile, and no packet is judged by a policy. Before that, the new binary
/// checks the configuration; if it would not start, nothing happens. P4 VMs, wires and the libraries in
/// switches stay as they are: a P4 VM is of the new release when it is next started, a library when its
/// switch is.
///
/// Examples:
///
///   make install && p4shield upgrade
///   p4shield upgrade --binary /opt/p4shield-1.3/bin/p4shield
///
/// Exit code 1 if a P4 VM could not be adopted and was started anew, 3 if the upgrade is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Upgrade {
    /// The new binary [default: the path that the daemon was started from]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The daemon's socket: `daemon.socket` of the configuration
    #[arg(long, value_name = "PATH", default_value = "/run/p4shield/p4shield.sock")]
    socket: PathBuf,
}

/// What the upgrade did.
#[derive(Debug, Serialize)]
struct Report {
    binary: PathBuf,
    before: String,
    after: String,
    /// Tenants whose P4 VMs were adopted.
    adopted: Vec<String>,
    /// Tenants whose P4 VMs were started anew; their policies applied meanwhile.
    started: Vec<String>,
}

impl Upgrade {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let before = api::status(&self.socket)?;
        let absolute = self.binary.as_deref().map(std::path::absolute).transpose()?;
        let binary = match api::ask(&self.socket, &Command::Upgrade { binary: absolute }) {
            Ok(Answer::Upgrading { binary }) => binary,
            Ok(_) => return Err(ApiError::Unexpected.into()),
            Err(ApiError::Failed(why)) => return Err(Refused(why).into()),
            Err(e) => return Err(e.into()),
        };
        let after = await_successor(&self.socket, &before)?;
        let (adopted, started): (Vec<_>, Vec<_>) = after.tenants.iter().partition(|t| t.adopted);
        let names = |tenants: Vec<&p4shield_daemon::status::TenantStatus>| {
            tenants.into_iter().map(|t| t.name.clone()).collect::<Vec<_>>()
        };
        let (adopted, started) = (names(adopted), names(started));
        let report = Report { binary, before: before.version, after: after.version, adopted, started };
        if self.json {
            output::json(&report)?;
        } else {
            output::line(format!(
                "release {} runs in place of {}; {} P4 VMs adopted",
                report.after,
                report.before,
                report.adopted.len()
            ));
            for tenant in &report.started {
                output::line(format!("tenant {tenant}: its P4 VM was started anew; see the daemon's log"));
            }
        }
        Ok(if report.started.is_empty() { Exit::Done } else { Exit::Failed })
    }
}

/// Waits until another release than `before` runs, with all its P4 VMs.
fn await_successor(socket: &Path, before: &Status) -> anyhow::Result<Status> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match api::status(socket) {
            Ok(now)
                if now.started_ms != before.started_ms
                    && now.tenants.iter().all(|t| t.state == State::Running) =>
            {
                return Ok(now);
            }
            _ if Instant::now() < end => std::thread::sleep(RETRY),
            Ok(_) => anyhow::bail!(
                "the daemon was not replaced within {TIMEOUT:?}, or not all P4 VMs run; see \
                 `p4shield status` and its log"
            ),
            Err(e) => return Err(e.into()),
        }
    }
}
