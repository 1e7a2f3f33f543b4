//! The compartment of the tests: answers messages of the generated programs' functions with effects.

use p4shield_abi::call::{FUNCTION, LENGTH, MEMORY, NUMBERS, RESULT};
use p4shield_bpf::{Entry, Meta};
use p4shield_traffic::Ready;
use std::collections::VecDeque;

/// A packet that waits for an answer.
#[derive(Debug)]
pub(super) struct Call {
    entry: Entry,
    bytes: Vec<u8>,
    block: Vec<u8>,
    runs: usize,
}

impl Call {
    pub(super) fn ready<'a>(&'a self, meta: &'a Meta) -> Ready<'a> {
        Ready { entry: self.entry, bytes: &self.bytes, block: &self.block, meta, runs: self.runs }
    }
}

/// The packets that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<Call>);

impl Calls {
    pub(super) fn add(&mut self, ready: &Ready<'_>) {
        let (entry, runs) = (ready.entry, ready.runs);
        self.0.push_back(Call { entry, bytes: ready.bytes.to_vec(), block: ready.block.to_vec(), runs });
    }

    /// Returns the first packet with its answer.
    pub(super) fn answered(&mut self, functions: &[String]) -> Option<Call> {
        let mut call = self.0.pop_front()?;
        answer(&mut call.block, functions);
        Some(call)
    }
}

/// Does what a function of `generate::effects` does.
fn answer(message: &mut [u8], functions: &[String]) {
    let number = |m: &[u8], at: usize| u32::from_le_bytes(m[at..at + 4].try_into().expect("four bytes"));
    let length = number(message, LENGTH) as usize;
    assert!(length >= MEMORY && length <= message.len(), "{length}");
    let name = &functions[number(message, FUNCTION) as usize];
    let by = message[NUMBERS + 8];
    let second = MEMORY + 8;
    match name.as_str() {
        "step" => {
            message[MEMORY] = message[MEMORY].wrapping_mul(5).wrapping_add(1);
            message[RESULT] = message[MEMORY];
        }
        "mix" => {
            message[second] = message[MEMORY];
            message[MEMORY] = message[MEMORY].wrapping_add(by);
            message[RESULT] = message[MEMORY] ^ (by << 1);
        }
        "swap" => {
            let first = message[MEMORY];
            message[MEMORY] = message[second].wrapping_add(1);
            message[second] = first;
        }
        "touch" => {
            message[MEMORY] = message[MEMORY].wrapping_add(by);
            message[RESULT] = message[MEMORY];
        }
        "fill" => (message[MEMORY], message[MEMORY + 1]) = (by, 1),
        other => panic!("a call of {other}"),
    }
    // What a hostile compartment adds has no effect: bits above a result's width.
    message[RESULT + 1..NUMBERS].fill(0xee);
}
