//! The line of control messages: requests from the host, and the runtime's replies.

use crate::attachment;
use anyhow::{Context, bail};
use p4shield_boot::follow_clock;
use p4shield_control::{Envelope, Reply, Request, Resources, Socket, SocketError, Transport, decode, encode};
use p4shield_line::{
    CARRIED_VERSION, CarriedRequest, FrameReader, FromGuest, MAX_FROM_GUEST, MAX_TO_GUEST, Rings,
    encode_frame,
};
use rustix::termios::tcdrain;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest time for the runtime to reply: it may verify a large program by emulation.
const REPLY: Duration = Duration::from_secs(300);

/// The line and the runtime behind it.
pub(crate) struct Messages {
    pub(crate) line: OwnedFd,
    pub(crate) runtime: Socket,
    pub(crate) rings: Rings,
}

/// Held while a request is executed, so that the machine does not power off before the reply has left it.
#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<()>);

impl Busy {
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Messages {
    /// Carries requests until the host or the runtime breaks the protocol.
    pub(crate) fn carry(mut self, busy: &Busy) -> anyhow::Result<()> {
        self.send(&FromGuest::Ready { version: CARRIED_VERSION })?;
        let mut received = FrameReader::new(MAX_TO_GUEST);
        let mut buffer = [0; 4096];
        loop {
            while let Some(request) = received.take::<CarriedRequest>().context("the host's request")? {
                let _busy = busy.lock();
                let reply = self.execute(request)?;
                self.send(&FromGuest::Reply(reply))?;
            }
            match rustix::io::read(&self.line, &mut buffer).context("cannot read the line to the host")? {
                0 => bail!("the line to the host is closed"),
                n => received.extend(&buffer[..n]),
            }
        }
    }

    /// Has the runtime execute a request. What cannot be attached is refused here.
    fn execute(&mut self, request: CarriedRequest) -> anyhow::Result<Vec<u8>> {
        if let Err(error) = follow_clock(request.unix_ns) {
            crate::report(&anyhow::Error::new(error).context("cannot set the clock"));
        }
        let attachments = request.attachments.into_iter();
        let files: Result<Vec<_>, _> = attachments.map(|a| attachment::descriptor(a, &self.rings)).collect();
        match files {
            Ok(files) => self.ask_runtime(&request.message, &files),
            Err(error) => {
                let id = decode::<Request>(&request.message).map_or(0, |envelope| envelope.id);
                Ok(encode(&Envelope { id, body: Reply::Failed(format!("{error:#}")) })?)
            }
        }
    }

    fn ask_runtime(&mut self, message: &[u8], files: &[OwnedFd]) -> anyhow::Result<Vec<u8>> {
        let mut resources = Resources::none();
        for file in files {
            resources.add(file);
        }
        Transport::send(&self.runtime, message, &resources).context("the runtime")?;
        self.runtime.wait(Some(REPLY)).context("the runtime")?;
        match self.runtime.receive() {
            Ok(reply) => Ok(reply.bytes),
            Err(SocketError::Closed) => bail!("the runtime has ended"),
            Err(error) => Err(error).context("the runtime"),
        }
    }

    /// Sends a frame and waits until the line has taken it.
    fn send(&self, body: &FromGuest) -> anyhow::Result<()> {
        let frame = encode_frame(body, MAX_FROM_GUEST)?;
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            let n = rustix::io::write(&self.line, rest).context("cannot write to the line to the host")?;
            rest = &rest[n..];
        }
        tcdrain(&self.line).context("cannot write to the line to the host")
    }
}
