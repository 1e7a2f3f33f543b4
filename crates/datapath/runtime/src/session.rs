//! The control thread: one request of the host after the other.

use crate::control::{Frame, Hello, PROTOCOL_VERSION, Reply, Request, Socket, SocketError, decode, encode};
use crate::desk::Desk;
use crate::program::Verifier;
use crate::sandbox::Report;
use crate::worker::{Control, Order};
use std::os::fd::OwnedFd;

/// What the control thread holds.
pub(crate) struct Session {
    socket: Socket,
    report: Report,
    desk: Desk<Verifier, Control>,
}

impl Session {
    pub(crate) fn new(socket: Socket, report: Report, verifier: Verifier, worker: Control) -> Self {
        Self { socket, report, desk: Desk::new(verifier, worker) }
    }

    /// Answers the host's first message. False if it is none that a P4 VM can begin with.
    pub(crate) fn greet(&mut self, begin: impl FnOnce(&Hello) -> bool) -> Result<bool, SocketError> {
        let (id, hello, descriptors) = match self.receive()? {
            (Frame { id, body: Request::Hello(hello) }, descriptors) => (id, hello, descriptors),
            (Frame { id, .. }, _) => {
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
            let (frame, descriptors) = match self.receive() {
                Err(SocketError::Closed) => break,
                other => other?,
            };
            let stop = frame.body == Request::Stop;
            let reply = self.desk.handle(frame.body, descriptors).unwrap_or_else(Reply::Failed);
            self.reply(frame.id, reply)?;
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
    fn receive(&mut self) -> Result<(Frame<Request>, Vec<OwnedFd>), SocketError> {
        loop {
            let message = match self.socket.receive() {
                Err(SocketError::Cut) => {
                    self.reply(0, Reply::Failed(SocketError::Cut.to_string()))?;
                    continue;
                }
                other => other?,
            };
            match decode::<Request>(&message.bytes) {
                Ok(frame) if frame.body.descriptors() == message.descriptors.len() => {
                    return Ok((frame, message.descriptors));
                }
                Ok(frame) => {
                    let (due, got) = (frame.body.descriptors(), message.descriptors.len());
                    self.reply(frame.id, Reply::Failed(format!("{due} descriptors are due, {got} came")))?;
                }
                Err(e) => self.reply(0, Reply::Failed(e.to_string()))?,
            }
        }
    }

    fn reply(&self, id: u32, body: Reply) -> Result<(), SocketError> {
        let bytes = match encode(&Frame { id, body }) {
            Err(SocketError::TooLong { len }) => encode(&Frame {
                id,
                body: Reply::Failed(format!("the answer has {len} bytes, which is too long")),
            }),
            other => other,
        };
        self.socket.send(&bytes?, &[])
    }
}
