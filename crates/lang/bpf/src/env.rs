//! The environment of a run: everything that a program reaches besides its registers.
//!
//! JIT code, helpers and the interpreter share one [`Env`] per program. Its address stays the same while
//! the program is loaded. Only the thread that runs the program uses it.

use std::mem::offset_of;

use p4shield_abi::context::Context;

use crate::info::VmInfo;
use crate::maps::Maps;
use crate::packet::Packet;

/// Bytes of one stack frame.
pub(crate) const FRAME_SIZE: usize = 512;
/// Maximum number of active functions.
pub(crate) const MAX_FRAMES: usize = 8;
/// Bytes of the whole stack.
pub(crate) const STACK_SIZE: usize = FRAME_SIZE * MAX_FRAMES;

/// A range of addresses that a program may use.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct AddressRange {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// The stack. It is not cleared between runs: it holds what the same program wrote before.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Stack(pub(crate) [u8; STACK_SIZE]);

/// Flags of a run, one byte each: JIT code sets one with a plain store, and one store clears all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Flags {
    /// Zero, or the [`stop`] code of the reason why JIT code or a helper stopped the run.
    pub(crate) stopped: u8,
    /// The program read a field that is not known.
    pub(crate) unknown: u8,
    /// The program checked whether information is known.
    pub(crate) decided: u8,
    /// The program wrote to its packet or resized it.
    pub(crate) rewritten: u8,
}

/// Codes of [`Flags::stopped`].
pub(crate) mod stop {
    /// The instruction budget is exhausted.
    pub(crate) const BUDGET: u8 = 1;
    /// Too many functions are active.
    pub(crate) const CALL_DEPTH: u8 = 2;
}

/// The environment of a run. `repr(C)`: JIT code uses the offsets in [`offset`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Env {
    /// Remaining instruction budget, see [`crate::program::EngineOptions::budget`].
    pub(crate) budget: u64,
    /// R10 of the active function: the address after its frame.
    pub(crate) frame: u64,
    /// Events of the run.
    pub(crate) flags: Flags,
    /// In-VM information. Null for a raw program, which has no helper that reads it.
    pub(crate) info: *const VmInfo,
    /// The packet's buffer including its headroom. A store into it counts as a rewrite.
    pub(crate) buffer: AddressRange,
    /// The packet. Null for a raw program, which has no helper that uses it.
    pub(crate) packet: *mut Packet,
    /// The program's maps.
    pub(crate) maps: *mut Maps,
    /// Memory of a raw program.
    pub(crate) memory: AddressRange,
    /// State of the pseudo-random generator.
    pub(crate) random: u64,
    /// The program's argument.
    pub(crate) ctx: Context,
    /// The stack; frames grow downwards.
    pub(crate) stack: Stack,
}

/// Offsets of the fields that JIT code uses.
pub(crate) mod offset {
    use super::{Env, Flags, offset_of};

    pub(crate) const BUDGET: i32 = offset_of!(Env, budget) as i32;
    pub(crate) const FRAME: i32 = offset_of!(Env, frame) as i32;
    pub(crate) const STOPPED: i32 = (offset_of!(Env, flags) + offset_of!(Flags, stopped)) as i32;
    pub(crate) const UNKNOWN: i32 = (offset_of!(Env, flags) + offset_of!(Flags, unknown)) as i32;
    pub(crate) const DECIDED: i32 = (offset_of!(Env, flags) + offset_of!(Flags, decided)) as i32;
    pub(crate) const REWRITTEN: i32 = (offset_of!(Env, flags) + offset_of!(Flags, rewritten)) as i32;
    pub(crate) const INFO: i32 = offset_of!(Env, info) as i32;
    pub(crate) const BUFFER_BASE: i32 = offset_of!(Env, buffer) as i32;
    pub(crate) const BUFFER_LEN: i32 = BUFFER_BASE + 8;
    pub(crate) const STACK: i32 = offset_of!(Env, stack) as i32;
}

impl Env {
    /// Creates an empty environment at a fixed address.
    pub(crate) fn new(random: u64) -> Box<Self> {
        Box::new(Self {
            budget: 0,
            frame: 0,
            flags: Flags::default(),
            info: std::ptr::null(),
            buffer: AddressRange::default(),
            packet: std::ptr::null_mut(),
            maps: std::ptr::null_mut(),
            memory: AddressRange::default(),
            random: random | 1,
            ctx: Context::default(),
            stack: Stack([0; STACK_SIZE]),
        })
    }

    /// Returns the address after the first frame: R10 of the entry function.
    pub(crate) fn stack_top(this: *mut Self) -> u64 {
        // SAFETY: `this` points to an environment, and only an address is computed. The address after
        // the last byte of the array still belongs to the range of the allocation.
        let stack = unsafe { &raw mut (*this).stack };
        (stack.expose_provenance() + STACK_SIZE) as u64
    }

    /// Charges the work of a helper to the budget. Returns `false` and stops the run, if too little is left.
    pub(crate) const fn charge(&mut self, cost: u64) -> bool {
        match self.budget.checked_sub(cost) {
            Some(left) => self.budget = left,
            None => self.flags.stopped = stop::BUDGET,
        }
        self.flags.stopped == 0
    }

    /// Updates the context's packet pointers and length.
    pub(crate) fn point_at_packet(&mut self, packet: &Packet) {
        self.ctx.data = self.buffer.base + packet.start() as u64;
        self.ctx.data_end = self.ctx.data + packet.len() as u64;
        self.ctx.packet_length = packet.total();
    }
}
