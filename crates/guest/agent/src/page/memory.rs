//! Memory of a page: a file's, or a device's, which has rules of its own.
//!
//! Two things are different with a device's memory. The processor must not be asked for odd widths: everything here is
//! aligned words and, at ragged ends, bytes, as [`SharedMemory`] does it anyway. And if writes are combined
//! (`resource2_wc`), they and reads may overtake each other, whatever x86 promises of ordinary memory, and stay in the
//! processor for a while; the fences here put them in order and push them out. They cost an ordinary page nothing to
//! speak of, so there is one type for all.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use p4shield_channel::{Mapping, Memory, SharedMemory};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A page, wherever it is.
#[derive(Debug)]
pub(crate) struct PageMemory(SharedMemory);

impl From<SharedMemory> for PageMemory {
    fn from(memory: SharedMemory) -> Self {
        Self(memory)
    }
}

impl PageMemory {
    /// Maps `len` bytes of a device's memory, of which there are as many (see [`super::device`]).
    pub(super) fn map_device(file: &File, len: usize) -> std::io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice aliases no Rust object.
        let base = unsafe { mmap(std::ptr::null_mut(), len, prot, flags, file.as_fd(), 0) }?;
        Ok(Self(SharedMemory::from_mapping(Box::new(Bar { base, len }))))
    }
}

/// A mapped BAR, unmapped on drop.
struct Bar {
    base: *mut c_void,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Bar {}
// SAFETY: `Bar` itself never dereferences `base`.
unsafe impl Sync for Bar {}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever had its base owned us. Failure is impossible for one that exists.
        let _ = unsafe { munmap(self.base, self.len) };
    }
}

// SAFETY: `base` is the start of a page-aligned mapping of at least `len` bytes that lives until drop and of which no
// references are made. A device that is unplugged reads as all ones; its mapping stays.
unsafe impl Mapping for Bar {
    fn base(&self) -> *mut u8 {
        self.base.cast()
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Everything written before is out, and everything read before was read, when this returns.
fn fence_device() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}

impl Memory for PageMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn load_u32(&self, at: usize, order: Ordering) -> u32 {
        let value = self.0.load_u32(at, order);
        fence_for(order);
        value
    }

    fn store_u32(&self, at: usize, value: u32, order: Ordering) {
        fence_for(order);
        self.0.store_u32(at, value, order);
        fence_for(order);
    }

    fn load_u64(&self, at: usize, order: Ordering) -> u64 {
        let value = self.0.load_u64(at, order);
        fence_for(order);
        value
    }

    fn store_u64(&self, at: usize, value: u64, order: Ordering) {
        fence_for(order);
        self.0.store_u64(at, value, order);
        // Out at once: what was published is not to wait for the next publication.
        fence_for(order);
    }

    fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.0.copy_out(at, to);
    }

    fn copy_in(&self, at: usize, from: &[u8]) {
        self.0.copy_in(at, from);
    }

    fn fence(_order: Ordering) {
        fence_device();
    }
}

/// What an access that is more than relaxed needs on its sides.
fn fence_for(order: Ordering) {
    if order != Ordering::Relaxed {
        fence_device();
    }
}
