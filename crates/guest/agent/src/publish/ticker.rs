//! A periodic timer with absolute times, so that delays do not accumulate.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A periodic timer of the kernel.
pub(super) struct Ticker {
    fd: OwnedFd,
}

impl Ticker {
    /// Creates a timer that expires immediately, and then after each `interval`, which must not be zero.
    pub(super) fn new(interval: Duration) -> rustix::io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let period = Timespec {
            tv_sec: i64::try_from(interval.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: interval.subsec_nanos().into(),
        };
        // Zero would disarm the timer.
        let first = Timespec { tv_sec: 0, tv_nsec: 1 };
        let spec = Itimerspec { it_interval: period, it_value: first };
        timerfd_settime(&fd, TimerfdTimerFlags::empty(), &spec)?;
        Ok(Self { fd })
    }

    /// Returns the expirations since the last call: 0 if none, more than 1 if some were missed.
    pub(super) fn ticks(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.fd, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

impl AsFd for Ticker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
