//! The packet thread's part of a recording.

use p4shield_switch::{PacketIo, RecordFilter, Records, Switch, Twin};
use std::time::Duration;

/// How long a recording, or notes of batches, go on without a client. One beside other work may have no core
/// for some seconds.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// The reason why a client may not record.
pub(crate) const BUSY: &str = "another client records packets; try again when it has ended";

/// Work of the packet thread.
#[derive(Debug)]
pub(crate) enum RecordWork {
    /// Installs the twin of the program, unless packets are recorded; then the one before.
    Twin { twin: Option<Box<Twin>>, installed: bool },
    /// Starts; false then if packets are recorded already.
    Start { filter: RecordFilter, most: u64, events: bool, started: bool },
    /// Takes records; `None` if there is no recording.
    Take(Option<(Records, bool)>),
    /// Ends the recording.
    Stop,
    /// Asks whether there is one.
    Ask(bool),
    /// Judges a packet as if it had arrived.
    Inject { port: u16, bytes: Vec<u8>, judged: Result<(), String> },
}

impl RecordWork {
    pub(crate) fn execute<I: PacketIo>(&mut self, switch: &mut Switch<I>) {
        match self {
            Self::Twin { twin, installed } => {
                *installed = !switch.is_recording();
                if *installed {
                    *twin = switch.set_twin(twin.take().map(|t| *t)).map(Box::new);
                }
            }
            Self::Start { filter, most, events, started } => {
                *started = !switch.is_recording();
                if *started {
                    switch.record(std::mem::take(filter), *most, *events, LEASE);
                }
            }
            Self::Take(records) => *records = switch.take_records(LEASE),
            Self::Stop => switch.stop_recording(),
            Self::Ask(records) => *records = switch.is_recording(),
            Self::Inject { port, bytes, judged } => {
                *judged = switch.inject(*port, bytes).map_err(|e| e.to_string());
            }
        }
    }
}
