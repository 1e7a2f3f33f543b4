//! The instruction budget: it bounds every run, independently of the verifier.
//!
//! The engines charge instructions in advance: the slots of a function on entry, the slots of a loop at
//! its backward jump. Between two charges control only moves forward, so a run never executes more
//! instructions than it was charged for. Straight code has no overhead, and both engines stop at the
//! same jump.

/// Returns the charge for a jump from `slot` to `target`: zero forward, the loop's slots backward.
pub(crate) const fn of_jump(slot: usize, target: usize) -> u64 {
    if target > slot { 0 } else { (slot - target) as u64 + 1 }
}
