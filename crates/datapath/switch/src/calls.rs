//! Packets that wait for functions in a compartment ([`p4shield_abi::call`]).
//!
//! Each packet thread has its own, with its own [`CallPort`]. Messages of a batch are published together, and
//! no thread waits for the compartment: it goes on with other packets. A packet whose answer does not come by
//! the deadline is dropped, or goes on without it, as [`CallFail`] says.
//!
//! Packets of one flow, here all with the same Ethernet addresses that arrive at one port, keep their order:
//! one whose run has ended without a call waits, too, while one before it does.

use crate::kept::Kept;
use crate::record::RecordId;
use crate::ring::Ring;
use p4shield_abi::call::{message, take_answer};
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::division::MAX_BLOCK_SIZE;
use p4shield_bpf::{Entry, Meta, Packet, Program, RunResult};
use p4shield_traffic::Ready;
use std::time::Duration;

/// Most packets of a thread that wait.
pub const MAX_CALLS: usize = 512;
/// Groups of flows: those of one group keep their order, too.
const FLOWS: usize = 1 << 10;

/// The way to a compartment and back, for one packet thread. Nothing here waits.
pub trait CallPort: Send {
    /// Takes a message.
    fn submit(&mut self, message: &[u8]) -> Submitted;
    /// Publishes the messages so far, and wakes the compartment if it sleeps.
    fn publish(&mut self);
    /// Takes the answers that are there, in the order of the messages; `None` for a message that has none.
    /// Returns false once the compartment is of no use any more: no answer follows.
    fn take(&mut self, each: &mut dyn FnMut(Option<&[u8]>)) -> bool;
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is on its way.
    Taken,
    /// There is no room for it.
    Full,
    /// The compartment is of no use any more.
    Dead,
}

/// The way to a compartment that is not there.
#[derive(Clone, Copy, Debug)]
pub struct NoCompartment;

impl CallPort for NoCompartment {
    fn submit(&mut self, _: &[u8]) -> Submitted {
        Submitted::Dead
    }

    fn publish(&mut self) {}

    fn take(&mut self, _: &mut dyn FnMut(Option<&[u8]>)) -> bool {
        false
    }
}

/// The fate of packets whose answer does not come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallFail {
    /// They are dropped.
    #[default]
    Drop,
    /// They go on as if the function had returned 0 and changed nothing.
    Zero,
}

/// A way to a compartment, and what holds for the packets that wait.
pub struct CallSettings {
    /// The way.
    pub port: Box<dyn CallPort>,
    /// Longest time for an answer.
    pub deadline: Duration,
    /// The fate of packets without one.
    pub fail: CallFail,
}

impl std::fmt::Debug for CallSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallSettings").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The state of a packet that waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// For packets of its flow. Its run has ended, or is yet to come: it has waited in a queue.
    #[default]
    Behind,
    /// For an answer.
    Asked,
    /// Its answer is in its block.
    Answered,
    /// It gets no answer.
    Unanswered,
}

/// A packet that waits.
#[derive(Debug, Default)]
pub(crate) struct Caller {
    pub(crate) entry: Entry,
    pub(crate) bytes: Kept<128>,
    /// Message and kept values; of one that waits for its flow, the block of the divided program.
    pub(crate) block: Kept<192>,
    /// The packet as its last run left it, with the result of that run.
    pub(crate) left: Vec<u8>,
    pub(crate) result: Option<RunResult>,
    pub(crate) meta: Meta,
    pub(crate) runs: usize,
    pub(crate) record: Option<RecordId>,
    pub(crate) flow: u16,
    /// Number of the program that called.
    pub(crate) series: u64,
    pub(crate) since_ns: u64,
    state: State,
}

impl Caller {
    /// Returns true if it goes on; false if it is lost.
    pub(crate) const fn goes_on(&self) -> bool {
        !matches!(self.state, State::Unanswered)
    }

    /// Returns true if it waited for its flow only.
    pub(crate) const fn was_behind(&self) -> bool {
        matches!(self.state, State::Behind)
    }

    /// Returns the packet for its next run.
    pub(crate) fn ready(&self) -> Ready<'_> {
        let Self { entry, bytes, block, meta, runs, .. } = self;
        Ready { entry: *entry, bytes: bytes.bytes(), block: block.bytes(), meta, runs: *runs }
    }
}

/// The place of a packet that waits.
#[derive(Debug)]
struct Place {
    /// `None` while its packet goes on.
    caller: Option<Box<Caller>>,
    /// Counts the packets that had this place: an answer may come when its packet has gone.
    generation: u32,
}

/// A message that has no answer yet.
#[derive(Clone, Copy, Debug, Default)]
struct Message {
    place: usize,
    /// That of the place when its packet took it.
    generation: u32,
    until_ns: u64,
}

/// The packets of a thread that wait, and the way to their compartment.
#[derive(Debug)]
pub(crate) struct Calls {
    settings: Option<Box<CallSettings>>,
    /// True once the compartment is of no use.
    is_dead: bool,
    /// True if no further packet may call.
    ends: bool,
    places: Vec<Place>,
    free: Vec<usize>,
    /// The places of the packets that wait, in the order in which they came.
    order: Ring<usize>,
    /// The messages that are not answered.
    asked: Ring<Message>,
    /// The number of those at the front of `asked` whose deadline has passed.
    late: usize,
    /// The packets that wait for their flow only.
    behind: usize,
    /// The packets that wait, by flow.
    flows: Box<[u16; FLOWS]>,
    /// By flow: the pass over the packets in which one of it was found waiting.
    blocked: Box<[u64; FLOWS]>,
    pass: u64,
    /// The packets that the pass has not looked at.
    left: usize,
    /// True if the pass has put packets at the end of `order`.
    turns: bool,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            settings: None,
            is_dead: false,
            ends: false,
            places: Vec::new(),
            free: Vec::new(),
            order: Ring::with_room(0),
            asked: Ring::with_room(0),
            late: 0,
            behind: 0,
            flows: Box::new([0; FLOWS]),
            blocked: Box::new([0; FLOWS]),
            pass: 0,
            left: 0,
            turns: false,
        }
    }

    /// Replaces the way to the compartment. Packets that wait for answers of the old one get none.
    pub(crate) fn set(&mut self, settings: Option<Box<CallSettings>>) -> Option<Box<CallSettings>> {
        if self.places.is_empty() && settings.is_some() {
            let place = |_| Place { caller: Some(Box::default()), generation: 0 };
            // One that goes on has its place until it has gone, and another one if it calls again.
            self.places = (0..=MAX_CALLS).map(place).collect();
            // After all places, so that these lie side by side.
            for caller in self.places.iter_mut().filter_map(|place| place.caller.as_mut()) {
                caller.bytes = Kept::with_capacity(MAX_HEADER_BYTES as usize);
                caller.block = Kept::with_capacity(MAX_BLOCK_SIZE);
                caller.left = Vec::with_capacity(MAX_HEADER_BYTES as usize);
            }
            self.free = (0..=MAX_CALLS).collect();
            self.order = Ring::with_room(MAX_CALLS);
            // Also for those whose packets have given up.
            self.asked = Ring::with_room(2 * MAX_CALLS);
        }
        let old = std::mem::replace(&mut self.settings, settings);
        self.is_dead = self.settings.as_mut().is_some_and(|s| !s.port.take(&mut |_| ()));
        self.fail_all();
        old
    }

    /// Returns true if packets can wait.
    pub(crate) const fn is_set(&self) -> bool {
        self.settings.is_some()
    }

    /// Returns the number of packets that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.order.len()
    }

    /// Returns true if no packet waits and no answer is to come, not even a late one.
    pub(crate) fn is_idle(&self) -> bool {
        self.order.is_empty() && self.asked.is_empty()
    }

    /// Returns the flow of a packet that arrives at the port in this place.
    pub(crate) fn flow(port: usize, bytes: &[u8]) -> u16 {
        let word =
            |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let [a, b, c] = [0, 4, 8].map(|at| u64::from(word(at)));
        // Collisions only keep more packets in order.
        let mixed = (a << 32 | b) ^ c.rotate_left(17) ^ port as u64;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as u16
    }

    /// Returns true if packets of this flow wait.
    pub(crate) fn is_busy(&self, flow: u16) -> bool {
        self.flows[usize::from(flow)] > 0
    }

    /// Lets a packet wait whose run has ended, until others of its flow have left. Returns false if there is
    /// no room.
    pub(crate) fn finish_later(&mut self, ended: &mut Ended<'_>, from: &From, now_ns: u64) -> bool {
        let Ended { entry, arrived, packet, result, meta, program } = ended;
        let ready = Ready { entry: *entry, bytes: arrived, block: &[], meta, runs: 0 };
        let Some((_, caller)) = self.keep(&ready, from, State::Behind, now_ns) else { return false };
        caller.result = Some(**result);
        caller.block.fill(|block| program.read_block(block));
        caller.left.clear();
        caller.left.extend_from_slice(packet.bytes());
        true
    }

    /// Lets a packet wait whose run is yet to come, until others of its flow have left. Returns false if
    /// there is no room.
    pub(crate) fn begin_later(&mut self, ready: &Ready<'_>, from: &From, now_ns: u64) -> bool {
        self.keep(ready, from, State::Behind, now_ns).is_some()
    }

    /// Hands the message of a packet to the compartment, and lets the packet wait. Returns false if there is
    /// no room.
    pub(crate) fn call(&mut self, ready: &Ready<'_>, from: &From, now_ns: u64) -> bool {
        let Some(settings) = &mut self.settings else { return false };
        let Some(message) = message(ready.block) else { return false };
        let deadline = u64::try_from(settings.deadline.as_nanos()).unwrap_or(u64::MAX);
        if self.order.len() >= MAX_CALLS || self.asked.is_full() || self.ends {
            return false;
        }
        let submitted = if self.is_dead { Submitted::Dead } else { settings.port.submit(message) };
        let state = match submitted {
            Submitted::Taken => State::Asked,
            Submitted::Dead => unanswered(settings.fail),
            Submitted::Full => return false,
        };
        let Some((place, _)) = self.keep(ready, from, state, now_ns) else { return false };
        if state == State::Asked {
            let (generation, until_ns) = (self.places[place].generation, now_ns.saturating_add(deadline));
            self.asked.push(Message { place, generation, until_ns });
        }
        // If this one called before, those behind it do not overtake it now.
        self.blocked[usize::from(from.flow)] = self.pass;
        self.turns = true;
        true
    }

    /// Copies a packet to a free place, and returns both.
    fn keep(
        &mut self,
        ready: &Ready<'_>,
        from: &From,
        state: State,
        now_ns: u64,
    ) -> Option<(usize, &mut Caller)> {
        let at = self.free.pop_if(|_| self.order.len() < MAX_CALLS)?;
        let caller = self.places[at].caller.as_deref_mut()?;
        (caller.entry, caller.meta, caller.runs) = (ready.entry, *ready.meta, ready.runs);
        (caller.flow, caller.state, caller.result) = (from.flow, state, None);
        (caller.record, caller.series, caller.since_ns) = (from.record, from.series, now_ns);
        caller.bytes.set(ready.bytes);
        caller.block.set(ready.block);
        self.order.push(at);
        self.behind += usize::from(state == State::Behind);
        self.flows[usize::from(from.flow)] += 1;
        Some((at, caller))
    }

    /// Publishes the messages so far.
    pub(crate) fn publish(&mut self) {
        if let Some(settings) = self.settings.as_mut().filter(|_| !self.asked.is_empty()) {
            settings.port.publish();
        }
    }

    /// Takes the answers that are there, and gives up those that are late. Starts a pass over the packets.
    pub(crate) fn take(&mut self, now_ns: u64) {
        self.pass += 1;
        (self.left, self.turns) = (self.order.len(), false);
        let Self { settings, places, asked, late, .. } = self;
        let Some(settings) = settings.as_deref_mut() else { return };
        let CallSettings { port, fail, .. } = settings;
        let works = self.is_dead
            || port.take(&mut |answer| {
                let Some(message) = asked.pop() else { return };
                *late = late.saturating_sub(1);
                if let Some(caller) = waiting(places, &message) {
                    let is_answer = answer.is_some_and(|a| take_answer(caller.block.bytes_mut(), a));
                    caller.state = if is_answer { State::Answered } else { unanswered(*fail) };
                }
            });
        // All have the same time, so the first is the first to be late.
        while let Some(message) = asked.get(*late).filter(|m| m.until_ns <= now_ns) {
            *late += 1;
            if let Some(caller) = waiting(places, &message) {
                caller.state = unanswered(*fail);
            }
        }
        if !works {
            self.is_dead = true;
            self.fail_all();
        }
    }

    /// Returns how long packets may take to go on before a program is replaced.
    pub(crate) fn patience(&self) -> Duration {
        self.settings.as_ref().map_or(Duration::ZERO, |s| s.deadline.saturating_mul(2))
    }

    /// Sets whether packets are refused that call again, and gives up all answers if so: those that come
    /// later are still the answers to these messages.
    pub(crate) fn end(&mut self, ends: bool) {
        self.ends = ends;
        if ends {
            self.give_up();
        }
    }

    /// Gives up all answers: none follows.
    fn fail_all(&mut self) {
        self.asked.clear();
        self.late = 0;
        self.give_up();
    }

    /// Lets no packet wait for an answer.
    fn give_up(&mut self) {
        let fail = self.settings.as_ref().map_or(CallFail::Drop, |s| s.fail);
        for at in self.order.iter() {
            if let Some(caller) = self.places[at].caller.as_mut().filter(|c| c.state == State::Asked) {
                caller.state = unanswered(fail);
            }
        }
    }

    /// Returns the next packet of this pass that goes on or is lost, and its place; `None` at the end of the
    /// pass.
    pub(crate) fn next(&mut self) -> Option<(usize, Box<Caller>)> {
        while self.left > 0 {
            self.left -= 1;
            let at = self.order.get(0)?;
            let Place { caller, generation } = &mut self.places[at];
            let found = caller.as_mut()?;
            let (flow, is_asked) = (usize::from(found.flow), found.state == State::Asked);
            if is_asked && self.behind == 0 && !self.turns {
                // Answers come in this order: none is there for those behind it.
                self.left = 0;
                return None;
            }
            self.order.pop();
            if is_asked || self.blocked[flow] == self.pass {
                self.blocked[flow] = self.pass;
                self.turns = true;
                self.order.push(at);
                continue;
            }
            self.behind -= usize::from(found.state == State::Behind);
            *generation = generation.wrapping_add(1);
            self.flows[flow] -= 1;
            return caller.take().map(|caller| (at, caller));
        }
        None
    }

    /// Takes the buffers of a packet back, which had this place.
    pub(crate) fn done(&mut self, at: usize, caller: Box<Caller>) {
        self.places[at].caller = Some(caller);
        self.free.push(at);
    }
}

/// A packet whose run has ended.
pub(crate) struct Ended<'a> {
    pub(crate) entry: Entry,
    /// The packet as it arrived, and as the run left it.
    pub(crate) arrived: &'a [u8],
    pub(crate) packet: &'a Packet,
    pub(crate) result: &'a RunResult,
    pub(crate) meta: &'a Meta,
    pub(crate) program: &'a mut Program,
}

/// The packet that calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct From {
    pub(crate) flow: u16,
    pub(crate) record: Option<RecordId>,
    /// Number of its program.
    pub(crate) series: u64,
}

/// Returns the packet that waits for the answer to a message; `None` if it has gone.
fn waiting<'a>(places: &'a mut [Place], message: &Message) -> Option<&'a mut Caller> {
    let Place { caller, generation } = &mut places[message.place];
    caller.as_deref_mut().filter(|_| *generation == message.generation)
}

const fn unanswered(fail: CallFail) -> State {
    match fail {
        CallFail::Drop => State::Unanswered,
        CallFail::Zero => State::Answered,
    }
}
