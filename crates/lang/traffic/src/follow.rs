//! The runs that follow one that asked for something.

use crate::groups::{Copy, Groups};
use crate::job::{Job, Jobs};
use crate::sessions::Sessions;
use p4shield_abi::Verdict;
use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::division::{MAX_BLOCK_SIZE, argument, destination, entry, request};
use p4shield_bpf::{Entry, Meta, Packet, Program, RunResult, VmInfo};

/// Most runs that one packet causes behind its first. A group has at most [`crate::MAX_COPIES`] members, so
/// each of them gets its copy.
pub const MAX_RUNS: usize = 8192;

/// The reason why a packet, or a copy of one, gets no further run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The multicast group does not exist, or has no members.
    NoGroup,
    /// The clone session does not exist.
    NoSession,
    /// The packet caused [`MAX_RUNS`] runs, or more copies wait at a time than there are buffers.
    Budget,
    /// The program made it longer than a packet that arrives may be ([`MAX_HEADER_BYTES`]), and lets it start
    /// again.
    TooLong,
    /// The program calls a function in a compartment, and there is none.
    Call,
}

/// An act of the traffic manager, after which a packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It went to a multicast group: it counts as its copies from here.
    Replicated,
    /// A copy was made of it.
    Copied,
    /// It starts again, as it arrived.
    Resubmitted,
    /// It starts again, as it would have left.
    Recirculated,
}

/// The fate of packets. Each packet, and each copy, is ended, lost or replicated.
pub trait Outcome {
    /// A run ended: the packet leaves or is dropped, as the result says.
    fn end(&mut self, packet: &Packet, result: &RunResult);
    /// A packet or a copy is lost.
    fn lose(&mut self, reason: Loss);
    /// Takes a packet that has to wait, or counts it as lost because its queue is full. Returns false if it
    /// need not wait. [`Traffic::resume`] goes on with it later.
    fn hold(&mut self, _ready: Ready<'_>) -> bool {
        false
    }
    /// Takes a packet whose program calls a function in a compartment ([`p4shield_abi::call`]), or counts it
    /// as lost because too many wait. `block` is the value with the message. Returns false if there is no
    /// compartment. [`Traffic::answer`] goes on with it.
    fn call(&mut self, _ready: Ready<'_>) -> bool {
        false
    }
    /// Something else happened.
    fn note(&mut self, event: Event);
    /// A run ended; what becomes of its packet is told afterwards.
    fn ran(&mut self, _program: &mut Program) {}
}

/// A packet that could start at egress now, but may wait in the queue of its port.
#[derive(Clone, Copy, Debug)]
pub struct Ready<'a> {
    /// Where its run starts, with its port.
    pub entry: Entry,
    /// The packet.
    pub bytes: &'a [u8],
    /// The program's block.
    pub block: &'a [u8],
    /// How the packet arrived.
    pub meta: &'a Meta,
    /// Runs that may still follow.
    pub runs: usize,
}

/// A program with the packet that it processes.
pub struct Run<'a> {
    /// The program.
    pub program: &'a mut Program,
    /// The buffer of its runs.
    pub packet: &'a mut Packet,
    /// How the packet arrived.
    pub meta: &'a Meta,
    /// In-VM information.
    pub info: &'a VmInfo,
}

/// A traffic manager: groups, sessions, and the packets that wait for a run.
#[derive(Debug)]
pub struct Traffic {
    /// Multicast groups.
    pub groups: Groups,
    /// Clone sessions.
    pub sessions: Sessions,
    /// True if packets may wait in queues between the parts of the program.
    pub queues: bool,
    jobs: Jobs,
    block: Vec<u8>,
    /// Message and kept values of a call.
    call: Vec<u8>,
    runs: usize,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new()
    }
}

impl Traffic {
    /// Makes a traffic manager without groups and sessions.
    #[must_use]
    pub fn new() -> Self {
        Self {
            groups: Groups::default(),
            sessions: Sessions::default(),
            queues: false,
            jobs: Jobs::new(),
            block: Vec::with_capacity(MAX_BLOCK_SIZE),
            call: Vec::with_capacity(MAX_BLOCK_SIZE),
            runs: 0,
        }
    }

    /// Returns whether a run asked for something, so that [`Traffic::follow`] goes on.
    #[must_use]
    pub const fn asks(result: &RunResult) -> bool {
        result.output_action & request::ALL != 0
    }

    /// Does what the last run of the program, which started at `from`, asked for: `result` is its result,
    /// `run.packet` is as the run left it, and `arrived` as it was before.
    pub fn follow(
        &mut self,
        run: &mut Run<'_>,
        from: Entry,
        arrived: &[u8],
        result: &RunResult,
        outcome: &mut impl Outcome,
    ) {
        self.runs = MAX_RUNS;
        self.after(run, from, arrived, result, outcome);
        self.run_jobs(run, outcome);
    }

    /// Goes on with a packet that has waited ([`Outcome::hold`]). So a loop through a queue ends, too.
    pub fn resume(&mut self, run: &mut Run<'_>, waited: Ready<'_>, outcome: &mut impl Outcome) {
        self.runs = waited.runs;
        self.run_from(run, waited.entry, waited.bytes, waited.block, outcome);
        self.run_jobs(run, outcome);
    }

    /// Goes on with a packet behind its call ([`Outcome::call`]); its block has the answer.
    pub fn answer(&mut self, run: &mut Run<'_>, answered: Ready<'_>, outcome: &mut impl Outcome) {
        let Some(rest) = answered.runs.checked_sub(1) else { return outcome.lose(Loss::Budget) };
        self.runs = rest;
        run.program.write_call(answered.block);
        self.run_packet(run, answered.entry, answered.bytes, outcome);
        self.run_jobs(run, outcome);
    }

    fn run_jobs(&mut self, run: &mut Run<'_>, outcome: &mut impl Outcome) {
        while let Some(job) = self.jobs.pop() {
            self.run_job(run, &job, outcome);
            self.jobs.done(job);
        }
    }

    fn run_job(&mut self, run: &mut Run<'_>, job: &Job, outcome: &mut impl Outcome) {
        let Some(group) = job.group else { return self.run_once(run, job, job.entry, outcome) };
        let copies = self.groups.copies(group.into()).len();
        if copies == 0 {
            return outcome.lose(Loss::NoGroup);
        }
        outcome.note(Event::Replicated);
        for n in 0..copies {
            let Copy { port, replica } = self.groups.copies(group.into())[n];
            outcome.note(Event::Copied);
            self.run_once(run, job, Entry { port, replica, ..job.entry }, outcome);
        }
    }

    fn run_once(&mut self, run: &mut Run<'_>, job: &Job, from: Entry, outcome: &mut impl Outcome) {
        let Some(rest) = self.runs.checked_sub(1) else { return outcome.lose(Loss::Budget) };
        self.runs = rest;
        let runs = self.runs;
        let ready = Ready { entry: from, bytes: &job.bytes, block: &job.block, meta: run.meta, runs };
        let at_egress = (entry::UNICAST..=entry::CLONE).contains(&from.number);
        if self.queues && at_egress && outcome.hold(ready) {
            return;
        }
        self.run_from(run, from, &job.bytes, &job.block, outcome);
    }

    fn run_from(
        &mut self,
        run: &mut Run<'_>,
        from: Entry,
        bytes: &[u8],
        block: &[u8],
        outcome: &mut impl Outcome,
    ) {
        run.program.write_block(block);
        self.run_packet(run, from, bytes, outcome);
    }

    fn run_packet(&mut self, run: &mut Run<'_>, from: Entry, bytes: &[u8], outcome: &mut impl Outcome) {
        run.packet.reset(bytes, bytes.len() as u32);
        let result = run.program.run_from(from, run.packet, run.meta, run.info);
        self.after(run, from, bytes, &result, outcome);
    }

    /// Does what a run asked for, or ends its packet.
    fn after(
        &mut self,
        run: &mut Run<'_>,
        from: Entry,
        arrived: &[u8],
        result: &RunResult,
        outcome: &mut impl Outcome,
    ) {
        outcome.ran(run.program);
        let asked = result.output_action & request::ALL;
        if asked == 0 || result.stopped.is_some() {
            return outcome.end(run.packet, result);
        }
        if asked & request::CALL != 0 {
            run.program.read_call(&mut self.call);
            let number = entry::answer(from.number, result.output_port);
            let (runs, block) = (self.runs, self.call.as_slice());
            let ready =
                Ready { entry: Entry { number, ..from }, bytes: arrived, block, meta: run.meta, runs };
            if !outcome.call(ready) {
                outcome.lose(Loss::Call);
            }
            return;
        }
        run.program.read_block(&mut self.block);
        if asked & request::CLONE != 0 {
            self.clone_packet(argument::CLONE_SESSION, entry::CLONE, arrived, outcome);
        }
        if asked & request::CLONE_EGRESS != 0 {
            self.clone_packet(argument::CLONE_EGRESS_SESSION, entry::CLONE_EGRESS, arrived, outcome);
        }
        let queued = if self.queues { entry::QUEUED } else { 0 };
        let (_, priority) = destination(result.output_port);
        let from = |number| Entry { number, priority, ..Entry::default() };
        if asked & request::RESUBMIT != 0 {
            outcome.note(Event::Resubmitted);
            self.wait(from(entry::RESUBMIT | queued), None, arrived, outcome);
        } else if asked & request::GROUP != 0 {
            let group = self.argument(argument::GROUP) as u16;
            self.wait(from(entry::REPLICA), Some(group), arrived, outcome);
        } else if asked & request::PORT != 0 {
            let port = self.argument(argument::PORT) as u16;
            self.wait(Entry { port, ..from(entry::UNICAST) }, None, arrived, outcome);
        } else if asked & request::RECIRCULATE != 0 && result.verdict == Verdict::Pass {
            let bytes = run.packet.bytes();
            let bytes = &bytes[..bytes.len().min(result.total as usize)];
            if bytes.len() > MAX_HEADER_BYTES as usize {
                // A buffer would not hold its end.
                return outcome.lose(Loss::TooLong);
            }
            outcome.note(Event::Recirculated);
            self.wait(from(entry::RECIRCULATE | queued), None, bytes, outcome);
        } else {
            outcome.end(run.packet, result);
        }
    }

    /// Makes the clones of a session.
    fn clone_packet(&mut self, session: usize, entry: u32, arrived: &[u8], outcome: &mut impl Outcome) {
        let Some(session) = self.sessions.get(self.argument(session)) else {
            outcome.note(Event::Copied);
            return outcome.lose(Loss::NoSession);
        };
        let from = Entry { number: entry, ..Entry::default() };
        if let Some(group) = session.group {
            outcome.note(Event::Copied);
            self.wait(from, Some(group), arrived, outcome);
        }
        if let Some(port) = session.port {
            outcome.note(Event::Copied);
            self.wait(Entry { port, ..from }, None, arrived, outcome);
        }
    }

    fn wait(&mut self, from: Entry, group: Option<u16>, bytes: &[u8], outcome: &mut impl Outcome) {
        if !self.jobs.push(from, group, bytes, &self.block) {
            outcome.lose(Loss::Budget);
        }
    }

    /// Returns an argument of the request; 0 if the program has no block.
    fn argument(&self, at: usize) -> u32 {
        self.block.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    }
}
