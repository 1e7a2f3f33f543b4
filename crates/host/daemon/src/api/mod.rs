//! The daemon's UNIX sockets: each request and each answer is one line of JSON.
//!
//! The operator's socket executes every request (`operator`). Only the daemon's own user and root may
//! connect. A tenant's socket executes requests about the tenant's own VMs and programs only (`tenant`). Both
//! are served alike ([`p4shield_socket`]): by the peer's credentials, within limits of lines and time.

mod operator;
mod tenant;
pub(crate) mod tenant_sockets;

use crate::lifecycle::reload_report::ReloadReport;
use crate::programs::ProgramRecord;
use crate::rotation::{KeyOrder, KeyRotation};
use crate::status::Status;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p4shield_socket::{AskError, Patience};
use p4shield_tables::view::{Inspection, ProgramView};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use operator::Operator;
pub(crate) use tenant::serve_tenant;

/// Longest request in bytes: the objects of a program, in base64.
const MAX_LINE: u64 = 6 << 20;
/// Longest answer in bytes.
const MAX_ANSWER: u64 = 64 << 20;
/// Longest time for an answer, which may include the verification of a program.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time for a reload, which waits up to 60 s for each P4 VM that it starts or that verifies programs.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(180);

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
        /// `ingress` or `egress`; `both` for a bundle.
        direction: String,
        /// Absolute paths of the objects to link.
        objects: Vec<PathBuf>,
        /// What the files contain. If left out, the daemon reads them; it reads none for a tenant.
        #[serde(default)]
        contents: Vec<ObjectBytes>,
        /// Whether the next reload or restart undoes it.
        #[serde(default)]
        temporary: bool,
    },
    /// Verifies a program in the tenant's P4 VM, without loading it.
    Check {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`; `both` for a bundle.
        direction: String,
        /// The objects to link.
        contents: Vec<ObjectBytes>,
    },
    /// Returns to the configuration's program.
    Revert {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`; `both` for a bundle.
        direction: String,
    },
    /// Returns the commands that changed a program.
    History {
        /// The tenant's name.
        tenant: String,
        /// The VM's name.
        vm: String,
        /// `ingress` or `egress`; `both` for a bundle.
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
    /// Rotates the key of a tenant or VM.
    Rotate(KeyOrder),
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
    /// The answer to `check`: the digest of a program that the P4 VM would load.
    Checked(String),
    /// The answer to `history`, the newest first.
    History(Vec<ProgramRecord>),
    /// The answer to `inspect`.
    Program(Box<ProgramView>),
    /// The answer to `rotate`.
    Rotated(KeyRotation),
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

/// Reason why a request to the daemon failed.
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
    /// The connection failed.
    #[error("the daemon did not answer; see its log")]
    Talk(#[from] io::Error),
    /// The answer did not come in time.
    #[error("the daemon did not answer within {} s; see its log", .0.as_secs())]
    Late(Duration),
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
    let timeout = if matches!(command, Command::Reload { .. }) { RELOAD_TIMEOUT } else { ANSWER_TIMEOUT };
    ask_within(timeout, socket, command)
}

fn ask_within(timeout: Duration, socket: &Path, command: &Command) -> Result<Answer, ApiError> {
    let patience = Patience { time: timeout, bytes: MAX_ANSWER };
    let answer = p4shield_socket::ask(socket, command, patience).map_err(|error| match error {
        AskError::Connect(source) => ApiError::Connect { socket: socket.to_owned(), source },
        AskError::Late(time) => ApiError::Late(time),
        AskError::Decode(source) => source.into(),
        AskError::Talk(source) => source.into(),
        other => ApiError::Talk(io::Error::other(other)),
    })?;
    match answer {
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

/// Rotates the key of a tenant or VM.
///
/// # Errors
/// See [`ApiError`]; after [`ApiError::Failed`] nothing has changed.
pub fn rotate_key(socket: &Path, order: KeyOrder) -> Result<KeyRotation, ApiError> {
    match ask(socket, &Command::Rotate(order))? {
        Answer::Rotated(rotation) => Ok(rotation),
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
    let contents = Vec::new();
    match ask(socket, &Command::Load { tenant, vm, direction, objects, contents, temporary: false })? {
        Answer::Loaded { program, .. } => Ok(program),
        _ => Err(ApiError::Unexpected),
    }
}

/// What an object file contains; base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectBytes(pub Vec<u8>);

impl Serialize for ObjectBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for ObjectBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
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
    fn random_lines_are_parsed_or_refused() {
        let objects = vec!["/x.o".into(), "/y.o".into()];
        let (tenant, vm, direction) = ("alice".to_owned(), "web".to_owned(), "ingress".to_owned());
        let inspection = Inspection { vm: "web".to_owned(), limit: Some(3), ..Inspection::default() };
        let contents = vec![ObjectBytes(vec![1, 2, 255])];
        let load = Command::Load { tenant, vm, direction, objects, contents, temporary: true };
        let commands = [Command::Status, load, Command::Inspect(inspection)];
        let tenants = vec![TenantStatus { vms: vec![VmStatus::default()], ..TenantStatus::default() }];
        let status = Status { tenants, advice: vec!["a\nb".to_owned()], ..Status::default() };
        let program = Box::new(crate::inspect::sample());
        let answers =
            [Answer::Status(Box::new(status)), Answer::Failed("no".to_owned()), Answer::Program(program)];
        let mut seeds: Vec<_> = commands.iter().map(|c| serde_json::to_vec(c).unwrap()).collect();
        seeds.extend(answers.iter().map(|a| serde_json::to_vec(a).unwrap()));
        p4shield_testbed::campaign(&seeds, fuzz);
    }

    #[test]
    fn a_missing_daemon_is_reported_with_a_remedy() {
        let error = status(Path::new("/nonexistent/p4shield.sock")).unwrap_err().to_string();
        assert!(error.contains("p4shield run"), "{error}");
    }

    #[test]
    fn a_daemon_that_does_not_answer_is_reported_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("p4shield.sock");
        let _mute = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = ask_within(Duration::from_millis(10), &socket, &Command::Status).unwrap_err();
        assert!(matches!(error, ApiError::Late(_)), "{error}");
    }
}
