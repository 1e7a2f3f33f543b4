//! The requests and answers of a switch's socket: each is one line of JSON.

pub use crate::recorded::{RecordView, RecordsView, StepView, Wanted};
pub use p4shield_entries::Format;
use p4shield_socket::{AskError, Patience};
pub use p4shield_tables::message::{DigestView, MessageView};
pub use p4shield_tables::trace::{EventView, PointKind};
use p4shield_tables::view::{DirectionView, Inspection};
use p4shield_tables::write::{CloneSession, Group, Write};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest request in bytes. JSON takes two bytes for a line's end.
pub(crate) const MAX_LINE: u64 = 2 * MAX_FILE + 4096;
/// Longest file in bytes: more than 100,000 entries.
pub const MAX_FILE: u64 = 16 << 20;
/// The limits of an answer.
const PATIENCE: Patience = Patience { time: Duration::from_secs(30), bytes: 64 << 20 };
/// The same while a program is verified.
const VERIFICATION: Patience = Patience { time: Duration::from_secs(600), bytes: 1 << 20 };

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Returns the status.
    Status,
    /// Shows tables, counters or registers. The names of tenant and VM are not used.
    Show(Inspection),
    /// Returns the multicast groups.
    Groups,
    /// Returns the clone sessions.
    Sessions,
    /// Returns the queues.
    Queues,
    /// Adds a port.
    #[serde(rename = "add_port")]
    AddPort {
        /// Its number in the program.
        number: u16,
        /// The network interface.
        interface: String,
    },
    /// Deletes a port.
    #[serde(rename = "delete_port")]
    DeletePort {
        /// Its number in the program.
        number: u16,
    },
    /// Writes a table, group or session.
    Write {
        /// The change.
        write: Write,
    },
    /// Replaces the program.
    Replace {
        /// The program's file.
        file: String,
        /// Its objects, hexadecimal: the program's own, then those of its C functions.
        objects: Vec<String>,
        /// The same for tracing, or the reason why there are none.
        traced: Result<Vec<String>, String>,
    },
    /// Returns digests that the program has sent.
    Digests {
        /// [`DigestsView::next`] of the last answer; without it, only `next` is returned.
        from: Option<u64>,
    },
    /// Starts to record packets.
    Record {
        /// Those to record.
        wanted: Wanted,
    },
    /// Takes what was recorded since the last time.
    Records,
    /// Ends the recording.
    StopRecording,
    /// Judges a packet as if it had arrived, and records what happens to it.
    Inject {
        /// The port.
        port: u16,
        /// The packet, hexadecimal.
        packet: String,
    },
    /// Writes what a file says: all of it, or nothing.
    Load {
        /// The file's format.
        format: Format,
        /// Its text.
        text: String,
        /// True if an entry replaces the one that matches the same; otherwise that one refuses the file.
        replace: bool,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The answer to `status`.
    Status(Status),
    /// The answer to `show`.
    Shown(Box<DirectionView>),
    /// The answer to `groups`.
    Groups(Vec<Group>),
    /// The answer to `sessions`.
    Sessions(Vec<CloneSession>),
    /// The answer to `queues`.
    Queues(Vec<QueueStatus>),
    /// Recorded packets.
    Records(RecordsView),
    /// Digests.
    Digests(DigestsView),
    /// A table, group or session has been written, a port added or deleted, or a recording started or ended.
    Done,
    /// A file has been loaded.
    Loaded {
        /// Its writes.
        writes: usize,
    },
    /// The program has been replaced.
    Replaced(Replaced),
    /// A file was refused, and nothing has changed.
    Refused {
        /// The first wrong line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// Failure, with the reason.
    Failed(String),
}

/// Digests of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestsView {
    /// The kinds of digests that the program sends.
    pub kinds: Vec<MessageView>,
    /// The digests, in their order.
    pub digests: Vec<DigestView>,
    /// The place with which to continue.
    pub next: u64,
    /// Digests between the place that was asked for and `next` that later ones have overwritten.
    pub missed: u64,
}

/// The state that a replaced program left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Tables, registers, counters and meters that keep their state.
    pub kept: Vec<String>,
    /// Those that lost it: the new program lacks them, or declares them otherwise.
    pub lost: Vec<String>,
}

/// The status of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The program's file.
    pub program: String,
    /// SHA-256 digest of the program, hexadecimal.
    pub digest: String,
    /// Seconds since the start.
    pub seconds: u64,
    /// The ports.
    pub ports: Vec<PortStatus>,
    /// The packets of all ports that were deleted.
    #[serde(default)]
    pub deleted: Traffic,
    /// Packets that were replicated for a multicast group.
    pub replicated: u64,
    /// Copies of them, and clones.
    pub copies: u64,
    /// Packets that started again as they had arrived.
    pub resubmitted: u64,
    /// Packets that started again instead of leaving.
    pub recirculated: u64,
    /// Packets that wait in queues now.
    pub waiting: u64,
    /// Dropped packets and copies, by reason.
    pub dropped: Vec<Dropped>,
    /// Each problem with its remedy.
    pub problems: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its number in the program.
    pub number: u16,
    /// The network interface.
    pub interface: String,
    /// Its state.
    #[serde(default)]
    pub state: PortState,
    /// Its packets.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// The state of a port. Each but the first has a problem in the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortState {
    /// It receives and sends.
    #[default]
    Up,
    /// Its interface is down, or has no carrier.
    Down,
    /// There is no interface of its name.
    Gone,
    /// The interface is there, and cannot be opened.
    Failed,
}

impl PortState {
    /// Returns its name in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

/// Packets of ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Received packets.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Sent packets.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// The queue of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// The port's number.
    pub port: u16,
    /// Most packets a second.
    pub packets: Option<u64>,
    /// Most bits a second.
    pub bits: Option<u64>,
    /// Most packets that wait.
    pub depth: u32,
    /// Packets that wait now.
    pub waiting: u64,
    /// Packets that found it full.
    pub dropped: u64,
}

/// Packets that were dropped for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// `program`, `stopped`, `no_port`, `port_down`, `no_group`, `no_session`, `runs`, `queue`, `no_room` or
    /// `too_long`.
    pub reason: String,
    /// Packets and copies.
    pub packets: u64,
}

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// No switch listens there.
    #[error(
        "no switch listens on {}; start one with `p4shield switch run`, or name its socket with --socket",
        socket.display()
    )]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// There is no valid answer.
    #[error("the switch gave no answer; check that it has the same version, and see its output")]
    Ask(#[source] AskError),
    /// The switch refused the request.
    #[error("{0}")]
    Failed(String),
    /// The switch refused a file, and nothing has changed.
    #[error("line {line}: {why}")]
    Refused {
        /// The first wrong line, from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// The answer does not belong to the request.
    #[error("the switch gave an answer of the wrong kind; check that it has the same version")]
    Unexpected,
}

/// Sends a request to the switch that listens on `socket`, and returns its answer.
///
/// # Errors
/// [`ApiError`].
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, ApiError> {
    ask_within(socket, request, PATIENCE)
}

fn ask_within(socket: &Path, request: &Request, patience: Patience) -> Result<Answer, ApiError> {
    match p4shield_socket::ask(socket, request, patience) {
        Ok(Answer::Failed(why)) => Err(ApiError::Failed(why)),
        Ok(Answer::Refused { line, why }) => Err(ApiError::Refused { line, why }),
        Ok(answer) => Ok(answer),
        Err(AskError::Connect(source)) => Err(ApiError::Connect { socket: socket.to_owned(), source }),
        Err(error) => Err(ApiError::Ask(error)),
    }
}

/// Returns the status of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn status(socket: &Path) -> Result<Status, ApiError> {
    match ask(socket, &Request::Status)? {
        Answer::Status(status) => Ok(status),
        _ => Err(ApiError::Unexpected),
    }
}

/// Shows tables, counters or registers of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn show(socket: &Path, inspection: &Inspection) -> Result<DirectionView, ApiError> {
    match ask(socket, &Request::Show(inspection.clone()))? {
        Answer::Shown(view) => Ok(*view),
        _ => Err(ApiError::Unexpected),
    }
}

/// Returns the multicast groups of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn groups(socket: &Path) -> Result<Vec<Group>, ApiError> {
    match ask(socket, &Request::Groups)? {
        Answer::Groups(groups) => Ok(groups),
        _ => Err(ApiError::Unexpected),
    }
}

/// Returns the clone sessions of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn sessions(socket: &Path) -> Result<Vec<CloneSession>, ApiError> {
    match ask(socket, &Request::Sessions)? {
        Answer::Sessions(sessions) => Ok(sessions),
        _ => Err(ApiError::Unexpected),
    }
}

/// Returns the queues of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn queues(socket: &Path) -> Result<Vec<QueueStatus>, ApiError> {
    match ask(socket, &Request::Queues)? {
        Answer::Queues(queues) => Ok(queues),
        _ => Err(ApiError::Unexpected),
    }
}

/// Returns digests of a switch's program, from this number on.
///
/// # Errors
/// [`ApiError`].
pub fn digests(socket: &Path, from: Option<u64>) -> Result<DigestsView, ApiError> {
    match ask(socket, &Request::Digests { from })? {
        Answer::Digests(view) => Ok(view),
        _ => Err(ApiError::Unexpected),
    }
}

/// Writes a table, group, session or queue of a switch.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] nothing has changed.
pub fn write(socket: &Path, write: Write) -> Result<(), ApiError> {
    match ask(socket, &Request::Write { write })? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Adds a port to a switch.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] nothing has changed.
pub fn add_port(socket: &Path, number: u16, interface: String) -> Result<(), ApiError> {
    match ask(socket, &Request::AddPort { number, interface })? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Deletes a port of a switch.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] nothing has changed.
pub fn delete_port(socket: &Path, number: u16) -> Result<(), ApiError> {
    match ask(socket, &Request::DeletePort { number })? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Has a switch write what a file says, and returns the number of writes.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Refused`] and [`ApiError::Failed`] nothing has changed.
pub fn load(socket: &Path, format: Format, text: String, replace: bool) -> Result<usize, ApiError> {
    match ask(socket, &Request::Load { format, text, replace })? {
        Answer::Loaded { writes } => Ok(writes),
        _ => Err(ApiError::Unexpected),
    }
}

/// Has a switch verify the program of these objects, and run it instead of its own.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] the switch runs the program that it had.
pub fn replace(
    socket: &Path,
    file: String,
    objects: &[Vec<u8>],
    traced: Result<&[Vec<u8>], String>,
) -> Result<Replaced, ApiError> {
    let encoded = |objects: &[Vec<u8>]| objects.iter().map(hex::encode).collect();
    let request = Request::Replace { file, objects: encoded(objects), traced: traced.map(encoded) };
    match ask_within(socket, &request, VERIFICATION)? {
        Answer::Replaced(replaced) => Ok(replaced),
        _ => Err(ApiError::Unexpected),
    }
}

/// Has a switch start to record packets. The first recording with events takes as long as a verification.
///
/// # Errors
/// [`ApiError`].
pub fn record(socket: &Path, wanted: Wanted) -> Result<(), ApiError> {
    match ask_within(socket, &Request::Record { wanted }, VERIFICATION)? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Takes the packets that a switch recorded since the last call. The recording ends three seconds after
/// the last call.
///
/// # Errors
/// [`ApiError`].
pub fn records(socket: &Path) -> Result<RecordsView, ApiError> {
    match ask(socket, &Request::Records)? {
        Answer::Records(records) => Ok(records),
        _ => Err(ApiError::Unexpected),
    }
}

/// Ends the recording of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn stop_recording(socket: &Path) -> Result<(), ApiError> {
    match ask(socket, &Request::StopRecording)? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Has a switch judge a packet as if it had arrived at a port, and returns what happened to it.
///
/// # Errors
/// [`ApiError`].
pub fn inject(socket: &Path, port: u16, packet: &[u8]) -> Result<RecordsView, ApiError> {
    let request = Request::Inject { port, packet: hex::encode(packet) };
    match ask_within(socket, &request, VERIFICATION)? {
        Answer::Records(records) => Ok(records),
        _ => Err(ApiError::Unexpected),
    }
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
    round_trip::<Request>(line);
    round_trip::<Answer>(line);
}
