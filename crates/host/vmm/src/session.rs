//! The daemon's side: serves one daemon after the other, as a P4 VM in a process does.

use crate::carrier::Carrier;
use crate::error::VmmError;
use p4shield_control::{
    Delivered, Door, Envelope, GREETING, PROTOCOL_VERSION, Reply, Request, STDERR, SandboxReport, Socket,
    SocketError, decode, encode, receive_request,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Time between two looks at the virtual machine while there is no daemon.
const LOOK: Duration = Duration::from_millis(500);

/// The session.
pub(crate) struct Session {
    socket: Socket,
    carrier: Carrier,
    door: Option<Door>,
    /// What the P4 VM's sandbox in the virtual machine enforces.
    sandbox: SandboxReport,
}

/// How the service of a daemon ended.
enum Ended {
    /// As the daemon requested.
    Stopped,
    /// The daemon closed the connection.
    Lost,
}

impl Session {
    pub(crate) fn new(socket: Socket, carrier: Carrier) -> Self {
        Self { socket, carrier, door: None, sandbox: SandboxReport::default() }
    }

    /// Carries the daemon's first message, which must be `Hello`. Returns whether the P4 VM accepted it.
    pub(crate) fn hello(
        &mut self,
        envelope: &Envelope<Request>,
        mut resources: Delivered,
    ) -> Result<bool, VmmError> {
        let Request::Hello(hello) = &envelope.body else {
            let reply = Reply::Failed("the first message must be Hello".to_owned());
            self.answer(&encode(&Envelope { id: envelope.id, body: reply })?)?;
            return Ok(false);
        };
        self.door = hello.door.and_then(|door| resources.take(door).ok()).map(Door::new);
        let mut inside = hello.clone();
        // The next daemon connects to this process.
        inside.door = None;
        let reply = self.carrier.carry(envelope.id, &Request::Hello(inside), Delivered::default())?;
        let accepted = match decode::<Reply>(&reply) {
            Ok(Envelope { body: Reply::Hello { sandbox, .. }, .. }) => {
                self.sandbox = sandbox;
                true
            }
            _ => false,
        };
        self.answer(&reply)?;
        Ok(accepted)
    }

    /// Serves one daemon after the other, until one sends `Stop` or none comes in time.
    pub(crate) fn serve(&mut self) -> Result<(), VmmError> {
        while matches!(self.serve_daemon()?, Ended::Lost) {
            if !self.await_daemon()? {
                break;
            }
        }
        Ok(())
    }

    fn serve_daemon(&mut self) -> Result<Ended, VmmError> {
        loop {
            self.wait_for_request()?;
            let (envelope, resources) = match receive_request(&mut self.socket) {
                Err(SocketError::Closed) => return Ok(Ended::Lost),
                other => other?,
            };
            let stop = envelope.body == Request::Stop;
            let reply = match &envelope.body {
                Request::Adopt { .. } => failed(envelope.id, "this P4 VM has a daemon")?,
                Request::SetPatience { ms } => {
                    let patience = Duration::from_millis((*ms).into());
                    self.door.iter_mut().for_each(|door| door.patience = patience);
                    encode(&Envelope { id: envelope.id, body: Reply::Done })?
                }
                request => self.carrier.carry(envelope.id, request, resources)?,
            };
            match self.answer(&reply) {
                Err(SocketError::Closed) if !stop => return Ok(Ended::Lost),
                Err(SocketError::Closed) | Ok(()) => {}
                Err(e) => return Err(e.into()),
            }
            if stop {
                return Ok(Ended::Stopped);
            }
        }
    }

    /// Waits until the daemon has sent something. An error: the virtual machine ended meanwhile.
    fn wait_for_request(&mut self) -> Result<(), VmmError> {
        loop {
            let mut fds =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.carrier.guest, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(VmmError::Line(e.into())),
            }
            let [daemon, guest] = fds.map(|fd| !fd.revents().is_empty());
            if guest {
                self.carrier.guest.check_silent()?;
            }
            if daemon {
                return Ok(());
            }
        }
    }

    /// Waits for the next daemon. Returns false if none adopts the P4 VM in time.
    fn await_daemon(&mut self) -> Result<bool, VmmError> {
        let Some(end) = self.door.as_ref().map(|door| Instant::now() + door.patience) else {
            return Ok(false);
        };
        // The daemon that is gone cannot commit what was staged.
        self.carrier.carry(0, &Request::Discard, Delivered::default())?;
        while Instant::now() < end {
            self.carrier.guest.check_silent()?;
            let look = end.min(Instant::now() + LOOK);
            let Some(mut socket) = self.door.as_ref().and_then(|door| door.accept(look)) else { continue };
            // To a log that may be gone; the next connection may be better.
            if self.adopt(&mut socket).unwrap_or(false) {
                self.socket = socket;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Answers a daemon's first message, which must be `Adopt`. Returns whether it has adopted the P4 VM.
    fn adopt(&self, socket: &mut Socket) -> Result<bool, SocketError> {
        socket.wait(Some(GREETING))?;
        let (Envelope { id, body }, mut resources) = receive_request(socket)?;
        let reply = match body {
            Request::Adopt { version: PROTOCOL_VERSION } => {
                if let Ok(pipe) = resources.take(STDERR) {
                    // Without it the P4 VM goes on; its last words are lost.
                    let _ = rustix::stdio::dup2_stderr(&pipe);
                }
                Reply::Hello { version: PROTOCOL_VERSION, sandbox: self.sandbox.clone() }
            }
            Request::Adopt { version } => Reply::Failed(format!(
                "this P4 VM speaks version {PROTOCOL_VERSION} of the control protocol, the daemon {version}"
            )),
            _ => Reply::Failed("the first message must be Adopt".to_owned()),
        };
        let adopted = matches!(reply, Reply::Hello { .. });
        socket.send(&encode(&Envelope { id, body: reply })?, &[])?;
        Ok(adopted)
    }

    fn answer(&self, reply: &[u8]) -> Result<(), SocketError> {
        self.socket.send(reply, &[])
    }
}

/// Encodes an error.
fn failed(id: u32, why: &str) -> Result<Vec<u8>, SocketError> {
    encode(&Envelope { id, body: Reply::Failed(why.to_owned()) })
}
