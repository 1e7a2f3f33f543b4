//! Messages between owner and zygote: a length (`u32`, little-endian) and that many bytes of postcard.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use p4shield_abi::map::{MAP_DEFINITION_SIZE, MapDefinition};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Budget;
use crate::insn::{INSN_SIZE, Insn};
use crate::linked::{Linked, Map, Subprogram};
use crate::verify::Limits;

/// Maximum size of a request: the largest linked program with its maps.
pub(super) const MAX_REQUEST: usize = 4 << 20;
/// Maximum size of an answer; texts in it are clipped.
pub(super) const MAX_ANSWER: usize = 64 << 10;

/// A program to verify: the parts of [`Linked`] that the proof depends on. The source lines stay with
/// the owner, who adds them to the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    insns: Vec<[u8; INSN_SIZE]>,
    maps: Vec<(String, [u8; MAP_DEFINITION_SIZE])>,
    subprograms: Vec<(String, usize, usize)>,
}

impl Request {
    pub(super) fn new(linked: &Linked, limits: Limits, budget: Budget) -> Self {
        Self {
            limits,
            budget,
            insns: linked.insns.iter().map(|i| i.to_bytes()).collect(),
            maps: linked.maps.iter().map(|m| (m.name.clone(), m.definition.encode())).collect(),
            subprograms: linked.subprograms.iter().map(|s| (s.name.clone(), s.start, s.end)).collect(),
        }
    }

    pub(super) fn linked(&self) -> Linked {
        let map = |(name, d): &(String, _)| Map { name: name.clone(), definition: MapDefinition::decode(d) };
        let function = |(name, start, end): &(String, usize, usize)| Subprogram {
            name: name.clone(),
            start: *start,
            end: *end,
        };
        Linked {
            insns: self.insns.iter().map(|b| Insn::from_bytes(*b)).collect(),
            maps: self.maps.iter().map(map).collect(),
            subprograms: self.subprograms.iter().map(function).collect(),
            ..Linked::default()
        }
    }
}

/// Encodes a frame.
pub(super) fn encode_frame<T: Serialize>(message: &T, max: usize) -> io::Result<Vec<u8>> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let len = u32::try_from(body.len()).ok().filter(|n| *n as usize <= max);
    let len =
        len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message exceeds its limit"))?;
    Ok([&len.to_le_bytes()[..], &body].concat())
}

/// Decodes the whole body of a frame.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(invalid("the message has trailing bytes".to_owned())),
        Err(e) => Err(invalid(e.to_string())),
    }
}

/// A point in time until which to wait, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    pub(super) const NEVER: Self = Self(None);

    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// Returns the remaining time for `poll`; an error after the deadline.
    pub(super) fn left(self) -> io::Result<Option<Timespec>> {
        let Some(at) = self.0 else { return Ok(None) };
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Timespec::try_from(left).map(Some).map_err(io::Error::other)
    }
}

fn wait(fd: BorrowedFd<'_>, flags: PollFlags, deadline: Deadline) -> io::Result<()> {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    match poll(&mut fds, deadline.left()?.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Writes all bytes to a blocking or non-blocking descriptor.
pub(super) fn write_all(fd: impl AsFd, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        wait(fd.as_fd(), PollFlags::OUT, deadline)?;
        match rustix::io::write(&fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Fills the buffer. Returns `Ok(false)` if the peer closed the connection before the first byte.
fn read_all(fd: impl AsFd, buffer: &mut [u8], deadline: Deadline) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        wait(fd.as_fd(), PollFlags::IN, deadline)?;
        match rustix::io::read(&fd, &mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

/// Reads the body of a frame. Returns `None` if the peer closed the connection.
pub(super) fn read_frame(fd: impl AsFd, max: usize, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    if !read_all(&fd, &mut len, deadline)? {
        return Ok(None);
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer announces a message that exceeds the limit",
        ));
    }
    let mut body = vec![0; len];
    if len > 0 && !read_all(&fd, &mut body, deadline)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(body))
}
