//! Machine code in memory: first writable, then executable, never both. It is freed with its program. If the
//! process has set addresses aside for code ([`area`]), it lies there.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::area;
use crate::env::Env;

/// Type of the entry point: takes the environment and R1 to R5, returns R0.
pub(super) type Entry = unsafe extern "C" fn(*mut Env, u64, u64, u64, u64, u64) -> u64;

/// Readable and executable pages of machine code.
#[derive(Debug)]
pub(crate) struct Code {
    base: NonNull<u8>,
    len: usize,
    in_area: bool,
}

// SAFETY: this value owns the pages, which are read-only from here on.
unsafe impl Send for Code {}

impl Code {
    /// Copies `code`, whose first byte is the entry point, to new pages and makes them executable.
    ///
    /// # Errors
    /// If the system has no memory or forbids executable pages, for example by a seccomp filter.
    pub(super) fn new(code: &[u8]) -> rustix::io::Result<Self> {
        let len = code.len().max(1).next_multiple_of(rustix::param::page_size());
        let in_area = area::is_reserved();
        let base = if in_area { area::allocate(len)? } else { map(len)? };
        let this = Self { base, len, in_area };
        // SAFETY: the mapping has at least `code.len()` writable bytes and overlaps nothing.
        unsafe { base.as_ptr().copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        // SAFETY: no reference into the mapping exists, and only its protection changes.
        unsafe { mprotect(base.as_ptr().cast(), len, MprotectFlags::READ | MprotectFlags::EXEC)? };
        synchronise(base.as_ptr(), code.len());
        Ok(this)
    }

    /// The entry point.
    pub(crate) fn entry(&self) -> Entry {
        // SAFETY: by the contract of `new`, a function with this signature starts at the first byte.
        unsafe { std::mem::transmute::<*mut u8, Entry>(self.base.as_ptr()) }
    }
}

/// Maps `len` writable bytes anywhere.
fn map(len: usize) -> rustix::io::Result<NonNull<u8>> {
    let write = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping overlaps no existing one.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, write, MapFlags::PRIVATE)? };
    Ok(NonNull::new(base.cast::<u8>()).expect("mmap without a hint never returns address 0"))
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; callers of the entry point borrow the program.
        let freed = unsafe {
            if self.in_area {
                area::free(self.base, self.len)
            } else {
                munmap(self.base.as_ptr().cast(), self.len)
            }
        };
        debug_assert!(freed.is_ok(), "cannot unmap the code");
    }
}

/// Makes new code visible to instruction fetches. x86 needs no action.
#[cfg(not(target_arch = "aarch64"))]
const fn synchronise(_: *mut u8, _: usize) {}

/// Makes new code visible to instruction fetches: cleans the data cache, invalidates the instruction cache.
#[cfg(target_arch = "aarch64")]
fn synchronise(base: *mut u8, len: usize) {
    unsafe extern "C" {
        /// Provided by the compiler's runtime library.
        fn __clear_cache(start: *mut std::ffi::c_void, end: *mut std::ffi::c_void);
    }
    // SAFETY: both addresses are in one mapping, or directly after it.
    unsafe { __clear_cache(base.cast(), base.add(len).cast()) };
}
