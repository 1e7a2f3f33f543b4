//! The functions of a program that run in a compartment: here, in a program of their own on the same engine,
//! which answers at once.

use p4shield_abi::call::{MAX_MESSAGE, message, take_answer};
use p4shield_bpf::{Entry, Meta, Packet, Program, VmInfo};
use p4shield_traffic::Ready;
use std::collections::VecDeque;

/// A packet that waits for an answer.
pub(crate) struct Call {
    entry: Entry,
    bytes: Vec<u8>,
    block: Vec<u8>,
    runs: usize,
}

impl Call {
    pub(crate) fn of(ready: &Ready<'_>) -> Self {
        let Ready { entry, bytes, block, runs, .. } = *ready;
        Self { entry, bytes: bytes.to_vec(), block: block.to_vec(), runs }
    }

    /// Returns the packet for its next run.
    pub(crate) fn ready<'a>(&'a self, meta: &'a Meta) -> Ready<'a> {
        Ready { entry: self.entry, bytes: &self.bytes, block: &self.block, meta, runs: self.runs }
    }
}

/// The packets that wait, in their order.
pub(crate) type Calls = VecDeque<Call>;

/// The compartment's program.
pub(crate) struct Compartment {
    program: Program,
    packet: Packet,
}

impl Compartment {
    pub(crate) fn new(program: Program) -> Self {
        Self { program, packet: Packet::with_minimum(0, MAX_MESSAGE, 0) }
    }

    /// Answers a call. Returns false if the program did not.
    pub(crate) fn answer(&mut self, call: &mut Call, info: &VmInfo) -> bool {
        let Some(message) = message(&call.block) else { return false };
        self.packet.reset(message, message.len() as u32);
        let result = self.program.run(&mut self.packet, &Meta::default(), info);
        // A P4 VM sends no packet back that its program did not write to.
        let passes = result.verdict == p4shield_abi::Verdict::Pass && result.rewritten;
        passes && take_answer(&mut call.block, self.packet.bytes())
    }
}
