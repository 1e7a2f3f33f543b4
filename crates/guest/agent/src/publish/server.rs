//! The server of the control socket. It runs between publications and never blocks.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::control::Reply;
use crate::error::AgentError;

/// Maximum number of clients; further connections are closed.
const MAX_CLIENTS: usize = 16;

/// Maximum length of a request in bytes.
const REQUEST_LIMIT: usize = 4096;

/// The socket, its clients and their input.
pub(super) struct Server {
    path: PathBuf,
    listener: UnixListener,
    clients: Vec<Client>,
}

/// Listens at `path`. Only this user can connect, from the first moment: the file has the mode of the socket,
/// and no path is followed to change it.
fn bind_private(path: &Path) -> std::io::Result<UnixListener> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, MAX_CLIENTS as i32)?;
    Ok(socket.into())
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Server {
    /// Listens at `path`, and replaces the socket of an agent that died.
    pub(super) fn new(path: &Path) -> Result<Self, AgentError> {
        let fail = |source| AgentError::Socket { path: path.to_owned(), source };
        let listener = match bind_private(path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    return Err(AgentError::AlreadyRunning(path.to_owned()));
                }
                std::fs::remove_file(path).and_then(|()| bind_private(path)).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        listener.set_nonblocking(true).map_err(fail)?;
        Ok(Self { path: path.to_owned(), listener, clients: Vec::new() })
    }

    /// Returns the descriptors to poll.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let clients = self.clients.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(clients)
    }

    /// Reads all input, and sends the reply of `answer` to each line.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(&[u8]) -> Reply) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() < MAX_CLIENTS
                && stream.set_nonblocking(true).is_ok()
                && is_permitted(&stream)
            {
                self.clients.push(Client { stream, input: Vec::new() });
            }
        }
        self.clients.retain_mut(|client| client.serve(&mut answer));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// Returns whether the client runs as the agent's user or as root.
fn is_permitted(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

impl Client {
    /// Reads up to one request's length per call. Returns false to close the connection.
    fn serve(&mut self, answer: &mut impl FnMut(&[u8]) -> Reply) -> bool {
        let mut chunk = [0; REQUEST_LIMIT];
        match self.stream.read(&mut chunk) {
            Ok(0) => return false,
            Ok(n) => self.input.extend_from_slice(&chunk[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return true,
            Err(_) => return false,
        }
        while let Some(end) = self.input.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.input.drain(..=end).collect();
            if !self.send(&answer(&line[..end])) {
                return false;
            }
        }
        if self.input.len() > REQUEST_LIMIT {
            self.send(&Reply::Error(format!("the request exceeds the limit of {REQUEST_LIMIT} bytes")));
            return false;
        }
        true
    }

    /// Sends a reply. Returns false if the client does not read; the agent then closes the connection.
    fn send(&mut self, reply: &Reply) -> bool {
        let mut text = serde_json::to_vec(reply).expect("a reply is plain data");
        text.push(b'\n');
        self.stream.write_all(&text).is_ok()
    }
}
