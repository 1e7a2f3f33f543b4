//! What a running program reaches besides its registers: the environment of a run.
//!
//! JIT code, helpers and the interpreter all work on one [`Env`] a program, whose address does not change while the
//! program is loaded. Everything in it belongs to the one thread that runs the program.

use std::mem::offset_of;

use p4shield_abi::context::Context;

use crate::info::VmInfo;
use crate::maps::Maps;
use crate::packet::Packet;

/// Bytes of stack of one function.
pub(crate) const FRAME_SIZE: usize = 512;
/// Functions that may be active at once.
pub(crate) const MAX_FRAMES: usize = 8;
/// Bytes of stack in all.
pub(crate) const STACK_SIZE: usize = FRAME_SIZE * MAX_FRAMES;

/// A range of addresses that a program may use.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// The stack, aligned as a program may expect. It is not cleared between runs: what it holds was left by the same
/// program.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Stack(pub(crate) [u8; STACK_SIZE]);

/// One byte each, so that JIT code sets them with a plain store and all of them are cleared at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Flags {
    /// Why JIT code stopped: 0, or a [`stop`] code.
    pub(crate) stopped: u8,
    /// The program read a field that is not known.
    pub(crate) unknown: u8,
    /// The program asked whether information is known.
    pub(crate) decided: u8,
    /// The program stored into its packet, or resized it.
    pub(crate) rewritten: u8,
}

/// Codes of [`Flags::stopped`].
pub(crate) mod stop {
    /// The budget is used up.
    pub(crate) const BUDGET: u8 = 1;
    /// Too many functions are active.
    pub(crate) const CALL_DEPTH: u8 = 2;
}

/// The environment of a run. `repr(C)`: JIT code uses the offsets in [`offset`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Env {
    /// Instructions that may still be charged, see [`crate::program::EngineOptions::budget`].
    pub(crate) budget: u64,
    /// R10 of the active function: the address behind its frame.
    pub(crate) frame: u64,
    /// What happened during the run.
    pub(crate) flags: Flags,
    /// In-VM information. Null in a bare machine, which has no helper that reads it.
    pub(crate) info: *const VmInfo,
    /// The packet's buffer with its head room: stores into it mean a rewrite.
    pub(crate) buffer: Span,
    /// The packet. Null in a bare machine, which has no helper that uses it.
    pub(crate) packet: *mut Packet,
    /// The program's maps.
    pub(crate) maps: *mut Maps,
    /// Memory that a bare machine's caller hands over.
    pub(crate) memory: Span,
    /// State of the pseudo-random numbers.
    pub(crate) random: u64,
    /// The program's argument.
    pub(crate) ctx: Context,
    /// The stack, frames from the top down.
    pub(crate) stack: Stack,
}

/// Offsets of fields that JIT code uses.
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
    /// An environment with nothing in it, at an address that stays.
    pub(crate) fn new(random: u64) -> Box<Self> {
        Box::new(Self {
            budget: 0,
            frame: 0,
            flags: Flags::default(),
            info: std::ptr::null(),
            buffer: Span::default(),
            packet: std::ptr::null_mut(),
            maps: std::ptr::null_mut(),
            memory: Span::default(),
            random: random | 1,
            ctx: Context::default(),
            stack: Stack([0; STACK_SIZE]),
        })
    }

    /// The address behind the first frame: R10 of the entry program.
    pub(crate) fn stack_top(this: *mut Self) -> u64 {
        // SAFETY: `this` points to an environment; only an address is computed. The address is behind the last byte
        // of the array, which is still part of the allocation's range.
        let stack = unsafe { &raw mut (*this).stack };
        (stack.expose_provenance() + STACK_SIZE) as u64
    }

    /// Points the context at the packet as it is now.
    pub(crate) fn show_packet(&mut self, packet: &Packet) {
        self.ctx.data = self.buffer.base + packet.start() as u64;
        self.ctx.data_end = self.ctx.data + packet.len() as u64;
        self.ctx.packet_length = packet.total();
    }
}
