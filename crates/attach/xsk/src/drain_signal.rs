//! Wakes the drain thread; see [`crate::drain`].

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use p4shield_xsk_relay::sleep::{SleepLimit, StandbyThread};
use rustix::event::{EventfdFlags, eventfd};

use crate::queue::XskQueue;

/// Wakes the thread.
static WAKE_EVENT: OnceLock<OwnedFd> = OnceLock::new();
/// Whether the thread sleeps for long, and the work that other threads left to it.
static STANDBY: StandbyThread = StandbyThread::new();

/// Creates the event that wakes the thread.
pub(crate) fn create() -> io::Result<&'static OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    Ok(WAKE_EVENT.get_or_init(|| event))
}

/// Notifies the drain thread of a new socket or of work that no other thread may come for. Wakes it from
/// a long sleep.
#[inline]
pub(crate) fn notify() {
    if STANDBY.notify() {
        wake();
    }
}

/// Leaves a queue to the drain thread at once, since the thread that served it is about to sleep elsewhere.
pub(crate) fn hand_over(queue: &XskQueue) {
    queue.handed_over.store(true, Relaxed);
    if STANDBY.notify_urgently() {
        wake();
    }
}

#[cold]
fn wake() {
    if let Some(event) = WAKE_EVENT.get() {
        // A full counter wakes it as well.
        let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
    }
}

/// Marks the drain thread as about to sleep, for long if `long`. Returns how long it may sleep.
pub(crate) fn enter_sleep(long: bool) -> SleepLimit {
    STANDBY.mark_asleep(long)
}

/// Marks the drain thread as awake.
pub(crate) fn leave_sleep() {
    STANDBY.mark_awake();
}
