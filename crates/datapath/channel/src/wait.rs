//! What an end does while there is nothing to do.
//!
//! Spinning answers within nanoseconds and burns a core; sleeping costs nothing and takes tens of microseconds to
//! wake. A [`Waiter`] spins while that has lately paid, then yields, then sleeps: an idle system uses no core, a
//! busy one makes no system call.
//!
//! On a core that others need, too, whoever would bring work may be waiting for the spinner to leave: spinning does not pay
//! there, though each sleep is short, nor if work was found after the core had been taken from the spinner for a while. What
//! does not pay is tried ever more seldom.

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// An end that can be asleep.
///
/// ```text
///   sleeper                                 publisher
///   S1  sleeps = 1                          P1  index = n      (release)
///   S2  fence(SeqCst)                       P2  fence(SeqCst)
///   S3  index moved? then retract, work     P3  sleeps == 1? then ring
///   S4  poll(doorbell)
/// ```
///
/// Each side stores and then loads what the other stored. With the two fences, at least one of S3 and P3 sees the
/// other's store: either the sleeper finds the work or the publisher finds the sleeper, so no wake-up is lost. A
/// weaker order would let both loads go before both stores. A ring between S1 and S4 is not lost either: the
/// doorbell keeps it until it is drained, which happens after waking and before the next announcement.
///
/// A P4 VM may sleep at a word instead ([`crate::futex`]): it looks at the word before S1 and sleeps as long as it has not
/// changed, and P3 changes it before it wakes. So a wake-up between S1 and S4 is found in the word.
///
/// The mediator leaves out P2, whose price is that every store of a burst reaches memory first, and repeats P3 instead
/// ([`crate::Requester::must_wake`]) for as long as it is owed answers: a flag that was missed once is seen a poll later.
/// Before it sleeps itself it asks once more, behind the fence S2.
pub trait Sleeper {
    /// Announces sleep. False if there is work after all; the announcement is then taken back.
    fn announce(&mut self) -> bool;
    /// Takes the announcement back, after waking.
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

/// How long a [`Waiter`] stays awake with nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// The fewest spins in a row, however little they paid.
    pub min_spins: u32,
    /// The most spins in a row. One spin is a look at the shared index and a pause, some 50 ns.
    pub max_spins: u32,
    /// Times to yield the core between spinning and sleeping, which ends as soon as somebody else took it.
    pub yields: u32,
}

impl WaitPolicy {
    /// Never yields and never sleeps: for an end that has a core of its own. No packet waits for it to wake, and its peer
    /// makes no system call.
    pub const BUSY: Self = Self { min_spins: u32::MAX, max_spins: u32::MAX, yields: 0 };
}

impl Default for WaitPolicy {
    /// Up to some 100 µs of spinning, longer than a wake-up takes; sleep shorter than that is spun through next time, if that
    /// pays. Where it does not the core is yielded for some 5 µs and not spun on at all: by then the
    /// packet that was judged last is where it was going, and wakes whom it is for on a core that is still awake.
    fn default() -> Self {
        Self { min_spins: 0, max_spins: 2048, yields: 16 }
    }
}

/// Short sleeps between two tries to spin through them, at most: one try in so many costs nobody much.
const MOST_PATIENCE: u32 = 1024;

/// From one look to the next it takes some 50 ns: if it took as long as this, the core was somebody else's meanwhile.
const TAKEN: Duration = Duration::from_micros(5);

/// Decides between spinning, yielding and sleeping.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    /// Spins that are worth it at present, between the policy's limits.
    budget: u32,
    /// Looks in a row that found nothing.
    idle: u32,
    /// Sleep from which something woke us this soon might have been spun through.
    short_sleep: Duration,
    /// Short sleeps since the last try to spin through one.
    short_sleeps: u32,
    /// How many there are to be before the next try.
    patience: u32,
    /// The budget is the largest, to see whether it pays.
    trying: bool,
    /// When we looked last, if we have been awake since.
    looked: Option<Instant>,
    /// Whom the work was for waits for the core.
    gives_way: bool,
    /// The core was somebody else's between two of these looks, since we yielded it or had to.
    taken: bool,
}

/// What [`Waiter::idle`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleResult {
    /// Stayed awake; look again.
    Awake,
    /// Slept; this many of the files are ready, none if the time ran out or a signal came.
    Slept(usize),
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new(WaitPolicy::default())
    }
}

impl Waiter {
    /// A waiter that spins as long as the policy allows, to begin with.
    #[must_use]
    pub fn new(policy: WaitPolicy) -> Self {
        let budget = policy.max_spins.max(policy.min_spins);
        let short_sleep = Duration::from_micros(100);
        Self {
            policy,
            budget,
            idle: 0,
            short_sleep,
            short_sleeps: 0,
            patience: 1,
            trying: false,
            looked: None,
            gives_way: false,
            taken: false,
        }
    }

    /// Sleep from which something woke us this soon might have been spun through, which is tried. By default 100 µs.
    #[must_use]
    pub fn short_sleep(mut self, short_sleep: Duration) -> Self {
        self.short_sleep = short_sleep;
        self
    }

    /// To be called when a look found work.
    #[inline]
    pub fn found_work(&mut self) {
        if self.idle != 0 {
            self.found_work_at(Instant::now());
        }
    }

    #[inline]
    fn found_work_at(&mut self, now: Instant) {
        self.look_at_the_clock(now);
        if self.taken {
            self.give_up();
        } else {
            self.spinning_paid();
        }
        self.begin_anew();
    }

    /// Yields the core no more before it sleeps: whoever may have been woken by what it worked on waits for the core by now, and
    /// found it awake.
    pub fn skip_yield(&mut self) {
        self.gives_way = true;
    }

    /// Tells whether the core was somebody else's since the last look.
    #[inline]
    fn look_at_the_clock(&mut self, now: Instant) {
        self.taken |= self.looked.is_some_and(|last| now.saturating_duration_since(last) > TAKEN);
        self.looked = Some(now);
    }

    fn begin_anew(&mut self) {
        (self.idle, self.looked, self.gives_way, self.taken) = (0, None, false, false);
    }

    fn spinning_paid(&mut self) {
        let WaitPolicy { min_spins, max_spins, .. } = self.policy;
        self.budget = self.budget.max(self.idle.saturating_mul(2)).min(max_spins).max(min_spins);
        if std::mem::take(&mut self.trying) {
            self.patience = 1;
        }
    }

    /// Spins as little as may be, and tries again later than the last time.
    fn give_up(&mut self) {
        self.trying = false;
        self.budget = self.policy.min_spins;
        self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
    }

    /// After a sleep, before which the whole budget was spun in vain.
    fn spinning_did_not_pay(&mut self, was_short: bool) {
        let WaitPolicy { min_spins, max_spins, .. } = self.policy;
        if self.trying {
            return self.give_up();
        }
        self.budget = (self.budget / 2).max(min_spins);
        self.short_sleeps = if was_short { self.short_sleeps + 1 } else { 0 };
        if self.short_sleeps >= self.patience {
            self.short_sleeps = 0;
            self.trying = true;
            self.budget = max_spins.max(min_spins);
        }
    }

    /// To be called when a look found nothing: spins once, or yields, or sleeps until one of `fds` is ready or
    /// `timeout` is over (none: for ever). The caller drains its doorbells after sleeping.
    ///
    /// # Errors
    /// If `poll` fails for another reason than a signal, which means that a descriptor is not open.
    pub fn idle<S: Sleeper + ?Sized>(
        &mut self,
        ends: &mut S,
        fds: &mut [PollFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<IdleResult, Errno> {
        if self.stays_awake() { Ok(IdleResult::Awake) } else { self.sleep(ends, fds, timeout) }
    }

    /// The first half of [`Self::idle`], for who has many descriptors: spins once, or yields. False if it is time to sleep.
    #[inline]
    pub fn stays_awake(&mut self) -> bool {
        self.stays_awake_at(Instant::now())
    }

    #[inline]
    fn stays_awake_at(&mut self, now: Instant) -> bool {
        let looks = self.idle;
        // Below the most spins that a policy can name, so that those are for ever.
        self.idle = looks.saturating_add(1).min(u32::MAX - 1);
        self.look_at_the_clock(now);
        if looks < self.budget {
            std::hint::spin_loop();
            return true;
        }
        // Who took the core may be about to want it again, and to yield to a thread of another control group helps it little.
        let stays = !self.taken && !self.gives_way;
        let yields = stays && looks < self.budget.saturating_add(self.policy.yields);
        if yields {
            rustix::thread::sched_yield();
        }
        yields
    }

    /// The second half of [`Self::idle`].
    ///
    /// # Errors
    /// As [`Self::idle`].
    pub fn sleep<S: Sleeper + ?Sized>(
        &mut self,
        ends: &mut S,
        fds: &mut [PollFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<IdleResult, Errno> {
        self.sleep_in(ends, |_| sleep(fds, timeout))
    }

    /// The second half of [`Self::idle`], for who sleeps otherwise: in `sleep`, which tells how many things woke it.
    ///
    /// # Errors
    /// That of `sleep`.
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
        self.begin_anew();
        slept.map(IdleResult::Slept)
    }
}

/// `poll`, with a signal taken for the end of the time.
fn sleep(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize, Errno> {
    // A time out of range (centuries) is as good as none.
    let timeout: Option<Timespec> = timeout.and_then(|t| t.try_into().ok());
    match rustix::event::poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter that may spin through a second sleep, after one that was spun through in vain.
    fn waiter() -> Waiter {
        let mut waiter = Waiter::new(WaitPolicy { min_spins: 4, max_spins: 64, yields: 0 });
        waiter.budget = 4;
        waiter.spinning_did_not_pay(true);
        assert_eq!((waiter.trying, waiter.budget), (true, 64));
        waiter
    }

    /// Looks so often, as far apart as that, and finds work the next time.
    fn spin(waiter: &mut Waiter, start: Instant, looks: u32, apart: Duration) {
        assert!((0..looks).all(|i| waiter.stays_awake_at(start + apart * i)));
        waiter.found_work_at(start + apart * looks);
    }

    #[test]
    fn spinning_goes_on_where_it_pays() {
        let mut waiter = waiter();
        for _ in 0..5 {
            spin(&mut waiter, Instant::now(), 50, Duration::from_nanos(50));
            assert_eq!((waiter.budget, waiter.patience), (64, 1));
        }
        waiter.spinning_did_not_pay(false);
        assert_eq!(waiter.budget, 32);
    }

    #[test]
    fn a_core_that_was_taken_is_yielded_no_more() {
        let mut waiter = Waiter::new(WaitPolicy { min_spins: 0, max_spins: 0, yields: 3 });
        let start = Instant::now();
        let looks = |waiter: &mut Waiter, micros: [u64; 4]| {
            waiter.begin_anew();
            micros.map(|at| waiter.stays_awake_at(start + Duration::from_micros(at)))
        };
        assert_eq!(looks(&mut waiter, [0, 1, 2, 3]), [true, true, true, false]);
        assert_eq!(looks(&mut waiter, [0, 1, 9, 10]), [true, true, false, false]);
        assert_eq!(looks(&mut waiter, [20, 21, 22, 23]), [true, true, true, false], "it was slept since");
    }

    #[test]
    fn who_gives_way_yields_no_more_before_it_works_again() {
        let mut waiter = Waiter::new(WaitPolicy { min_spins: 1, max_spins: 1, yields: 3 });
        let now = Instant::now();
        waiter.skip_yield();
        assert_eq!([0; 2].map(|_| waiter.stays_awake_at(now)), [true, false], "a spin that pays is no yield");
        waiter.found_work_at(now);
        assert_eq!([0; 5].map(|_| waiter.stays_awake_at(now)), [true, true, true, true, false]);
    }

    #[test]
    fn what_is_found_after_the_core_was_taken_does_not_pay() {
        let mut waiter = waiter();
        let start = Instant::now();
        spin(&mut waiter, start, 1, Duration::from_micros(6));
        assert_eq!((waiter.budget, waiter.patience, waiter.trying), (4, 2, false));
        spin(&mut waiter, start + Duration::from_secs(1), 2, Duration::from_nanos(50));
        assert_eq!((waiter.budget, waiter.patience), (4, 2), "what went before does not count");
    }
}
