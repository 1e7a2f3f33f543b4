//! The worker: the one thread on which a tenant's programs judge packets.
//!
//! It looks at every channel in turn, judges a batch, publishes the answers, and between two batches does what the
//! control thread ordered: that is when programs are replaced, so a packet meets the old program or the new one
//! and never waits for either. On the way of a packet there is no allocation, no lock and no system call; what has
//! to be freed goes back to the control thread. With nothing to do it spins, yields and at last sleeps at the words of its
//! channels, or at their doorbells where there are too many or the kernel is older than 5.16, waking for each log record.

mod audit;
mod ends;
mod judge;
mod mailbox;
mod tenant;
#[cfg(test)]
mod tests;
mod vm;

pub use crate::program::Loaded;
pub use judge::{NoProgram, Served};
pub use mailbox::{Answer, Control, Order, mailbox};
pub(crate) use tenant::Tenant;
pub use vm::Vm;

use ends::Ends;
use mailbox::Mailbox;
use p4shield_channel::futex::{self, MAX_FUTEXES};
use p4shield_channel::{Doorbell, IdleResult, WaitPolicy, Waiter};
use p4shield_control::{ChannelStatus, MAX_CHANNELS, Status};
use p4shield_seal::Now;
use rustix::event::{PollFd, PollFlags};
use std::cell::Cell;
use std::time::Duration;

/// Shortest time between two looks at the info pages.
const LOOK_NS: u64 = 1_000_000;

/// The user VMs of the tenant, by index.
pub(crate) type Vms = Vec<Option<Box<Vm>>>;

/// The thread's state.
pub struct Worker {
    mailbox: Mailbox,
    ends: Ends,
    /// The doorbell of each of `ends`, at the same index.
    bells: Vec<Bell>,
    tenant: Tenant,
    waiter: Waiter,
    /// The kernel can wait at several words.
    can_wait: bool,
    /// The mailbox's bell woke the worker and was not silenced yet.
    ordered: bool,
    /// Nanoseconds that are waited for each packet before its verdict is published.
    delay_ns: u64,
}

/// A channel's doorbell.
struct Bell {
    doorbell: Doorbell,
    /// It woke the worker and was not silenced yet.
    rang: Cell<bool>,
    /// Nobody can ring it any more; it would never let the worker sleep.
    hung_up: bool,
}

impl Worker {
    /// A worker without VMs and channels.
    #[must_use]
    pub fn new(mailbox: Mailbox, no_program: NoProgram, log_interval: Duration) -> Self {
        Self {
            mailbox,
            ends: Ends::with_capacity(MAX_CHANNELS),
            bells: Vec::with_capacity(MAX_CHANNELS),
            tenant: Tenant::new(no_program, log_interval),
            waiter: Waiter::default(),
            can_wait: futex::is_supported(),
            ordered: false,
            delay_ns: 0,
        }
    }

    /// The same worker, taking so much longer for each packet: as if its programs were slow.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// The same worker, waiting for packets in this way.
    #[must_use]
    pub fn waiting(mut self, policy: WaitPolicy) -> Self {
        self.waiter = Waiter::new(policy);
        self
    }

    /// Judges until it is told to stop or its control thread is gone. Publishes a last log record of each VM.
    pub fn run(mut self) {
        while self.round() {}
        self.publish_logs(Now::read());
    }

    fn publish_logs(&mut self, now: Now) {
        let header_bytes = self.header_bytes();
        self.tenant.publish_logs(now, header_bytes);
    }

    /// Header bytes that an auditor sees: those of all channels.
    fn header_bytes(&self) -> u32 {
        self.ends.channels.first().map_or(0, |c| c.header_bytes())
    }

    /// Orders, a batch of each channel, information and log where due, verdicts; sleep if there was nothing. False at the
    /// end.
    ///
    /// Packets are fetched before the clock is read: a host that stops this thread at any place and has it go on when
    /// its information has long become old gets verdicts about packets of that time and not about new ones.
    #[inline]
    fn round(&mut self) -> bool {
        if self.mailbox.pending() && !self.obey() {
            return false;
        }
        let fetched = self.ends.fetch();
        let now = steady_ns();
        if self.tenant.is_due(now) {
            self.tenant.look(Now::read(), self.header_bytes());
        }
        if fetched {
            self.judge();
            self.waiter.found_work();
        } else {
            self.idle(now);
        }
        true
    }

    /// Judges what was fetched.
    fn judge(&mut self) {
        self.ends.each(|i, channel| {
            // Once a batch: its verdicts are published together, so it does not matter when they are waited for.
            if self.delay_ns > 0 {
                spin(self.delay_ns.saturating_mul(channel.fetched()));
            }
            if channel.judge(&mut self.tenant) {
                // A mediator that is gone misses nothing.
                let _ = self.bells[i].doorbell.ring();
            }
        });
    }

    /// Spins, yields or sleeps, at most until the next log record is due.
    fn idle(&mut self, now_ns: u64) {
        if self.ends.are_sent() {
            self.waiter.skip_yield();
        }
        if self.waiter.stays_awake() {
            return;
        }
        let due = Duration::from_nanos(self.tenant.next_log().saturating_sub(now_ns));
        let due = due.max(Duration::from_millis(1));
        // One word is the mailbox's.
        let at_words = self.can_wait && self.ends.channels.len() < MAX_FUTEXES;
        self.ends.sleep_at_words(at_words);
        if at_words {
            self.sleep_at_words(due);
        } else {
            self.sleep_at_doorbells(due);
        }
    }

    fn sleep_at_words(&mut self, due: Duration) {
        let seen = self.mailbox.seen();
        // What was ordered before that is there by now.
        if self.mailbox.pending() {
            return;
        }
        let orders = self.mailbox.word(seen);
        let sleep = |ends: &Ends| {
            let words = std::iter::once(orders).chain(ends.words());
            futex::wait(words, due).map(usize::from)
        };
        // The kernel has said that it can; if it takes that back, packets are looked for without sleep.
        let _ = self.waiter.sleep_in(&mut self.ends, sleep);
    }

    fn sleep_at_doorbells(&mut self, due: Duration) {
        self.silence();
        let wake = self.mailbox.bell();
        let mut fds: [PollFd<'_>; MAX_CHANNELS + 1] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let mut used = 1;
        for bell in self.bells.iter().filter(|b| !b.hung_up) {
            fds[used] = PollFd::new(&bell.doorbell, PollFlags::IN);
            used += 1;
        }
        if let Ok(IdleResult::Slept(1..)) = self.waiter.sleep(&mut self.ends, &mut fds[..used], Some(due)) {
            let [ordered, rang @ ..] = &fds[..used] else { return };
            self.ordered = !ordered.revents().is_empty();
            let bells = self.bells.iter().filter(|b| !b.hung_up);
            bells.zip(rang).for_each(|(bell, fd)| bell.rang.set(!fd.revents().is_empty()));
        }
    }

    /// Silences what rang, before the next sleep is announced and not as soon as it has woken the worker: no packet waits
    /// for these system calls.
    fn silence(&mut self) {
        if std::mem::take(&mut self.ordered) {
            self.mailbox.silence();
        }
        for bell in self.bells.iter_mut().filter(|b| b.rang.take()) {
            bell.hung_up = !bell.doorbell.drain();
        }
    }

    /// Carries out orders. False if that is the end.
    fn obey(&mut self) -> bool {
        while let Some(order) = self.mailbox.take() {
            let answer = match order {
                Order::Stop => {
                    self.mailbox.answer(Answer::Done);
                    return false;
                }
                Order::Attach(served, doorbell) => self.attach(served, doorbell),
                Order::Detach(channel) => self.detach(channel),
                Order::Status => Answer::Status(Box::new(self.status())),
                of_tenant => {
                    self.tenant.obey(of_tenant).unwrap_or_else(|_| Answer::Failed(NO_ORDER.to_owned()))
                }
            };
            self.mailbox.answer(answer);
        }
        !self.mailbox.orphaned()
    }

    fn attach(&mut self, served: Box<Served>, doorbell: Doorbell) -> Answer {
        let channels = &self.ends.channels;
        if channels.len() == MAX_CHANNELS {
            return Answer::Failed(format!("there are {MAX_CHANNELS} channels already, which is the most"));
        }
        if channels.iter().any(|c| c.channel == served.channel) {
            return Answer::Failed(format!("channel {} is attached already", served.channel));
        }
        if channels.first().is_some_and(|c| c.header_bytes() != served.header_bytes()) {
            return Answer::Failed("all channels of a P4 VM must have the same header bytes".to_owned());
        }
        self.ends.add(*served);
        self.bells.push(Bell { doorbell, rang: Cell::new(false), hung_up: false });
        Answer::Done
    }

    fn detach(&mut self, channel: u32) -> Answer {
        match self.ends.channels.iter().position(|c| c.channel == channel) {
            Some(i) => {
                let bell = self.bells.swap_remove(i);
                Answer::Detached(Box::new(self.ends.remove(i)), bell.doorbell)
            }
            None => Answer::Failed(format!("channel {channel} is not attached")),
        }
    }

    fn status(&self) -> Status {
        let channel = |c: &Served| ChannelStatus {
            channel: c.channel,
            answered: c.answered,
            fault: c.judge.fault().map(|f| f.to_string()),
        };
        Status { channels: self.ends.channels.iter().map(channel).collect(), vms: self.tenant.statuses() }
    }
}

/// Burns this much time, as a slow program would.
#[cold]
fn spin(ns: u64) {
    let start = steady_ns();
    while steady_ns().wrapping_sub(start) < ns {
        std::hint::spin_loop();
    }
}

/// What is answered to an order that nobody carries out.
pub(crate) const NO_ORDER: &str = "this cannot be done here";

/// The steady clock of [`Now`], alone.
pub(crate) fn steady_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Since boot, so neither part is negative.
    t.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec.unsigned_abs())
}
