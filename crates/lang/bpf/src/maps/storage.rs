//! Memory of map values: allocated once, at an address that never changes, reachable by programs.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// A fixed number of values of one size, zero at first.
///
/// Programs hold raw pointers into it while they run, so nothing here ever hands out a reference: values are copied
/// in and out.
#[derive(Debug)]
pub(crate) struct Storage {
    base: NonNull<u8>,
    layout: Layout,
    size: usize,
    stride: usize,
    slots: usize,
}

// SAFETY: the memory belongs to this value alone; programs that hold pointers into it are owned, and moved to
// another thread, together with it.
unsafe impl Send for Storage {}

impl Storage {
    /// Bytes from one value to the next: every value is aligned to 8 bytes.
    pub(crate) const fn stride(size: usize) -> usize {
        size.next_multiple_of(8)
    }

    /// Memory for `slots` values of `size` bytes, or `None` if the system has no more.
    pub(crate) fn new(slots: usize, size: usize) -> Option<Self> {
        let stride = Self::stride(size);
        let layout = Layout::from_size_align(slots.checked_mul(stride)?.max(16), 16).ok()?;
        // SAFETY: the layout's size is at least 16.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout, size, stride, slots })
    }

    /// Address of a value, for programs. Valid for reads and writes of the value's size.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(crate) fn address(&self, slot: usize) -> u64 {
        self.pointer(slot).expose_provenance() as u64
    }

    /// First address and number of bytes of all values.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.base.as_ptr().expose_provenance() as u64, (self.slots * self.stride) as u64)
    }

    /// Copies a value out; of `out` as many bytes are filled as the value has.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(crate) fn read(&self, slot: usize, out: &mut [u8]) {
        let n = self.size.min(out.len());
        // SAFETY: `pointer` is valid for `size` bytes, and `out` for `n`; a program never holds `out`.
        unsafe { self.pointer(slot).copy_to_nonoverlapping(out.as_mut_ptr(), n) };
    }

    /// Copies a value in from an address that a program gave.
    ///
    /// # Safety
    /// `from` is valid for reads of the value's size; it may be a value of this very storage.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(crate) unsafe fn write_from(&self, slot: usize, from: *const u8) {
        // SAFETY: `pointer` is valid for `size` bytes, `from` by contract; they may overlap.
        unsafe { self.pointer(slot).copy_from(from, self.size) };
    }

    /// Copies a value in.
    ///
    /// # Panics
    /// If there is no such slot, or `value` is shorter than a value.
    pub(crate) fn write(&self, slot: usize, value: &[u8]) {
        assert!(value.len() >= self.size, "callers check the size of a value");
        // SAFETY: `value` has at least `size` bytes.
        unsafe { self.write_from(slot, value.as_ptr()) };
    }

    fn pointer(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots, "slots come from the map's own index");
        // SAFETY: within the allocation, since `slot < slots`.
        unsafe { self.base.as_ptr().add(slot * self.stride) }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and not freed before.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}
