//! The requests and answers of a switch's socket: each is one line of JSON.

use p4shield_socket::{AskError, Patience};
use p4shield_tables::entry::{ActionText, MatchText};
use p4shield_tables::view::{DirectionView, Inspection};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest request in bytes.
pub(crate) const MAX_LINE: u64 = 1 << 20;
/// The limits of an answer.
const PATIENCE: Patience = Patience { time: Duration::from_secs(30), bytes: 64 << 20 };

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Returns the status.
    Status,
    /// Shows tables, counters or registers. The names of tenant and VM are not used.
    Show(Inspection),
    /// Adds an entry to a table; refused if the table has one that matches the same.
    Add(Entry),
    /// Adds an entry to a table, or replaces the one that matches the same.
    Set(Entry),
    /// Deletes an entry.
    Delete {
        /// The table.
        table: String,
        /// The packets that the entry matches.
        matches: MatchText,
    },
    /// Sets the default action of a table.
    Default {
        /// The table.
        table: String,
        /// The action.
        action: ActionText,
    },
    /// Returns the multicast groups.
    Groups,
    /// Creates or replaces a multicast group.
    SetGroup(Group),
    /// Deletes a multicast group.
    DeleteGroup {
        /// Its number.
        group: u16,
    },
}

/// A multicast group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its number, 1 to 65535.
    pub group: u16,
    /// The copies that the switch makes of a packet.
    pub copies: Vec<GroupCopy>,
}

/// A copy of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupCopy {
    /// The port by which it leaves.
    pub port: u16,
    /// Its number (`egress_rid` of v1model).
    #[serde(default)]
    pub replica: u16,
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The table's name, in full or its last parts.
    pub table: String,
    /// The packets that it matches.
    pub matches: MatchText,
    /// Its action.
    pub action: ActionText,
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
    /// A table or group has been written.
    Done,
    /// Failure, with the reason.
    Failed(String),
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
    /// Packets that were replicated for a multicast group.
    pub replicated: u64,
    /// Copies of them.
    pub copies: u64,
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
    /// Received packets.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Sent packets.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// Packets that were dropped for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// `program`, `stopped`, `no_port`, `no_group`, `no_room` or `too_long`.
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
    /// The answer does not belong to the request.
    #[error("the switch gave an answer of the wrong kind; check that it has the same version")]
    Unexpected,
}

/// Sends a request to the switch that listens on `socket`, and returns its answer.
///
/// # Errors
/// [`ApiError`].
pub fn ask(socket: &Path, request: &Request) -> Result<Answer, ApiError> {
    match p4shield_socket::ask(socket, request, PATIENCE) {
        Ok(Answer::Failed(why)) => Err(ApiError::Failed(why)),
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

/// Writes a table or group of a switch.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] nothing has changed.
pub fn write(socket: &Path, request: &Request) -> Result<(), ApiError> {
    match ask(socket, request)? {
        Answer::Done => Ok(()),
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
