//! The standard library's atomics, or loom's under `--cfg loom`.

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

/// Defines a constructor that is `const`, except under loom, whose atomics have no `const` constructors.
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

/// Gives the standard cell the interface of loom's, which has closures in place of `get`.
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
