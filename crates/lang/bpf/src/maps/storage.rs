//! Memory of map values. It is allocated once at a fixed address, and programs access it directly.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// A fixed number of values of one size, initially zero.
///
/// Running programs hold raw pointers into the memory, so no method returns a reference: values are
/// copied in and out.
#[derive(Debug)]
pub(crate) struct Storage {
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
    stride: usize,
    slots: usize,
}

// SAFETY: this value owns the memory. Programs with pointers into it belong to the same owner and move to
// another thread together with it.
unsafe impl Send for Storage {}

impl Storage {
    /// Returns the distance between values in bytes: every value is aligned to 8 bytes.
    pub(crate) const fn stride(size: usize) -> usize {
        size.next_multiple_of(8)
    }

    /// Allocates `slots` values of `size` bytes; `None` if the system has no memory.
    pub(crate) fn new(slots: usize, size: usize) -> Option<Self> {
        let stride = Self::stride(size);
        let layout = Layout::from_size_align(slots.checked_mul(stride)?.max(16), 16).ok()?;
        // SAFETY: the layout's size is at least 16.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout, size, stride, slots })
    }

    /// Returns the address of a value, valid for reads and writes of its size.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub(crate) fn address(&self, slot: usize) -> u64 {
        self.pointer(slot).expose_provenance() as u64
    }

    /// Returns the size of a value in bytes.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// Returns address and size of all values.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.base.as_ptr().expose_provenance() as u64, (self.slots * self.stride) as u64)
    }

    /// Copies a value to `out`, up to the shorter of both lengths.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub(crate) fn read(&self, slot: usize, out: &mut [u8]) {
        let n = self.size.min(out.len());
        // SAFETY: `pointer` is valid for `size` bytes and `out` for `n`; no program has a pointer to `out`.
        unsafe { self.pointer(slot).copy_to_nonoverlapping(out.as_mut_ptr(), n) };
    }

    /// Copies a value from an address of the program.
    ///
    /// # Safety
    /// `from` is valid for reads of the value's size. It may be a value of this storage.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub(crate) unsafe fn write_from(&self, slot: usize, from: *const u8) {
        // SAFETY: `pointer` is valid for `size` bytes, `from` by contract; they may overlap.
        unsafe { self.pointer(slot).copy_from(from, self.size) };
    }

    /// Copies a value from a slice.
    ///
    /// # Panics
    /// If the slot does not exist, or `value` is too short.
    pub(crate) fn write(&self, slot: usize, value: &[u8]) {
        assert!(value.len() >= self.size, "callers check the size of a value");
        // SAFETY: `value` has at least `size` bytes.
        unsafe { self.write_from(slot, value.as_ptr()) };
    }

    /// Copies all values of a storage of the same shape.
    ///
    /// # Panics
    /// If the shapes differ.
    pub(crate) fn write_all(&self, from: &Self) {
        assert_eq!((self.slots, self.size), (from.slots, from.size), "callers compare the maps' definitions");
        // SAFETY: both allocations have `slots * stride` bytes, and they are two.
        unsafe { from.base.copy_to_nonoverlapping(self.base, self.slots * self.stride) };
    }

    fn pointer(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots, "slots come from the map's index");
        // SAFETY: the address is within the allocation, since `slot < slots`.
        unsafe { self.base.as_ptr().add(slot * self.stride) }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and not freed before.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
