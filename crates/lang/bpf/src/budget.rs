//! What a run costs: the rule that keeps every run finite, whatever the verifier believed.
//!
//! Instructions are charged in advance: a function's slots when it is entered, the slots of the loop body when a
//! jump goes back. Between two charges control only goes forward, so a run never executes more instructions than it
//! was charged. Straight code pays nothing while it runs; both engines stop at the same jump.

/// What a jump from `slot` to `target` is charged: nothing forward, the body of the loop back.
pub(crate) const fn of_jump(slot: usize, target: usize) -> u64 {
    if target > slot { 0 } else { (slot - target) as u64 + 1 }
}
