//! Exclusive access without waiting, for the thread that polls a queue.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that one thread at a time uses.
///
/// DPDK promises that one thread polls a queue, and that none does when a device is stopped. This
/// lock enforces it, for one atomic exchange per burst: a switch that breaks the promise loses
/// packets, not memory safety.
#[derive(Debug)]
pub(crate) struct Exclusive<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is reached only through an `ExclusiveGuard`, of which there is one at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// Access to the value; unlocks when dropped.
#[derive(Debug)]
pub(crate) struct ExclusiveGuard<'a, T>(&'a Exclusive<T>);

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Locks the value, unless another thread uses it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<ExclusiveGuard<'_, T>> {
        // A guard is created only after locking, because its drop unlocks.
        (!self.locked.swap(true, Ordering::Acquire)).then(|| ExclusiveGuard(self))
    }

    /// Locks the value once no other thread uses it. For polling threads, if the others use it for no longer
    /// than a burst takes.
    #[inline]
    pub(crate) fn wait(&self) -> ExclusiveGuard<'_, T> {
        /// Spins that are longer than a burst: the other thread has lost its core.
        const LONG: u32 = 10_000;
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            while self.locked.load(Ordering::Relaxed) && spins < LONG {
                std::hint::spin_loop();
                spins += 1;
            }
            if spins >= LONG {
                std::thread::yield_now();
            }
        }
    }

    /// Locks the value once no other thread uses it. Polling threads must not call this.
    pub(crate) fn lock(&self) -> ExclusiveGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::thread::yield_now();
        }
    }
}

impl<T> Deref for ExclusiveGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for ExclusiveGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and it is borrowed mutably.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for ExclusiveGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_access() {
        let value = Exclusive::new(0_u64);
        let guard = value.try_lock().expect("unlocked");
        for _ in 0..2 {
            assert!(value.try_lock().is_none(), "a failed attempt does not unlock");
        }
        drop(guard);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| *value.lock() += 1));
                s.spawn(|| (0..10_000).for_each(|_| *value.wait() += 1));
            }
        });
        assert_eq!(*value.lock(), 80_000);
    }
}
