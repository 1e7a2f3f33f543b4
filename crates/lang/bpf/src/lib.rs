//! The eBPF engine: loads, links, verifies, interprets and compiles programs.
//!
//! ```text
//!  ELF bytes -> Object::parse -> link -> verify -> Program::load -> Program::run, packet by packet
//!               (elf)            (link)  (verify)  (maps, jit)      (Packet, Meta, VmInfo -> RunResult)
//! ```
//!
//! Several layers confine a program. [`mod@verify`] proves, before anything runs, that every memory
//! access stays within the packet, the context, the stack and map values. Only a program with such a
//! proof becomes [`Verified`] and can be loaded. The engine itself enforces what does not rest on the
//! proof: control flow ([`check`]), the number of instructions and the depth of calls ([`Stop`]), and
//! the validity of maps that a program passes to helpers. On any doubt the verdict is `drop`.
//!
//! Two engines execute the same decoded instructions ([`insn`]): machine code made by Cranelift, and
//! an interpreter that checks every access and is the reference in tests. Both implement RFC 9669
//! without the optional call by register and without the legacy packet access.
//!
//! The crate supports little-endian 64-bit Linux. One thread at a time uses a program, its maps and
//! its packet buffer, so atomic instructions need no atomic access, and nothing takes a lock.
//!
//! # Modules with `unsafe`
//!
//! | module | reason |
//! |---|---|
//! | `program`, `raw` | call compiled code, and pass it raw pointers to packet, maps and memory |
//! | `env` | computes the address of the stack inside the environment that machine code uses |
//! | `helpers` | functions that machine code calls with raw pointers and addresses |
//! | `interp`, `interp::memory` | read and write the addresses of a program after a bounds check |
//! | `jit::code` | maps machine code and makes it executable |
//! | `jit::area` | addresses that a process sets aside for code |
//! | `maps`, `maps::storage` | hold map values at fixed addresses, which programs read and write |
//! | `verify::isolated` (`process`, `zygote`) | fork, and close inherited file descriptors |
//! | `linked`, `fuzz` | state and use the contract of [`Verified::assume`] |

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("the engine supports little-endian 64-bit targets only");

pub mod asm;
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
pub mod raw;
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
pub use jit::{CODE_AREA, CODE_STARTS, JitError, MAX_CODE, reserve_code_area};
pub use link::{LinkError, link};
pub use linked::{Linked, Verified};
pub use packet::Packet;
pub use program::{EngineOptions, Entry, LoadError, Meta, Mode, Program, RunResult};
pub use stop::Stop;
