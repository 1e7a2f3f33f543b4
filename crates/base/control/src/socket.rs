//! A `SOCK_SEQPACKET` socket that carries whole messages with descriptors.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with, socketpair,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The most bytes of a message.
pub const MAX_MESSAGE: usize = 128 << 10;
/// The most descriptors in a message.
pub const MAX_DESCRIPTORS: usize = 4;

/// One end.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
}

/// A message.
#[derive(Debug)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// Process that sent it, as the kernel says, in the receiver's PID namespace. Only if
    /// [`Socket::ask_for_senders`].
    pub sender: Option<rustix::process::Pid>,
}

/// Reason why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The other side closed its end.
    #[error("the other side of the control socket is gone")]
    Closed,
    /// Nothing came in time.
    #[error("the other side of the control socket did not answer within {0:?}")]
    Timeout(Duration),
    /// The message is too long.
    #[error("a control message has {len} bytes, at most {MAX_MESSAGE} are allowed")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// More descriptors came than [`MAX_DESCRIPTORS`], or the message was cut.
    #[error("a control message was cut: it has too many bytes or descriptors")]
    Cut,
    /// A message that cannot be encoded.
    #[error("a control message cannot be encoded")]
    Encode {
        /// The cause.
        #[source]
        source: postcard::Error,
    },
    /// The kernel says no.
    #[error("cannot {what} a control message")]
    Kernel {
        /// `send` or `receive`.
        what: &'static str,
        /// The cause.
        #[source]
        source: Errno,
    },
}

impl Socket {
    /// Wraps an end that was inherited or received.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, buffer: vec![0; MAX_MESSAGE + 1] }
    }

    /// A connected pair, close-on-exec.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn pair() -> Result<(Self, Self), SocketError> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|source| SocketError::Kernel { what: "create a socket for", source })?;
        Ok((Self::new(a), Self::new(b)))
    }

    /// Connects to a listening socket. Never waits: one whose queue is full is an error.
    ///
    /// # Errors
    /// No process listens there.
    pub fn connect(path: &Path) -> Result<Self, SocketError> {
        let failed = |source| SocketError::Kernel { what: "connect for", source };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        connect(&fd, &address).map_err(failed)?;
        Ok(Self::new(fd))
    }

    /// The descriptor.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Has the kernel tell who sends ([`Received::sender`]).
    ///
    /// # Errors
    /// The kernel refuses, which it does for no UNIX socket.
    pub fn ask_for_senders(&self) -> Result<(), SocketError> {
        rustix::net::sockopt::set_socket_passcred(&self.fd, true)
            .map_err(|source| SocketError::Kernel { what: "learn the sender of", source })
    }

    /// Waits until a message or the end can be read. `None` waits for ever.
    ///
    /// # Errors
    /// [`SocketError::Timeout`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), SocketError> {
        let end = timeout.map(|t| Instant::now() + t);
        loop {
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            let spec = left.and_then(|l| rustix::event::Timespec::try_from(l).ok());
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], spec.as_ref()) {
                Ok(0) => return Err(SocketError::Timeout(timeout.unwrap_or_default())),
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(source) => return Err(SocketError::Kernel { what: "wait for", source }),
            }
        }
    }

    /// Sends one message. Never waits: a peer that does not read is an error.
    ///
    /// # Errors
    /// The peer is gone or does not read.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(SocketError::TooLong { len: bytes.len() });
        }
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(SocketError::Cut);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(SocketError::Cut);
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed),
                Err(source) => return Err(SocketError::Kernel { what: "send", source }),
            }
        }
    }

    /// Receives one message, waiting for it.
    ///
    /// # Errors
    /// The peer is gone, or the message breaks a limit (it is discarded then, and its descriptors closed).
    pub fn receive(&mut self) -> Result<Received, SocketError> {
        let mut space =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = loop {
            let mut parts = [IoSliceMut::new(&mut self.buffer)];
            match recvmsg(&self.fd, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(m) => break m,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Err(SocketError::Closed),
                Err(source) => return Err(SocketError::Kernel { what: "receive", source }),
            }
        };
        let (mut descriptors, mut sender) = (Vec::new(), None);
        for m in ancillary.drain() {
            match m {
                RecvAncillaryMessage::ScmRights(fds) => descriptors.extend(fds),
                RecvAncillaryMessage::ScmCredentials(c) => sender = Some(c.pid),
                _ => {}
            }
        }
        if message.bytes == 0 {
            return Err(SocketError::Closed);
        }
        let cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        if cut || message.bytes > MAX_MESSAGE || descriptors.len() > MAX_DESCRIPTORS {
            return Err(SocketError::Cut);
        }
        Ok(Received { bytes: self.buffer[..message.bytes].to_vec(), descriptors, sender })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_descriptors_and_their_sender() {
        let (a, mut b) = Socket::pair().unwrap();
        b.ask_for_senders().unwrap();
        a.send(b"hello", &[rustix::stdio::stderr(), a.as_fd()]).unwrap();
        let m = b.receive().unwrap();
        assert_eq!((m.bytes.as_slice(), m.descriptors.len()), (&b"hello"[..], 2));
        assert_eq!(m.sender, Some(rustix::process::getpid()));
    }

    #[test]
    fn too_many_descriptors_are_closed_and_refused() {
        let (a, mut b) = Socket::pair().unwrap();
        let many = [a.as_fd(); MAX_DESCRIPTORS + 1];
        assert!(matches!(a.send(b"x", &many), Err(SocketError::Cut)));
        // A peer that does not keep to the limit.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let many = [a.as_fd(); 16];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&many)));
        sendmsg(&a.fd, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
        assert!(matches!(b.receive(), Err(SocketError::Cut)));
        a.send(b"next", &[]).unwrap();
        assert_eq!(b.receive().unwrap().bytes, b"next");
    }

    #[test]
    fn a_peer_that_left_is_told_from_one_that_is_slow() {
        let (a, mut b) = Socket::pair().unwrap();
        let none = Duration::from_millis(1);
        assert!(matches!(b.wait(Some(none)), Err(SocketError::Timeout(_))));
        drop(a);
        b.wait(Some(none)).unwrap();
        assert!(matches!(b.receive(), Err(SocketError::Closed)));
    }

    #[test]
    fn a_peer_that_does_not_read_cannot_make_us_wait() {
        let (a, _b) = Socket::pair().unwrap();
        let refused = (0..10_000).find_map(|_| a.send(&[1; 65536], &[]).err());
        assert!(matches!(refused, Some(SocketError::Kernel { source: Errno::AGAIN, .. })), "{refused:?}");
    }
}
