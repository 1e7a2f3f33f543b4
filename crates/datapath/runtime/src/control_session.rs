//! The control thread: receives the host's requests one by one; `request_handler` executes them.

use crate::program::Verifier;
use crate::request_handler::RequestHandler;
use crate::worker::{WorkerCommand, WorkerHandle};
use p4shield_control::SandboxReport;
use p4shield_control::{
    Envelope, Hello, PROTOCOL_VERSION, Reply, Request, Socket, SocketError, decode, encode,
};
use std::os::fd::OwnedFd;

/// The state of the control thread.
pub(crate) struct ControlSession {
    socket: Socket,
    report: SandboxReport,
    handler: RequestHandler<Verifier, WorkerHandle>,
}

impl ControlSession {
    pub(crate) fn new(
        socket: Socket,
        report: SandboxReport,
        verifier: Verifier,
        worker: WorkerHandle,
    ) -> Self {
        Self { socket, report, handler: RequestHandler::new(verifier, worker) }
    }

    /// Answers the host's first message, which must be `Hello`, and starts the worker. Returns whether that
    /// succeeded.
    pub(crate) fn handle_hello(
        &mut self,
        start_worker: impl FnOnce(&Hello) -> bool,
    ) -> Result<bool, SocketError> {
        let (id, hello, descriptors) = match self.receive()? {
            (Envelope { id, body: Request::Hello(hello) }, descriptors) => (id, hello, descriptors),
            (Envelope { id, .. }, _) => {
                self.reply(id, Reply::Failed("the first message must be Hello".to_owned()))?;
                return Ok(false);
            }
        };
        let reply = match self.handler.handle_hello(&hello, descriptors) {
            Ok(()) if start_worker(&hello) => {
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.report.clone() }
            }
            Ok(()) => Reply::Failed("the worker ended before its start".to_owned()),
            Err(e) => Reply::Failed(e),
        };
        let started = matches!(reply, Reply::Hello { .. });
        self.reply(id, reply)?;
        Ok(started)
    }

    /// Serves until the host closes the connection or sends `Stop`, or until the verifier is lost: the host
    /// then starts another P4 VM.
    pub(crate) fn serve(&mut self) -> Result<(), SocketError> {
        loop {
            let (envelope, descriptors) = match self.receive() {
                Err(SocketError::Closed) => break,
                other => other?,
            };
            let stop = envelope.body == Request::Stop;
            let reply = self.handler.handle(envelope.body, descriptors).unwrap_or_else(Reply::Failed);
            self.reply(envelope.id, reply)?;
            if stop || self.handler.verifier.is_gone() {
                break;
            }
        }
        // The worker publishes its last log records.
        let _ = self.handler.worker.send(WorkerCommand::Stop);
        Ok(())
    }

    /// Returns the next valid request; answers invalid ones with an error. Closes descriptors that do not
    /// belong to the request.
    fn receive(&mut self) -> Result<(Envelope<Request>, Vec<OwnedFd>), SocketError> {
        loop {
            let message = match self.socket.receive() {
                Err(SocketError::Cut) => {
                    self.reply(0, Reply::Failed(SocketError::Cut.to_string()))?;
                    continue;
                }
                other => other?,
            };
            match decode::<Request>(&message.bytes) {
                Ok(envelope) if envelope.body.descriptors() == message.descriptors.len() => {
                    return Ok((envelope, message.descriptors));
                }
                Ok(envelope) => {
                    let (expected, got) = (envelope.body.descriptors(), message.descriptors.len());
                    self.reply(
                        envelope.id,
                        Reply::Failed(format!("the request needs {expected} descriptors, but {got} arrived")),
                    )?;
                }
                Err(e) => self.reply(0, Reply::Failed(e.to_string()))?,
            }
        }
    }

    fn reply(&self, id: u32, body: Reply) -> Result<(), SocketError> {
        let bytes = match encode(&Envelope { id, body }) {
            Err(SocketError::TooLong { len }) => encode(&Envelope {
                id,
                body: Reply::Failed(format!("the answer is too long ({len} bytes); request fewer entries")),
            }),
            other => other,
        };
        self.socket.send(&bytes?, &[])
    }
}
