//! The worker: the one thread on which a tenant's programs judge packets.
//!
//! It looks at every channel in turn, judges a batch, publishes the answers, and between two batches does what the
//! control thread ordered: that is when programs are replaced, so a packet meets the old program or the new one
//! and never waits for either. On the way of a packet there is no allocation, no lock and no system call; what has
//! to be freed goes back to the control thread. With nothing to do it spins, yields and at last sleeps on the
//! doorbells of its channels, waking for each log record.

mod judge;
mod mailbox;
#[cfg(test)]
mod tests;
mod vm;

pub use judge::{NoProgram, Served};
pub use mailbox::{Answer, Control, Order, mailbox};
pub use vm::Vm;

use crate::control::{ChannelStatus, MAX_CHANNELS, MAX_VMS, Place, Status};
use crate::program::Loaded;
use mailbox::Mailbox;
use p4shield_abi::Direction;
use p4shield_channel::{Doorbell, Idled, Sleeper, Waiter};
use p4shield_seal::Now;
use rustix::event::{PollFd, PollFlags};
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
    vms: Vms,
    waiter: Waiter,
    no_program: NoProgram,
    log_interval_ns: u64,
    next_look: u64,
    next_log: u64,
}

/// A channel's doorbell, and whether anybody can still ring it: one that hung up would never let the worker sleep.
struct Bell {
    doorbell: Doorbell,
    hung_up: bool,
}

/// Whatever can announce sleep, as one.
struct Ends {
    channels: Vec<Served>,
}

impl Sleeper for Ends {
    fn announce(&mut self) -> bool {
        for i in 0..self.channels.len() {
            if !self.channels[i].judge.announce() {
                self.channels[..i].iter_mut().for_each(|c| c.judge.retract());
                return false;
            }
        }
        true
    }

    fn retract(&mut self) {
        self.channels.iter_mut().for_each(|c| c.judge.retract());
    }
}

impl Worker {
    /// A worker without VMs and channels.
    #[must_use]
    pub fn new(mailbox: Mailbox, no_program: NoProgram, log_interval: Duration) -> Self {
        Self {
            mailbox,
            ends: Ends { channels: Vec::with_capacity(MAX_CHANNELS) },
            bells: Vec::with_capacity(MAX_CHANNELS),
            vms: (0..MAX_VMS).map(|_| None).collect(),
            waiter: Waiter::default(),
            no_program,
            log_interval_ns: u64::try_from(log_interval.as_nanos()).unwrap_or(u64::MAX),
            next_look: 0,
            next_log: 0,
        }
    }

    /// Judges until it is told to stop or its control thread is gone. Publishes a last log record of each VM.
    pub fn run(mut self) {
        while self.round() {}
        self.publish_logs(Now::read());
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
        let fetched = self.fetch();
        let now = steady_ns();
        if now >= self.next_look {
            self.look(Now::read());
        }
        if fetched {
            self.judge();
            self.waiter.worked();
        } else {
            self.idle(now);
        }
        true
    }

    /// Fetches a batch of each channel. True if there was anything.
    fn fetch(&mut self) -> bool {
        self.ends.channels.iter_mut().fold(false, |any, channel| channel.fetch() | any)
    }

    /// Judges what was fetched.
    fn judge(&mut self) {
        for (channel, bell) in self.ends.channels.iter_mut().zip(&self.bells) {
            if channel.judge(&mut self.vms, self.no_program) {
                // A mediator that is gone misses nothing.
                let _ = bell.doorbell.ring();
            }
        }
    }

    /// Opens new snapshots, notices old ones, and publishes log records that are due.
    fn look(&mut self, now: Now) {
        for vm in self.vms.iter_mut().flatten() {
            vm.refresh_info(now);
        }
        if now.mono_ns >= self.next_log {
            self.publish_logs(now);
            self.next_log = now.mono_ns.saturating_add(self.log_interval_ns);
        }
        self.next_look = now.mono_ns.saturating_add(LOOK_NS);
    }

    fn publish_logs(&mut self, now: Now) {
        let header_bytes = self.ends.channels.first().map_or(0, |c| c.header_bytes());
        for vm in self.vms.iter_mut().flatten() {
            vm.publish_log(header_bytes, now);
        }
    }

    /// Spins, yields or sleeps, at most until the next log record is due.
    fn idle(&mut self, now_ns: u64) {
        let due = Duration::from_nanos(self.next_log.saturating_sub(now_ns));
        let wake = self.mailbox.bell();
        let mut fds: [PollFd<'_>; MAX_CHANNELS + 1] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let mut used = 1;
        for bell in self.bells.iter().filter(|b| !b.hung_up) {
            fds[used] = PollFd::new(&bell.doorbell, PollFlags::IN);
            used += 1;
        }
        let timeout = Some(due.max(Duration::from_millis(1)));
        if let Ok(Idled::Slept(1..)) = self.waiter.idle(&mut self.ends, &mut fds[..used], timeout) {
            self.mailbox.silence();
            for bell in self.bells.iter_mut().filter(|b| !b.hung_up) {
                bell.hung_up = !bell.doorbell.drain();
            }
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
                Order::SetVm(vm) => self.set_vm(vm),
                Order::SetProgram(place, program) => self.set_program(place, program),
                Order::Attach(served, doorbell) => self.attach(served, doorbell),
                Order::Detach(channel) => self.detach(channel),
                Order::WithProgram(place, work) => self.with_program(place, work),
                Order::Status => Answer::Status(Box::new(self.status())),
            };
            self.mailbox.answer(answer);
        }
        !self.mailbox.orphaned()
    }

    fn set_vm(&mut self, vm: Box<Vm>) -> Answer {
        let index = usize::from(vm.index());
        match self.vms.get_mut(index) {
            Some(place @ None) => {
                *place = Some(vm);
                self.next_look = 0;
                Answer::Done
            }
            Some(Some(_)) => {
                Answer::Failed(format!("VM {index} is known already; restart the P4 VM to change it"))
            }
            None => Answer::Failed(format!("there is no VM {index}: at most {MAX_VMS} are possible")),
        }
    }

    fn place(&mut self, place: Place) -> Option<(&mut Vm, Direction)> {
        let direction = Direction::from_u8(place.direction)?;
        Some((self.vms.get_mut(usize::from(place.vm))?.as_deref_mut()?, direction))
    }

    fn set_program(&mut self, place: Place, program: Option<Box<Loaded>>) -> Answer {
        match self.place(place) {
            Some((vm, direction)) => Answer::Retired(vm.set_program(direction, program)),
            None => Answer::Failed(format!("VM {} is not known", place.vm)),
        }
    }

    fn with_program(&mut self, place: Place, work: mailbox::Work) -> Answer {
        match self.place(place) {
            Some((vm, direction)) => match vm.program_mut(direction) {
                Some(loaded) => Answer::Worked(work(loaded)),
                None => Answer::Failed(format!("VM {} has no program for {}", place.vm, direction.name())),
            },
            None => Answer::Failed(format!("VM {} is not known", place.vm)),
        }
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
        self.ends.channels.push(*served);
        self.bells.push(Bell { doorbell, hung_up: false });
        Answer::Done
    }

    fn detach(&mut self, channel: u32) -> Answer {
        match self.ends.channels.iter().position(|c| c.channel == channel) {
            Some(i) => {
                let bell = self.bells.swap_remove(i);
                Answer::Detached(Box::new(self.ends.channels.swap_remove(i)), bell.doorbell)
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
        Status {
            channels: self.ends.channels.iter().map(channel).collect(),
            vms: self.vms.iter().flatten().map(|v| v.status()).collect(),
        }
    }
}

/// The steady clock of [`Now`], alone.
fn steady_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Since boot, so neither part is negative.
    t.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec.unsigned_abs())
}
