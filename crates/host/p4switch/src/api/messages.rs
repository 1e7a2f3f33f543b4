//! Requests and answers.

use crate::recorded::{RecordsView, Wanted};
use crate::surroundings::Placement;
use p4shield_entries::Format;
use p4shield_tables::entry::Named;
use p4shield_tables::message::{DigestView, MessageView};
use p4shield_tables::view::{DirectionView, Inspection};
use p4shield_tables::write::{CloneSession, Group, Write};
use serde::{Deserialize, Serialize};

/// Longest request in bytes. JSON takes two bytes for a line's end.
pub(crate) const MAX_LINE: u64 = 2 * MAX_FILE + 4096;
/// Longest file in bytes: more than 100,000 entries.
pub const MAX_FILE: u64 = 16 << 20;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Returns the status.
    Status,
    /// Shows tables, counters or registers. The names of tenant and VM are not used.
    Show(Inspection),
    /// Returns the names of the program.
    Names,
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
        /// Its functions for the compartment of a switch of placement `extern`.
        #[serde(default)]
        functions: Option<FunctionObjects>,
    },
    /// Returns digests that the program has sent.
    Digests {
        /// [`DigestsView::next`] of the last answer; without it, only `next` is returned.
        from: Option<u64>,
    },
    /// Returns packets that the program has sent to the controller.
    #[serde(rename = "packets_in")]
    PacketsIn {
        /// [`PacketsIn::next`] of the last answer; without it, only `next` is returned.
        from: Option<u64>,
    },
    /// Sends a packet of the controller into the switch, by the CPU port.
    #[serde(rename = "packet_out")]
    PacketOut {
        /// The fields of its header.
        fields: Vec<Named>,
        /// The bytes behind the header, hexadecimal.
        payload: String,
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
    /// Starts to note the times of each batch.
    #[serde(rename = "note_batches")]
    NoteBatches,
    /// Takes the batches that were noted since the last time.
    Batches,
    /// Ends the notes.
    #[serde(rename = "stop_batches")]
    StopBatches,
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
    Status(Box<Status>),
    /// The answer to `show`.
    Shown(Box<DirectionView>),
    /// The answer to `names`.
    Names(NamesView),
    /// The answer to `groups`.
    Groups(Vec<Group>),
    /// The answer to `sessions`.
    Sessions(Vec<CloneSession>),
    /// The answer to `queues`.
    Queues(Vec<QueueStatus>),
    /// Recorded packets.
    Records(RecordsView),
    /// Noted batches.
    Batches(BatchesView),
    /// Digests.
    Digests(DigestsView),
    /// Packets to the controller.
    #[serde(rename = "packets_in")]
    PacketsIn(PacketsIn),
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

/// The names of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesView {
    /// Its tables, arrays and value sets.
    pub objects: Vec<ObjectNames>,
}

/// The kinds of named objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NameKind {
    /// A table.
    Table,
    /// A parser value set.
    Values,
    /// A counter, also one in the entries of a table.
    Counter,
    /// A register.
    Register,
    /// A meter, also one in the entries of a table.
    Meter,
}

/// The names of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectNames {
    /// Its full name.
    pub name: String,
    /// Its kind.
    pub kind: NameKind,
    /// The keys by which it is found: a table's, also for what its entries have; or a value set's.
    pub keys: Vec<String>,
    /// A table's actions.
    pub actions: Vec<ActionNames>,
}

/// The names of an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionNames {
    /// Its full name.
    pub name: String,
    /// Its parameters, in their order.
    pub params: Vec<String>,
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

/// Packets that the program has sent to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketsIn {
    /// The packets, in their order.
    pub packets: Vec<PacketIn>,
    /// The place with which to continue.
    pub next: u64,
    /// Packets between the place that was asked for and `next` that later ones have overwritten.
    pub missed: u64,
}

/// A packet to the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketIn {
    /// Names and values of the fields of its header; none if the program declares no header for it.
    pub values: Vec<(String, String)>,
    /// The bytes behind the header, hexadecimal.
    pub payload: String,
}

/// Batches that were noted since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchesView {
    /// Those of each packet thread.
    pub threads: Vec<ThreadBatches>,
}

/// Noted batches of a packet thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadBatches {
    /// The packets of each batch, and the nanoseconds to receive, process and send them. Each time is without
    /// that of the clock's own reads.
    pub batches: Vec<[u32; 4]>,
    /// Nanoseconds from the start of the first round to the end of the last one, with those in which the
    /// thread slept.
    pub span_ns: u64,
    /// Nanoseconds in rounds without a packet.
    pub empty_ns: u64,
    /// Batches for which there was no room.
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

/// The compartment with a program's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionsStatus {
    /// Its process; none while it does not run.
    pub pid: Option<i32>,
    /// How often it has ended.
    pub restarts: u64,
    /// The reason why it does not run.
    pub problem: Option<String>,
}

/// Functions of a program for a compartment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionObjects {
    /// The objects, hexadecimal: the compartment's program, then those of the functions in C.
    pub objects: Vec<String>,
    /// Bytes of the longest message to them.
    pub longest_message: usize,
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
    /// Where it runs.
    #[serde(default)]
    pub placement: Placement,
    /// The number of packet threads.
    pub threads: usize,
    /// The reason why several of them take turns: they share the program, or packets wait for ports with
    /// queues. None if they do not.
    pub shared_for: Option<String>,
    /// The compartment with the program's functions, for placement `extern`.
    pub functions: Option<FunctionsStatus>,
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
    /// Its packets during about the last second.
    #[serde(flatten)]
    pub rates: Rates,
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

/// Packets of a port per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// Received packets.
    pub received_packets_s: u64,
    /// Their bits.
    pub received_bits_s: u64,
    /// Sent packets.
    pub sent_packets_s: u64,
    /// Their bits.
    pub sent_bits_s: u64,
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
