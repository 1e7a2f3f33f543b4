//! Idle ends: spin, yield, sleep.
//!
//! A spinning end reacts within nanoseconds and uses a whole core; a sleeping end uses no core and
//! takes tens of microseconds to wake. A [`Waiter`] spins as long as spinning has recently paid, then
//! yields, then sleeps: an idle system uses no core, a busy one makes no system call.
//!
//! On a shared core, the thread that would produce work may be waiting for the spinning one to leave.
//! There spinning does not pay even if each sleep is short, nor if work was found only after the core
//! had been taken away for a while. Spinning that does not pay is tried ever more rarely.

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// An end that can sleep.
///
/// ```text
///   sleeper                                 publisher
///   S1  sleeps = 1                          P1  index = n      (release)
///   S2  fence(SeqCst)                       P2  fence(SeqCst)
///   S3  index moved? then retract, work     P3  sleeps == 1? then ring
///   S4  poll(doorbell)
/// ```
///
/// Each side stores and then loads what the other stored. With the two fences, at least one of S3 and
/// P3 sees the other's store: either the sleeper finds the work or the publisher finds the sleeper,
/// so no wake-up is lost. A weaker order would allow both loads before both stores. A ring between S1
/// and S4 is not lost either: the doorbell keeps it until it is drained, which happens after the
/// wake-up and before the next announcement.
///
/// A P4 VM may sleep at a futex instead ([`crate::futex`]): it reads the futex before S1 and sleeps
/// while its value is unchanged, and P3 changes the value before the wake-up. So the futex shows a
/// wake-up between S1 and S4.
///
/// The mediator omits P2, because the fence waits until every store of a burst has reached memory. It
/// repeats P3 instead ([`crate::Requester::must_wake`]) for as long as answers are owed: a flag that
/// it missed once it sees at the next poll. Before it sleeps itself it checks once more, behind the
/// fence S2.
pub trait Sleeper {
    /// Announces sleep. Returns false if there is work after all; the announcement is then retracted.
    fn announce(&mut self) -> bool;
    /// Retracts the announcement, after waking.
    fn retract(&mut self);
}

impl<S: Sleeper> Sleeper for [S] {
    fn announce(&mut self) -> bool {
        for i in 0..self.len() {
            if !self[i].announce() {
                self[..i].retract();
                return false;
            }
        }
        true
    }

    fn retract(&mut self) {
        for sleeper in self {
            sleeper.retract();
        }
    }
}

/// How long a [`Waiter`] stays awake without work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Least spins in a row, even if they do not pay.
    pub min_spins: u32,
    /// Most spins in a row. One spin is one poll of the shared index and a pause, about 50 ns.
    pub max_spins: u32,
    /// Most yields of the core between spinning and sleeping. They end as soon as another thread has
    /// run on the core.
    pub yields: u32,
}

impl WaitPolicy {
    /// Never yields and never sleeps: for an end with a core of its own. No packet waits for it to
    /// wake, and its peer makes no system call.
    pub const BUSY: Self = Self { min_spins: u32::MAX, max_spins: u32::MAX, yields: 0 };
}

impl Default for WaitPolicy {
    /// Spins for up to about 100 µs, longer than a wake-up takes; sleeps shorter than that are
    /// replaced by spinning, if that pays. Otherwise it yields the core for about 5 µs without
    /// spinning: by then the last packet has arrived and wakes its receiver on a core that is still
    /// awake.
    fn default() -> Self {
        Self { min_spins: 0, max_spins: 2048, yields: 16 }
    }
}

/// Most short sleeps between two trials of spinning; one trial in that many costs little.
const MAX_PATIENCE: u32 = 1024;

/// Time between two polls, normally about 50 ns, from which on another thread must have run on the core.
const PREEMPTED: Duration = Duration::from_micros(5);

/// Decides between spinning, yielding and sleeping.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    /// Spins that pay at present, between the policy's limits.
    budget: u32,
    /// Polls in a row without work.
    idle_polls: u32,
    /// Longest sleep that counts as short: one that spinning might have replaced.
    short_sleep: Duration,
    /// Short sleeps since the last trial of spinning.
    short_sleeps: u32,
    /// Short sleeps before the next trial.
    patience: u32,
    /// A trial is under way: the budget is the largest.
    trial: bool,
    /// Time of the last poll, unless the end has slept since.
    last_poll: Option<Instant>,
    /// Do not yield before sleeping.
    skip_yield: bool,
    /// Another thread ran on the core between two of these polls.
    preempted: bool,
}

/// Result of [`Waiter::idle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleResult {
    /// Stayed awake; the caller polls again.
    Awake,
    /// Slept; this many files are ready, none after the timeout or a signal.
    Slept(usize),
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new(WaitPolicy::default())
    }
}

impl Waiter {
    /// A waiter that at first spins as long as the policy allows.
    #[must_use]
    pub fn new(policy: WaitPolicy) -> Self {
        let budget = policy.max_spins.max(policy.min_spins);
        let short_sleep = Duration::from_micros(100);
        Self {
            policy,
            budget,
            idle_polls: 0,
            short_sleep,
            short_sleeps: 0,
            patience: 1,
            trial: false,
            last_poll: None,
            skip_yield: false,
            preempted: false,
        }
    }

    /// Sets the longest sleep that counts as short, which spinning may replace. By default 100 µs.
    #[must_use]
    pub fn short_sleep(mut self, short_sleep: Duration) -> Self {
        self.short_sleep = short_sleep;
        self
    }

    /// Records that a poll found work.
    #[inline]
    pub fn found_work(&mut self) {
        if self.idle_polls != 0 {
            self.found_work_at(Instant::now());
        }
    }

    #[inline]
    fn found_work_at(&mut self, now: Instant) {
        self.check_preemption(now);
        if self.preempted {
            self.stop_spinning();
        } else {
            self.spinning_paid();
        }
        self.restart();
    }

    /// Makes the next sleep come without yields before it: a receiver that the last packets have
    /// woken waits for this core.
    pub fn skip_yield(&mut self) {
        self.skip_yield = true;
    }

    /// Records whether another thread has run on the core since the last poll.
    #[inline]
    fn check_preemption(&mut self, now: Instant) {
        self.preempted |= self.last_poll.is_some_and(|last| now.saturating_duration_since(last) > PREEMPTED);
        self.last_poll = Some(now);
    }

    fn restart(&mut self) {
        (self.idle_polls, self.last_poll, self.skip_yield, self.preempted) = (0, None, false, false);
    }

    fn spinning_paid(&mut self) {
        let WaitPolicy { min_spins, max_spins, .. } = self.policy;
        self.budget = self.budget.max(self.idle_polls.saturating_mul(2)).min(max_spins).max(min_spins);
        if std::mem::take(&mut self.trial) {
            self.patience = 1;
        }
    }

    /// Spins as little as the policy allows, and waits longer for the next trial.
    fn stop_spinning(&mut self) {
        self.trial = false;
        self.budget = self.policy.min_spins;
        self.patience = self.patience.saturating_mul(2).min(MAX_PATIENCE);
    }

    /// Records a sleep, before which the whole budget was spun without result.
    fn spinning_did_not_pay(&mut self, was_short: bool) {
        let WaitPolicy { min_spins, max_spins, .. } = self.policy;
        if self.trial {
            return self.stop_spinning();
        }
        self.budget = (self.budget / 2).max(min_spins);
        self.short_sleeps = if was_short { self.short_sleeps + 1 } else { 0 };
        if self.short_sleeps >= self.patience {
            self.short_sleeps = 0;
            self.trial = true;
            self.budget = max_spins.max(min_spins);
        }
    }

    /// Idles once after a poll without work: spins, yields, or sleeps until one of `fds` is ready or
    /// `timeout` is over (none: for ever). The caller drains its doorbells after a sleep.
    ///
    /// # Errors
    /// If `poll` fails for another reason than a signal, because a descriptor is not open.
    pub fn idle<S: Sleeper + ?Sized>(
        &mut self,
        ends: &mut S,
        fds: &mut [PollFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<IdleResult, Errno> {
        if self.stays_awake() { Ok(IdleResult::Awake) } else { self.sleep(ends, fds, timeout) }
    }

    /// The first half of [`Self::idle`], for callers with many descriptors: spins once, or yields.
    /// Returns false if it is time to sleep.
    #[inline]
    pub fn stays_awake(&mut self) -> bool {
        self.stays_awake_at(Instant::now())
    }

    #[inline]
    fn stays_awake_at(&mut self, now: Instant) -> bool {
        let polls = self.idle_polls;
        // Stays below `u32::MAX`, so that a policy with that many spins spins for ever.
        self.idle_polls = polls.saturating_add(1).min(u32::MAX - 1);
        self.check_preemption(now);
        if polls < self.budget {
            std::hint::spin_loop();
            return true;
        }
        // A thread that ran on the core may need it again soon, and `sched_yield` helps threads of
        // other control groups little.
        let stays = !self.preempted && !self.skip_yield;
        let yields = stays && polls < self.budget.saturating_add(self.policy.yields);
        if yields {
            rustix::thread::sched_yield();
        }
        yields
    }

    /// The second half of [`Self::idle`]: sleeps.
    ///
    /// # Errors
    /// Those of [`Self::idle`].
    pub fn sleep<S: Sleeper + ?Sized>(
        &mut self,
        ends: &mut S,
        fds: &mut [PollFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<IdleResult, Errno> {
        self.sleep_in(ends, |_| sleep(fds, timeout))
    }

    /// The second half of [`Self::idle`] with another kind of sleep, `sleep`, which returns how many
    /// events ended it.
    ///
    /// # Errors
    /// Those of `sleep`.
    pub fn sleep_in<S: Sleeper + ?Sized>(
        &mut self,
        ends: &mut S,
        sleep: impl FnOnce(&S) -> Result<usize, Errno>,
    ) -> Result<IdleResult, Errno> {
        if !ends.announce() {
            return Ok(IdleResult::Awake);
        }
        let start = Instant::now();
        let slept = sleep(ends);
        ends.retract();
        self.spinning_did_not_pay(matches!(slept, Ok(1..)) && start.elapsed() < self.short_sleep);
        self.restart();
        slept.map(IdleResult::Slept)
    }
}

/// Calls `poll`; a signal counts as the timeout.
fn sleep(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    // A timeout out of range (centuries) counts as none.
    let timeout: Option<Timespec> = timeout.and_then(|t| t.try_into().ok());
    match rustix::event::poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter in a trial of spinning.
    fn waiter() -> Waiter {
        let mut waiter = Waiter::new(WaitPolicy { min_spins: 4, max_spins: 64, yields: 0 });
        waiter.budget = 4;
        waiter.spinning_did_not_pay(true);
        assert_eq!((waiter.trial, waiter.budget), (true, 64));
        waiter
    }

    /// Polls `polls` times in vain, `interval` apart, and finds work the next time.
    fn spin(waiter: &mut Waiter, start: Instant, polls: u32, interval: Duration) {
        assert!((0..polls).all(|i| waiter.stays_awake_at(start + interval * i)));
        waiter.found_work_at(start + interval * polls);
    }

    #[test]
    fn spinning_continues_while_it_pays() {
        let mut waiter = waiter();
        for _ in 0..5 {
            spin(&mut waiter, Instant::now(), 50, Duration::from_nanos(50));
            assert_eq!((waiter.budget, waiter.patience), (64, 1));
        }
        waiter.spinning_did_not_pay(false);
        assert_eq!(waiter.budget, 32);
    }

    #[test]
    fn yields_end_when_another_thread_took_the_core() {
        let mut waiter = Waiter::new(WaitPolicy { min_spins: 0, max_spins: 0, yields: 3 });
        let start = Instant::now();
        let polls = |waiter: &mut Waiter, micros: [u64; 4]| {
            waiter.restart();
            micros.map(|at| waiter.stays_awake_at(start + Duration::from_micros(at)))
        };
        assert_eq!(polls(&mut waiter, [0, 1, 2, 3]), [true, true, true, false]);
        assert_eq!(polls(&mut waiter, [0, 1, 9, 10]), [true, true, false, false]);
        assert_eq!(polls(&mut waiter, [20, 21, 22, 23]), [true, true, true, false], "after a sleep");
    }

    #[test]
    fn skip_yield_lasts_until_the_next_work() {
        let mut waiter = Waiter::new(WaitPolicy { min_spins: 1, max_spins: 1, yields: 3 });
        let now = Instant::now();
        waiter.skip_yield();
        assert_eq!([0; 2].map(|_| waiter.stays_awake_at(now)), [true, false], "spins are not yields");
        waiter.found_work_at(now);
        assert_eq!([0; 5].map(|_| waiter.stays_awake_at(now)), [true, true, true, true, false]);
    }

    #[test]
    fn work_after_preemption_does_not_make_spinning_pay() {
        let mut waiter = waiter();
        let start = Instant::now();
        spin(&mut waiter, start, 1, Duration::from_micros(6));
        assert_eq!((waiter.budget, waiter.patience, waiter.trial), (4, 2, false));
        spin(&mut waiter, start + Duration::from_secs(1), 2, Duration::from_nanos(50));
        assert_eq!((waiter.budget, waiter.patience), (4, 2), "earlier preemption does not count");
    }
}
