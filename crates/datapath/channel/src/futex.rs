//! Sleeping until a word in memory changes (futex(2), futex_waitv(2)).
//!
//! The quickest way for one thread to wake another in the same kernel: no buffer is allocated, no file is looked at, and who
//! sleeps at many words waits in one call. In shared memory it asks for no more trust than the doorbell: a hostile peer can
//! wake us for nothing, or not at all, as it can ring its doorbell or not; and whoever wakes waits for no longer than the kernel
//! takes to look through the few threads that a P4 VM may have.

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Words that one call waits at, at most (`FUTEX_WAITV_MAX`).
pub const MAX_FUTEXES: usize = 128;

/// Who may sleep at a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexScope {
    /// Threads of this process.
    Threads,
    /// Any process that has mapped it.
    Processes,
}

/// A word and what stood in it when it was looked at.
#[derive(Clone, Copy, Debug)]
pub struct FutexWait<'a> {
    wait: Wait,
    word: PhantomData<&'a AtomicU32>,
}

impl<'a> FutexWait<'a> {
    /// Of this process alone.
    #[must_use]
    pub fn private(word: &'a AtomicU32, seen: u32) -> Self {
        Self::new(word, seen, WaitFlags::SIZE_U32 | WaitFlags::PRIVATE)
    }

    /// In memory that another process has mapped, too.
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

/// Wakes whoever sleeps at a word, which was changed before. One system call, which never waits. False if nobody sleeps there.
pub fn wake(word: &AtomicU32, reach: FutexScope) -> bool {
    let flags = if reach == FutexScope::Threads { Flags::PRIVATE } else { Flags::empty() };
    matches!(futex::wake(word, flags, 1), Ok(1..))
}

/// Whether the kernel can wait at several words (Linux 5.16), and lets us. Whoever is to wake us has to have the same kernel: a
/// P4 VM in a machine of its own has to be rung for.
#[must_use]
pub fn is_supported() -> bool {
    // None is not a number of words, which only a kernel says that has the call.
    futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic) == Err(Errno::INVAL)
}

/// Sleeps until one of at most [`MAX_FUTEXES`] words is not any more what was seen, or somebody wakes us there. False if the
/// time ran out or a signal came.
///
/// # Errors
/// The kernel cannot, or there are too many.
pub fn wait<'a>(words: impl IntoIterator<Item = FutexWait<'a>>, timeout: Duration) -> Result<bool, Errno> {
    let mut waits = [Wait::new(); MAX_FUTEXES];
    let mut used = 0;
    for word in words {
        *waits.get_mut(used).ok_or(Errno::INVAL)? = word.wait;
        used += 1;
    }
    // A time out of range (centuries) is as good as none.
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
    fn a_word_that_has_changed_is_not_slept_at() {
        let words = [AtomicU32::new(7), AtomicU32::new(8)];
        let start = Instant::now();
        assert_eq!(wait([FutexWait::private(&words[0], 7), FutexWait::shared(&words[1], 9)], LONG), Ok(true));
        assert_eq!(wait([FutexWait::private(&words[0], 7)], Duration::from_millis(1)), Ok(false));
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn who_sleeps_at_one_of_several_is_woken() {
        let words = [const { AtomicU32::new(0) }; MAX_FUTEXES];
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait(words.iter().map(|w| FutexWait::private(w, 0)), LONG));
            words[MAX_FUTEXES - 1].store(1, Release);
            while !wake(&words[MAX_FUTEXES - 1], FutexScope::Threads) && !sleeper.is_finished() {
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().expect("no panic"), Ok(true));
        });
        assert!(!wake(&words[0], FutexScope::Processes), "nobody sleeps there");
    }

    #[test]
    fn too_many_words_are_refused() {
        let words = [const { AtomicU32::new(0) }; MAX_FUTEXES + 1];
        assert_eq!(wait(words.iter().map(|w| FutexWait::private(w, 0)), LONG), Err(Errno::INVAL));
        assert!(is_supported(), "the kernels of CI are newer than 5.16");
    }
}
