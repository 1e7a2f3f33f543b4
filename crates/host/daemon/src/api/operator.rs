//! The operator's socket: every request.

use super::{Answer, Command, MAX_LINE, ObjectBytes};
use crate::lifecycle::state::{DaemonState, LoadRequest, Target};
use crate::metrics;
use crate::supervisor::Loaded;
use p4shield_socket::Endpoint;
use p4shield_tables::view::Inspection;
use std::sync::Arc;

/// The operator's endpoint.
pub(crate) struct Operator(pub(crate) Arc<DaemonState>);

impl Endpoint for Operator {
    type Answer = Answer;
    const MAX_CLIENTS: usize = 16;
    const MAX_LINE: u64 = MAX_LINE;

    fn admits(&self, uid: u32, _gid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    fn answer(&self, line: &[u8], uid: u32) -> Answer {
        let state = &self.0;
        match serde_json::from_slice(line) {
            Ok(Command::Status) => Answer::Status(Box::new(state.status())),
            Ok(Command::Metrics) => Answer::Metrics(metrics::of(state)),
            Ok(Command::Load { tenant, vm, direction, objects, contents, temporary }) => {
                let target = Target { tenant: &tenant, vm: &vm, direction: &direction };
                load(state, &target, LoadRequest { objects, contents: bytes(contents), temporary, uid })
            }
            Ok(Command::Check { tenant, vm, direction, contents }) => {
                check(state, &Target { tenant: &tenant, vm: &vm, direction: &direction }, contents)
            }
            Ok(Command::Revert { tenant, vm, direction }) => {
                revert(state, &Target { tenant: &tenant, vm: &vm, direction: &direction }, uid)
            }
            Ok(Command::History { tenant, vm, direction }) => {
                history(state, &Target { tenant: &tenant, vm: &vm, direction: &direction })
            }
            Ok(Command::Preview { file }) => {
                state.preview(&file).map_or_else(Answer::Failed, Answer::Reloaded)
            }
            Ok(Command::Reload { dry_run }) => {
                state.reload(dry_run).map_or_else(Answer::Failed, Answer::Reloaded)
            }
            Ok(Command::Rotate(order)) => {
                state.rotate_key(&order).map_or_else(Answer::Failed, Answer::Rotated)
            }
            Ok(Command::Inspect(inspection)) => inspect(state, &inspection),
            Ok(Command::Upgrade { binary }) => {
                state.upgrade(binary).map_or_else(Answer::Failed, |binary| Answer::Upgrading { binary })
            }
            Err(e) => Answer::Failed(format!("invalid request: {e}")),
        }
    }

    fn answered(&self, answer: &Answer) {
        if matches!(answer, Answer::Upgrading { .. }) {
            self.0.start_upgrade();
        }
    }
}

pub(super) fn bytes(contents: Vec<ObjectBytes>) -> Vec<Vec<u8>> {
    contents.into_iter().map(|ObjectBytes(bytes)| bytes).collect()
}

fn done(result: Result<Loaded, String>) -> Answer {
    result.map_or_else(Answer::Failed, |Loaded { program, warning }| Answer::Loaded { program, warning })
}

pub(super) fn load(state: &DaemonState, target: &Target<'_>, request: LoadRequest) -> Answer {
    done(state.load(target, request))
}

pub(super) fn check(state: &DaemonState, target: &Target<'_>, contents: Vec<ObjectBytes>) -> Answer {
    state.check_program(target, bytes(contents)).map_or_else(Answer::Failed, Answer::Checked)
}

pub(super) fn revert(state: &DaemonState, target: &Target<'_>, uid: u32) -> Answer {
    done(state.revert(target, uid))
}

pub(super) fn history(state: &DaemonState, target: &Target<'_>) -> Answer {
    state.history(target).map_or_else(Answer::Failed, Answer::History)
}

pub(super) fn inspect(state: &DaemonState, inspection: &Inspection) -> Answer {
    state.inspect(inspection).map_or_else(Answer::Failed, |view| Answer::Program(Box::new(view)))
}
