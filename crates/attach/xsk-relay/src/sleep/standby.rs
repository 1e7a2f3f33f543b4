use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use crate::sync::{AtomicU32, const_fn, fence};

/// The thread sleeps.
const ASLEEP: u32 = 1;
/// The thread sleeps for long or without a timeout.
const LONG: u32 = 2;
/// There may be work for the thread.
const NOTIFIED: u32 = 4;
/// There is urgent work for the thread.
const URGENT: u32 = 8;

/// The state of a thread that does the work that other threads leave to it, and otherwise sleeps.
///
/// ```text
///   a thread that leaves work              the standby thread
///   L1  leave it                           T1  clear all flags
///   L2  flags += notified                  T2  check everything
///   L3  was it asleep? then wake it        T3  flags += asleep
///                                          T4  notified meanwhile? then no long sleep
/// ```
///
/// L2 and L3 are one atomic step, and so are T3 and T4, so the later of the two sees the earlier. A flag
/// that is set is not written again, so that threads that leave work all the time only read a shared
/// cache line.
#[derive(Debug)]
pub struct StandbyThread {
    state: AtomicU32,
}

/// How long the standby thread may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepLimit {
    /// As long as planned.
    AsPlanned,
    /// Briefly, since there may be work that came after its last check.
    Short,
    /// Not at all, since there is urgent work.
    NoSleep,
}

impl StandbyThread {
    const_fn! {
        /// Creates the state of a thread that is awake.
        pub fn new() -> Self {
            Self { state: AtomicU32::new(0) }
        }
    }

    /// Notifies the thread that there may be work. Returns true if the caller must wake it: it sleeps
    /// for long.
    #[must_use]
    #[inline]
    pub fn notify(&self) -> bool {
        // If the flag is set already, the check that the flag requests sees the work too.
        fence(SeqCst);
        if self.state.load(Relaxed) & NOTIFIED != 0 {
            return false;
        }
        self.state.fetch_or(NOTIFIED, AcqRel) & (NOTIFIED | LONG) == LONG
    }

    /// Notifies the thread that there is urgent work. Returns true if the caller must wake it.
    #[must_use]
    pub fn notify_urgently(&self) -> bool {
        self.state.fetch_or(URGENT, AcqRel) & (URGENT | ASLEEP) == ASLEEP
    }

    /// Clears all flags: the thread is awake and about to check everything.
    pub fn mark_awake(&self) {
        self.state.fetch_and(!(ASLEEP | LONG | NOTIFIED | URGENT), AcqRel);
        fence(SeqCst);
    }

    /// Marks that the thread has checked and is about to sleep, for long if `long`. Returns how long it
    /// may sleep.
    #[must_use]
    pub fn mark_asleep(&self, long: bool) -> SleepLimit {
        let flags = self.state.fetch_or(if long { ASLEEP | LONG } else { ASLEEP }, AcqRel);
        match (flags & URGENT != 0, flags & NOTIFIED != 0) {
            (true, _) => SleepLimit::NoSleep,
            (_, true) => SleepLimit::Short,
            _ => SleepLimit::AsPlanned,
        }
    }
}

impl Default for StandbyThread {
    fn default() -> Self {
        Self::new()
    }
}
