//! The control socket's listening end, served between publications without ever blocking one.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};

use super::AgentError;
use crate::control::Reply;

/// Clients served at once; further ones are hung up on.
const CLIENTS: usize = 16;

/// Longest request, bytes. Far more than a name and a number need.
const REQUEST_LIMIT: usize = 4096;

/// The socket, its clients, and what they said so far.
pub(super) struct Server {
    path: PathBuf,
    listener: UnixListener,
    clients: Vec<Client>,
}

struct Client {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Server {
    /// Listens at `path`, in the place of an agent that died without removing its socket.
    pub(super) fn new(path: &Path) -> Result<Self, AgentError> {
        let fail = |source| AgentError::Socket { path: path.to_owned(), source };
        let listener = match UnixListener::bind(path) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => {
                if UnixStream::connect(path).is_ok() {
                    return Err(AgentError::AlreadyRunning(path.to_owned()));
                }
                std::fs::remove_file(path).and_then(|()| UnixListener::bind(path)).map_err(fail)?
            }
            other => other.map_err(fail)?,
        };
        // Between `bind` and here others may have connected; every client's user is checked besides.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        Ok(Self { path: path.to_owned(), listener, clients: Vec::new() })
    }

    /// What to wait for.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let clients = self.clients.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(clients)
    }

    /// Takes what has come, and answers each line by `answer`.
    pub(super) fn serve(&mut self, mut answer: impl FnMut(&[u8]) -> Reply) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() < CLIENTS && stream.set_nonblocking(true).is_ok() && ours(&stream) {
                self.clients.push(Client { stream, input: Vec::new() });
            }
        }
        self.clients.retain_mut(|client| client.serve(&mut answer));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(socket = %self.path.display(), %error, "could not remove the socket");
        }
    }
}

/// Whether the client runs as this agent's user, or as root.
fn ours(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

impl Client {
    /// Reads what there is, up to one request's length a turn. False: the client is done with.
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
            self.send(&Reply::Error(format!("a request has at most {REQUEST_LIMIT} bytes")));
            return false;
        }
        true
    }

    /// A client that does not read its answers is hung up on: nobody waits for it.
    fn send(&mut self, reply: &Reply) -> bool {
        let mut text = serde_json::to_vec(reply).expect("a reply is plain data");
        text.push(b'\n');
        self.stream.write_all(&text).is_ok()
    }
}
