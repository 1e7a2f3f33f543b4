//! C interface of `libp4shield_inline.so`, which runs programs of placement `inline` inside a switch.
//!
//! The preloaded library opens `libp4shield_inline.so` only when the configuration has `placement =
//! "inline"`, and calls it through one [`Table`]. No Rust type crosses the interface: both libraries carry a
//! standard library of their own. Control messages cross as bytes in the encoding of `p4shield_control`.
//!
//! No function of the table unwinds. The callbacks that the switch library passes must not unwind either.

use crate::channel::{Geometry, Request};
use core::ffi::{CStr, c_int, c_void};

/// Version of this interface. Every change of [`Table`] or of a type in it changes the version.
pub const VERSION: u32 = 1;
/// File name of the library.
pub const LIBRARY: &str = "libp4shield_inline.so";
/// Name of the exported [`Entry`].
pub const ENTRY: &CStr = c"p4shield_inline_table";

/// Exported function: returns the table, which lives as long as the library is loaded.
pub type Entry = unsafe extern "C" fn() -> *const Table;

/// Programs of one tenant.
#[derive(Debug)]
#[repr(C)]
pub struct Programs {
    opaque: [u8; 0],
}

/// Access of one thread to the programs of a tenant.
#[derive(Debug)]
#[repr(C)]
pub struct Engine {
    opaque: [u8; 0],
}

/// Exclusive access to the programs of a tenant, for the time of one [`Table::run`].
#[derive(Debug)]
#[repr(C)]
pub struct Batch {
    opaque: [u8; 0],
}

/// A control message to the library. The library takes over its descriptors.
#[derive(Debug)]
#[repr(C)]
pub struct Message {
    /// The encoded request.
    pub bytes: *const u8,
    /// Bytes of the request.
    pub len: usize,
    /// The descriptors.
    pub descriptors: *const c_int,
    /// Number of descriptors.
    pub descriptor_count: usize,
}

/// Receiver of the reply to a control message.
#[derive(Debug)]
#[repr(C)]
pub struct ReplySink {
    /// First argument of `receive`.
    pub context: *mut c_void,
    /// Takes a copy of the encoded reply. The library calls it once, or not at all if it panics.
    pub receive: unsafe extern "C" fn(context: *mut c_void, bytes: *const u8, len: usize),
}

/// Callback of [`Table::run`]. Arguments: its context, the batch, and the most header bytes of a packet that
/// a program reads or replaces.
pub type Work = unsafe extern "C" fn(context: *mut c_void, batch: *mut Batch, header_bytes: usize);

/// Verdict on one packet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Response {
    /// [`DROP`], [`PASS`] or [`REWRITTEN`]; any other value is a drop.
    pub verdict: u32,
    /// Bytes of the whole packet after a rewrite.
    pub packet_len: u32,
    /// The rewritten header, valid until the batch's next call.
    pub header: *const u8,
    /// Bytes of the rewritten header.
    pub header_len: usize,
}

/// Verdict: the packet is dropped.
pub const DROP: u32 = 0;
/// Verdict: the packet passes unchanged.
pub const PASS: u32 = 1;
/// Verdict: the packet passes with a rewritten header.
pub const REWRITTEN: u32 = 2;

impl Response {
    /// A drop.
    pub const DROP: Self = Self { verdict: DROP, packet_len: 0, header: core::ptr::null(), header_len: 0 };
}

/// The library's functions.
///
/// Every pointer argument is valid for the call and not null, unless the function says otherwise. The
/// functions on [`Programs`] are called by one thread at a time; those on an [`Engine`] likewise.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// [`VERSION`]. The first field of every version.
    pub version: u32,
    /// Creates a tenant's programs from a `Hello` message. Returns null on failure; the reply has the reason.
    pub create: unsafe extern "C" fn(Geometry, *const Message, *const ReplySink) -> *mut Programs,
    /// Executes a request. The second argument is the SHA-256 digest that a loaded program must have, or
    /// null.
    pub execute: unsafe extern "C" fn(*mut Programs, *const [u8; 32], *const Message, *const ReplySink),
    /// Reads new in-VM information and publishes logs, unless a batch is in progress.
    pub maintain: unsafe extern "C" fn(*mut Programs),
    /// Publishes the last log records and destroys the programs. Their engines stay valid.
    pub destroy: unsafe extern "C" fn(*mut Programs),
    /// Creates an engine. Returns null on failure.
    pub engine: unsafe extern "C" fn(*mut Programs) -> *mut Engine,
    /// Creates another engine for the same programs. Returns null on failure.
    pub clone_engine: unsafe extern "C" fn(*const Engine) -> *mut Engine,
    /// Destroys an engine.
    pub destroy_engine: unsafe extern "C" fn(*mut Engine),
    /// Acquires the programs, calls `work` with the context, and returns true. Returns false, without a call,
    /// if another thread uses the programs.
    pub run: unsafe extern "C" fn(*mut Engine, context: *mut c_void, work: Work) -> bool,
    /// Judges a packet that begins with the header of the given length.
    pub judge: unsafe extern "C" fn(*mut Batch, *const Request, *const u8, usize, *mut Response),
}
