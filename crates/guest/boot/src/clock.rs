//! The machine's clock. It starts with whole seconds, but the age of in-VM information is limited to less.

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// Difference to the host's clock that is corrected, nanoseconds: more than a message takes on its way.
const TOLERANCE: u64 = 100_000_000;

/// Sets the clock to the host's if it differs by more than a message takes. The host controls the time of its
/// virtual machines in any case. `unix_ns`: nanoseconds since 1970.
///
/// # Errors
/// The kernel refuses it.
pub fn follow(unix_ns: u64) -> std::io::Result<()> {
    let now = clock_gettime(ClockId::Realtime);
    let now_ns =
        now.tv_sec.unsigned_abs().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.unsigned_abs());
    if now_ns.abs_diff(unix_ns) <= TOLERANCE {
        return Ok(());
    }
    let time = Timespec {
        tv_sec: i64::try_from(unix_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(unix_ns % 1_000_000_000).unwrap_or_default(),
    };
    Ok(clock_settime(ClockId::Realtime, time)?)
}
