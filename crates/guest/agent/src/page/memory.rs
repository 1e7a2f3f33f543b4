//! The memory of a page: a file's, or a device's, which has special rules.
//!
//! A device's memory differs in two ways. The processor must not access it with odd widths; all accesses
//! here are aligned words and, at ragged ends, bytes, as in [`SharedMemory`]. With write combining
//! (`resource2_wc`), reads and writes may be reordered, unlike x86's ordinary memory, and may stay in the
//! processor for a while; the fences here order and flush them. They cost an ordinary page almost nothing,
//! so one type serves all pages.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use p4shield_channel::{Mapping, Memory, SharedMemory};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The memory of a page.
#[derive(Debug)]
pub(crate) struct PageMemory(SharedMemory);

impl From<SharedMemory> for PageMemory {
    fn from(memory: SharedMemory) -> Self {
        Self(memory)
    }
}

impl PageMemory {
    /// Maps `len` bytes of a device's memory, which is at least that long (see [`super::device`]).
    pub(super) fn map_device(file: &File, len: usize) -> std::io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel selects aliases no Rust object.
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
        // SAFETY: this value owns the mapping, and users of its base own this value. Unmapping cannot fail.
        let _ = unsafe { munmap(self.base, self.len) };
    }
}

// SAFETY: `base` is the start of a page-aligned mapping of at least `len` bytes that lives until drop, and no
// references into it exist. An unplugged device reads as all ones; its mapping remains.
unsafe impl Mapping for Bar {
    fn base(&self) -> *mut u8 {
        self.base.cast()
    }

    fn len(&self) -> usize {
        self.len
    }
}

/// Completes all earlier reads and writes, and flushes combined writes.
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
        // Flushes at once, so that a publication does not wait for the next one.
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

/// Issues a fence unless the access is relaxed.
fn fence_for(order: Ordering) {
    if order != Ordering::Relaxed {
        fence_device();
    }
}
