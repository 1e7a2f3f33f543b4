//! Records of packets: what the program did with each, what left, and why copies were dropped.
//!
//! Recording allocates and copies. It happens for packets that a filter chooses, and only while a client asks
//! for records: it ends by itself at a time that each request puts off.

use crate::counts::DropReason;
use p4shield_abi::trace::EVENT_WORDS;
use p4shield_bpf::Program;
use p4shield_traffic::Event;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

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
    /// Those that are [injected](crate::Switch::inject).
    pub injected: bool,
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
    /// A copy waits in the queue of a port.
    Queued {
        /// Its number.
        port: u16,
    },
    /// A copy leaves the queue of a port. What follows is that copy's.
    Waited {
        /// Its number.
        port: u16,
        /// How long the copy waited.
        time: Duration,
    },
    /// A copy waits for the answer of a function in a compartment.
    Called,
    /// A copy waits for packets of its flow that wait for answers.
    Behind,
    /// Its answer came, or the time for it ended, or those before it have gone on. What follows is that
    /// copy's.
    Answered {
        /// How long it waited.
        time: Duration,
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
    /// The records, in the order in which the last copy of each packet left or was dropped.
    pub packets: Vec<Record>,
    /// Packets that the filter chose, but for which there was no room.
    pub missed: u64,
}

/// The record of which packet a waiting copy is: the recording and the packet in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordId(u64, u64);

/// A record that may get further steps.
#[derive(Debug)]
struct Open {
    id: RecordId,
    record: Record,
    /// Copies of the packet that wait in queues.
    waiting: usize,
}

/// The recording of packets.
#[derive(Debug)]
pub(crate) struct Recorder {
    filter: RecordFilter,
    /// Records that may follow.
    left: u64,
    /// Bytes of the records so far, and of those that may get further steps.
    bytes: usize,
    records: Records,
    /// The packet that is judged now, if the filter may choose it.
    now: Option<Open>,
    /// The packets of which copies wait.
    open: BTreeMap<RecordId, Open>,
    next: RecordId,
    /// True while a client's packet is judged that arrived at no port.
    pub(crate) injects: bool,
    events: Vec<[u64; EVENT_WORDS]>,
}

impl Recorder {
    /// Makes a recorder. Copies may still wait from recordings with other numbers.
    pub(crate) fn new(filter: RecordFilter, most: u64, number: u64) -> Self {
        Self {
            filter,
            left: most,
            bytes: 0,
            records: Records::default(),
            now: None,
            open: BTreeMap::new(),
            next: RecordId(number, 0),
            injects: false,
            events: Vec::new(),
        }
    }

    /// Returns the records so far, and whether no other follows.
    pub(crate) fn take(&mut self) -> (Records, bool) {
        self.bytes = self.open.values().map(|open| open.record.size()).sum();
        (std::mem::take(&mut self.records), self.left == 0)
    }

    /// Begins with a packet.
    pub(crate) fn begin(&mut self, port: u16, bytes: &[u8], program: &mut Program) {
        let is_other = self.filter.port.is_some_and(|wanted| wanted != port);
        if self.left == 0 || is_other || (self.filter.injected && !self.injects) {
            return;
        }
        self.forget_events(program);
        let record = Record { at: SystemTime::now(), port, bytes: bytes.to_vec(), steps: Vec::new() };
        self.now = Some(Open { id: self.next, record, waiting: 0 });
        self.next.1 += 1;
    }

    /// Goes on with a packet of which a copy has waited.
    pub(crate) fn resume(&mut self, id: RecordId, step: Step, program: &mut Program) {
        let Some(mut open) = self.open.remove(&id) else { return };
        self.forget_events(program);
        self.bytes = self.bytes.saturating_sub(open.record.size());
        open.waiting -= 1;
        open.record.steps.push(step);
        self.now = Some(open);
    }

    /// Drops the events of packets that were not recorded.
    fn forget_events(&mut self, program: &mut Program) {
        program.take_events(&mut self.events);
        self.events.clear();
    }

    /// Notes the events of a run.
    pub(crate) fn ran(&mut self, program: &mut Program) {
        if let Some(Open { record, .. }) = &mut self.now {
            program.take_events(&mut self.events);
            record.steps.extend(self.events.drain(..).map(Step::Program));
        }
    }

    /// Notes a step.
    pub(crate) fn step(&mut self, step: impl FnOnce() -> Step) {
        if let Some(Open { record, .. }) = &mut self.now {
            record.steps.push(step());
        }
    }

    /// Returns the packet that is judged now, if it is recorded.
    pub(crate) fn now(&self) -> Option<RecordId> {
        self.now.as_ref().map(|open| open.id)
    }

    /// Notes that a copy of the packet waits.
    pub(crate) fn wait(&mut self, step: Step) {
        if let Some(open) = &mut self.now {
            open.waiting += 1;
            open.record.steps.push(step);
        }
    }

    /// Notes that a copy waits no longer: another one took its place.
    pub(crate) fn displaced(&mut self, id: RecordId) {
        let is_now = self.now() == Some(id);
        let Some(open) = (if is_now { self.now.as_mut() } else { self.open.get_mut(&id) }) else { return };
        open.waiting -= 1;
        open.record.steps.push(Step::Dropped(DropReason::Queue));
        if !is_now && open.waiting == 0 {
            let open = self.open.remove(&id);
            self.bytes = self.bytes.saturating_sub(open.as_ref().map_or(0, |open| open.record.size()));
            self.close(open);
        }
    }

    /// Ends the packet. Its record is kept if the filter chooses it, and before that as long as copies wait.
    pub(crate) fn end(&mut self) {
        let now = self.now.take();
        self.close(now);
    }

    fn close(&mut self, open: Option<Open>) {
        let Some(open) = open.filter(|open| open.waiting > 0 || self.filter.chooses(&open.record)) else {
            return;
        };
        let bytes = open.record.size();
        if self.bytes + bytes > MAX_BYTES {
            self.records.missed += 1;
            // There is no other one.
            self.left = if self.filter.injected { 0 } else { self.left };
            return;
        }
        if open.waiting > 0 {
            self.bytes += bytes;
            self.open.insert(open.id, open);
        } else if self.left > 0 {
            self.bytes += bytes;
            self.left -= 1;
            self.records.packets.push(open.record);
        }
    }
}

impl RecordFilter {
    fn chooses(&self, record: &Record) -> bool {
        let any = |is: &dyn Fn(&Step) -> bool| record.steps.iter().any(is);
        let leaves =
            self.leaves_by.is_none_or(|by| any(&|s| matches!(s, Step::Sent { port, .. } if *port == by)));
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
