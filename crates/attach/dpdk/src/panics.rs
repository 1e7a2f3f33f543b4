//! Panics of the library, which must not reach the switch.
//!
//! A panic that left one of our functions would end the switch, and with it all tenants' traffic.
//! Each function that the switch calls therefore does its work within [`catch_panic`], and handles
//! a panic in the way that lets no packet bypass the programs: a port is not started, a rule is
//! refused, packets get their tenants' policies.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `work`. Logs a panic, which is a bug, and returns `None`.
///
/// After a panic, the caller repairs what `work` had borrowed, or does not use it again.
#[inline]
pub(crate) fn catch_panic<R>(doing: &'static str, work: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => Some(result),
        Err(payload) => {
            report(doing, payload);
            None
        }
    }
}

/// Logs a panic. Logging may be what panicked, and the payload may panic when it is dropped.
#[cold]
fn report(doing: &'static str, payload: Box<dyn std::any::Any + Send>) {
    std::mem::forget(payload);
    let logged = catch_unwind(|| {
        tracing::error!(
            event = "internal_error",
            doing,
            "a bug in P4 Shield; the switch goes on. Please report it with the preceding lines"
        );
    });
    std::mem::forget(logged);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsWhenDropped;

    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("and again");
        }
    }

    #[test]
    fn any_panic_is_caught() {
        assert_eq!(catch_panic("counting", || 7), Some(7));
        assert_eq!(catch_panic("failing", || panic!("as planned")), None::<()>);
        assert_eq!(catch_panic("failing", || std::panic::panic_any(PanicsWhenDropped)), None::<()>);
    }
}
