//! The control thread: receives the host's requests one by one; `request_handler` executes them.
//!
//! When the connection to the daemon ends, the worker goes on, and the control thread waits for the next
//! daemon, which adopts the P4 VM with all it has.

use crate::evidence::EvidenceSource;
use crate::program::Verifier;
use crate::request_handler::RequestHandler;
use crate::worker::{WorkerCommand, WorkerHandle};
use p4shield_control::{
    Delivered, Door, Envelope, GREETING, Hello, PROTOCOL_VERSION, Reply, Request, Resources, STDERR,
    SandboxReport, SocketError, Transport, encode, receive_request,
};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the control thread.
pub(crate) struct ControlSession {
    transport: Box<dyn Transport>,
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
        transport: Box<dyn Transport>,
        report: SandboxReport,
        verifier: Verifier,
        worker: WorkerHandle,
        evidence: Option<EvidenceSource>,
    ) -> Self {
        let evidence = evidence.map(|source| Arc::new(source) as _);
        let handler = RequestHandler::new(verifier, worker).with_evidence(evidence);
        Self { transport, report, handler, door: None }
    }

    /// Answers the host's first message, which must be `Hello`, and starts the worker. Returns whether that
    /// succeeded.
    pub(crate) fn handle_hello(
        &mut self,
        start_worker: impl FnOnce(&Hello) -> bool,
    ) -> Result<bool, SocketError> {
        let (id, hello, mut resources) = match receive_request(&mut *self.transport)? {
            (Envelope { id, body: Request::Hello(hello) }, resources) => (id, hello, resources),
            (Envelope { id, .. }, _) => {
                answer(&*self.transport, id, Reply::Failed("the first message must be Hello".to_owned()))?;
                return Ok(false);
            }
        };
        self.door = hello.door.and_then(|door| resources.take(door).ok()).map(Door::new);
        let reply = match self.handler.handle_hello(&hello) {
            Ok(()) if start_worker(&hello) => {
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.report.clone() }
            }
            Ok(()) => Reply::Failed("the worker ended before its start".to_owned()),
            Err(e) => Reply::Failed(e),
        };
        let started = matches!(reply, Reply::Hello { .. });
        answer(&*self.transport, id, reply)?;
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
            let (envelope, resources) = match receive_request(&mut *self.transport) {
                Err(SocketError::Closed) => return Ok(Ended::Lost),
                other => other?,
            };
            let stop = envelope.body == Request::Stop;
            let reply = self.execute(envelope.body, resources).unwrap_or_else(Reply::Failed);
            match answer(&*self.transport, envelope.id, reply) {
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
            match self.transport.wait(self.handler.handshake_tick()) {
                Err(SocketError::Timeout(_)) => {}
                other => return other,
            }
        }
    }

    fn execute(&mut self, request: Request, resources: Delivered) -> Result<Reply, String> {
        match request {
            Request::Adopt { .. } => Err("this P4 VM has a daemon".to_owned()),
            Request::SetPatience { ms } => {
                let patience = Duration::from_millis(ms.into());
                self.door.iter_mut().for_each(|door| door.patience = patience);
                Ok(Reply::Done)
            }
            other => self.handler.handle(other, resources),
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
                    self.transport = Box::new(socket);
                    return true;
                }
                Ok(false) => {}
                // To a log that may be gone; the next connection may be better.
                Err(error) => report(&error),
            }
        }
        false
    }

    /// Answers a daemon's first message, which must be `Adopt`. Returns whether it has adopted the P4 VM.
    fn handle_adopt(&self, transport: &mut dyn Transport) -> Result<bool, SocketError> {
        transport.wait(Some(GREETING))?;
        let (Envelope { id, body }, mut resources) = receive_request(transport)?;
        let reply = match body {
            Request::Adopt { version: PROTOCOL_VERSION } => {
                resources.take(STDERR).iter().for_each(send_last_words_to);
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.report.clone() }
            }
            Request::Adopt { version } => Reply::Failed(format!(
                "this P4 VM speaks version {PROTOCOL_VERSION} of the control protocol, the daemon {version}"
            )),
            _ => Reply::Failed("the first message must be Adopt".to_owned()),
        };
        let adopted = matches!(reply, Reply::Hello { .. });
        answer(transport, id, reply)?;
        Ok(adopted)
    }
}

fn answer(transport: &dyn Transport, id: u32, body: Reply) -> Result<(), SocketError> {
    let bytes = match encode(&Envelope { id, body }) {
        Err(SocketError::TooLong { len }) => encode(&Envelope {
            id,
            body: Reply::Failed(format!("the answer is too long ({len} bytes); request fewer entries")),
        }),
        other => other,
    };
    transport.send(&bytes?, &Resources::none())
}

/// Directs standard error, whose last lines the daemon keeps, to `pipe`: the daemon at the end of the
/// previous one is gone.
fn send_last_words_to(pipe: &OwnedFd) {
    // Without it the P4 VM goes on; its last words are lost.
    let _ = rustix::stdio::dup2_stderr(pipe);
}

/// Reports that a connection was of no use. Standard error may be a pipe that is closed.
fn report(error: &SocketError) {
    let _ = writeln!(std::io::stderr(), "a daemon that connected does not adopt this P4 VM: {error}");
}
