//! The exported function table: each function turns its C arguments into a call of
//! [`p4shield_runtime::inline`].
//!
//! A panic ends at this boundary: the packet is dropped, or the request fails.

use p4shield_abi::channel::{Geometry, Request as PacketRequest};
use p4shield_abi::inline::{Batch, Engine, Message, PASS, Programs, REWRITTEN, ReplySink, Response, Table};
use p4shield_abi::inline::{VERSION, Work};
use p4shield_control::{Delivered, Envelope, Reply, Request, decode, encode};
use p4shield_runtime::inline::{InlineGuard, InlineHandle, InlinePrograms};
use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

static TABLE: Table = Table {
    version: VERSION,
    create,
    execute,
    maintain,
    destroy,
    engine,
    clone_engine,
    destroy_engine,
    run,
    judge,
};

// The interface lets programs and engines move between threads.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<InlinePrograms>();
    is_send::<InlineHandle>();
};

/// Returns the table; see [`p4shield_abi::inline::Entry`].
#[unsafe(no_mangle)]
pub extern "C" fn p4shield_inline_table() -> *const Table {
    &raw const TABLE
}

/// Runs `work`; returns `None` if it panics.
fn contain<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Takes over a message: its bytes decoded, its descriptors owned.
///
/// # Safety
/// The message is valid, and its descriptors are the caller's to give away.
unsafe fn take(message: *const Message) -> (Result<Request, String>, Delivered) {
    // SAFETY: the caller's contract; a count of 0 may come with a dangling pointer, which is
    // aligned and not null.
    let (bytes, numbers) = unsafe {
        let message = &*message;
        (
            slice::from_raw_parts(message.bytes, message.len),
            slice::from_raw_parts(message.descriptors, message.descriptor_count),
        )
    };
    // SAFETY: the caller gives the descriptors away.
    let descriptors: Vec<_> = numbers.iter().map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
    (decode(bytes).map(|e: Envelope<Request>| e.body).map_err(|e| e.to_string()), descriptors.into())
}

/// Sends the reply to the switch library.
///
/// # Safety
/// The sink is valid.
unsafe fn send(sink: *const ReplySink, reply: Reply) {
    let bytes = encode(&Envelope { id: 0, body: reply })
        .or_else(|e| encode(&Envelope { id: 0, body: Reply::Failed(e.to_string()) }))
        .unwrap_or_default();
    // SAFETY: the caller's contract; the callback copies the bytes.
    unsafe { ((*sink).receive)((*sink).context, bytes.as_ptr(), bytes.len()) };
}

unsafe extern "C" fn create(
    geometry: Geometry,
    message: *const Message,
    sink: *const ReplySink,
) -> *mut Programs {
    let made = contain(|| {
        // SAFETY: the interface's contract.
        let (request, _) = unsafe { take(message) };
        let programs = match request {
            Ok(Request::Hello(hello)) => InlinePrograms::new(&hello, geometry),
            Ok(_) => Err("the first message has to be Hello".to_owned()),
            Err(why) => Err(why),
        };
        let (reply, programs) = match programs {
            Ok(programs) => (InlinePrograms::greeting(), Box::into_raw(Box::new(programs))),
            Err(why) => (Reply::Failed(why), ptr::null_mut()),
        };
        // SAFETY: the interface's contract.
        unsafe { send(sink, reply) };
        programs.cast()
    });
    made.unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn execute(
    programs: *mut Programs,
    approved: *const [u8; 32],
    message: *const Message,
    sink: *const ReplySink,
) {
    contain(|| {
        // SAFETY: `create` made the programs, and one thread at a time uses them; the digest is
        // null or valid.
        let (programs, approved) = unsafe { (&mut *programs.cast::<InlinePrograms>(), approved.as_ref()) };
        // SAFETY: the interface's contract.
        let (request, descriptors) = unsafe { take(message) };
        let reply = match request {
            Ok(request) => programs.handle(request, approved.copied(), descriptors),
            Err(why) => Reply::Failed(why),
        };
        // SAFETY: the interface's contract.
        unsafe { send(sink, reply) };
    });
}

unsafe extern "C" fn maintain(programs: *mut Programs) {
    // SAFETY: `create` made the programs.
    contain(|| unsafe { &*programs.cast::<InlinePrograms>() }.maintain());
}

unsafe extern "C" fn destroy(programs: *mut Programs) {
    // SAFETY: `create` made the programs, and the caller does not use them again.
    contain(|| drop(unsafe { Box::from_raw(programs.cast::<InlinePrograms>()) }));
}

unsafe extern "C" fn engine(programs: *mut Programs) -> *mut Engine {
    // SAFETY: `create` made the programs, and one thread at a time uses them.
    let handle = contain(|| Box::new(unsafe { &mut *programs.cast::<InlinePrograms>() }.engine()));
    handle.map_or(ptr::null_mut(), |h| Box::into_raw(h).cast())
}

unsafe extern "C" fn clone_engine(engine: *const Engine) -> *mut Engine {
    // SAFETY: `engine` or this function made the engine.
    let handle = contain(|| Box::new(unsafe { &*engine.cast::<InlineHandle>() }.another()));
    handle.map_or(ptr::null_mut(), |h| Box::into_raw(h).cast())
}

unsafe extern "C" fn destroy_engine(engine: *mut Engine) {
    // SAFETY: `engine` or `clone_engine` made the engine, and the caller does not use it again.
    contain(|| drop(unsafe { Box::from_raw(engine.cast::<InlineHandle>()) }));
}

unsafe extern "C" fn run(engine: *mut Engine, context: *mut c_void, work: Work) -> bool {
    // SAFETY: `engine` or `clone_engine` made the engine, and one thread at a time uses it.
    let handle = unsafe { &mut *engine.cast::<InlineHandle>() };
    let ran = contain(|| {
        handle.run(|guard| {
            let header_bytes = guard.header_bytes();
            // SAFETY: the interface's contract: `work` uses the batch before it returns, and does not unwind.
            unsafe { work(context, ptr::from_mut(guard).cast(), header_bytes) }
        })
    });
    ran.unwrap_or(false)
}

unsafe extern "C" fn judge(
    batch: *mut Batch,
    request: *const PacketRequest,
    header: *const u8,
    header_len: usize,
    response: *mut Response,
) {
    use p4shield_channel::Response as Verdict;
    let verdict = contain(|| {
        // SAFETY: `run` passed the batch, which is borrowed until `work` returns; the rest is the
        // interface's contract.
        let (guard, request, header) = unsafe {
            (&mut *batch.cast::<InlineGuard<'_>>(), &*request, slice::from_raw_parts(header, header_len))
        };
        match guard.judge(request, header) {
            Verdict::Drop => Response::DROP,
            Verdict::Pass => Response { verdict: PASS, ..Response::DROP },
            Verdict::Rewritten { header, packet_len } => {
                Response { verdict: REWRITTEN, packet_len, header: header.as_ptr(), header_len: header.len() }
            }
        }
    });
    // SAFETY: the interface's contract.
    unsafe { *response = verdict.unwrap_or(Response::DROP) };
}
