//! `libp4shield_inline.so` as the switch library uses it: loading, and safe calls of its function table.
//!
//! The interface is [`p4shield_abi::inline`]; the other side is the crate `p4shield-attach-inline`.

use p4shield_abi::channel::{Geometry, Request as PacketRequest};
use p4shield_abi::inline::{
    self as abi, Batch, ENTRY, Engine, Entry, LIBRARY, Message, Programs, ReplySink, Table, VERSION,
};
use p4shield_channel::Response;
use p4shield_control::{Envelope, Reply, Request, decode, encode};
use p4shield_mediator::{InlineBatch, InlineEngine};
use std::any::Any;
use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::{ptr, slice};

/// Reason why `libp4shield_inline.so` is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The path of the preloaded library is unknown or relative.
    #[error("cannot find {LIBRARY}: the path of this library is {0:?}; preload it by its absolute path")]
    Path(PathBuf),
    /// The library is missing, or the system cannot load it.
    #[error(
        "placement = \"inline\" needs {}, which cannot be loaded ({why}); install it from the same package \
         as this library, or write placement = \"p4vm\"",
        path.display()
    )]
    Load {
        /// The expected file.
        path: PathBuf,
        /// Reason that the dynamic linker reports.
        why: String,
    },
    /// The library belongs to another version of P4 Shield.
    #[error(
        "{} has interface version {found}, and this library needs {VERSION}; install both from one package, \
         then restart the switch",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of its interface.
        found: u32,
    },
}

/// The loaded library. It stays loaded for the life of the process, because a polling thread may
/// run its code at any time.
#[derive(Clone, Copy, Debug)]
pub struct InlineLibrary(&'static Table);

impl InlineLibrary {
    /// Loads the library from the folder of the library that this code is in. Loading it again is cheap.
    ///
    /// # Errors
    /// The library is missing, damaged or of another version.
    pub fn load() -> Result<Self, LoadError> {
        let path = own_path()?.with_file_name(LIBRARY);
        let failed = |why| LoadError::Load { path: path.clone(), why };
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| failed(e.to_string()))?;
        // SAFETY: a valid name. The library's constructors are those of Rust's standard library.
        let handle =
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
        // SAFETY: a handle that is not null is valid, and so is the name.
        let entry = NonNull::new(handle)
            .and_then(|h| NonNull::new(unsafe { libc::dlsym(h.as_ptr(), ENTRY.as_ptr()) }));
        let entry = entry.ok_or_else(|| failed(dynamic_linker_error()))?;
        // SAFETY: the symbol of this name is a function of this type in every version.
        let table = unsafe { std::mem::transmute::<*mut c_void, Entry>(entry.as_ptr())() };
        // SAFETY: the table starts with its version in every version, and is never unloaded.
        let found = unsafe { table.cast::<u32>().read() };
        if found != VERSION {
            return Err(LoadError::Version { path, found });
        }
        // SAFETY: a table of this version has this layout, and is never unloaded.
        Ok(Self(unsafe { &*table }))
    }

    /// Creates a tenant's programs with the daemon's `Hello`. Returns no programs if the reply is a failure.
    #[must_use]
    pub fn create(
        self,
        geometry: Geometry,
        hello: Request,
        descriptors: Vec<OwnedFd>,
    ) -> (Option<LoadedPrograms>, Reply) {
        let mut programs = ptr::null_mut();
        let reply = call(hello, descriptors, |message, sink| {
            // SAFETY: both are valid for the call.
            programs = unsafe { (self.0.create)(geometry, message, sink) };
        });
        (NonNull::new(programs).map(|raw| LoadedPrograms { table: self.0, raw }), reply)
    }
}

/// Returns the file that this code is in.
fn own_path() -> Result<PathBuf, LoadError> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: any address may be asked about; `info` is ours to write.
    let known = unsafe { libc::dladdr(own_path as *const c_void, &raw mut info) } != 0;
    if !known || info.dli_fname.is_null() {
        return Err(LoadError::Path(PathBuf::new()));
    }
    // SAFETY: the dynamic linker's own string, which lives as long as this code is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    // A relative path means another file once the switch changes its working directory.
    if path.is_absolute() { Ok(path.to_owned()) } else { Err(LoadError::Path(path.to_owned())) }
}

fn dynamic_linker_error() -> String {
    // SAFETY: returns null or a string of this thread that lives until its next call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown reason".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Sends a request through `f` and returns the reply.
fn call(
    request: Request,
    descriptors: Vec<OwnedFd>,
    f: impl FnOnce(*const Message, *const ReplySink),
) -> Reply {
    let bytes = match encode(&Envelope { id: 0, body: request }) {
        Ok(bytes) => bytes,
        Err(e) => return Reply::Failed(e.to_string()),
    };
    let descriptors: Vec<c_int> = descriptors.into_iter().map(IntoRawFd::into_raw_fd).collect();
    let message = Message {
        bytes: bytes.as_ptr(),
        len: bytes.len(),
        descriptors: descriptors.as_ptr(),
        descriptor_count: descriptors.len(),
    };
    let mut reply = Vec::new();
    let sink = ReplySink { context: (&raw mut reply).cast(), receive: copy_reply };
    f(&raw const message, &raw const sink);
    match decode::<Reply>(&reply) {
        Ok(envelope) => envelope.body,
        Err(_) => Reply::Failed(format!("{LIBRARY} failed; see the switch's standard error")),
    }
}

unsafe extern "C" fn copy_reply(context: *mut c_void, bytes: *const u8, len: usize) {
    // SAFETY: `call` made the context, and waits for this call; the library passes valid bytes.
    unsafe { (*context.cast::<Vec<u8>>()).extend_from_slice(slice::from_raw_parts(bytes, len)) };
}

/// Programs of one tenant inside the library.
#[derive(Debug)]
pub struct LoadedPrograms {
    table: &'static Table,
    raw: NonNull<Programs>,
}

// SAFETY: the interface lets programs move between threads.
unsafe impl Send for LoadedPrograms {}

impl LoadedPrograms {
    /// Executes a request; a program that is loaded must have the digest `approved`.
    pub fn execute(
        &mut self,
        request: Request,
        approved: Option<[u8; 32]>,
        descriptors: Vec<OwnedFd>,
    ) -> Reply {
        let approved = approved.as_ref().map_or(ptr::null(), ptr::from_ref);
        call(request, descriptors, |message, sink| {
            // SAFETY: the programs live as long as this value, which is borrowed alone; the rest is
            // valid for the call.
            unsafe { (self.table.execute)(self.raw.as_ptr(), approved, message, sink) }
        })
    }

    /// Reads new in-VM information and publishes logs, unless a lane uses the programs.
    pub fn maintain(&self) {
        // SAFETY: the programs live as long as this value, which one thread at a time uses: it is not `Sync`.
        unsafe { (self.table.maintain)(self.raw.as_ptr()) }
    }

    /// Creates an engine; `None` if the library fails.
    pub fn engine(&mut self) -> Option<LoadedEngine> {
        // SAFETY: the programs live as long as this value, which is borrowed alone.
        let raw = unsafe { (self.table.engine)(self.raw.as_ptr()) };
        NonNull::new(raw).map(|raw| LoadedEngine { table: self.table, raw })
    }
}

impl Drop for LoadedPrograms {
    fn drop(&mut self) {
        // SAFETY: this value owned the programs.
        unsafe { (self.table.destroy)(self.raw.as_ptr()) }
    }
}

/// Access of one lane to a tenant's programs.
#[derive(Debug)]
pub struct LoadedEngine {
    table: &'static Table,
    raw: NonNull<Engine>,
}

// SAFETY: the interface lets engines move between threads.
unsafe impl Send for LoadedEngine {}

impl LoadedEngine {
    /// Creates another engine for the same programs; `None` if the library fails.
    #[must_use]
    pub fn another(&self) -> Option<Self> {
        // SAFETY: the engine lives as long as this value, which one thread at a time uses: it is not `Sync`.
        let raw = unsafe { (self.table.clone_engine)(self.raw.as_ptr()) };
        NonNull::new(raw).map(|raw| Self { table: self.table, raw })
    }
}

impl Drop for LoadedEngine {
    fn drop(&mut self) {
        // SAFETY: this value owned the engine.
        unsafe { (self.table.destroy_engine)(self.raw.as_ptr()) }
    }
}

/// A mediator's closure on its way through the library.
struct Call<'a> {
    table: &'static Table,
    work: &'a mut dyn FnMut(&mut dyn InlineBatch),
    /// What the closure panicked with: a panic must not unwind through the library.
    panic: Option<Box<dyn Any + Send>>,
}

unsafe extern "C" fn work(context: *mut c_void, raw: *mut Batch, header_bytes: usize) {
    // SAFETY: `LoadedEngine::run` made the context, and waits for this call.
    let call = unsafe { &mut *context.cast::<Call<'_>>() };
    let mut batch = LoadedBatch { table: call.table, raw, header_bytes };
    call.panic = catch_unwind(AssertUnwindSafe(|| (call.work)(&mut batch))).err();
}

impl InlineEngine for LoadedEngine {
    fn run(&mut self, f: &mut dyn FnMut(&mut dyn InlineBatch)) -> bool {
        let mut call = Call { table: self.table, work: f, panic: None };
        // SAFETY: the engine lives as long as this value, which is borrowed alone; `work` does not unwind.
        let ran = unsafe { (self.table.run)(self.raw.as_ptr(), (&raw mut call).cast(), work) };
        if let Some(panic) = call.panic {
            resume_unwind(panic);
        }
        ran
    }
}

struct LoadedBatch {
    table: &'static Table,
    raw: *mut Batch,
    header_bytes: usize,
}

impl InlineBatch for LoadedBatch {
    fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    fn judge(&mut self, request: &PacketRequest, header: &[u8]) -> Response<'_> {
        let mut response = abi::Response::DROP;
        // SAFETY: the batch lives until `work` returns, after this value is gone; the rest is valid
        // for the call.
        unsafe {
            (self.table.judge)(self.raw, request, header.as_ptr(), header.len(), &raw mut response);
        }
        match response.verdict {
            abi::PASS => Response::Pass,
            abi::REWRITTEN => Response::Rewritten {
                // SAFETY: the header is valid until the batch's next call, which the borrow of this
                // value prevents.
                header: unsafe { slice::from_raw_parts(response.header, response.header_len) },
                packet_len: response.packet_len,
            },
            _ => Response::Drop,
        }
    }
}
