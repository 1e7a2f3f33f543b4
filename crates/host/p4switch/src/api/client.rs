//! The client of a switch's socket.

use super::messages::{
    Answer, BatchesView, DigestsView, FunctionObjects, NamesView, PacketsIn, QueueStatus, Replaced, Request,
    Status,
};
use crate::permit::permit;
use crate::recorded::{RecordsView, Wanted};
use p4shield_entries::Format;
use p4shield_socket::{AskError, Patience};
use p4shield_tables::entry::Named;
use p4shield_tables::view::{DirectionView, Inspection};
use p4shield_tables::write::{CloneSession, Group, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limits of an answer.
const PATIENCE: Patience = Patience { time: Duration::from_secs(30), bytes: 64 << 20 };
/// The same while a shell waits to complete a word.
const COMPLETION: Patience = Patience { time: Duration::from_secs(1), bytes: 4 << 20 };
/// The same while a program is verified.
const VERIFICATION: Patience = Patience { time: Duration::from_secs(600), bytes: 1 << 20 };

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
        Answer::Status(status) => Ok(*status),
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

/// Returns the names of a switch's program. Waits for a second at most.
///
/// # Errors
/// [`ApiError`].
pub fn names(socket: &Path) -> Result<NamesView, ApiError> {
    match ask_within(socket, &Request::Names, COMPLETION)? {
        Answer::Names(names) => Ok(names),
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

/// Returns packets to the controller of a switch, from this place on.
///
/// # Errors
/// [`ApiError`].
pub fn packets_in(socket: &Path, from: Option<u64>) -> Result<PacketsIn, ApiError> {
    match ask(socket, &Request::PacketsIn { from })? {
        Answer::PacketsIn(packets) => Ok(packets),
        _ => Err(ApiError::Unexpected),
    }
}

/// Sends a packet of the controller into a switch.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] it was not sent.
pub fn packet_out(socket: &Path, fields: Vec<Named>, payload: &[u8]) -> Result<(), ApiError> {
    match ask(socket, &Request::PacketOut { fields, payload: hex::encode(payload) })? {
        Answer::Done => Ok(()),
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
    permit(socket, &interface).map_err(ApiError::Failed)?;
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

/// Has a switch verify the program of these objects, and run it instead of its own, with these functions in
/// its compartment.
///
/// # Errors
/// [`ApiError`]; after [`ApiError::Failed`] the switch runs the program that it had.
pub fn replace(
    socket: &Path,
    file: String,
    objects: &[Vec<u8>],
    traced: Result<&[Vec<u8>], String>,
    functions: Option<FunctionObjects>,
) -> Result<Replaced, ApiError> {
    let encoded = |objects: &[Vec<u8>]| objects.iter().map(hex::encode).collect();
    let (objects, traced) = (encoded(objects), traced.map(encoded));
    let request = Request::Replace { file, objects, traced, functions };
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

/// Has a switch start to note the times of each batch.
///
/// # Errors
/// [`ApiError`].
pub fn note_batches(socket: &Path) -> Result<(), ApiError> {
    match ask(socket, &Request::NoteBatches)? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Takes the batches that a switch noted since the last call. The notes end three seconds after the last
/// call.
///
/// # Errors
/// [`ApiError`].
pub fn batches(socket: &Path) -> Result<BatchesView, ApiError> {
    match ask(socket, &Request::Batches)? {
        Answer::Batches(batches) => Ok(batches),
        _ => Err(ApiError::Unexpected),
    }
}

/// Ends the notes of a switch.
///
/// # Errors
/// [`ApiError`].
pub fn stop_batches(socket: &Path) -> Result<(), ApiError> {
    match ask(socket, &Request::StopBatches)? {
        Answer::Done => Ok(()),
        _ => Err(ApiError::Unexpected),
    }
}

/// Has a switch judge a packet as if it had arrived at a port, and returns what happened to it. If that is
/// not [done](RecordsView::done), a copy of it waits in a queue, and [`records`] returns it later.
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
