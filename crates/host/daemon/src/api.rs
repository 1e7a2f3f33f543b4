//! The daemon's UNIX socket: each request and each answer is one line of JSON.
//!
//! Only the daemon's own user and root may connect: the socket's mode is 0600, and the daemon checks the
//! peer's credentials. Lines are bounded nevertheless, and the daemon closes the connection of a client that
//! stays silent.

use crate::error::DaemonError;
use crate::inspect::view::{Inspection, ProgramView};
use crate::lock::SocketLock;
use crate::metrics;
use crate::programs::ProgramRecord;
use crate::reload_report::ReloadReport;
use crate::state::{DaemonState, Target};
use crate::status::Status;
use crate::supervisor::Loaded;
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

/// Longest request in bytes.
const MAX_LINE: u64 = 1 << 20;
/// Longest answer in bytes.
const MAX_ANSWER: u64 = 64 << 20;
/// Most clients at a time.
const MAX_CLIENTS: usize = 16;
/// Longest time without a request of a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Longest time for an answer, which may include the verification of a program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// Returns the status.
    Status,
    /// Returns the metrics in Prometheus's text format.
    Metrics,
    /// Replaces a program while traffic flows; without objects, unloads it.
    Load {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`.
        direction: String,
        /// Absolute paths of the objects to link.
        objects: Vec<PathBuf>,
        /// Whether the next reload or restart undoes it.
        #[serde(default)]
        temporary: bool,
    },
    /// Returns to the configuration's program.
    Revert {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`.
        direction: String,
    },
    /// Returns the commands that changed a program.
    History {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`.
        direction: String,
    },
    /// Applies what changed in the configuration, or only reports it.
    Reload {
        /// Whether only to report it.
        #[serde(default)]
        dry_run: bool,
    },
    /// Reports what another file would change, and what it names that is absent.
    Preview {
        /// Absolute path of the file.
        file: PathBuf,
    },
    /// Shows the state of a VM's programs.
    Inspect(Inspection),
    /// Executes another release of the daemon, which adopts the P4 VMs.
    Upgrade {
        /// Absolute path of the binary; `None`: the daemon's own, which was replaced.
        binary: Option<PathBuf>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The answer to `status`.
    Status(Box<Status>),
    /// The answer to `metrics`.
    Metrics(String),
    /// A program was loaded or unloaded.
    Loaded {
        /// Its digest, or `no program`.
        program: String,
        /// What the operator should know.
        warning: Option<String>,
    },
    /// The answer to `history`, the newest first.
    History(Vec<ProgramRecord>),
    /// The answer to `inspect`.
    Program(Box<ProgramView>),
    /// The answer to `reload`.
    Reloaded(ReloadReport),
    /// The answer to `upgrade`: the daemon executes this binary next.
    Upgrading {
        /// Its path.
        binary: PathBuf,
    },
    /// Failure, with the reason.
    Failed(String),
}

/// Parses any bytes as a request and as an answer. Entry point for fuzzing.
///
/// # Panics
/// A message changes when it is serialised and parsed again.
pub fn fuzz(line: &[u8]) {
    fn round_trip<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(line: &[u8]) {
        if let Ok(message) = serde_json::from_slice::<T>(line) {
            let text = serde_json::to_vec(&message).expect("a message is plain data");
            assert_eq!(serde_json::from_slice::<T>(&text).ok().as_ref(), Some(&message));
        }
    }
    round_trip::<Command>(line);
    round_trip::<Answer>(line);
}

/// Why a request to the daemon failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// No daemon listens there.
    #[error("no daemon listens on {}; start one with `p4shield run`, or name the daemon's \
             socket", socket.display())]
    Connect {
        /// Path of the socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The connection failed or timed out.
    #[error("the daemon did not answer; see its log")]
    Talk(#[from] io::Error),
    /// The answer cannot be parsed.
    #[error("the daemon's answer cannot be parsed; check that the daemon has the same version")]
    Decode(#[from] serde_json::Error),
    /// The daemon refused the request.
    #[error("{0}")]
    Failed(String),
    /// The answer does not belong to the request.
    #[error("the daemon sent an answer of the wrong kind; check that the daemon has the same version")]
    Unexpected,
}

/// Sends a request to the daemon that listens on `socket`, and returns its answer.
///
/// # Errors
/// See [`ApiError`].
pub fn ask(socket: &Path, command: &Command) -> Result<Answer, ApiError> {
    let connect = |source| ApiError::Connect { socket: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(connect)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
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

/// Returns the daemon's status.
///
/// # Errors
/// See [`ApiError`].
pub fn status(socket: &Path) -> Result<Status, ApiError> {
    match ask(socket, &Command::Status)? {
        Answer::Status(status) => Ok(*status),
        _ => Err(ApiError::Unexpected),
    }
}

/// Returns the daemon's metrics in Prometheus's text format.
///
/// # Errors
/// See [`ApiError`].
pub fn metrics(socket: &Path) -> Result<String, ApiError> {
    match ask(socket, &Command::Metrics)? {
        Answer::Metrics(text) => Ok(text),
        _ => Err(ApiError::Unexpected),
    }
}

/// Shows the state of a VM's programs.
///
/// # Errors
/// See [`ApiError`]; [`ApiError::Failed`] if there is no such VM, program or object, or if the P4 VM's answer
/// is invalid.
pub fn inspect(socket: &Path, inspection: &Inspection) -> Result<ProgramView, ApiError> {
    match ask(socket, &Command::Inspect(inspection.clone()))? {
        Answer::Program(view) => Ok(*view),
        _ => Err(ApiError::Unexpected),
    }
}

/// Replaces a program for good, or unloads it if there are no objects. Returns the digest.
///
/// # Errors
/// See [`ApiError`]; [`ApiError::Failed`] has the verifier's message. The previous program then still runs.
pub fn load(
    socket: &Path,
    tenant: &str,
    vm: &str,
    direction: &str,
    objects: &[PathBuf],
) -> Result<String, ApiError> {
    let objects = objects.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
    let (tenant, vm, direction) = (tenant.to_owned(), vm.to_owned(), direction.to_owned());
    match ask(socket, &Command::Load { tenant, vm, direction, objects, temporary: false })? {
        Answer::Loaded { program, .. } => Ok(program),
        _ => Err(ApiError::Unexpected),
    }
}

/// A listening socket that this daemon owns. Dropping it removes its file.
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

/// Listens on `path`; replaces the socket that a dead daemon left behind.
pub(crate) fn listen(path: &Path) -> Result<Listener, DaemonError> {
    let lock = SocketLock::take(path)?;
    let mode = Mode::from_raw_mode(0o600);
    let fd =
        listener(path, SocketType::STREAM, SocketFlags::empty(), mode).map_err(DaemonError::listen(path))?;
    Ok(Listener { listener: UnixListener::from(fd), path: path.to_owned(), _lock: lock })
}

/// The thread that accepts clients. Ends when dropped.
pub(crate) struct Server {
    ending: Arc<AtomicBool>,
    /// The thread's own socket: its file may be gone, so a connection could not wake the thread.
    socket: UnixListener,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(listener: Listener, state: Arc<DaemonState>) -> Result<Self, DaemonError> {
        let ending = Arc::new(AtomicBool::new(false));
        let (address, end) = (listener.path.display().to_string(), Arc::clone(&ending));
        let failed = |source| DaemonError::Listen { address, source };
        let start = || {
            let socket = listener.listener.try_clone()?;
            let accept = move || accept(&listener, &state, &end);
            let thread = std::thread::Builder::new().name("api".into()).spawn(accept)?;
            Ok(Self { ending, socket, thread: Some(thread) })
        };
        start().map_err(failed)
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

fn accept(listener: &Listener, state: &Arc<DaemonState>, ending: &AtomicBool) {
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
        if !is_authorised(&stream) {
            continue;
        }
        if clients.fetch_add(1, Ordering::AcqRel) >= MAX_CLIENTS {
            // Too many clients: the connection closes, the client may try again.
            clients.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (state, count) = (Arc::clone(state), Arc::clone(&clients));
        let thread = std::thread::Builder::new().name("api-client".into()).spawn(move || {
            if let Err(error) = serve(stream, &state) {
                tracing::debug!(%error, "a client of the daemon's socket failed");
            }
            drop(state);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if thread.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Returns whether the client runs as the daemon's user or as root, whatever the socket's mode.
fn is_authorised(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn serve(stream: UnixStream, state: &Arc<DaemonState>) -> io::Result<()> {
    let uid = socket_peercred(&stream)?.uid.as_raw();
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
        let answer = answer(&line, state, uid);
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        writer.write_all(&text)?;
        if matches!(answer, Answer::Upgrading { .. }) {
            state.start_upgrade();
        }
    }
}

fn answer(line: &[u8], state: &Arc<DaemonState>, uid: u32) -> Answer {
    let done = |result: Result<Loaded, String>| {
        result.map_or_else(Answer::Failed, |Loaded { program, warning }| Answer::Loaded { program, warning })
    };
    match serde_json::from_slice(line) {
        Ok(Command::Status) => Answer::Status(Box::new(state.status())),
        Ok(Command::Metrics) => Answer::Metrics(metrics::of(state)),
        Ok(Command::Load { tenant, vm, direction, objects, temporary }) => {
            let target = Target { tenant: &tenant, vm: &vm, direction: &direction };
            done(state.load(&target, &objects, (uid, temporary)))
        }
        Ok(Command::Revert { tenant, vm, direction }) => {
            done(state.revert(&Target { tenant: &tenant, vm: &vm, direction: &direction }, uid))
        }
        Ok(Command::History { tenant, vm, direction }) => {
            let history = state.history(&Target { tenant: &tenant, vm: &vm, direction: &direction });
            history.map_or_else(Answer::Failed, Answer::History)
        }
        Ok(Command::Preview { file }) => state.preview(&file).map_or_else(Answer::Failed, Answer::Reloaded),
        Ok(Command::Reload { dry_run }) => {
            state.reload(dry_run).map_or_else(Answer::Failed, Answer::Reloaded)
        }
        Ok(Command::Inspect(inspection)) => {
            state.inspect(&inspection).map_or_else(Answer::Failed, |view| Answer::Program(Box::new(view)))
        }
        Ok(Command::Upgrade { binary }) => {
            state.upgrade(binary).map_or_else(Answer::Failed, |binary| Answer::Upgrading { binary })
        }
        Err(e) => Answer::Failed(format!("invalid request: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{TenantStatus, VmStatus};

    #[test]
    fn requests_are_plain_json_lines() {
        let command: Command = serde_json::from_str(r#"{"command":"status"}"#).unwrap();
        assert_eq!(command, Command::Status);
        let load = r#"{"command":"load","tenant":"a","vm":"b","direction":"ingress","objects":["/x.o"]}"#;
        assert!(matches!(serde_json::from_str(load), Ok(Command::Load { .. })));
        assert!(serde_json::from_str::<Command>(r#"{"command":"stop"}"#).is_err());
    }

    #[test]
    fn a_dead_daemons_socket_is_replaced_a_live_ones_is_not() {
        let path = std::env::temp_dir().join(format!("p4shield-rt-api-{}.sock", std::process::id()));
        let first = listen(&path).unwrap();
        assert!(matches!(listen(&path), Err(DaemonError::Running(_))));
        drop(first);
        let lock = crate::lock::lock_path(&path);
        assert!(!path.exists() && lock.exists(), "a lock that is unlinked could be held twice");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a daemon that was killed leaves its socket behind");
        drop(listen(&path).unwrap());
        assert!(!path.exists());
        std::fs::remove_file(lock).unwrap();
    }

    #[test]
    fn random_lines_are_parsed_or_refused() {
        let objects = vec!["/x.o".into(), "/y.o".into()];
        let (tenant, vm, direction) = ("alice".to_owned(), "web".to_owned(), "ingress".to_owned());
        let inspection = Inspection { vm: "web".to_owned(), limit: Some(3), ..Inspection::default() };
        let load = Command::Load { tenant, vm, direction, objects, temporary: true };
        let commands = [Command::Status, load, Command::Inspect(inspection)];
        let tenants = vec![TenantStatus { vms: vec![VmStatus::default()], ..TenantStatus::default() }];
        let status = Status { tenants, advice: vec!["a\nb".to_owned()], ..Status::default() };
        let program = Box::new(crate::inspect::view::sample());
        let answers =
            [Answer::Status(Box::new(status)), Answer::Failed("no".to_owned()), Answer::Program(program)];
        let mut seeds: Vec<_> = commands.iter().map(|c| serde_json::to_vec(c).unwrap()).collect();
        seeds.extend(answers.iter().map(|a| serde_json::to_vec(a).unwrap()));
        p4shield_testbed::campaign(&seeds, fuzz);
    }

    #[test]
    fn another_user_is_refused_whatever_the_sockets_mode() {
        if !rustix::process::geteuid().is_root() {
            p4shield_need::skip("root", "only root can change its user");
            return;
        }
        let path = std::env::temp_dir().join(format!("p4shield-rt-api-user-{}.sock", std::process::id()));
        let listener = listen(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        let accepts = |uid| {
            let path = path.clone();
            // Changes the user of this thread only; the socket keeps the credentials of its connection.
            let client = std::thread::spawn(move || {
                let uid = rustix::process::Uid::from_raw(uid);
                rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
                UnixStream::connect(path).unwrap()
            });
            let _client = client.join().unwrap();
            is_authorised(&listener.listener.accept().unwrap().0)
        };
        assert!(accepts(0) && !accepts(4242));
        std::fs::remove_file(crate::lock::lock_path(&path)).unwrap();
    }

    #[test]
    fn a_missing_daemon_is_reported_with_a_remedy() {
        let error = status(Path::new("/nonexistent/p4shield.sock")).unwrap_err().to_string();
        assert!(error.contains("p4shield run"), "{error}");
    }
}
