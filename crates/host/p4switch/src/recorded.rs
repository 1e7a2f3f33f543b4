//! Recorded packets, as clients see them.

use p4shield_tables::trace::EventView;
use serde::{Deserialize, Serialize};

/// The packets that a client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Those that arrive at this port.
    pub port: Option<u16>,
    /// Those of which a copy leaves by this port.
    pub leaves_by: Option<u16>,
    /// Those that pass a parser state, control, table, action or extern of this name. Needs `events`.
    pub through: Option<String>,
    /// Those of which a copy is dropped.
    pub dropped: bool,
    /// True to record what the program does.
    pub events: bool,
    /// The most packets.
    pub most: u64,
}

/// A recorded packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordView {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The port at which it arrived.
    pub port: u16,
    /// Its bytes as it arrived, hexadecimal.
    pub bytes: String,
    /// Its steps.
    pub steps: Vec<StepView>,
}

/// A step of a packet through the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepView {
    /// An act of the program.
    Program(EventView),
    /// A copy left.
    Sent {
        /// By this port.
        port: u16,
        /// Its bytes, hexadecimal.
        bytes: String,
    },
    /// A copy waits in the queue of a port.
    Queued {
        /// The port.
        port: u16,
    },
    /// A copy leaves the queue of a port; the next steps are its own.
    Waited {
        /// The port.
        port: u16,
        /// How long it waited.
        nanoseconds: u64,
    },
    /// A copy waits for the answer of a function in a compartment.
    Called,
    /// A copy waits for packets of its flow that wait for answers.
    Behind,
    /// A copy goes on behind that call; the next steps are its own.
    Answered {
        /// How long it waited.
        nanoseconds: u64,
    },
    /// A copy was dropped.
    Dropped {
        /// The reason, as in the status.
        reason: String,
    },
    /// `replicated`, `copied`, `resubmitted` or `recirculated`.
    Traffic(String),
}

/// Records that a client takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsView {
    /// The packets, in the order in which their last copies left or were dropped.
    pub packets: Vec<RecordView>,
    /// Packets for which there was no room.
    pub missed: u64,
    /// True if no other follows.
    pub done: bool,
}
