//! The server of a socket: accepts clients, and answers each of them in a thread of its own.

use crate::ListenError;
use crate::lock::SocketLock;
use p4shield_attach::{Allowed, listener};
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, SocketType};
use serde::Serialize;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time without a request of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What answers the requests of a socket.
pub trait Endpoint: Send + Sync + 'static {
    /// An answer.
    type Answer: Serialize;
    /// Most clients at a time.
    const MAX_CLIENTS: usize;
    /// Longest request in bytes.
    const MAX_LINE: u64;

    /// Returns whether a user may connect, with this effective group.
    fn admits(&self, uid: u32, gid: u32) -> bool;

    /// Answers a request.
    fn answer(&self, line: &[u8], uid: u32) -> Self::Answer;

    /// Notes that the client has the answer.
    fn answered(&self, _answer: &Self::Answer) {}
}

impl<E: Endpoint> Endpoint for Arc<E> {
    type Answer = E::Answer;
    const MAX_CLIENTS: usize = E::MAX_CLIENTS;
    const MAX_LINE: u64 = E::MAX_LINE;

    fn admits(&self, uid: u32, gid: u32) -> bool {
        E::admits(self, uid, gid)
    }

    fn answer(&self, line: &[u8], uid: u32) -> Self::Answer {
        E::answer(self, line, uid)
    }

    fn answered(&self, answer: &Self::Answer) {
        E::answered(self, answer);
    }
}

/// A listening socket that this process owns. Dropping it removes its file.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    _lock: Option<SocketLock>,
}

impl Listener {
    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// A client that comes in, with the user and the effective group of its process.
#[derive(Debug)]
pub struct Visitor {
    /// Its connection.
    pub stream: UnixStream,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Where clients come in.
pub trait Entrance: Send + 'static {
    /// Waits for the next client.
    ///
    /// # Errors
    /// There is none; the next attempt may have one.
    fn next_visitor(&mut self) -> io::Result<Visitor>;

    /// Returns the socket whose shutdown ends the wait.
    ///
    /// # Errors
    /// The system has no descriptor left.
    fn socket(&self) -> io::Result<OwnedFd>;
}

impl Entrance for Listener {
    fn next_visitor(&mut self) -> io::Result<Visitor> {
        let (stream, _) = self.listener.accept()?;
        // Whatever the socket's mode.
        let peer = socket_peercred(&stream)?;
        Ok(Visitor { stream, uid: peer.uid.as_raw(), gid: peer.gid.as_raw() })
    }

    fn socket(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens on `path` for root and this process's user; replaces the socket that a dead server left behind.
///
/// # Errors
/// [`ListenError`].
pub fn listen(path: &Path) -> Result<Listener, ListenError> {
    let lock = SocketLock::take(path)?;
    let mode = Mode::from_raw_mode(0o600);
    let listener = open(path, mode).map_err(|source| ListenError::Io { path: path.to_owned(), source })?;
    Ok(Listener { listener, path: path.to_owned(), _lock: Some(lock) })
}

/// Listens on `path` for these users. The caller takes care that no other process serves it.
///
/// # Errors
/// The system refuses, or another kind of file exists there.
pub fn listen_for(path: &Path, allowed: &Allowed) -> io::Result<Listener> {
    Ok(Listener { listener: open(path, allowed.mode())?, path: path.to_owned(), _lock: None })
}

fn open(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    listener(path, SocketType::STREAM, SocketFlags::empty(), mode).map(UnixListener::from)
}

/// The thread that accepts clients. Ends when dropped.
#[derive(Debug)]
pub struct Server {
    ending: Arc<AtomicBool>,
    /// The thread's own socket: its file may be gone, so a connection could not wake the thread.
    socket: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(mut entrance: impl Entrance, endpoint: impl Endpoint) -> io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let (end, endpoint) = (Arc::clone(&ending), Arc::new(endpoint));
        let socket = entrance.socket()?;
        let accept = move || accept(&mut entrance, &endpoint, &end);
        let thread = std::thread::Builder::new().name("api".into()).spawn(accept)?;
        Ok(Self { ending, socket, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // Wakes the thread, which then checks `ending`.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept<E: Endpoint>(entrance: &mut impl Entrance, endpoint: &Arc<E>, ending: &AtomicBool) {
    let clients = Arc::new(AtomicUsize::new(0));
    loop {
        let visitor = entrance.next_visitor();
        if ending.load(Ordering::Acquire) {
            break;
        }
        let Ok(Visitor { stream, uid, gid }) = visitor else {
            // Out of descriptors, for example: retrying at once would spin.
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if !endpoint.admits(uid, gid) {
            continue;
        }
        if clients.fetch_add(1, Ordering::AcqRel) >= E::MAX_CLIENTS {
            // Too many clients: the connection closes, the client may try again.
            clients.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (endpoint, count) = (Arc::clone(endpoint), Arc::clone(&clients));
        let thread = std::thread::Builder::new().name("api-client".into()).spawn(move || {
            if let Err(error) = serve(stream, &*endpoint, uid) {
                tracing::debug!(%error, "a client of the socket failed");
            }
            drop(endpoint);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if thread.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve<E: Endpoint>(stream: UnixStream, endpoint: &E, uid: u32) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(E::MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let answer = endpoint.answer(&line, uid);
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        writer.write_all(&text)?;
        endpoint.answered(&answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_dead_servers_socket_is_replaced_a_live_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(ListenError::Running(_))));
        drop(first);
        let lock = crate::lock::lock_path(&path);
        assert!(!path.exists() && lock.exists(), "a lock that is unlinked could be held twice");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a server that was killed leaves its socket behind");
        drop(listen(&path).unwrap());
        assert!(!path.exists());
        std::fs::remove_file(lock).unwrap();
    }

    /// Answers everyone that it admits: root only.
    struct RootOnly;

    impl Endpoint for RootOnly {
        type Answer = String;
        const MAX_CLIENTS: usize = 2;
        const MAX_LINE: u64 = 100;

        fn admits(&self, uid: u32, _gid: u32) -> bool {
            uid == 0
        }

        fn answer(&self, line: &[u8], uid: u32) -> String {
            format!("{} bytes of user {uid}", line.len())
        }
    }

    #[test]
    fn another_user_is_refused_whatever_the_sockets_mode() {
        if !rustix::process::geteuid().is_root() {
            p4shield_need::skip("root", "only root can change its user");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = folder.path().join("api.sock");
        let listener = listen(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let server = Server::start(listener, RootOnly).unwrap();
        let answer_to = |uid| {
            let path = path.clone();
            // Changes the user of this thread only; the socket keeps the credentials of its connection.
            let client = std::thread::spawn(move || {
                let uid = rustix::process::Uid::from_raw(uid);
                rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
                let mut stream = UnixStream::connect(path).unwrap();
                let mut answer = String::new();
                // A refused client's connection may be closed before it writes.
                let _ = stream.write_all(b"hello\n").and_then(|()| {
                    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                    BufReader::new(&stream).read_line(&mut answer)
                });
                answer
            });
            client.join().unwrap()
        };
        assert_eq!(answer_to(0), "\"6 bytes of user 0\"\n");
        assert_eq!(answer_to(4242), "");
        drop(server);
        std::fs::remove_file(crate::lock::lock_path(&path)).unwrap();
    }
}
