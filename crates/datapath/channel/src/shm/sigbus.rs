//! Surviving a page file that is cut short while it is mapped.
//!
//! The kernel raises `SIGBUS` at the first touch beyond the new end. The handler here looks up the address among
//! the mappings that were registered and, if it is one of them, puts zeroed private memory in its place; the access
//! is then repeated and reads zero, which is no page's magic number. For any other address it restores what was
//! installed before and lets that have the signal.
//!
//! Installed when the first page file is mapped; a process that maps none (a switch with a mediator) keeps its
//! signal handlers untouched.

use super::{Mapping, map::Mmap};
use rustix::io::Errno;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Mappings that can be registered at once.
const PLACES: usize = 1024;

/// A registered mapping; `len` is zero while the place is free, one while it is being changed.
struct Place {
    base: AtomicUsize,
    len: AtomicUsize,
}

const FREE: usize = 0;
const CHANGING: usize = 1;

static PLACES_TAKEN: [Place; PLACES] =
    [const { Place { base: AtomicUsize::new(0), len: AtomicUsize::new(FREE) } }; PLACES];

/// What handled `SIGBUS` before us.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping whose file may be cut short without harm.
pub(super) struct Guarded {
    mapping: Mmap,
    place: &'static Place,
}

impl Guarded {
    pub(super) fn new(mapping: Mmap) -> Result<Self, Errno> {
        install()?;
        let place = PLACES_TAKEN.iter().find(|p| p.claim()).ok_or(Errno::NOSPC)?;
        place.base.store(mapping.base() as usize, Ordering::Relaxed);
        place.len.store(mapping.len(), Ordering::Release);
        Ok(Self { mapping, place })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.place.len.store(FREE, Ordering::Release);
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

impl Place {
    fn claim(&self) -> bool {
        self.len.compare_exchange(FREE, CHANGING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The mapping, if `address` is in it.
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
        // ONSTACK: the fault may come while a program runs on a small stack. NODEFER is not set: a fault inside
        // the handler is fatal, as it should be.
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
        if code == libc::BUS_ADRERR { PLACES_TAKEN.iter().find_map(|p| p.containing(address)) } else { None };
    if !ours.is_some_and(replace_by_zeros) {
        hand_on();
    }
}

/// Puts zeroed private memory where the mapping was. False if the kernel refuses.
fn replace_by_zeros((base, len): (usize, usize)) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range is a mapping registered by its living owner, who accesses it atomically and owns nothing
    // else there; zeroed bytes are as good as any that the other side might have written.
    let new = unsafe { libc::mmap(base as *mut c_void, len, prot, flags, -1, 0) };
    new != libc::MAP_FAILED
}

/// Gives the signal to whom it would have gone without us: the access is repeated and faults again.
fn hand_on() {
    // SAFETY: an all-zero `sigaction` is the default disposition.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let previous = PREVIOUS.get().unwrap_or(&default);
    // SAFETY: `previous` is a live, valid `sigaction`.
    unsafe { libc::sigaction(libc::SIGBUS, previous, std::ptr::null_mut()) };
}
