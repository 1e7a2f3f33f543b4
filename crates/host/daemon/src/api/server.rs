//! The server of a socket: accepts clients, and answers each of them in a thread of its own.

use super::{Answer, MAX_LINE};
use crate::error::DaemonError;
use crate::lifecycle::lock::SocketLock;
use p4shield_attach::{Allowed, listener};
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, SocketType};
use std::io::{self, BufRead, BufReader, Read, Write};
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
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// Most clients at a time.
    const MAX_CLIENTS: usize;

    /// Returns whether a user may connect, with this effective group.
    fn admits(&self, uid: u32, gid: u32) -> bool;

    /// Answers a request.
    fn answer(&self, line: &[u8], uid: u32) -> Answer;

    /// Notes that the client has the answer.
    fn answered(&self, _answer: &Answer) {}
}

/// A listening socket that this daemon owns. Dropping it removes its file.
pub(crate) struct Listener {
    listener: UnixListener,
    pub(super) path: PathBuf,
    _lock: Option<SocketLock>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens on `path` for the operator; replaces the socket that a dead daemon left behind.
pub(crate) fn listen(path: &Path) -> Result<Listener, DaemonError> {
    let lock = SocketLock::take(path)?;
    let mode = Mode::from_raw_mode(0o600);
    let listener = open(path, mode).map_err(DaemonError::listen(path))?;
    Ok(Listener { listener, path: path.to_owned(), _lock: Some(lock) })
}

/// Listens on `path` for these users. The caller holds the lock of the operator's socket.
pub(super) fn listen_for(path: &Path, allowed: &Allowed) -> io::Result<Listener> {
    Ok(Listener { listener: open(path, allowed.mode())?, path: path.to_owned(), _lock: None })
}

fn open(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    listener(path, SocketType::STREAM, SocketFlags::empty(), mode).map(UnixListener::from)
}

/// The thread that accepts clients. Ends when dropped.
pub(crate) struct Server {
    ending: Arc<AtomicBool>,
    /// The thread's own socket: its file may be gone, so a connection could not wake the thread.
    socket: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(listener: Listener, endpoint: impl Endpoint) -> io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let (end, endpoint) = (Arc::clone(&ending), Arc::new(endpoint));
        let socket = listener.listener.try_clone()?;
        let accept = move || accept(&listener, &endpoint, &end);
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

fn accept<E: Endpoint>(listener: &Listener, endpoint: &Arc<E>, ending: &AtomicBool) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.listener.incoming() {
        if ending.load(Ordering::Acquire) {
            break;
        }
        let Ok(stream) = stream else {
            // Out of descriptors, for example: retrying at once would spin.
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        // Whatever the socket's mode.
        let Ok(peer) = socket_peercred(&stream) else { continue };
        if !endpoint.admits(peer.uid.as_raw(), peer.gid.as_raw()) {
            continue;
        }
        if clients.fetch_add(1, Ordering::AcqRel) >= E::MAX_CLIENTS {
            // Too many clients: the connection closes, the client may try again.
            clients.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (endpoint, count) = (Arc::clone(endpoint), Arc::clone(&clients));
        let thread = std::thread::Builder::new().name("api-client".into()).spawn(move || {
            if let Err(error) = serve(stream, &*endpoint, peer.uid.as_raw()) {
                tracing::debug!(%error, "a client of the daemon's socket failed");
            }
            drop(endpoint);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if thread.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn serve(stream: UnixStream, endpoint: &impl Endpoint, uid: u32) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
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
    fn a_dead_daemons_socket_is_replaced_a_live_ones_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("api.sock");
        let first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(DaemonError::Running(_))));
        drop(first);
        let lock = crate::lifecycle::lock::lock_path(&path);
        assert!(!path.exists() && lock.exists(), "a lock that is unlinked could be held twice");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a daemon that was killed leaves its socket behind");
        drop(listen(&path).unwrap());
        assert!(!path.exists());
        std::fs::remove_file(lock).unwrap();
    }

    /// Answers everyone that it admits: root only.
    struct RootOnly;

    impl Endpoint for RootOnly {
        const MAX_CLIENTS: usize = 2;

        fn admits(&self, uid: u32, _gid: u32) -> bool {
            uid == 0
        }

        fn answer(&self, line: &[u8], uid: u32) -> Answer {
            Answer::Metrics(format!("{} bytes of user {uid}", line.len()))
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
        assert_eq!(answer_to(0), "{\"metrics\":\"6 bytes of user 0\"}\n");
        assert_eq!(answer_to(4242), "");
        drop(server);
        std::fs::remove_file(crate::lifecycle::lock::lock_path(&path)).unwrap();
    }
}
