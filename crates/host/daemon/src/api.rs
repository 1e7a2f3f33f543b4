//! The daemon's UNIX socket: one line of JSON asks, one line answers.
//!
//! The socket's mode is 0600, and the kernel is asked who connects: whoever speaks here is who runs the daemon, or root.
//! All the same lines are bounded, and a client that says nothing is hung up on.

use crate::daemon::{DaemonError, Shared};
use crate::lock::SocketLock;
use crate::metrics;
use crate::status::Status;
use crate::tenant::Load;
use p4shield_attach::listener;
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest line.
const MAX_LINE: u64 = 1 << 20;
/// Longest answer.
const MAX_ANSWER: u64 = 64 << 20;
/// Clients at a time.
const MAX_CLIENTS: usize = 16;
/// Longest silence of a client.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time to recover when a client cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time for an answer: a program may have to be verified.
const ANSWER: Duration = Duration::from_secs(60);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// How everything is.
    Status,
    /// Metrics in Prometheus's text format.
    Metrics,
    /// Replaces a program while traffic flows; without objects, takes it away.
    Load {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`.
        direction: String,
        /// Absolute paths of the objects to link.
        objects: Vec<PathBuf>,
    },
    /// Reads the configuration's programs again.
    Reload,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To `status`.
    Status(Box<Status>),
    /// To `metrics`.
    Metrics(String),
    /// Done; what came of it: the digest of a program, or how many were loaded.
    Done(String),
    /// Why it was not done.
    Failed(String),
}

/// Any bytes as a line in either direction. Entry point of fuzzing.
///
/// # Panics
/// If what was read is not read again when it is written.
pub fn fuzz(line: &[u8]) {
    fn again<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(line: &[u8]) {
        if let Ok(message) = serde_json::from_slice::<T>(line) {
            let text = serde_json::to_vec(&message).expect("a message is plain data");
            assert_eq!(serde_json::from_slice::<T>(&text).ok().as_ref(), Some(&message));
        }
    }
    again::<Command>(line);
    again::<Answer>(line);
}

/// Why the daemon was not asked, or did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// Nobody is there.
    #[error("no daemon listens on {}; start it with `p4shield run`, or name its socket", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The conversation broke off.
    #[error("the daemon did not answer")]
    Talk(#[from] io::Error),
    /// The answer is not one.
    #[error("the daemon's answer cannot be read; is it of another version?")]
    Decode(#[from] serde_json::Error),
    /// The daemon says no.
    #[error("{0}")]
    Failed(String),
    /// The answer is one to another question.
    #[error("the daemon gave an answer that does not fit; is it of another version?")]
    Unexpected,
}

/// Asks the daemon that listens on `socket`.
///
/// # Errors
/// See [`ApiError`].
pub fn ask(socket: &Path, command: &Command) -> Result<Answer, ApiError> {
    let connect = |source| ApiError::Connect { socket: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(connect)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    let mut line = serde_json::to_string(command)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut answer)?;
    match serde_json::from_str(&answer)? {
        Answer::Failed(why) => Err(ApiError::Failed(why)),
        answer => Ok(answer),
    }
}

/// Asks how everything is.
///
/// # Errors
/// See [`ApiError`].
pub fn status(socket: &Path) -> Result<Status, ApiError> {
    match ask(socket, &Command::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(ApiError::Unexpected),
    }
}

/// Asks for metrics.
///
/// # Errors
/// See [`ApiError`].
pub fn metrics(socket: &Path) -> Result<String, ApiError> {
    match ask(socket, &Command::Metrics)? {
        Answer::Metrics(text) => Ok(text),
        _ => Err(ApiError::Unexpected),
    }
}

/// Has a program replaced (or taken away, without objects) and returns its digest.
///
/// # Errors
/// See [`ApiError`]; [`ApiError::Failed`] has the verifier's words. The program that ran before still runs then.
pub fn load(
    socket: &Path,
    tenant: &str,
    vm: &str,
    direction: &str,
    objects: &[PathBuf],
) -> Result<String, ApiError> {
    let objects = objects.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
    let (tenant, vm, direction) = (tenant.to_owned(), vm.to_owned(), direction.to_owned());
    match ask(socket, &Command::Load { tenant, vm, direction, objects })? {
        Answer::Done(digest) => Ok(digest),
        _ => Err(ApiError::Unexpected),
    }
}

/// A socket that is this daemon's alone. Its file goes with the value.
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
    _lock: SocketLock,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens on `path`, in place of a daemon that died without removing it.
pub(crate) fn listen(path: &Path) -> Result<Listener, DaemonError> {
    let failed = |source| DaemonError::Listen { place: path.display().to_string(), source };
    let lock = SocketLock::take(path)?;
    let mode = Mode::from_raw_mode(0o600);
    let fd = listener(path, SocketType::STREAM, SocketFlags::empty(), mode).map_err(failed)?;
    Ok(Listener { listener: UnixListener::from(fd), path: path.to_owned(), _lock: lock })
}

/// The thread that listens. Ends when dropped.
pub(crate) struct Server {
    ending: Arc<AtomicBool>,
    /// The thread's own socket: its file may be gone, so that nobody could connect to it.
    socket: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(listener: Listener, shared: Arc<Shared>) -> Result<Self, DaemonError> {
        let ending = Arc::new(AtomicBool::new(false));
        let (place, end) = (listener.path.display().to_string(), Arc::clone(&ending));
        let failed = |source| DaemonError::Listen { place, source };
        let start = || {
            let socket = listener.listener.try_clone()?;
            let accept = move || accept(&listener, &shared, &end);
            let thread = std::thread::Builder::new().name("api".into()).spawn(accept)?;
            Ok(Self { ending, socket, thread: Some(thread) })
        };
        start().map_err(failed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // Wakes the thread; it finds that this is the end.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>, ending: &AtomicBool) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.listener.incoming() {
        if ending.load(Ordering::Acquire) {
            break;
        }
        let Ok(stream) = stream else {
            // Out of descriptors; not to be asked again at once.
            std::thread::sleep(PAUSE);
            continue;
        };
        if !ours(&stream) {
            continue;
        }
        if clients.fetch_add(1, Ordering::AcqRel) >= MAX_CLIENTS {
            // Hung up on; it may come again.
            clients.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (shared, count) = (Arc::clone(shared), Arc::clone(&clients));
        let served = std::thread::Builder::new().name("api-client".into()).spawn(move || {
            if let Err(error) = serve(stream, &shared) {
                tracing::debug!(%error, "a client of the daemon's socket left");
            }
            drop(shared);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if served.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Whether the client runs as the daemon's user, or as root, whatever became of the socket's mode.
fn ours(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut answer = serde_json::to_vec(&answer(&line, shared))?;
        answer.push(b'\n');
        writer.write_all(&answer)?;
    }
}

fn answer(line: &[u8], shared: &Shared) -> Answer {
    let done = |result: Result<String, String>| result.map_or_else(Answer::Failed, Answer::Done);
    match serde_json::from_slice(line) {
        Ok(Command::Status) => Answer::Status(Box::new(shared.status())),
        Ok(Command::Metrics) => Answer::Metrics(metrics::render(&shared.status())),
        Ok(Command::Load { tenant, vm, direction, objects }) => {
            done(shared.load(&tenant, &vm, &direction, &objects, Load::Always))
        }
        Ok(Command::Reload) => done(shared.reload()),
        Err(e) => Answer::Failed(format!("this is no command: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{TenantStatus, VmStatus};

    #[test]
    fn commands_are_lines_that_people_can_write() {
        let command: Command = serde_json::from_str(r#"{"command":"status"}"#).unwrap();
        assert_eq!(command, Command::Status);
        let load = r#"{"command":"load","tenant":"a","vm":"b","direction":"ingress","objects":["/x.o"]}"#;
        assert!(matches!(serde_json::from_str(load), Ok(Command::Load { .. })));
        assert!(serde_json::from_str::<Command>(r#"{"command":"stop"}"#).is_err());
    }

    #[test]
    fn a_second_daemon_is_refused_and_a_dead_ones_socket_is_taken_over() {
        let path = std::env::temp_dir().join(format!("p4shield-rt-api-{}.sock", std::process::id()));
        let first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(DaemonError::Running(_))));
        drop(first);
        let lock = crate::lock::lock_path(&path);
        assert!(!path.exists() && lock.exists(), "a lock that is unlinked could be held twice");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "what a daemon that was killed leaves behind");
        drop(listen(&path).unwrap());
        assert!(!path.exists());
        std::fs::remove_file(lock).unwrap();
    }

    #[test]
    fn random_lines_are_understood_or_refused() {
        let objects = vec!["/x.o".into(), "/y.o".into()];
        let (tenant, vm, direction) = ("alice".to_owned(), "web".to_owned(), "ingress".to_owned());
        let commands = [Command::Status, Command::Load { tenant, vm, direction, objects }];
        let tenants = vec![TenantStatus { vms: vec![VmStatus::default()], ..TenantStatus::default() }];
        let status = Status { tenants, advice: vec!["a\nb".to_owned()], ..Status::default() };
        let answers = [Answer::Status(Box::new(status)), Answer::Failed("no".to_owned())];
        let mut seeds: Vec<_> = commands.iter().map(|c| serde_json::to_vec(c).unwrap()).collect();
        seeds.extend(answers.iter().map(|a| serde_json::to_vec(a).unwrap()));
        p4shield_testbed::campaign(&seeds, fuzz);
    }

    #[test]
    fn another_user_is_hung_up_on_even_if_the_socket_is_open_to_all() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can be somebody else");
            return;
        }
        let path = std::env::temp_dir().join(format!("p4shield-rt-api-user-{}.sock", std::process::id()));
        let listener = listen(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let is_ours = |uid| {
            let path = path.clone();
            // Of one thread only, and the socket remembers who connected.
            let became = std::thread::spawn(move || {
                let uid = rustix::process::Uid::from_raw(uid);
                rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
                UnixStream::connect(path).unwrap()
            });
            let _client = became.join().unwrap();
            ours(&listener.listener.accept().unwrap().0)
        };
        assert!(is_ours(0) && !is_ours(4242));
        std::fs::remove_file(crate::lock::lock_path(&path)).unwrap();
    }

    #[test]
    fn nobody_there_is_told_plainly() {
        let error = status(Path::new("/nonexistent/p4shield.sock")).unwrap_err().to_string();
        assert!(error.contains("p4shield run"), "{error}");
    }
}
