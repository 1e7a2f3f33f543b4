//! Requests to what runs a tenant's programs, on behalf of other threads of the daemon.

use super::ANSWER_TIMEOUT;
use super::inline::InlineSwitches;
use super::{Command, Supervisor, SupervisorConfig};
use p4shield_compartment::{Compartment, is_recoverable};
use p4shield_control::{ClientError, Reply, Request, Resources};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

impl Supervisor {
    /// Sends a request without resources to what runs the tenant's programs, and waits for the reply until
    /// `end`.
    pub(crate) fn ask(&self, request: Request, end: Instant) -> Result<Reply, String> {
        let (answer, reply) = channel();
        self.send(Command::Ask { request, answer });
        match reply.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => {
                Err("the P4 VM did not answer in time; see `p4shield status`".to_owned())
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err("the supervisor of this tenant's P4 VM has ended; restart the daemon".to_owned())
            }
        }
    }
}

/// Sends a request to what runs the programs: a switch with placement `inline`, else the P4 VM. The error of
/// a P4 VM that has to be replaced is `Err(Err(..))`.
pub(super) fn ask(
    config: &SupervisorConfig,
    process: Option<&mut (dyn Compartment + 'static)>,
    switches: &InlineSwitches,
    request: Request,
) -> Result<Reply, Result<String, ClientError>> {
    if config.inline {
        return switches.ask(config, request).map_err(Ok);
    }
    let stopped = || Ok("the P4 VM does not run; see `p4shield status`".to_owned());
    let process = process.ok_or_else(stopped)?;
    process.call(request, &Resources::none(), ANSWER_TIMEOUT).map_err(|e| match e {
        e if is_recoverable(&e) => Ok(e.to_string()),
        e => Err(e),
    })
}
