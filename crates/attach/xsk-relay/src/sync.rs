//! The atomics of what is model-checked: the standard library's, or loom's under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence},
    thread::yield_now,
};

/// A function that is `const` with the standard library's atomics, which loom's cannot be made by.
macro_rules! const_fn {
    ($(#[$about:meta])* pub fn $name:ident($($argument:ident: $of:ty),*) -> Self $body:block) => {
        $(#[$about])*
        #[cfg(not(loom))]
        #[must_use]
        pub const fn $name($($argument: $of),*) -> Self $body

        $(#[$about])*
        #[cfg(loom)]
        #[must_use]
        pub fn $name($($argument: $of),*) -> Self $body
    };
}
pub(crate) use const_fn;

/// Loom's cell has closures in place of `get`; this gives the standard one the same shape.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
