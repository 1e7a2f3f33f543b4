//! The process that serves the wires: receives the daemon's requests one by one.
//!
//! It goes on without its daemon as P4 VMs do, so that packets flow while the daemon is upgraded or was
//! killed.

use super::host::WireHost;
use super::message::{WiresReply, WiresRequest, WiresSetup};
use p4shield_channel::{Doorbell, Requester, SharedMemory};
use p4shield_control::{
    Door, Envelope, GREETING, PROTOCOL_VERSION, Socket, SocketError, WireGeometry, decode, encode,
};
use p4shield_mediator::P4VmChannel;
use p4shield_text::chain;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Serves the wires for the daemon at the other end of standard input, and for the daemons after it.
///
/// # Errors
/// Standard input is not a daemon's socket, or the socket fails.
pub fn serve_wires() -> Result<(), SocketError> {
    let failed = |e: std::io::Error| SocketError::Kernel {
        what: "receive",
        source: rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::BADF),
    };
    let fd = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    let null = std::fs::File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(null).map_err(|e| failed(e.into()))?;
    let mut server = Server { socket: Socket::new(fd), door: None, host: None };
    while matches!(server.serve_daemon()?, Ended::Lost) {
        if !server.await_daemon() {
            tracing::warn!(event = "wires_ended", "no daemon adopts the wires in time; they end");
            break;
        }
    }
    Ok(())
}

/// How the service of a daemon ended.
enum Ended {
    Stopped,
    Lost,
}

struct Server {
    socket: Socket,
    door: Option<Door>,
    /// The loop, once there is a setup.
    host: Option<WireHost>,
}

impl Server {
    fn serve_daemon(&mut self) -> Result<Ended, SocketError> {
        loop {
            let (Envelope { id, body }, descriptors) = match self.receive() {
                Err(SocketError::Closed) => return Ok(Ended::Lost),
                other => other?,
            };
            let stop = body == WiresRequest::Stop;
            let reply = self.execute(body, descriptors).unwrap_or_else(WiresReply::Failed);
            match self.reply(id, reply) {
                Err(SocketError::Closed) if !stop => return Ok(Ended::Lost),
                Err(SocketError::Closed) | Ok(()) => {}
                Err(e) => return Err(e),
            }
            if stop {
                return Ok(Ended::Stopped);
            }
        }
    }

    fn await_daemon(&mut self) -> bool {
        let Some(end) = self.door.as_ref().map(|door| Instant::now() + door.patience) else { return false };
        while let Some(socket) = self.door.as_ref().and_then(|door| door.accept(end)) {
            self.socket = socket;
            match self.handle_adopt() {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    event = "wires_not_adopted",
                    "a daemon that connected does not adopt the wires: {error}"
                ),
            }
        }
        false
    }

    /// Answers a daemon's first message. Returns whether it has adopted this process.
    fn handle_adopt(&mut self) -> Result<bool, SocketError> {
        self.socket.wait(Some(GREETING))?;
        let (Envelope { id, body }, descriptors) = self.receive()?;
        let reply = match (body, &self.host) {
            (WiresRequest::Adopt { version: PROTOCOL_VERSION }, Some(host)) => {
                for stderr in &descriptors {
                    // The one of the daemon before may be gone.
                    let _ = rustix::stdio::dup2_stderr(stderr);
                }
                WiresReply::Adopted(host.channels())
            }
            _ => WiresReply::Failed(format!("this process speaks version {PROTOCOL_VERSION}")),
        };
        let adopted = matches!(reply, WiresReply::Adopted(_));
        self.reply(id, reply)?;
        Ok(adopted)
    }

    fn execute(&mut self, request: WiresRequest, descriptors: Vec<OwnedFd>) -> Result<WiresReply, String> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| "a descriptor is missing".to_owned());
        let mut setup = || WiresSetup::from_memory(next()?).map_err(|e| chain(&e));
        match request {
            WiresRequest::Start => {
                let setup = setup()?;
                self.door = Some(Door::new(next()?));
                self.host = Some(WireHost::start(setup)?);
                return Ok(WiresReply::Done);
            }
            WiresRequest::SetPatience { ms } => {
                let patience = Duration::from_millis(ms.into());
                self.door.iter_mut().for_each(|door| door.patience = patience);
                return Ok(WiresReply::Done);
            }
            WiresRequest::Stop => return Ok(WiresReply::Done),
            _ => {}
        }
        let host = self.host.as_mut().ok_or("the first message must be Start")?;
        match request {
            WiresRequest::Check => host.check(&setup()?)?,
            WiresRequest::Reconfigure => host.apply(setup()?)?,
            WiresRequest::AttachChannel { tenant, number, geometry } => {
                let link = link(geometry, next()?, next()?)?;
                host.attach(tenant as usize, number, link)?;
            }
            WiresRequest::DetachChannel { tenant } => host.detach(tenant as usize),
            WiresRequest::Fault { tenant } => return Ok(WiresReply::Fault(host.fault(tenant as usize))),
            WiresRequest::Counts { skip } => {
                let (counts, unowned) = host.counts(skip as usize);
                return Ok(WiresReply::Counts(counts, unowned));
            }
            WiresRequest::Wires { skip } => return Ok(WiresReply::Wires(host.wires(skip as usize))),
            WiresRequest::Adopt { .. } => return Err("this process has a daemon".to_owned()),
            WiresRequest::Start | WiresRequest::SetPatience { .. } | WiresRequest::Stop => {}
        }
        Ok(WiresReply::Done)
    }

    /// Returns the next valid request; answers invalid ones with an error.
    fn receive(&mut self) -> Result<(Envelope<WiresRequest>, Vec<OwnedFd>), SocketError> {
        loop {
            let message = self.socket.receive()?;
            let problem = match decode::<WiresRequest>(&message.bytes) {
                Ok(envelope) if envelope.body.descriptors() == message.descriptors.len() => {
                    return Ok((envelope, message.descriptors));
                }
                Ok(_) => "the number of descriptors is wrong".to_owned(),
                Err(e) => e.to_string(),
            };
            self.reply(0, WiresReply::Failed(problem))?;
        }
    }

    fn reply(&self, id: u32, body: WiresReply) -> Result<(), SocketError> {
        self.socket.send(&encode(&Envelope { id, body })?, &[])
    }
}

/// Returns the mediator's end of a channel.
fn link(geometry: WireGeometry, memory: OwnedFd, doorbell: OwnedFd) -> Result<P4VmChannel, String> {
    let geometry = p4shield_abi::channel::Geometry::from(geometry);
    if !geometry.is_valid() {
        return Err(format!("invalid geometry of a channel: {geometry:?}"));
    }
    let memory = SharedMemory::from_fd(memory, geometry.size()).map_err(|e| chain(&e))?;
    let requester = Requester::new(memory, geometry).map_err(|e| chain(&e))?;
    Ok(P4VmChannel { requester, doorbell: Doorbell::from_fd(doorbell) })
}
