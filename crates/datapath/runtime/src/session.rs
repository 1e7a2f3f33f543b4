//! The control thread: one request of the host after the other.

use crate::desk::Desk;
use crate::program::Verifier;
use crate::worker::{Control, Order};
use p4shield_control::SandboxReport;
use p4shield_control::{
    Envelope, Hello, PROTOCOL_VERSION, Reply, Request, Socket, SocketError, decode, encode,
};
use std::os::fd::OwnedFd;

/// What the control thread holds.
pub(crate) struct Session {
    socket: Socket,
    report: SandboxReport,
    desk: Desk<Verifier, Control>,
}

impl Session {
    pub(crate) fn new(socket: Socket, report: SandboxReport, verifier: Verifier, worker: Control) -> Self {
        Self { socket, report, desk: Desk::new(verifier, worker) }
    }

    /// Answers the host's first message. False if it is none that a P4 VM can begin with.
    pub(crate) fn greet(&mut self, begin: impl FnOnce(&Hello) -> bool) -> Result<bool, SocketError> {
        let (id, hello, descriptors) = match self.receive()? {
            (Envelope { id, body: Request::Hello(hello) }, descriptors) => (id, hello, descriptors),
            (Envelope { id, .. }, _) => {
                self.reply(id, Reply::Failed("the first message has to be Hello".to_owned()))?;
                return Ok(false);
            }
        };
        let reply = match self.desk.introduce(&hello, descriptors) {
            Ok(()) if begin(&hello) => {
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.report.clone() }
            }
            Ok(()) => Reply::Failed("the worker ended before it began".to_owned()),
            Err(e) => Reply::Failed(e),
        };
        let begun = matches!(reply, Reply::Hello { .. });
        self.reply(id, reply)?;
        Ok(begun)
    }

    /// Serves until the host hangs up or says stop, or no program can be verified any more: the host then starts a P4
    /// VM that can.
    pub(crate) fn serve(&mut self) -> Result<(), SocketError> {
        loop {
            let (envelope, descriptors) = match self.receive() {
                Err(SocketError::Closed) => break,
                other => other?,
            };
            let stop = envelope.body == Request::Stop;
            let reply = self.desk.handle(envelope.body, descriptors).unwrap_or_else(Reply::Failed);
            self.reply(envelope.id, reply)?;
            if stop || self.desk.verifier.is_gone() {
                break;
            }
        }
        // The worker publishes its last log records.
        let _ = self.desk.worker.order(Order::Stop);
        Ok(())
    }

    /// The next request that is one; others are answered as such. Descriptors that a request does not call for are
    /// closed.
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
                    let (due, got) = (envelope.body.descriptors(), message.descriptors.len());
                    self.reply(envelope.id, Reply::Failed(format!("{due} descriptors are due, {got} came")))?;
                }
                Err(e) => self.reply(0, Reply::Failed(e.to_string()))?,
            }
        }
    }

    fn reply(&self, id: u32, body: Reply) -> Result<(), SocketError> {
        let bytes = match encode(&Envelope { id, body }) {
            Err(SocketError::TooLong { len }) => encode(&Envelope {
                id,
                body: Reply::Failed(format!("the answer has {len} bytes, which is too long")),
            }),
            other => other,
        };
        self.socket.send(&bytes?, &[])
    }
}
