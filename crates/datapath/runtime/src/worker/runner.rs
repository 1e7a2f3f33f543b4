//! What runs programs, as the control thread sees it.

use super::command::{WorkerAnswer, WorkerCommand};
use super::mailbox::WorkerHandle;

/// What runs programs.
pub(crate) trait ProgramRunner {
    /// Sends a command and waits for the answer. Returns `None` if the worker has ended.
    fn send(&self, command: WorkerCommand) -> Option<WorkerAnswer>;
}

impl ProgramRunner for WorkerHandle {
    fn send(&self, command: WorkerCommand) -> Option<WorkerAnswer> {
        Self::send(self, command)
    }
}
