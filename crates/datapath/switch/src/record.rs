//! Records of packets: what the program did with each, what left, and why copies were dropped.
//!
//! Recording allocates and copies. It happens for packets that a filter chooses, and only while a client asks
//! for records: it ends by itself at a time that each request puts off.

use crate::counts::DropReason;
use p4shield_abi::trace::EVENT_WORDS;
use p4shield_bpf::Program;
use p4shield_traffic::Event;
use std::time::SystemTime;

/// Most bytes of packets and events that records may have before a client takes them.
const MAX_BYTES: usize = 4 << 20;

/// The packets to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// Those that arrive at this port.
    pub port: Option<u16>,
    /// Those of which a copy leaves by this port.
    pub leaves_by: Option<u16>,
    /// Those that pass one of these trace points, by number ([`p4shield_abi::trace`]); all if empty.
    pub through: Vec<u64>,
    /// Those of which a copy is dropped.
    pub dropped: bool,
}

/// A step of a packet through the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An event of the program.
    Program([u64; EVENT_WORDS]),
    /// A copy left by a port.
    Sent {
        /// Its number.
        port: u16,
        /// The bytes that left.
        bytes: Vec<u8>,
    },
    /// A copy waits in the queue of a port. The record ends there.
    Queued {
        /// Its number.
        port: u16,
    },
    /// A copy was dropped.
    Dropped(DropReason),
    /// The traffic manager goes on with it.
    Traffic(Event),
}

/// A recorded packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the switch judged it.
    pub at: SystemTime,
    /// Number of the port at which it arrived.
    pub port: u16,
    /// Its bytes as it arrived.
    pub bytes: Vec<u8>,
    /// Its steps, in their order.
    pub steps: Vec<Step>,
}

/// Records that a client takes, and what became of them.
#[derive(Debug, Default)]
pub struct Records {
    /// The records, in the order of the packets.
    pub packets: Vec<Record>,
    /// Packets that the filter chose, but for which there was no room.
    pub missed: u64,
}

/// The recording of packets.
#[derive(Debug)]
pub(crate) struct Recorder {
    filter: RecordFilter,
    /// Records that may follow.
    left: u64,
    /// Bytes of the records so far.
    bytes: usize,
    records: Records,
    /// The packet that is judged now, if the filter may choose it.
    now: Option<Record>,
    events: Vec<[u64; EVENT_WORDS]>,
}

impl Recorder {
    pub(crate) fn new(filter: RecordFilter, most: u64) -> Self {
        Self { filter, left: most, bytes: 0, records: Records::default(), now: None, events: Vec::new() }
    }

    /// Returns the records so far, and whether no other follows.
    pub(crate) fn take(&mut self) -> (Records, bool) {
        self.bytes = 0;
        (std::mem::take(&mut self.records), self.left == 0)
    }

    /// Begins with a packet.
    pub(crate) fn begin(&mut self, port: u16, bytes: &[u8], program: &mut Program) {
        if self.left == 0 || self.filter.port.is_some_and(|wanted| wanted != port) {
            return;
        }
        // Events of packets that were not recorded.
        program.take_events(&mut self.events);
        self.events.clear();
        let record = Record { at: SystemTime::now(), port, bytes: bytes.to_vec(), steps: Vec::new() };
        self.now = Some(record);
    }

    /// Notes the events of a run.
    pub(crate) fn ran(&mut self, program: &mut Program) {
        if let Some(record) = &mut self.now {
            program.take_events(&mut self.events);
            record.steps.extend(self.events.drain(..).map(Step::Program));
        }
    }

    /// Notes a step.
    pub(crate) fn step(&mut self, step: impl FnOnce() -> Step) {
        if let Some(record) = &mut self.now {
            record.steps.push(step());
        }
    }

    /// Ends the packet, and keeps its record if the filter chooses it.
    pub(crate) fn end(&mut self) {
        let Some(record) = self.now.take().filter(|r| self.filter.chooses(r)) else { return };
        let bytes = record.size();
        if self.bytes + bytes > MAX_BYTES {
            self.records.missed += 1;
            return;
        }
        self.bytes += bytes;
        self.left -= 1;
        self.records.packets.push(record);
    }
}

impl RecordFilter {
    fn chooses(&self, record: &Record) -> bool {
        let any = |is: &dyn Fn(&Step) -> bool| record.steps.iter().any(is);
        let leaves = self.leaves_by.is_none_or(|by| {
            any(&|s| matches!(s, Step::Sent { port, .. } | Step::Queued { port } if *port == by))
        });
        let passes = self.through.is_empty()
            || any(&|s| matches!(s, Step::Program(words) if self.through.contains(&words[0])));
        leaves && passes && (!self.dropped || any(&|s| matches!(s, Step::Dropped(_))))
    }
}

impl Record {
    fn size(&self) -> usize {
        let step = |s: &Step| match s {
            Step::Sent { bytes, .. } => bytes.len(),
            _ => 0,
        };
        let steps: usize = self.steps.iter().map(step).sum();
        self.bytes.len() + steps + self.steps.len() * size_of::<Step>()
    }
}
