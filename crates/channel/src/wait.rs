//! What an end does while there is nothing to do.
//!
//! Spinning answers within nanoseconds and burns a core; sleeping costs nothing and takes tens of microseconds to
//! wake. A [`Waiter`] spins while that has lately paid, then yields, then sleeps: an idle system uses no core, a
//! busy one makes no system call.

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
    /// Times to yield the core between spinning and sleeping.
    pub yields: u32,
}

impl WaitPolicy {
    /// Never yields and never sleeps: for an end that has a core of its own. No packet waits for it to wake, and its peer
    /// makes no system call.
    pub const BUSY: Self = Self { min_spins: u32::MAX, max_spins: u32::MAX, yields: 0 };
}

impl Default for WaitPolicy {
    /// Up to some 100 µs of spinning, longer than a wake-up takes; sleep shorter than that is spun through next time.
    fn default() -> Self {
        Self { min_spins: 64, max_spins: 2048, yields: 4 }
    }
}

/// Decides between spinning, yielding and sleeping.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    /// Spins that are worth it at present, between the policy's limits.
    budget: u32,
    /// Looks in a row that found nothing.
    idle: u32,
    /// Sleep from which something woke us this soon was not worth it.
    short_sleep: Duration,
}

/// What [`Waiter::idle`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idled {
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
        Self { policy, budget, idle: 0, short_sleep: Duration::from_micros(100) }
    }

    /// Sleep from which something woke us this soon was not worth it, and we spin longer next time. By default
    /// 100 µs.
    #[must_use]
    pub fn short_sleep(mut self, short_sleep: Duration) -> Self {
        self.short_sleep = short_sleep;
        self
    }

    /// To be called when a look found work.
    #[inline]
    pub fn worked(&mut self) {
        if self.idle != 0 {
            // Spinning paid: spin longer next time.
            self.spin_longer();
            self.idle = 0;
        }
    }

    fn spin_longer(&mut self) {
        let WaitPolicy { min_spins, max_spins, .. } = self.policy;
        self.budget = self.budget.max(1).saturating_mul(2).min(max_spins).max(min_spins);
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
    ) -> Result<Idled, Errno> {
        if self.stays_awake() { Ok(Idled::Awake) } else { self.sleep(ends, fds, timeout) }
    }

    /// The first half of [`Self::idle`], for who has many descriptors: spins once, or yields. False if it is time to sleep.
    #[inline]
    pub fn stays_awake(&mut self) -> bool {
        let looks = self.idle;
        // Below the most spins that a policy can name, so that those are for ever.
        self.idle = looks.saturating_add(1).min(u32::MAX - 1);
        if looks < self.budget {
            std::hint::spin_loop();
            return true;
        }
        let yields = looks < self.budget.saturating_add(self.policy.yields);
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
    ) -> Result<Idled, Errno> {
        if !ends.announce() {
            return Ok(Idled::Awake);
        }
        let start = Instant::now();
        let slept = sleep(fds, timeout);
        ends.retract();
        if matches!(slept, Ok(1..)) && start.elapsed() < self.short_sleep {
            self.spin_longer();
        } else {
            self.budget = (self.budget / 2).max(self.policy.min_spins);
        }
        self.idle = 0;
        slept.map(Idled::Slept)
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
