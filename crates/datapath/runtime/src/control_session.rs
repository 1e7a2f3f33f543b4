//! The control thread: receives the host's requests one by one; `request_handler` executes them.
//!
//! When the connection to the daemon ends, the worker goes on, and the control thread waits for the next
//! daemon, which adopts the P4 VM with all it has.

use crate::evidence::EvidenceSource;
use crate::last_words;
use crate::program::Verifier;
use crate::request_handler::RequestHandler;
use crate::worker::{WorkerCommand, WorkerHandle};
use p4shield_control::SandboxReport;
use p4shield_control::{
    Door, Envelope, GREETING, Hello, PROTOCOL_VERSION, Reply, Request, Socket, SocketError, decode, encode,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the control thread.
pub(crate) struct ControlSession {
    socket: Socket,
    report: SandboxReport,
    handler: RequestHandler<Verifier, WorkerHandle>,
    door: Option<Door>,
}

/// How the service of a daemon ended.
enum Ended {
    /// As the daemon requested, or because the P4 VM cannot go on.
    Stopped,
    /// The daemon closed the connection.
    Lost,
}

impl ControlSession {
    pub(crate) fn new(
        socket: Socket,
        report: SandboxReport,
        verifier: Verifier,
        worker: WorkerHandle,
        evidence: Option<EvidenceSource>,
    ) -> Self {
        let evidence = evidence.map(|source| Arc::new(source) as _);
        let handler = RequestHandler::new(verifier, worker).with_evidence(evidence);
        Self { socket, report, handler, door: None }
    }

    /// Answers the host's first message, which must be `Hello`, and starts the worker. Returns whether that
    /// succeeded.
    pub(crate) fn handle_hello(
        &mut self,
        start_worker: impl FnOnce(&Hello) -> bool,
    ) -> Result<bool, SocketError> {
        let (id, hello, mut descriptors) = match receive(&mut self.socket)? {
            (Envelope { id, body: Request::Hello(hello) }, descriptors) => (id, hello, descriptors),
            (Envelope { id, .. }, _) => {
                answer(&self.socket, id, Reply::Failed("the first message must be Hello".to_owned()))?;
                return Ok(false);
            }
        };
        self.door = if hello.door { descriptors.pop().map(Door::new) } else { None };
        let reply = match self.handler.handle_hello(&hello) {
            Ok(()) if start_worker(&hello) => {
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.report.clone() }
            }
            Ok(()) => Reply::Failed("the worker ended before its start".to_owned()),
            Err(e) => Reply::Failed(e),
        };
        let started = matches!(reply, Reply::Hello { .. });
        answer(&self.socket, id, reply)?;
        Ok(started)
    }

    /// Serves one daemon after the other. Ends when a daemon sends `Stop` or none comes in time, or when the
    /// verifier is lost: the daemon then starts another P4 VM.
    pub(crate) fn serve(&mut self) -> Result<(), SocketError> {
        while matches!(self.serve_daemon()?, Ended::Lost) {
            if !self.await_daemon() {
                break;
            }
        }
        // The worker publishes its last log records.
        let _ = self.handler.worker.send(WorkerCommand::Stop);
        Ok(())
    }

    fn serve_daemon(&mut self) -> Result<Ended, SocketError> {
        loop {
            self.wait_for_request()?;
            let (envelope, descriptors) = match receive(&mut self.socket) {
                Err(SocketError::Closed) => return Ok(Ended::Lost),
                other => other?,
            };
            let stop = envelope.body == Request::Stop;
            let reply = self.execute(envelope.body, descriptors).unwrap_or_else(Reply::Failed);
            match answer(&self.socket, envelope.id, reply) {
                Err(SocketError::Closed) if !stop => return Ok(Ended::Lost),
                Err(SocketError::Closed) | Ok(()) => {}
                Err(e) => return Err(e),
            }
            if stop || self.handler.verifier.is_gone() {
                return Ok(Ended::Stopped);
            }
        }
    }

    /// Waits until the daemon has sent something, and polls the handshakes meanwhile and before each request.
    fn wait_for_request(&mut self) -> Result<(), SocketError> {
        loop {
            self.handler.poll_handshakes();
            match self.socket.wait(self.handler.handshake_tick()) {
                Err(SocketError::Timeout(_)) => {}
                other => return other,
            }
        }
    }

    fn execute(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<Reply, String> {
        match request {
            Request::Adopt { .. } => Err("this P4 VM has a daemon".to_owned()),
            Request::SetPatience { ms } => {
                let patience = Duration::from_millis(ms.into());
                self.door.iter_mut().for_each(|door| door.patience = patience);
                Ok(Reply::Done)
            }
            other => self.handler.handle(other, descriptors),
        }
    }

    /// Waits for the next daemon. Returns false if none adopts the P4 VM in time.
    fn await_daemon(&mut self) -> bool {
        let Some(end) = self.door.as_ref().map(|door| Instant::now() + door.patience) else { return false };
        // The daemon that is gone cannot commit them.
        self.handler.discard_staged();
        while Instant::now() < end {
            self.handler.poll_handshakes();
            let look = self.handler.handshake_tick().map_or(end, |tick| end.min(Instant::now() + tick));
            let Some(mut socket) = self.door.as_ref().and_then(|door| door.accept(look)) else { continue };
            match self.handle_adopt(&mut socket) {
                Ok(true) => {
                    self.socket = socket;
                    return true;
                }
                Ok(false) => {}
                // To a log that may be gone; the next connection may be better.
                Err(error) => last_words::report(&error),
            }
        }
        false
    }

    /// Answers a daemon's first message, which must be `Adopt`. Returns whether it has adopted the P4 VM.
    fn handle_adopt(&self, socket: &mut Socket) -> Result<bool, SocketError> {
        socket.wait(Some(GREETING))?;
        let (Envelope { id, body }, descriptors) = receive(socket)?;
        let reply = match body {
            Request::Adopt { version: PROTOCOL_VERSION } => {
                descriptors.iter().for_each(last_words::send_to);
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.report.clone() }
            }
            Request::Adopt { version } => Reply::Failed(format!(
                "this P4 VM speaks version {PROTOCOL_VERSION} of the control protocol, the daemon {version}"
            )),
            _ => Reply::Failed("the first message must be Adopt".to_owned()),
        };
        let adopted = matches!(reply, Reply::Hello { .. });
        answer(socket, id, reply)?;
        Ok(adopted)
    }
}

/// Returns the next valid request; answers invalid ones with an error. Closes descriptors that do not
/// belong to the request.
fn receive(socket: &mut Socket) -> Result<(Envelope<Request>, Vec<OwnedFd>), SocketError> {
    loop {
        let message = match socket.receive() {
            Err(SocketError::Cut) => {
                answer(socket, 0, Reply::Failed(SocketError::Cut.to_string()))?;
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
                answer(
                    socket,
                    envelope.id,
                    Reply::Failed(format!("the request needs {expected} descriptors, but {got} arrived")),
                )?;
            }
            Err(e) => answer(socket, 0, Reply::Failed(e.to_string()))?,
        }
    }
}

fn answer(socket: &Socket, id: u32, body: Reply) -> Result<(), SocketError> {
    let bytes = match encode(&Envelope { id, body }) {
        Err(SocketError::TooLong { len }) => encode(&Envelope {
            id,
            body: Reply::Failed(format!("the answer is too long ({len} bytes); request fewer entries")),
        }),
        other => other,
    };
    socket.send(&bytes?, &[])
}
