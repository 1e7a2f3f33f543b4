//! The client of a socket.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The limits of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time until it is there.
    pub time: Duration,
    /// Most bytes.
    pub bytes: u64,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// No server listens there.
    #[error("no server listens there")]
    Connect(#[source] io::Error),
    /// The connection failed.
    #[error("the connection failed")]
    Talk(#[source] io::Error),
    /// The answer did not come in time.
    #[error("the answer did not come within {} s", .0.as_secs())]
    Late(Duration),
    /// The answer cannot be parsed.
    #[error("the answer cannot be parsed")]
    Decode(#[source] serde_json::Error),
}

/// A connection to the server of a socket.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`AskError::Connect`].
    pub fn connect(socket: &Path) -> Result<Self, AskError> {
        let stream = UnixStream::connect(socket).map_err(AskError::Connect)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Connects to a server that may not accept.
    ///
    /// # Errors
    /// [`AskError::Connect`], also when it does not accept within this time.
    pub fn connect_within(socket: &Path, time: Duration) -> Result<Self, AskError> {
        let connect = || -> io::Result<UnixStream> {
            let flags = SocketFlags::CLOEXEC;
            let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // It limits `connect`, too (`man 7 unix`).
            set_socket_timeout(&stream, Timeout::Send, Some(time))?;
            rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
            Ok(stream.into())
        };
        let stream = connect().map_err(AskError::Connect)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and returns its answer. After an error, a late answer may follow: connect again.
    ///
    /// # Errors
    /// [`AskError`].
    pub fn ask<A: DeserializeOwned>(
        &mut self,
        request: &impl Serialize,
        patience: Patience,
    ) -> Result<A, AskError> {
        let mut line = serde_json::to_vec(request).map_err(AskError::Decode)?;
        line.push(b'\n');
        let answer = self.exchange(&line, patience).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Late(patience.time),
            _ => AskError::Talk(error),
        })?;
        serde_json::from_str(&answer).map_err(AskError::Decode)
    }

    fn exchange(&mut self, line: &[u8], patience: Patience) -> io::Result<String> {
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(patience.time))?;
        stream.set_write_timeout(Some(patience.time))?;
        stream.write_all(line)?;
        let mut answer = String::new();
        self.stream.by_ref().take(patience.bytes).read_line(&mut answer)?;
        Ok(answer)
    }
}

/// Sends a request to the server of a socket, and returns its answer.
///
/// # Errors
/// [`AskError`].
pub fn ask<A: DeserializeOwned>(
    socket: &Path,
    request: &impl Serialize,
    patience: Patience,
) -> Result<A, AskError> {
    Client::connect(socket)?.ask(request, patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_does_not_answer_is_reported_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mute.sock");
        let _mute = UnixListener::bind(&socket).unwrap();
        let patience = Patience { time: Duration::from_millis(10), bytes: 100 };
        assert!(matches!(ask::<String>(&socket, &"hello", patience), Err(AskError::Late(_))));
    }

    #[test]
    fn a_server_that_accepts_no_more_does_not_block_a_client() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("full.sock");
        let flags = SocketFlags::CLOEXEC;
        let full = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&full, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&full, 1).unwrap();
        let connect = || Client::connect_within(&socket, Duration::from_millis(10));
        let waiting: Vec<_> = std::iter::repeat_with(connect).take(4).collect();
        assert!(waiting[0].is_ok());
        assert!(matches!(waiting[3], Err(AskError::Connect(_))));
    }
}
