//! A client of QEMU's machine protocol (QMP), as far as regions need it.
//!
//! One message is a line of JSON (QEMU Machine Protocol Specification). QEMU executes the tenant's virtual
//! machine and is not trusted: answers are bounded in length and time.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most bytes of a line.
const MAX_LINE: usize = 1 << 20;
/// Most devices that are noted as gone.
const MAX_REMOVED: usize = 256;
/// Longest time for an answer: QEMU starts on a loaded machine, or allocates memory.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason why QEMU did not do what was requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QmpError {
    /// The connection failed.
    #[error("the connection to QEMU failed")]
    System(#[from] std::io::Error),
    /// QEMU has ended.
    #[error("QEMU has ended")]
    Ended,
    /// QEMU did not answer in time.
    #[error("QEMU did not answer {command} within {} s", PATIENCE.as_secs())]
    Timeout {
        /// The command.
        command: String,
    },
    /// QEMU sent a line that is too long or no JSON.
    #[error("QEMU does not speak QMP: {0}")]
    Protocol(String),
    /// QEMU refused the command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's reason.
        reason: String,
    },
}

impl From<Errno> for QmpError {
    fn from(error: Errno) -> Self {
        Self::System(error.into())
    }
}

/// What QEMU sends.
#[derive(Debug, Deserialize)]
struct Line {
    #[serde(rename = "return")]
    result: Option<Value>,
    error: Option<Value>,
    event: Option<String>,
    #[serde(default)]
    data: Value,
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct Qmp {
    socket: OwnedFd,
    received: Vec<u8>,
    /// Devices whose removal QEMU has reported.
    removed: Vec<String>,
    /// Longest time for an answer.
    patience: Duration,
}

impl Qmp {
    /// Waits for QEMU's greeting and leaves negotiation.
    pub(crate) fn connect(socket: OwnedFd) -> Result<Self, QmpError> {
        Self::connect_within(socket, PATIENCE)
    }

    fn connect_within(socket: OwnedFd, patience: Duration) -> Result<Self, QmpError> {
        let mut qmp = Self { socket, received: Vec::new(), removed: Vec::new(), patience };
        let greeting = qmp.line(qmp.end(), "the connection")?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::Protocol("it sent no greeting".to_owned()));
        }
        qmp.call("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Executes a command.
    pub(crate) fn call(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        self.call_with(command, arguments, &[])
    }

    /// Executes a command with descriptors.
    pub(crate) fn call_with(
        &mut self,
        command: &str,
        arguments: &Value,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Value, QmpError> {
        let text = json!({ "execute": command, "arguments": arguments }).to_string();
        let end = self.end();
        if !self.send(text.as_bytes(), descriptors, end)? {
            return Err(QmpError::Timeout { command: command.to_owned() });
        }
        loop {
            let line = self.message(end, command)?;
            match (line.result, line.error) {
                (Some(result), None) => return Ok(result),
                (None, Some(error)) => {
                    let reason = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                    let (command, reason) = (command.to_owned(), p4shield_text::printable(reason));
                    return Err(QmpError::Refused { command, reason });
                }
                _ => {}
            }
        }
    }

    /// Waits until QEMU reports that a device is gone: the guest has released it.
    pub(crate) fn wait_removed(&mut self, device: &str) -> Result<(), QmpError> {
        let end = self.end();
        loop {
            if let Some(at) = self.removed.iter().position(|d| d == device) {
                self.removed.swap_remove(at);
                return Ok(());
            }
            self.message(end, "device_del")?;
        }
    }

    /// Returns when patience with QEMU ends.
    fn end(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Sends a line. Returns false if QEMU does not take it in time: one that reads nothing fills the socket.
    fn send(&self, line: &[u8], descriptors: &[BorrowedFd<'_>], end: Instant) -> Result<bool, QmpError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(QmpError::Protocol("a command takes one descriptor".to_owned()));
        }
        let line = [line, b"\n"].concat();
        let mut left = line.as_slice();
        while !left.is_empty() {
            if !self.wait(PollFlags::OUT, end)? {
                return Ok(false);
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&self.socket, &[IoSlice::new(left)], &mut ancillary, flags) {
                // A descriptor goes with the first bytes.
                Ok(sent) => {
                    left = &left[sent..];
                    ancillary.clear();
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(QmpError::Ended),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Waits until the socket is ready. Returns false after `end`, also if it is ready: QEMU may send without
    /// end.
    fn wait(&self, flags: PollFlags, end: Instant) -> Result<bool, QmpError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Receives the next message, and notes devices that are gone.
    fn message(&mut self, end: Instant, waiting_for: &str) -> Result<Line, QmpError> {
        let value = self.line(end, waiting_for)?;
        let line: Line = serde_json::from_value(value).map_err(|e| QmpError::Protocol(e.to_string()))?;
        if line.event.as_deref() == Some("DEVICE_DELETED")
            && let Some(device) = line.data.get("device").and_then(Value::as_str)
        {
            // QEMU reports each device once, unless it is hostile.
            self.removed.truncate(MAX_REMOVED);
            self.removed.push(device.to_owned());
        }
        Ok(line)
    }

    /// Receives the next line.
    fn line(&mut self, end: Instant, waiting_for: &str) -> Result<Value, QmpError> {
        loop {
            if let Some(at) = self.received.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.received.drain(..=at).collect();
                return serde_json::from_slice(&line).map_err(|e| QmpError::Protocol(e.to_string()));
            }
            if self.received.len() > MAX_LINE {
                return Err(QmpError::Protocol(format!("a line has more than {MAX_LINE} bytes")));
            }
            if !self.wait(PollFlags::IN, end)? {
                return Err(QmpError::Timeout { command: waiting_for.to_owned() });
            }
            let mut buffer = [0; 4096];
            match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty())?.0 {
                0 => return Err(QmpError::Ended),
                n => self.received.extend_from_slice(&buffer[..n]),
            }
        }
    }
}

impl AsFd for Qmp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    /// Runs a QEMU that answers each command with the next of these lines.
    fn qemu(lines: &'static [&'static str]) -> Result<Qmp, QmpError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut commands = BufReader::new(theirs.try_clone().unwrap());
            let _ = theirs.write_all(b"{\"QMP\": {}}\r\n");
            for line in std::iter::once(&"{\"return\": {}}").chain(lines) {
                let mut command = String::new();
                if commands.read_line(&mut command).unwrap_or(0) == 0 {
                    return;
                }
                let _ = theirs.write_all(format!("{line}\r\n").as_bytes());
            }
        });
        Qmp::connect(ours.into())
    }

    #[test]
    fn answers_are_told_from_events() {
        let event = r#"{"event": "DEVICE_DELETED", "data": {"device": "r1"}}"#;
        let lines: &[&str] = Box::leak(Box::new([Box::leak(
            format!("{event}\r\n{{\"return\": {{\"fd\": 7}}}}").into_boxed_str(),
        ) as &str]));
        let mut qmp = qemu(lines).unwrap();
        assert_eq!(qmp.call("add-fd", &json!({})).unwrap()["fd"], 7);
        qmp.wait_removed("r1").unwrap();
    }

    #[test]
    fn refusals_and_nonsense_are_errors() {
        let mut qmp =
            qemu(&[r#"{"error": {"class": "GenericError", "desc": "no \u001b[31mbus"}}"#, "]"]).unwrap();
        let refused = qmp.call("device_add", &json!({})).unwrap_err().to_string();
        assert_eq!(refused.find('\u{1b}'), None, "{refused:?}");
        assert!(refused.contains("QEMU refused device_add: no"), "{refused}");
        assert!(matches!(qmp.call("x", &json!({})), Err(QmpError::Protocol(_))));
        assert!(matches!(qmp.call("x", &json!({})), Err(QmpError::Ended | QmpError::System(_))));
    }
    #[test]
    fn a_qemu_that_sends_events_only_does_not_answer() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let flood = std::thread::spawn(move || {
            let _ = theirs.write_all(b"{\"QMP\": {}}\n");
            while theirs.write_all(&b"{\"event\": \"X\"}\n".repeat(1000)).is_ok() {}
        });
        let error = Qmp::connect_within(ours.into(), Duration::from_millis(100)).unwrap_err();
        assert!(matches!(error, QmpError::Timeout { .. }), "{error:?}");
        flood.join().unwrap();
    }

    #[test]
    fn a_qemu_that_reads_nothing_does_not_answer() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"QMP\": {}}\n{\"return\": {}}\n").unwrap();
        let flood = std::thread::spawn(move || while theirs.write_all(b"{\"return\": {}}\n").is_ok() {});
        let mut qmp = Qmp::connect_within(ours.into(), Duration::from_secs(5)).unwrap();
        let error = (0..100_000).find_map(|_| qmp.call("device_del", &json!({})).err());
        assert!(matches!(error, Some(QmpError::Timeout { .. })), "{error:?}");
        drop(qmp);
        flood.join().unwrap();
    }
}
