//! Turns the application's buffer into shared memory in place, and back into private memory.
//!
//! The application notices nothing: addresses and contents stay. The memory is sealed before its
//! descriptor leaves the process, so that no receiver can write or shrink it.

use std::fs::read_to_string;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use p4shield_channel::PacketMemory;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, major, memfd_create, minor};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

use super::access::NotShareable;
use super::smaps::{page_size, parts_of};

/// Bytes of a base page; larger pages are huge pages.
const PAGE: usize = 4096;
/// Bit offset of the binary logarithm of the huge page size in flags (`MFD_HUGE_SHIFT`,
/// `MAP_HUGE_SHIFT`).
const HUGE_SHIFT: u32 = 26;

/// A buffer that is shared memory until this is dropped.
#[derive(Debug)]
pub(super) struct SharedBuffer {
    memory: Arc<OwnedFd>,
    addresses: Range<usize>,
    page: usize,
    record: &'static ForkRecord,
}

impl SharedBuffer {
    /// Replaces the application's buffer by shared memory.
    ///
    /// # Safety
    /// The addresses are a buffer of the application that no thread writes meanwhile and whose pages the
    /// kernel does not use yet, since it would keep the pages that were there before.
    ///
    /// # Errors
    /// Reason why the buffer cannot be shared. Then it is unchanged.
    pub(super) unsafe fn take(addresses: Range<usize>) -> Result<Self, NotShareable> {
        let smaps = read_to_string("/proc/self/smaps")
            .map_err(|source| NotShareable::System { what: "read /proc/self/smaps", source })?;
        let page = page_size(&smaps, &addresses)?;
        // SAFETY: smaps lists it as mapped and readable; the caller promises that no thread writes it.
        if !unsafe { is_zero(&addresses) } {
            return Err(NotShareable::Used);
        }
        // SAFETY: the caller's promise; the buffer is zeros in whole pages of this size.
        unsafe { Self::replace(addresses, page, memory) }
    }

    /// Replaces a buffer of zeros by the shared memory that `make` creates.
    ///
    /// # Safety
    /// As for [`Self::take`]; and the addresses are whole pages of this size that hold zeros.
    unsafe fn replace(
        addresses: Range<usize>,
        page: usize,
        make: impl FnOnce(u64, usize) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, NotShareable> {
        let system = |what: &'static str| move |e: Errno| NotShareable::System { what, source: e.into() };
        let record = ForkRecord::claim().ok_or(NotShareable::TooMany)?;
        let replace = || {
            let memory = make(addresses.len() as u64, page).map_err(system("make shared memory"))?;
            let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
            let at = std::ptr::with_exposed_provenance_mut(addresses.start);
            // SAFETY: the buffer and its replacement are zeros; no thread writes it meanwhile.
            unsafe { mmap(at, addresses.len(), prot, flags | MapFlags::FIXED, &memory, 0) }
                .map_err(system("map shared memory over the application's buffer"))?;
            Ok(memory)
        };
        let memory = replace().inspect_err(|_| record.free())?;
        // From here on, dropping restores private memory.
        let shared = Self { memory: Arc::new(memory), addresses, page, record };
        record.fill(&shared.addresses, page, shared.file().map_err(system("inspect shared memory"))?);
        PacketMemory::seal(&*shared.memory).map_err(|e| NotShareable::System {
            what: "seal shared memory",
            source: std::io::Error::other(e),
        })?;
        Ok(shared)
    }

    pub(super) fn memory(&self) -> &Arc<OwnedFd> {
        &self.memory
    }

    /// Returns device and inode of the shared memory.
    fn file(&self) -> Result<(u64, u64), Errno> {
        let file = fstat(&*self.memory)?;
        Ok((file.st_dev, file.st_ino))
    }
}

/// Makes the parts of these addresses that still map this file private memory with the same contents.
fn restore_private(
    addresses: &Range<usize>,
    page: usize,
    (device, inode): (u64, u64),
) -> std::io::Result<()> {
    let file = ((major(device), minor(device)), inode);
    // The application owns the parts that it has unmapped or mapped anew meanwhile.
    for part in parts_of(&read_to_string("/proc/self/maps")?, addresses, file) {
        // SAFETY: the kernel has just listed this library's memory there.
        unsafe { make_private(part, page) }?;
    }
    Ok(())
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        let file = self.file().map_err(std::io::Error::from);
        let result = file.and_then(|file| restore_private(&self.addresses, self.page, file));
        self.record.free();
        if let Err(error) = result {
            tracing::warn!(
                event = "buffer_stays_shared",
                %error,
                "the buffer of a closed AF_XDP socket stays shared memory, which a P4 VM may still read"
            );
        }
    }
}

/// Creates memory of this size and allocates all of its pages.
fn memory(len: u64, page: usize) -> Result<OwnedFd, Errno> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if page > PAGE {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::from_bits_retain(page.trailing_zeros() << HUGE_SHIFT);
    }
    let memory = memfd_create("p4shield-packets", flags)?;
    ftruncate(&memory, len)?;
    fallocate(&memory, FallocateFlags::empty(), 0, len)?;
    Ok(memory)
}

/// Returns whether all bytes are zero.
///
/// # Safety
/// The addresses are whole readable pages that no thread writes.
unsafe fn is_zero(addresses: &Range<usize>) -> bool {
    let first = std::ptr::with_exposed_provenance::<u64>(addresses.start);
    // SAFETY: the caller's promise; pages are aligned.
    let words = unsafe { std::slice::from_raw_parts(first, addresses.len() / size_of::<u64>()) };
    words.iter().all(|w| *w == 0)
}

/// Replaces a mapping by private memory with the same contents.
///
/// # Safety
/// The addresses are whole mapped pages of this size, used as plain bytes.
unsafe fn make_private(addresses: Range<usize>, page: usize) -> Result<(), Errno> {
    let len = addresses.len();
    let mut flags = MapFlags::PRIVATE;
    if page > PAGE {
        flags |= MapFlags::HUGETLB | MapFlags::from_bits_retain(page.trailing_zeros() << HUGE_SHIFT);
    }
    let at = std::ptr::with_exposed_provenance_mut::<u8>(addresses.start);
    // SAFETY: a new mapping at an address that the kernel chooses, filled from the old mapping, then
    // moved over the old one in one step.
    unsafe {
        let new = mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?;
        std::ptr::copy_nonoverlapping(at, new.cast::<u8>(), len);
        if let Err(e) = mremap_fixed(new, len, len, MremapFlags::MAYMOVE, at.cast()) {
            let _ = munmap(new, len);
            return Err(e);
        }
    }
    Ok(())
}

/// A shared buffer as a forked child finds it: without a lock, which another thread of the parent may
/// hold forever.
#[derive(Debug)]
struct ForkRecord {
    start: AtomicUsize,
    page: AtomicUsize,
    device: AtomicU64,
    inode: AtomicU64,
    /// Bytes of the buffer, or [`FREE`] or [`CHANGING`].
    len: AtomicUsize,
}

const FREE: usize = 0;
const CHANGING: usize = 1;

static FORK_RECORDS: [ForkRecord; 256] = [const {
    ForkRecord {
        start: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        len: AtomicUsize::new(FREE),
    }
}; 256];

impl ForkRecord {
    fn claim() -> Option<&'static Self> {
        FORK_RECORDS.iter().find(|p| p.len.compare_exchange(FREE, CHANGING, Acquire, Relaxed).is_ok())
    }

    fn fill(&self, addresses: &Range<usize>, page: usize, (device, inode): (u64, u64)) {
        self.start.store(addresses.start, Relaxed);
        self.page.store(page, Relaxed);
        self.device.store(device, Relaxed);
        self.inode.store(inode, Relaxed);
        self.len.store(addresses.len(), Release);
    }

    fn free(&self) {
        self.len.store(FREE, Release);
    }
}

/// Makes all shared buffers private in a forked child, as they would be without this library. Takes no
/// lock but the allocator's, which libc handles across forks.
pub(crate) fn make_all_private() {
    for record in &FORK_RECORDS {
        let len = record.len.swap(FREE, Acquire);
        if len > CHANGING {
            let start = record.start.load(Relaxed);
            let file = (record.device.load(Relaxed), record.inode.load(Relaxed));
            // If memory is short, the buffer stays shared.
            let _ = restore_private(&(start..start + len), record.page.load(Relaxed), file);
        }
    }
}

#[cfg(test)]
mod tests;
