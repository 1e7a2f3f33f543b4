//! Addresses that a process sets aside for machine code.
//!
//! A system call filter sees addresses, and not what is mapped there. A process that sets these addresses
//! aside, while it is trusted, can therefore forbid executable memory everywhere else, and forbid to unmap or
//! move these: what becomes executable is then never memory that another process writes.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

/// The addresses: low ones, so that everything else that a filter may unmap lies above.
pub const CODE_AREA: Range<usize> = 0x1000_0000..0x1400_0000;
/// Maximum size of one program's machine code.
pub const MAX_CODE: usize = 16 << 20;
/// Addresses at which code may begin: all code lies in [`CODE_AREA`].
pub const CODE_STARTS: Range<usize> = CODE_AREA.start..CODE_AREA.end - MAX_CODE;

/// Which pages from the start of [`CODE_STARTS`] on are in use, once the area is set aside.
static USED: OnceLock<Mutex<Vec<bool>>> = OnceLock::new();

/// Sets [`CODE_AREA`] aside for the code of all programs that this process compiles from now on.
///
/// # Errors
/// If something else is mapped there, or the kernel is older than Linux 4.17.
pub fn reserve_code_area() -> io::Result<()> {
    let at = std::ptr::without_provenance_mut(CODE_AREA.start);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: with these flags the mapping overlaps no other one.
    let base = unsafe { mmap_anonymous(at, CODE_AREA.len(), ProtFlags::empty(), flags) }?;
    if base.addr() != CODE_AREA.start {
        // SAFETY: mapped above by a kernel that took the address as a hint, and used by nothing.
        unsafe { munmap(base, CODE_AREA.len()) }?;
        return Err(io::Error::other("the kernel does not know MAP_FIXED_NOREPLACE"));
    }
    base.expose_provenance();
    USED.get_or_init(|| Mutex::new(vec![false; CODE_STARTS.len() / rustix::param::page_size()]));
    Ok(())
}

/// Whether the area is set aside, so that code has to be there.
pub(super) fn is_reserved() -> bool {
    USED.get().is_some()
}

fn with_pages<T>(act: impl FnOnce(&mut [bool], usize) -> T) -> Option<T> {
    let mut used = USED.get()?.lock().unwrap_or_else(PoisonError::into_inner);
    Some(act(&mut used, rustix::param::page_size()))
}

/// Allocates `len` writable bytes, a number of whole pages.
pub(super) fn allocate(len: usize) -> Result<NonNull<u8>, Errno> {
    let found = with_pages(|used, page| {
        let wanted = len / page;
        let first = (0..used.len()).scan(0, |run, i| {
            *run = if used[i] { 0 } else { *run + 1 };
            Some((*run == wanted).then(|| i + 1 - wanted))
        });
        let first = first.flatten().next().filter(|_| len <= MAX_CODE)?;
        used[first..first + wanted].fill(true);
        Some(CODE_AREA.start + first * page)
    });
    let at = found.flatten().ok_or(Errno::NOMEM)?;
    let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(at)).ok_or(Errno::NOMEM)?;
    // SAFETY: these pages were free, so nothing refers to them.
    match unsafe { mprotect(base.as_ptr().cast(), len, MprotectFlags::READ | MprotectFlags::WRITE) } {
        Ok(()) => Ok(base),
        Err(e) => {
            mark_free(base, len);
            Err(e)
        }
    }
}

/// Frees what [`allocate`] returned. The memory goes back to the system, the addresses stay set aside.
///
/// # Safety
/// Nothing refers to the bytes, nor runs them.
pub(super) unsafe fn free(base: NonNull<u8>, len: usize) -> Result<(), Errno> {
    // SAFETY: by contract.
    unsafe {
        mprotect(base.as_ptr().cast(), len, MprotectFlags::empty())?;
        madvise(base.as_ptr().cast(), len, Advice::LinuxDontNeed)?;
    }
    mark_free(base, len);
    Ok(())
}

fn mark_free(base: NonNull<u8>, len: usize) {
    with_pages(|used, page| {
        let first = (base.as_ptr().addr() - CODE_AREA.start) / page;
        used[first..first + len / page].fill(false);
    });
}
