//! `SIGBUS` handler for page files that are truncated while they are mapped.
//!
//! The kernel raises `SIGBUS` at the first access beyond the new end. The handler looks up the
//! address among the registered mappings. If it finds one, it replaces the mapping by zeroed private
//! memory; the access is repeated and reads zero, which is not the magic number of a page. For any
//! other address it restores the previous handler, which then receives the signal.
//!
//! The handler is installed when the first page file is mapped; a process that maps none keeps its
//! signal handlers.

use super::{Mapping, map::Mmap};
use rustix::io::Errno;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most mappings that are registered at once.
const MAX_RANGES: usize = 1024;

/// Address range of a registered mapping; `len` is zero while the entry is free, one while it is
/// being changed.
struct GuardedRange {
    base: AtomicUsize,
    len: AtomicUsize,
}

const FREE: usize = 0;
const CHANGING: usize = 1;

static RANGES: [GuardedRange; MAX_RANGES] =
    [const { GuardedRange { base: AtomicUsize::new(0), len: AtomicUsize::new(FREE) } }; MAX_RANGES];

/// The previous disposition of `SIGBUS`.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping whose file may be truncated without harm.
pub(super) struct Guarded {
    mapping: Mmap,
    range: &'static GuardedRange,
}

impl Guarded {
    pub(super) fn new(mapping: Mmap) -> Result<Self, Errno> {
        install()?;
        let range = RANGES.iter().find(|p| p.claim()).ok_or(Errno::NOSPC)?;
        range.base.store(mapping.base() as usize, Ordering::Relaxed);
        range.len.store(mapping.len(), Ordering::Release);
        Ok(Self { mapping, range })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.range.len.store(FREE, Ordering::Release);
    }
}

// SAFETY: `base` and `len` are those of the mapping that `self` owns.
unsafe impl Mapping for Guarded {
    fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    fn len(&self) -> usize {
        self.mapping.len()
    }
}

impl GuardedRange {
    fn claim(&self) -> bool {
        self.len.compare_exchange(FREE, CHANGING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Returns start and length of the mapping if `address` is in it.
    fn containing(&self, address: usize) -> Option<(usize, usize)> {
        let len = self.len.load(Ordering::Acquire);
        let base = self.base.load(Ordering::Relaxed);
        let inside = len > CHANGING && address.checked_sub(base).is_some_and(|offset| offset < len);
        inside.then_some((base, len))
    }
}

/// Installs the handler, once.
fn install() -> Result<(), Errno> {
    static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: an all-zero `sigaction` is valid, and it is filled in before use.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_sigbus as *const () as usize;
        // ONSTACK: the fault may come while a program runs on a small stack. NODEFER is not set: a
        // fault inside the handler must be fatal.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both pointers are to live values; the handler is async-signal-safe (see there).
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, previous.as_mut_ptr()) } != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        // SAFETY: `sigaction` succeeded and filled it in.
        let _ = PREVIOUS.set(unsafe { previous.assume_init() });
        Ok(())
    })
}

/// The handler. It only reads atomics and calls `mmap` and `sigaction`, all of which are async-signal-safe.
extern "C" fn on_sigbus(_signal: i32, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `info`; for SIGBUS it holds the address of the fault.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    let ours =
        if code == libc::BUS_ADRERR { RANGES.iter().find_map(|p| p.containing(address)) } else { None };
    if !ours.is_some_and(replace_by_zeros) {
        restore_previous();
    }
}

/// Replaces a mapping by zeroed private memory. Returns false if the kernel refuses.
fn replace_by_zeros((base, len): (usize, usize)) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range is a mapping registered by its living owner, who accesses it atomically and
    // owns nothing else there; zeroed bytes are as good as any that the other side might have
    // written.
    let new = unsafe { libc::mmap(base as *mut c_void, len, prot, flags, -1, 0) };
    new != libc::MAP_FAILED
}

/// Restores the previous disposition, which receives the signal when the repeated access faults again.
fn restore_previous() {
    // SAFETY: an all-zero `sigaction` is the default disposition.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let previous = PREVIOUS.get().unwrap_or(&default);
    // SAFETY: `previous` is a live, valid `sigaction`.
    unsafe { libc::sigaction(libc::SIGBUS, previous, std::ptr::null_mut()) };
}
