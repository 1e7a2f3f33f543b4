//! The two clocks that freshness is measured by.

use rustix::time::{ClockId, clock_gettime};

/// One reading of both clocks.
///
/// The steady one bounds how long ago this process accepted something; the real one bounds how long ago the other
/// side made it. Neither alone is enough: a cloud that delays every snapshot by an hour leaves the steady clock
/// content, and a stepped real-time clock must not make old data young.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since boot, time asleep included (`CLOCK_BOOTTIME`): a suspended machine's data ages.
    pub mono_ns: u64,
    /// Nanoseconds since 1970 (`CLOCK_REALTIME`).
    pub real_ns: u64,
}

impl Now {
    /// Reads both clocks.
    #[must_use]
    pub fn read() -> Self {
        Self { mono_ns: read(ClockId::Boottime), real_ns: read(ClockId::Realtime) }
    }
}

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    let ns = i128::from(t.tv_sec) * 1_000_000_000 + i128::from(t.tv_nsec);
    u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
}
