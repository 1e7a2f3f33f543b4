//! The daemon's end of the process that serves the wires.

use super::message::{WiresReply, WiresRequest, WiresSetup};
use crate::adoption::{AdoptionFolder, ProcessRecord};
use p4shield_compartment::{LocalProcess, ProcessIdentity, spawn};
use p4shield_control::{Envelope, PROTOCOL_VERSION, Socket, SocketError, decode, encode};
use p4shield_text::{chain, printable};
use rustix::process::Pid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for an answer: loading kernel programs takes a while on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest time to detach all wires.
const GRACE: Duration = Duration::from_secs(5);
/// Name of the process's record and door.
pub(super) const RECORD: &str = "wires";

/// The process.
pub(super) struct WiresProcess {
    socket: Socket,
    next: u32,
    process: LocalProcess,
}

/// Reason why a request was not executed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The process cannot do it.
    Failed(String),
    /// The process is of no use any more.
    Broken(String),
}

impl CallError {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Failed(text) | Self::Broken(text) => text,
        }
    }
}

impl From<SocketError> for CallError {
    fn from(error: SocketError) -> Self {
        Self::Broken(chain(&error))
    }
}

impl WiresProcess {
    /// Starts the process as `BINARY wires` and gives it the setup.
    pub(super) fn start(binary: &Path, folder: &AdoptionFolder, setup: &WiresSetup) -> Result<Self, String> {
        let (socket, theirs) = Socket::pair().map_err(|e| chain(&e))?;
        let mut command = Command::new(binary);
        command.arg("wires").stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null());
        // A signal from the terminal ends the daemon, which then ends this process.
        let child = spawn(command.process_group(0), None);
        let child = child.map_err(|e| format!("cannot start the process that serves the wires: {e}"))?;
        drop(command);
        let process = LocalProcess::child(Pid::from_child(&child), None).map_err(|e| chain(&e))?;
        let mut this = Self { socket, next: 0, process };
        match this.set_up(folder, setup) {
            Ok(()) => Ok(this),
            Err(why) => {
                this.end(false);
                folder.forget(RECORD);
                Err(why)
            }
        }
    }

    fn set_up(&mut self, folder: &AdoptionFolder, setup: &WiresSetup) -> Result<(), String> {
        let door = folder.listen(RECORD).map_err(|e| chain(&e))?;
        let memory = setup.to_memory().map_err(|e| chain(&e))?;
        let started = self.call(WiresRequest::Start, &[memory.as_fd(), door.as_fd()]);
        started.map_err(CallError::into_text)?;
        if let Some(process) = self.process.identity()
            && let Err(error) = folder.save(RECORD, &ProcessRecord { process })
        {
            tracing::warn!(event = "adoption_unavailable", %error, "no other daemon could adopt the wires");
        }
        Ok(())
    }

    /// Adopts the process of the daemon before, if it still runs. Returns it with the channels that work, by
    /// tenant.
    pub(super) fn adopt(folder: &AdoptionFolder) -> Option<(Self, Vec<(u32, u32)>)> {
        let record: ProcessRecord = folder.load(RECORD)?;
        let adopted = Self::try_to_adopt(folder, &record.process);
        adopted
            .inspect_err(|why| {
                tracing::warn!(
                    event = "wires_not_adopted",
                    "the process that serves the wires is replaced: {why}"
                );
                record.process.kill();
                folder.forget(RECORD);
            })
            .ok()
    }

    fn try_to_adopt(
        folder: &AdoptionFolder,
        identity: &ProcessIdentity,
    ) -> Result<(Self, Vec<(u32, u32)>), String> {
        let process = LocalProcess::adopt(identity, None).map_err(|e| chain(&e))?;
        let socket = folder.connect(RECORD).map_err(|e| chain(&e))?;
        let mut process = Self { socket, next: 0, process };
        let request = WiresRequest::Adopt { version: PROTOCOL_VERSION };
        match process.call(request, &[std::io::stderr().as_fd()]).map_err(CallError::into_text)? {
            WiresReply::Adopted(channels) => Ok((process, channels)),
            _ => Err("its answer is of the wrong kind".to_owned()),
        }
    }

    /// Sends a request and waits for the reply.
    pub(super) fn call(
        &mut self,
        request: WiresRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<WiresReply, CallError> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        self.next = self.next.wrapping_add(1);
        self.socket.send(&encode(&Envelope { id: self.next, body: request })?, descriptors)?;
        self.socket.wait(Some(end.saturating_duration_since(Instant::now())))?;
        let message = self.socket.receive()?;
        let envelope: Envelope<WiresReply> =
            decode(&message.bytes).map_err(|e| CallError::Broken(chain(&e)))?;
        match envelope.body {
            _ if envelope.id != self.next => Err(CallError::Broken("it answered another request".into())),
            WiresReply::Failed(text) => Err(CallError::Failed(printable(&text))),
            reply => Ok(reply),
        }
    }

    /// Returns a descriptor that is readable once the process has ended.
    pub(super) fn pidfd(&self) -> std::io::Result<OwnedFd> {
        self.process.pidfd()
    }

    /// Ends the process: in order if it answers, else at once.
    pub(super) fn end(mut self, in_order: bool) {
        let stops = in_order && self.call(WiresRequest::Stop, &[]).is_ok();
        self.process.end(if stops { GRACE } else { Duration::ZERO });
    }
}
