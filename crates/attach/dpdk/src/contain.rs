//! A panic of ours stays ours.
//!
//! What the switch calls is C to it: a panic that left one of our functions would end the switch, and all tenants'
//! traffic with it. So each of them does its work within [`contained`], and each has an answer for the case that it
//! failed, which is the one that lets no packet past the programs: a port that is not started, a rule that is refused,
//! packets that get their tenants' policies.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does something of ours that must not panic. None if it did, which is a bug and is logged as one.
///
/// What the work had borrowed may be half done: it is the caller's to put that right, or never to use it again.
#[inline]
pub(crate) fn contained<R>(doing: &'static str, work: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Some(result),
        Err(thrown) => {
            tell(doing, thrown);
            None
        }
    }
}

/// Whoever logs may be what panicked, and what was thrown may panic when it is dropped.
#[cold]
fn tell(doing: &'static str, thrown: Box<dyn std::any::Any + Send>) {
    std::mem::forget(thrown);
    let told = catch_unwind(|| {
        tracing::error!(
            doing,
            "a bug in P4 Shield; the switch goes on. Please report it with the lines before"
        );
    });
    std::mem::forget(told);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped.
    struct Spiteful;

    impl Drop for Spiteful {
        fn drop(&mut self) {
            panic!("and again");
        }
    }

    #[test]
    fn whatever_is_thrown_is_caught() {
        assert_eq!(contained("counting", || 7), Some(7));
        assert_eq!(contained("failing", || panic!("as told")), None::<()>);
        assert_eq!(contained("failing", || std::panic::panic_any(Spiteful)), None::<()>);
    }
}
