//! The two clocks that measure freshness.

use rustix::time::{ClockId, clock_gettime};

/// One reading of both clocks.
///
/// The steady clock limits the time since this process accepted a record, the real-time clock the
/// time since the other side created it. Neither alone is enough: the steady clock does not notice a
/// cloud that delays every snapshot by an hour, and a stepped real-time clock must not make old data
/// fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds since boot, including suspension (`CLOCK_BOOTTIME`), so that data ages in a
    /// suspended machine.
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
