//! Machine code in memory: written once, then executable, never both at once, and freed with its program.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use crate::env::Env;

/// The entry point as Rust calls it: the environment, then R1 to R5; returns R0.
pub(super) type Entry = unsafe extern "C" fn(*mut Env, u64, u64, u64, u64, u64) -> u64;

/// Pages of machine code, readable and executable.
#[derive(Debug)]
pub(crate) struct Code {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages are read-only from here on and belong to this value alone.
unsafe impl Send for Code {}

impl Code {
    /// Puts `code`, whose first byte is the entry point, into pages of its own and makes them executable.
    ///
    /// # Errors
    /// If the system has no memory, or forbids executable pages (a seccomp filter may).
    pub(super) fn new(code: &[u8]) -> rustix::io::Result<Self> {
        let len = code.len().max(1).next_multiple_of(rustix::param::page_size());
        let write = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping touches no existing one.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, write, MapFlags::PRIVATE)? };
        let base = NonNull::new(base.cast::<u8>()).expect("mmap never maps address 0 unasked");
        let this = Self { base, len };
        // SAFETY: the mapping has at least `code.len()` writable bytes and overlaps nothing.
        unsafe { base.as_ptr().copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        // SAFETY: nothing holds a reference into the mapping; it stays mapped, only its protection changes.
        unsafe { mprotect(base.as_ptr().cast(), len, MprotectFlags::READ | MprotectFlags::EXEC)? };
        synchronise(base.as_ptr(), code.len());
        Ok(this)
    }

    /// The entry point.
    pub(crate) fn entry(&self) -> Entry {
        // SAFETY: the first byte is that of a function with this signature, by the contract of `new`.
        unsafe { std::mem::transmute::<*mut u8, Entry>(self.base.as_ptr()) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; whoever calls the entry point borrows the program.
        let freed = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(freed.is_ok(), "munmap of our own mapping");
    }
}

/// Makes new code visible to instruction fetches. x86 does that by itself.
#[cfg(not(target_arch = "aarch64"))]
const fn synchronise(_: *mut u8, _: usize) {}

/// Makes new code visible to instruction fetches: cleans the data cache and invalidates the instruction cache.
#[cfg(target_arch = "aarch64")]
fn synchronise(base: *mut u8, len: usize) {
    unsafe extern "C" {
        /// Of the compiler's runtime library.
        fn __clear_cache(start: *mut std::ffi::c_void, end: *mut std::ffi::c_void);
    }
    // SAFETY: both ends are in, or right behind, one mapping.
    unsafe { __clear_cache(base.cast(), base.add(len).cast()) };
}
