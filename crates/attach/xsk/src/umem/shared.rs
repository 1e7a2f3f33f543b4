//! The application's buffer, made shared memory under its feet, and made private again.
//!
//! The mapping is replaced in place, so that the application notices nothing: its addresses stay, and what it reads there.
//! It is sealed before its descriptor can get anywhere: nobody who gets it can write it, or make it shorter.

use std::fs::read_to_string;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use p4shield_channel::PacketMemory;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, major, memfd_create, minor};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap_fixed, munmap};

use super::Unfit;
use super::maps::{page_size, parts_of};

/// Bytes of an ordinary page; larger ones are huge.
const PAGE: usize = 4096;
/// Where flags have the binary logarithm of a huge page's size (`MFD_HUGE_SHIFT`, `MAP_HUGE_SHIFT`).
const HUGE_SHIFT: u32 = 26;

/// A buffer that is shared memory as long as this lives.
#[derive(Debug)]
pub(super) struct Shared {
    memory: Arc<OwnedFd>,
    addresses: Range<usize>,
    page: usize,
    place: &'static Place,
}

impl Shared {
    /// Puts shared memory in the place of the application's.
    ///
    /// # Safety
    /// The addresses are a buffer of the application's that nobody writes meanwhile, and whose pages the kernel has not
    /// been told of: it would go on with those that were there before.
    ///
    /// # Errors
    /// Why it cannot be; then nothing has changed.
    pub(super) unsafe fn take(addresses: Range<usize>) -> Result<Self, Unfit> {
        let smaps = read_to_string("/proc/self/smaps")
            .map_err(|source| Unfit::System { what: "read /proc/self/smaps", source })?;
        let page = page_size(&smaps, &addresses)?;
        // SAFETY: it is mapped and readable, says the kernel; nobody writes it, says the caller.
        if !unsafe { is_zero(&addresses) } {
            return Err(Unfit::Used);
        }
        // SAFETY: the caller's promise, and it is zeros, whole pages of this size.
        unsafe { Self::replace(addresses, page, memory) }
    }

    /// Puts shared memory, as `make` makes it, in the place of zeros.
    ///
    /// # Safety
    /// As for [`Self::take`]; and the addresses are whole pages of this size that hold zeros.
    unsafe fn replace(
        addresses: Range<usize>,
        page: usize,
        make: impl FnOnce(u64, usize) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, Unfit> {
        let system = |what: &'static str| move |e: Errno| Unfit::System { what, source: e.into() };
        let place = Place::claim().ok_or(Unfit::TooMany)?;
        let replace = || {
            let memory = make(addresses.len() as u64, page).map_err(system("make shared memory"))?;
            let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
            let at = std::ptr::with_exposed_provenance_mut(addresses.start);
            // SAFETY: the buffer is zeros and so is what takes its place; nobody writes it meanwhile.
            unsafe { mmap(at, addresses.len(), prot, flags | MapFlags::FIXED, &memory, 0) }
                .map_err(system("map shared memory over the application's buffer"))?;
            Ok(memory)
        };
        let memory = replace().inspect_err(|_| place.free())?;
        // From here on dropping puts private memory back.
        let shared = Self { memory: Arc::new(memory), addresses, page, place };
        place.fill(&shared.addresses, page, shared.file().map_err(system("look at shared memory"))?);
        PacketMemory::seal(&*shared.memory)
            .map_err(|e| Unfit::System { what: "seal shared memory", source: std::io::Error::other(e) })?;
        Ok(shared)
    }

    pub(super) fn memory(&self) -> &Arc<OwnedFd> {
        &self.memory
    }

    /// Device and inode.
    fn file(&self) -> Result<(u64, u64), Errno> {
        let file = fstat(&*self.memory)?;
        Ok((file.st_dev, file.st_ino))
    }
}

/// Puts private memory with the same contents where this process still has shared memory of this file.
fn give_back(addresses: &Range<usize>, page: usize, (device, inode): (u64, u64)) -> std::io::Result<()> {
    let file = ((major(device), minor(device)), inode);
    // What the application has unmapped or mapped anew meanwhile is not ours any more.
    for part in parts_of(&read_to_string("/proc/self/maps")?, addresses, file) {
        // SAFETY: the kernel has just said that our memory is there.
        unsafe { make_private(part, page) }?;
    }
    Ok(())
}

impl Drop for Shared {
    fn drop(&mut self) {
        let file = self.file().map_err(std::io::Error::from);
        let result = file.and_then(|file| give_back(&self.addresses, self.page, file));
        self.place.free();
        if let Err(error) = result {
            tracing::warn!(
                %error,
                "packet memory stays shared memory: what the application writes there a P4 VM may still read"
            );
        }
    }
}

/// New memory of this size, all of it there.
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

/// Whether all bytes are zero.
///
/// # Safety
/// The addresses are whole pages that can be read, and that nobody writes.
unsafe fn is_zero(addresses: &Range<usize>) -> bool {
    let first = std::ptr::with_exposed_provenance::<u64>(addresses.start);
    // SAFETY: the caller's promise; pages are aligned.
    let words = unsafe { std::slice::from_raw_parts(first, addresses.len() / size_of::<u64>()) };
    words.iter().all(|w| *w == 0)
}

/// Replaces a mapping by private memory with the same contents.
///
/// # Safety
/// The addresses are mapped, whole pages of this size, and used as plain bytes.
unsafe fn make_private(addresses: Range<usize>, page: usize) -> Result<(), Errno> {
    let len = addresses.len();
    let mut flags = MapFlags::PRIVATE;
    if page > PAGE {
        flags |= MapFlags::HUGETLB | MapFlags::from_bits_retain(page.trailing_zeros() << HUGE_SHIFT);
    }
    let at = std::ptr::with_exposed_provenance_mut::<u8>(addresses.start);
    // SAFETY: a new mapping where the kernel likes; then all of it is written, from what is mapped by contract; then it
    // moves to where the same bytes are, in one step.
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

/// A shared buffer, as a forked child finds it: without a lock, which another thread might hold for ever.
#[derive(Debug)]
struct Place {
    start: AtomicUsize,
    page: AtomicUsize,
    device: AtomicU64,
    inode: AtomicU64,
    /// 0: free; 1: being changed.
    len: AtomicUsize,
}

const FREE: usize = 0;
const CHANGING: usize = 1;

static PLACES: [Place; 256] = [const {
    Place {
        start: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        len: AtomicUsize::new(FREE),
    }
}; 256];

impl Place {
    fn claim() -> Option<&'static Self> {
        PLACES.iter().find(|p| p.len.compare_exchange(FREE, CHANGING, Acquire, Relaxed).is_ok())
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

/// In a forked child: gives it memory of its own, as it would have had without us. Takes no lock but the allocator's, which
/// libc sees to.
pub(crate) fn separate() {
    for place in &PLACES {
        let len = place.len.swap(FREE, Acquire);
        if len > CHANGING {
            let start = place.start.load(Relaxed);
            let file = (place.device.load(Relaxed), place.inode.load(Relaxed));
            // Without memory it stays shared.
            let _ = give_back(&(start..start + len), place.page.load(Relaxed), file);
        }
    }
}

#[cfg(test)]
mod tests;
