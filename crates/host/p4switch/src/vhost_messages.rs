//! Messages of vhost-user, passed on between a switch and QEMU with their descriptors.
//!
//! The kernel returns descriptors with the first bytes that it returns of a message. So this reads one whole
//! message after the other, by the length in its header; else descriptors would reach the other end with
//! another message than their own. All else of a message is none of its business.
//! Source: "Vhost-user Protocol" of QEMU's documentation.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

/// Bytes of a header: request, flags and length of what follows, in the machine's byte order.
const HEADER: usize = 12;
/// The most bytes behind a header. The longest message of the protocol has less than 1000.
const MAX_PAYLOAD: usize = 8 << 10;
/// The most descriptors of a message: one for each region of memory.
const MAX_DESCRIPTORS: usize = 8;

/// An end of a connection through this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Switch,
    Qemu,
}

/// Passes messages on in both directions until one end closes its connection, or breaks the framing. Returns
/// which; both connections are closed then.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn pass_on(switch: &UnixStream, qemu: &UnixStream) -> io::Result<End> {
    let first = OnceLock::new();
    let pass = |from: &UnixStream, to: &UnixStream, end| {
        while receive(from).is_ok_and(|message| message.is_some_and(|m| send(to, m).is_ok())) {}
        // The other direction ends after it, since both connections are closed.
        let _ = first.set(end);
        close(switch, qemu);
    };
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().name("vhost".to_owned());
        other.spawn_scoped(scope, || pass(qemu, switch, End::Qemu)).inspect_err(|_| close(switch, qemu))?;
        pass(switch, qemu, End::Switch);
        Ok::<(), io::Error>(())
    })?;
    Ok(first.into_inner().unwrap_or(End::Switch))
}

fn close(switch: &UnixStream, qemu: &UnixStream) {
    for end in [switch, qemu] {
        // It may be closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// A message with its descriptors.
#[derive(Debug, Default)]
struct Message {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

/// Waits for the next message; `None`: there is no further one.
fn receive(from: &UnixStream) -> io::Result<Option<Message>> {
    let mut message = Message::default();
    if !message.fill(from, HEADER)? {
        return Ok(None);
    }
    let length = message.bytes.last_chunk().map_or(0, |length| u32::from_ne_bytes(*length)) as usize;
    if length > MAX_PAYLOAD || !message.fill(from, HEADER + length)? {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Some(message))
}

impl Message {
    /// Receives until the message has `length` bytes. Returns false if the connection ends before.
    fn fill(&mut self, from: &UnixStream, length: usize) -> io::Result<bool> {
        let mut at = self.bytes.len();
        self.bytes.resize(length, 0);
        while at < length {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut self.bytes[at..])];
            let received = match recvmsg(from, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for part in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = part {
                    self.descriptors.extend(descriptors);
                }
            }
            let cut = received.flags.contains(ReturnFlags::CTRUNC);
            if cut || self.descriptors.len() > MAX_DESCRIPTORS {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if received.bytes == 0 {
                return Ok(false);
            }
            at += received.bytes;
        }
        Ok(true)
    }
}

/// Sends a message, whole; its descriptors with its first bytes.
fn send(to: &UnixStream, Message { bytes, descriptors }: Message) -> io::Result<()> {
    let mut with: Vec<_> = descriptors.iter().map(|d| d.as_fd()).collect();
    let mut at = 0;
    while at < bytes.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !with.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&with)) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match sendmsg(to, &[IoSlice::new(&bytes[at..])], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(sent) => at += sent,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        with.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn message(payload: &[u8], files: &[OwnedFd]) -> Message {
        let length = (payload.len() as u32).to_ne_bytes();
        let bytes = [&5_u32.to_ne_bytes()[..], &1_u32.to_ne_bytes(), &length, payload].concat();
        Message { bytes, descriptors: files.iter().map(|f| f.try_clone().unwrap()).collect() }
    }

    fn inode(file: &OwnedFd) -> u64 {
        rustix::fs::fstat(file).unwrap().st_ino
    }

    /// Runs `work` with the outer ends of the switch and of QEMU. Returns the end that closed first.
    fn between(work: impl FnOnce(UnixStream, UnixStream)) -> End {
        let ((switch, left), (right, qemu)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        std::thread::scope(|scope| {
            let passing = scope.spawn(|| pass_on(&left, &right).unwrap());
            work(switch, qemu);
            passing.join().unwrap()
        })
    }

    #[test]
    fn descriptors_arrive_with_their_own_message() {
        let files = [(); 3].map(|()| OwnedFd::from(tempfile::tempfile().unwrap()));
        let closed = between(|switch, qemu| {
            // Three of them are there before the first is read.
            for sent in [message(&[1; 300], &[]), message(&[2; 8], &files), message(&[], &files[..1])] {
                send(&qemu, sent).unwrap();
            }
            for (payload, count) in [(vec![1; 300], 0), (vec![2; 8], 3), (vec![], 1)] {
                let got = receive(&switch).unwrap().unwrap();
                assert_eq!(got.bytes[HEADER..], payload);
                assert_eq!(got.descriptors.len(), count);
                assert!(got.descriptors.iter().zip(&files).all(|(got, file)| inode(got) == inode(file)));
            }
            send(&switch, message(&[3], &[])).unwrap();
            assert_eq!(receive(&qemu).unwrap().unwrap().bytes[HEADER..], [3]);
            drop(qemu);
            assert!(receive(&switch).unwrap().is_none(), "it hears of the end");
        });
        assert_eq!(closed, End::Qemu);
    }

    #[test]
    fn an_end_that_breaks_the_framing_loses_its_connection() {
        let files: Vec<OwnedFd> =
            (0..MAX_DESCRIPTORS).map(|_| tempfile::tempfile().unwrap().into()).collect();
        for too_much in [
            message(&[0; MAX_PAYLOAD + 1], &[]).bytes,
            [1_u32, 1, u32::MAX].map(u32::to_ne_bytes).concat(),
            vec![9; HEADER - 1],
        ] {
            let closed = between(|mut switch, mut qemu| {
                switch.write_all(&too_much).unwrap();
                switch.shutdown(Shutdown::Write).unwrap();
                assert_eq!(qemu.read(&mut [0; 64]).unwrap(), 0, "nothing of it is passed on");
            });
            assert_eq!(closed, End::Switch);
        }
        // A header and its payload, each with as many descriptors as a message may have.
        let closed = between(|switch, qemu| {
            for part in [message(&[7; 4], &files).bytes[..HEADER].to_vec(), vec![7; 4]] {
                let descriptors = files.iter().map(|f| f.try_clone().unwrap()).collect();
                send(&switch, Message { bytes: part, descriptors }).unwrap();
            }
            assert!(receive(&qemu).unwrap().is_none());
        });
        assert_eq!(closed, End::Switch);
    }
}
