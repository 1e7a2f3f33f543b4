//! The line of control messages to the P4 VM in the virtual machine.

use crate::error::VmmError;
use p4shield_control::{Envelope, Reply, decode};
use p4shield_line::{
    CARRIED_VERSION, CarriedRequest, FrameReader, FromGuest, MAX_FROM_GUEST, MAX_TO_GUEST, encode_frame,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Longest time for a guest to boot: by emulation, on a loaded machine.
const BOOT: Duration = Duration::from_secs(120);
/// Longest time for a reply: the guest may verify a large program by emulation. The daemon waits less for
/// most.
const REPLY: Duration = Duration::from_secs(300);

/// The host's end of the line.
#[derive(Debug)]
pub(crate) struct Guest {
    line: UnixStream,
    received: FrameReader,
}

impl Guest {
    /// Waits until the guest can receive requests.
    pub(crate) fn boot(line: UnixStream) -> Result<Self, VmmError> {
        let mut guest = Self { line, received: FrameReader::new(MAX_FROM_GUEST) };
        match guest.receive(BOOT)? {
            Some(FromGuest::Ready { version: CARRIED_VERSION }) => Ok(guest),
            Some(FromGuest::Ready { version: theirs }) => {
                Err(VmmError::Version { theirs, ours: CARRIED_VERSION })
            }
            Some(FromGuest::Reply(_)) => Err(VmmError::Guest("it replied before it was ready")),
            None => Err(VmmError::Boot(BOOT)),
        }
    }

    /// Sends a request and waits for the reply, which it returns decoded and as its bytes.
    pub(crate) fn call(&mut self, request: &CarriedRequest) -> Result<(Envelope<Reply>, Vec<u8>), VmmError> {
        let end = Instant::now() + REPLY;
        self.send(&encode_frame(request, MAX_TO_GUEST)?, end)?;
        match self.receive(end.saturating_duration_since(Instant::now()))? {
            Some(FromGuest::Reply(bytes)) => {
                let reply = decode(&bytes).map_err(|_| VmmError::Guest("its reply is no message"))?;
                Ok((reply, bytes))
            }
            Some(FromGuest::Ready { .. }) => Err(VmmError::Guest("it started anew")),
            None => Err(VmmError::NoReply(REPLY)),
        }
    }

    /// Returns an error if the guest ended or sent a message without a request, once the line is readable.
    pub(crate) fn check_silent(&mut self) -> Result<(), VmmError> {
        match self.receive(Duration::ZERO)? {
            None => Ok(()),
            Some(_) => Err(VmmError::Guest("it sent a message without a request")),
        }
    }

    fn send(&self, mut bytes: &[u8], end: Instant) -> Result<(), VmmError> {
        while !bytes.is_empty() {
            if !self.wait(PollFlags::OUT, end)? {
                return Err(VmmError::NoReply(REPLY));
            }
            match rustix::net::send(&self.line, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ended()),
                Err(e) => return Err(VmmError::Line(e.into())),
            }
        }
        Ok(())
    }

    /// Receives a frame; none if there is none in time.
    fn receive(&mut self, timeout: Duration) -> Result<Option<FromGuest>, VmmError> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(frame) = self.received.take()? {
                return Ok(Some(frame));
            }
            if !self.wait(PollFlags::IN, end)? {
                return Ok(None);
            }
            let mut buffer = [0; 4096];
            match rustix::net::recv(&self.line, &mut buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Err(ended()),
                Ok((n, _)) => self.received.extend(&buffer[..n]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(VmmError::Line(e.into())),
            }
        }
    }

    /// Waits until the line is ready. Returns false after `end`.
    fn wait(&self, flags: PollFlags, end: Instant) -> Result<bool, VmmError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.line, flags)], timeout.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(e) => return Err(VmmError::Line(e.into())),
            }
        }
    }
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// The caller knows how QEMU ended.
fn ended() -> VmmError {
    VmmError::Ended(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_control::encode;
    use std::io::Write;

    fn frame(body: &FromGuest) -> Vec<u8> {
        encode_frame(body, MAX_FROM_GUEST).unwrap()
    }

    fn booted(bytes: &[u8]) -> (Result<Guest, VmmError>, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        (Guest::boot(ours), theirs)
    }

    #[test]
    fn an_image_of_another_version_is_refused() {
        let (guest, _line) = booted(&frame(&FromGuest::Ready { version: CARRIED_VERSION + 1 }));
        let error = guest.unwrap_err().to_string();
        assert!(error.contains("p4shield image build"), "{error}");
    }

    #[test]
    fn a_guest_that_breaks_the_protocol_is_ended() {
        let ready = frame(&FromGuest::Ready { version: CARRIED_VERSION });
        let request = CarriedRequest { message: vec![1], attachments: Vec::new(), unix_ns: 0 };
        let reply = encode(&Envelope { id: 1, body: Reply::Done }).unwrap();
        let good = frame(&FromGuest::Reply(reply));
        let (guest, mut line) = booted(&[ready.clone(), good.clone()].concat());
        let mut guest = guest.unwrap();
        assert_eq!(guest.call(&request).unwrap().0.body, Reply::Done);
        for bad in [ready.clone(), frame(&FromGuest::Reply(vec![9; 5])), vec![0xff; 8]] {
            let (guest, _line) = booted(&[ready.clone(), bad].concat());
            assert!(guest.unwrap().call(&request).is_err());
        }
        guest.check_silent().unwrap();
        line.write_all(&good).unwrap();
        assert!(matches!(guest.check_silent(), Err(VmmError::Guest(_))));
        drop(line);
        assert!(matches!(guest.check_silent(), Err(VmmError::Ended(_))));
    }
}
