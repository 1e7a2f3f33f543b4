//! The table from file descriptors to AF_XDP sockets, which every replaced function reads first.
//!
//! A lookup costs one load in a process without AF_XDP sockets and two loads otherwise. An entry points
//! to an object that is never freed (a closed socket's object is reused), so a lookup takes no lock and
//! no reference count.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use libc::c_int;

/// The number of descriptors in the table. AF_XDP sockets with higher numbers are refused; unused pages
/// of the table occupy no memory.
const DESCRIPTORS: usize = 1 << 20;

/// The objects of a process by their descriptors.
pub(crate) struct FdTable<T: 'static> {
    entries: [AtomicPtr<T>; DESCRIPTORS],
    /// Whether this process, and not its parent, ever had an entry.
    any: AtomicBool,
}

impl<T: 'static> FdTable<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { AtomicPtr::new(std::ptr::null_mut()) }; DESCRIPTORS],
            any: AtomicBool::new(false),
        }
    }

    /// Returns the object of a descriptor, if it has one.
    #[inline]
    pub(crate) fn get(&self, fd: c_int) -> Option<&'static T> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let entry = self.entries.get(usize::try_from(fd).ok()?)?;
        // SAFETY: entries are null or come from a `&'static T`.
        unsafe { entry.load(Acquire).as_ref() }
    }

    /// Assigns an object to a descriptor. Returns false if the descriptor's number is too high.
    pub(crate) fn put(&self, fd: c_int, object: &'static T) -> bool {
        let Some(entry) = usize::try_from(fd).ok().and_then(|n| self.entries.get(n)) else { return false };
        entry.store(std::ptr::from_ref(object).cast_mut(), Release);
        self.any.store(true, Release);
        true
    }

    /// Clears the entry of a descriptor and returns its object.
    pub(crate) fn take(&self, fd: c_int) -> Option<&'static T> {
        self.get(fd)?;
        let entry = self.entries.get(usize::try_from(fd).ok()?)?;
        // SAFETY: as in `get`.
        unsafe { entry.swap(std::ptr::null_mut(), Acquire).as_ref() }
    }

    /// Returns a descriptor of this object, if there is one.
    pub(crate) fn find(&self, object: &T) -> Option<c_int> {
        self.within(0, u32::MAX).find(|&fd| self.get(fd).is_some_and(|s| std::ptr::eq(s, object)))
    }

    /// Returns the descriptors from `first` to `last` that have an object.
    pub(crate) fn within(&self, first: u32, last: u32) -> impl Iterator<Item = c_int> {
        let end = (last as usize).saturating_add(1).min(DESCRIPTORS);
        let any = self.any.load(Relaxed);
        let range = if any { (first as usize).min(end)..end } else { 0..0 };
        range.filter(|&n| !self.entries[n].load(Relaxed).is_null()).map(|n| n as c_int)
    }

    /// Forgets all entries in a forked child, which must not move its parent's sockets.
    pub(crate) fn forget_all(&self) {
        self.any.store(false, Release);
    }
}
