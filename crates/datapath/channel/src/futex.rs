//! Sleep until a word in memory changes (futex(2), futex_waitv(2)).
//!
//! The fastest way for one thread to wake another one under the same kernel: it allocates no buffer
//! and touches no file, and one call waits at many words. In shared memory it needs no more trust
//! than a doorbell: a hostile peer can wake this process needlessly or not at all, as with its
//! doorbell; and a wake-up takes no longer than the kernel needs to search the few threads that a P4
//! VM may have.

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Most futexes that one call waits at (`FUTEX_WAITV_MAX`).
pub const MAX_FUTEXES: usize = 128;

/// Sleepers that a wake-up can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexScope {
    /// Threads of this process.
    Threads,
    /// Threads of any process that has mapped the word.
    Processes,
}

/// A futex and the value it had when it was read: one entry of futex_waitv(2).
#[derive(Clone, Copy, Debug)]
pub struct FutexWait<'a> {
    wait: Wait,
    word: PhantomData<&'a AtomicU32>,
}

impl<'a> FutexWait<'a> {
    /// A futex of this process alone.
    #[must_use]
    pub fn private(word: &'a AtomicU32, seen: u32) -> Self {
        Self::new(word, seen, WaitFlags::SIZE_U32 | WaitFlags::PRIVATE)
    }

    /// A futex in memory that another process has mapped, too.
    pub(crate) fn shared(word: &'a AtomicU32, seen: u32) -> Self {
        Self::new(word, seen, WaitFlags::SIZE_U32)
    }

    fn new(word: &'a AtomicU32, seen: u32, flags: WaitFlags) -> Self {
        let mut wait = Wait::new();
        wait.val = seen.into();
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        wait.flags = flags;
        Self { wait, word: PhantomData }
    }
}

/// Wakes a sleeper at a word, which the caller has changed. One system call, which never waits.
/// Returns false if no thread sleeps there.
pub fn wake(word: &AtomicU32, scope: FutexScope) -> bool {
    let flags = if scope == FutexScope::Threads { Flags::PRIVATE } else { Flags::empty() };
    matches!(futex::wake(word, flags, 1), Ok(1..))
}

/// Whether the kernel has futex_waitv(2) (Linux 5.16) and permits it. The waking side has to run
/// under the same kernel; a P4 VM in a virtual machine needs a doorbell.
#[must_use]
pub fn is_supported() -> bool {
    // A kernel that has the call rejects an empty list with EINVAL.
    futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) == Err(Errno::INVAL)
}

/// Sleeps until one of at most [`MAX_FUTEXES`] words differs from its value when read, or a wake-up
/// comes. Returns false after the timeout or a signal.
///
/// # Errors
/// If the kernel does not support it, or there are too many words.
pub fn wait<'a>(words: impl IntoIterator<Item = FutexWait<'a>>, timeout: Duration) -> Result<bool, Errno> {
    let mut waits = [Wait::new(); MAX_FUTEXES];
    let mut used = 0;
    for word in words {
        *waits.get_mut(used).ok_or(Errno::INVAL)? = word.wait;
        used += 1;
    }
    // A timeout out of range (centuries) counts as none.
    let end = Timespec::try_from(timeout).ok().and_then(|t| clock_gettime(ClockId::Monotonic).checked_add(t));
    match futex::waitv(&waits[..used], WaitvFlags::empty(), end.as_ref(), ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::TIMEDOUT | Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Release;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_changed_word_ends_the_wait_at_once() {
        let words = [AtomicU32::new(7), AtomicU32::new(8)];
        let start = Instant::now();
        assert_eq!(wait([FutexWait::private(&words[0], 7), FutexWait::shared(&words[1], 9)], LONG), Ok(true));
        assert_eq!(wait([FutexWait::private(&words[0], 7)], Duration::from_millis(1)), Ok(false));
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_sleeper_at_many_words_is_woken_at_one() {
        let words = [const { AtomicU32::new(0) }; MAX_FUTEXES];
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(words.iter().map(|w| FutexWait::private(w, 0)), LONG));
            words[MAX_FUTEXES - 1].store(1, Release);
            while !wake(&words[MAX_FUTEXES - 1], FutexScope::Threads) && !sleeper.is_finished() {
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().expect("no panic"), Ok(true));
        });
        assert!(!wake(&words[0], FutexScope::Processes), "no thread sleeps there");
    }

    #[test]
    fn too_many_words_are_refused() {
        let words = [const { AtomicU32::new(0) }; MAX_FUTEXES + 1];
        assert_eq!(wait(words.iter().map(|w| FutexWait::private(w, 0)), LONG), Err(Errno::INVAL));
        assert!(is_supported(), "the kernels of CI are newer than 5.16");
    }
}
