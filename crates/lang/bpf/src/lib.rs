//! The eBPF engine: load, link, verify, interpret, JIT.
//!
//! ```text
//!  ELF bytes -> Object::parse -> link -> verify -> Program::load -> Program::run, packet by packet
//!               (elf)            (link)  (verify)  (maps, jit)      (Packet, Meta, VmInfo -> Outcome)
//! ```
//!
//! A program is confined more than once. [`mod@verify`] proves, before anything runs, that every memory access stays
//! within packet, context, stack and map values; only what it accepts becomes [`Verified`] and may be loaded. What
//! does not rest on that proof is enforced by the engine itself: control flow ([`check`]), the number of instructions
//! and the depth of calls ([`Stop`]), the validity of maps that helpers are given. The default of every doubt is
//! `drop`.
//!
//! Two engines execute the same decoded instructions ([`insn`]), all of RFC 9669 except the optional call by register
//! and the legacy packet access: machine code by way of Cranelift, and an interpreter that checks every access and
//! serves as the reference in tests.
//!
//! Everything here is for little-endian 64-bit Linux. A program, its maps and its packet buffer are used by one thread
//! at a time; so atomic instructions need not be atomic, and nothing is locked.

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("the engine is written for little-endian 64-bit machines");

pub mod asm;
pub mod bare;
pub mod check;
pub mod elf;
pub mod fuzz;
pub mod info;
pub mod insn;
pub mod link;
pub mod linked;
pub mod maps;
pub mod packet;
pub mod program;
pub mod stop;
pub mod verify;

mod alu;
mod budget;
mod env;
mod hashes;
mod helpers;
mod interp;
mod jit;

pub use elf::{Object, ObjectError};
pub use info::VmInfo;
pub use insn::Insn;
pub use jit::JitError;
pub use link::{LinkError, link};
pub use linked::{Linked, Verified};
pub use packet::Packet;
pub use program::{EngineOptions, LoadError, Meta, Mode, Outcome, Program};
pub use stop::Stop;
