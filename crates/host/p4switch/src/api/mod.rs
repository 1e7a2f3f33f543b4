//! The requests and answers of a switch's socket: each is one line of JSON.

mod client;
mod messages;

pub use crate::recorded::{RecordView, RecordsView, StepView, Wanted};
pub use client::{
    ApiError, add_port, ask, batches, delete_port, digests, groups, inject, load, names, note_batches,
    packet_out, packets_in, queues, record, records, replace, sessions, show, status, stop_batches,
    stop_recording, write,
};
pub(crate) use messages::MAX_LINE;
pub use messages::{
    ActionNames, Answer, BatchesView, DigestsView, Dropped, FunctionObjects, FunctionsStatus, MAX_FILE,
    NameKind, NamesView, ObjectNames, PacketIn, PacketsIn, PortState, PortStatus, QueueStatus, Rates,
    Replaced, Request, Status, ThreadBatches, Traffic, fuzz,
};
pub use p4shield_entries::Format;
pub use p4shield_tables::entry::Named;
pub use p4shield_tables::message::{DigestView, MessageView};
pub use p4shield_tables::trace::{EventView, PointKind};
