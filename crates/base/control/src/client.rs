//! The host's end: one question, one answer, never longer than the host is willing to wait.

use crate::envelope::{DecodeError, Envelope, decode, encode};
use crate::message::{Reply, Request};
use crate::resource::Resources;
use crate::socket::SocketError;
use crate::transport::Transport;
use p4shield_text::{printable, printable_lines};
use rustix::process::Pid;
use std::time::{Duration, Instant};

/// A P4 VM, as its host speaks with it.
#[derive(Debug)]
pub struct Client {
    transport: Box<dyn Transport>,
    next: u32,
    peer: Option<Pid>,
}

/// Reason why a question was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket failed, or nothing came in time.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The P4 VM does not speak the protocol.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The P4 VM answered another question.
    #[error("the P4 VM answered question {got} instead of {asked}")]
    OutOfOrder {
        /// The answer's number.
        got: u32,
        /// The question's number.
        asked: u32,
    },
    /// The P4 VM cannot do it.
    #[error("the P4 VM says: {0}")]
    Failed(String),
    /// The P4 VM refused a program.
    #[error("the program was refused: {0}")]
    Refused(String),
    /// The answer is one to another kind of question.
    #[error("the P4 VM gave an answer that does not fit the question")]
    Unexpected,
}

impl Client {
    /// Speaks over this transport.
    #[must_use]
    pub fn new(transport: impl Transport + 'static) -> Self {
        Self { transport: Box::new(transport), next: 1, peer: None }
    }

    /// Process that sent the last answer, if the transport knows.
    #[must_use]
    pub const fn peer(&self) -> Option<Pid> {
        self.peer
    }

    /// Asks, and waits for the answer until `timeout`. [`Reply::Failed`] and [`Reply::Refused`]
    /// become errors.
    ///
    /// # Errors
    /// See [`ClientError`]. After one that is neither `Failed` nor `Refused`, the P4 VM is out of
    /// step and has to be replaced.
    pub fn call(
        &mut self,
        request: Request,
        resources: &Resources<'_>,
        timeout: Duration,
    ) -> Result<Reply, ClientError> {
        let end = Instant::now() + timeout;
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.transport.send(&encode(&Envelope { id, body: request })?, resources)?;
        match self.transport.wait(Some(end.saturating_duration_since(Instant::now()))) {
            Err(SocketError::Timeout(_)) => return Err(SocketError::Timeout(timeout).into()),
            other => other?,
        }
        let message = self.transport.receive()?;
        self.peer = message.sender.or(self.peer);
        let envelope: Envelope<Reply> = decode(&message.bytes)?;
        if envelope.id != id {
            return Err(ClientError::OutOfOrder { got: envelope.id, asked: id });
        }
        match envelope.body {
            Reply::Failed(text) => Err(ClientError::Failed(printable(&text))),
            Reply::Refused(text) => Err(ClientError::Refused(printable_lines(&text))),
            reply => Ok(reply),
        }
    }
}
