//! The instruction budget: it bounds every run, independently of the verifier.
//!
//! The engines charge instructions in advance: the slots of a function on entry, the slots of a loop at
//! its backward jump. Between two charges control only moves forward, so a run never executes more
//! instructions than it was charged for. Straight code has no overhead, and both engines stop at the
//! same jump.
//!
//! A helper whose time depends on sizes charges before its work what it is about to touch. One function
//! computes the charge for both engines: the helper itself. Calls that the JIT inlines charge nothing.

/// Returns the charge for a jump from `slot` to `target`: zero forward, the loop's slots backward.
pub(crate) const fn of_jump(slot: usize, target: usize) -> u64 {
    if target > slot { 0 } else { (slot - target) as u64 + 1 }
}

/// Returns the charge for bytes that a helper copies, compares or adds up.
pub(crate) const fn of_bytes(bytes: usize) -> u64 {
    1 + bytes as u64 / 8
}

/// Charge of a search in a map, beside what depends on its size.
pub(crate) const SEARCH: u64 = 16;
/// Charge of reading the clock.
pub(crate) const CLOCK: u64 = 32;
