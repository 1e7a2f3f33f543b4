//! Something that one thread at a time may use, without waiting.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value with a door that one thread at a time goes through.
///
/// DPDK promises that one thread polls a queue, and that none does when a device is stopped. The door makes it certain,
/// for one exchange of a byte a burst: a switch that breaks the promise costs itself packets, not the memory's integrity.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through `Inside`, of which there is one at a time.
unsafe impl<T: Send> Sync for Gate<T> {}

/// Who is inside.
#[derive(Debug)]
pub(crate) struct Inside<'a, T>(&'a Gate<T>);

impl<T> Gate<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Goes in, unless somebody is inside.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<Inside<'_, T>> {
        // Made only when it is let in: one that is dropped opens the door.
        (!self.taken.swap(true, Ordering::Acquire)).then(|| Inside(self))
    }

    /// Goes in after whoever is inside. Not for a thread that polls.
    pub(crate) fn enter(&self) -> Inside<'_, T> {
        loop {
            if let Some(inside) = self.try_enter() {
                return inside;
            }
            std::thread::yield_now();
        }
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one `Inside` at a time.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one `Inside` at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let gate = Gate::new(0_u64);
        let inside = gate.try_enter().expect("nobody is inside");
        for _ in 0..2 {
            assert!(gate.try_enter().is_none(), "who is turned away leaves the door shut");
        }
        drop(inside);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| *gate.enter() += 1));
            }
        });
        assert_eq!(*gate.enter(), 40_000);
    }
}
