//! Time without system calls, from the processor's cycle counter, which DPDK has calibrated.

use crate::dpdk::Dpdk;
use crate::shim;

/// Clock in nanoseconds: starts at the system's monotonic time and advances at the rate that DPDK measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_ns: u64,
    start_cycles: u64,
    /// Nanoseconds per cycle, times 2^32.
    scale: u64,
}

impl Clock {
    pub(crate) fn new(dpdk: &Dpdk) -> Self {
        // SAFETY: the function has no requirements; before DPDK is initialised it returns 0.
        let hz = unsafe { (dpdk.rte_get_tsc_hz)() };
        Self::at(monotonic(), shim::p4s_cycles(), hz)
    }

    /// Creates a clock of `hz` cycles a second; 0 means an unknown rate, and each cycle counts as a
    /// nanosecond.
    fn at(start_ns: u64, start_cycles: u64, hz: u64) -> Self {
        let scale = (1_000_000_000_u128 << 32) / u128::from(if hz == 0 { 1_000_000_000 } else { hz });
        Self { start_ns, start_cycles, scale: u64::try_from(scale).unwrap_or(u64::MAX) }
    }

    /// Returns the time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.after(shim::p4s_cycles())
    }

    /// Returns the time at which the counter is `cycles`. Counters of two processors may differ slightly.
    #[inline]
    fn after(&self, cycles: u64) -> u64 {
        let passed = u128::from(cycles.saturating_sub(self.start_cycles)) * u128::from(self.scale);
        self.start_ns + (passed >> 32) as u64
    }
}

/// Returns the system's monotonic time in nanoseconds.
fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is ours to write. libc rather than rustix, whose vDSO
    // call does not work in valgrind.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_become_nanoseconds() {
        let clock = Clock::at(1_000, 500, 2_500_000_000);
        assert_eq!(clock.after(500), 1_000);
        assert_eq!(clock.after(400), 1_000, "another processor's counter is behind");
        let year = 365 * 86_400;
        let error = clock.after(500 + 2_500_000_000 * year).abs_diff(1_000 + 1_000_000_000 * year);
        assert!(error < year * 10, "{error} ns in a year");
    }

    #[test]
    fn the_clock_advances() {
        let clock = Clock::at(0, shim::p4s_cycles(), 1_000_000_000);
        let before = clock.now();
        while clock.now() == before {}
        assert!(clock.now() > before);
    }
}
