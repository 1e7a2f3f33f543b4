//! The worker: the one thread on which a tenant's programs judge packets.
//!
//! A packet's way continues here from the channel (`p4shield_channel`):
//!
//! | step | module | what it does |
//! |---|---|---|
//! | 0 | this module, [`Worker::run`] | polls the channels in turn; polls commands, information and logs between batches |
//! | 1 | `serve` | fetches a batch of one channel into private memory, publishes its verdicts |
//! | 2 | `tenant_programs` | finds the VM, the direction and their program |
//! | 3 | `verdict` | runs the program, counts and audits the packet, passes the verdict to the channel |
//!
//! Commands of the control thread (`command`, `mailbox`) are executed between two batches. That is when
//! programs are replaced, so that the old or the new program judges a packet, which waits for neither. On a
//! packet's way there is no allocation, no lock and no system call; what has to be freed returns to the
//! control thread. Without packets the worker spins, yields and at last sleeps: at the futexes of its
//! channels, or at their doorbells if there are too many channels or the kernel is older than 5.16. It wakes
//! for each log record.

mod audit;
mod channels;
mod command;
mod keys;
mod mailbox;
mod serve;
mod tenant_programs;
#[cfg(test)]
mod tests;
mod verdict;
mod vm;

pub use crate::program::{LoadedProgram, MapReading, NotRead};
pub use crate::tenant_settings::DecidingTerms;
pub(crate) use command::UNSUPPORTED;
pub use command::{WorkerAnswer, WorkerCommand};
pub use keys::KeyChange;
pub(crate) use mailbox::ProgramRunner;
pub use mailbox::{WorkerHandle, mailbox};
pub use serve::ServedChannel;
pub(crate) use tenant_programs::TenantPrograms;
pub use verdict::NoProgram;
pub use vm::{Vm, VmPages};

use channels::ServedChannels;
use mailbox::Mailbox;
use p4shield_channel::futex::{self, MAX_FUTEXES};
use p4shield_channel::{Doorbell, IdleResult, WaitPolicy, Waiter};
use p4shield_control::{ChannelStatus, MAX_CHANNELS, Status};
use p4shield_seal::Now;
use rustix::event::{PollFd, PollFlags};
use std::cell::Cell;
use std::time::Duration;

/// The thread's state.
pub struct Worker {
    mailbox: Mailbox,
    channels: ServedChannels,
    /// The doorbell of each of `channels`, at the same index.
    doorbells: Vec<ChannelDoorbell>,
    programs: TenantPrograms,
    waiter: Waiter,
    /// Whether the kernel can wait at several futexes (`futex_waitv`, Linux 5.16), and those of channels.
    can_wait: bool,
    /// The mailbox's doorbell woke the worker and has not been drained yet.
    command_doorbell_rang: bool,
    /// Artificial delay in nanoseconds for each packet, before its verdict is published.
    delay_ns: u64,
}

/// A channel's doorbell.
struct ChannelDoorbell {
    doorbell: Doorbell,
    /// It woke the worker and has not been drained yet.
    ringing: Cell<bool>,
    /// Its other end is closed; polling it would never let the worker sleep.
    closed: bool,
}

impl Worker {
    /// Returns a worker without VMs and channels.
    #[must_use]
    pub fn new(mailbox: Mailbox, no_program: NoProgram, log_interval: Duration) -> Self {
        Self {
            mailbox,
            channels: ServedChannels::with_capacity(MAX_CHANNELS),
            doorbells: Vec::with_capacity(MAX_CHANNELS),
            programs: TenantPrograms::new(no_program, log_interval),
            waiter: Waiter::default(),
            can_wait: futex::is_supported(),
            command_doorbell_rang: false,
            delay_ns: 0,
        }
    }

    /// Adds an artificial delay for each packet, as if programs were slow.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay_ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Sets how the worker waits for packets.
    #[must_use]
    pub fn waiting(mut self, policy: WaitPolicy) -> Self {
        self.waiter = Waiter::new(policy);
        self
    }

    /// Judges packets until [`WorkerCommand::Stop`] or until the control thread ends. Publishes a last log
    /// record of each VM.
    pub fn run(mut self) {
        while self.round() {}
        self.publish_logs(Now::read());
    }

    fn publish_logs(&mut self, now: Now) {
        self.programs.publish_logs(now, self.channels.header_bytes());
        self.channels.header_bytes_recorded();
    }

    /// Runs one round: commands, a fetch from each channel, information and log if due, verdicts; sleeps if
    /// there was nothing to do. Returns false at the end.
    ///
    /// Packets are fetched before the clock is read. A host that stops this thread anywhere and continues it
    /// when the information is stale thus gets verdicts on packets of that time, and none on new packets.
    #[inline]
    fn round(&mut self) -> bool {
        if self.mailbox.pending() && !self.run_commands() {
            return false;
        }
        let fetched = self.channels.fetch();
        let now = steady_ns();
        if self.programs.is_poll_due(now) {
            let header_bytes = self.channels.header_bytes();
            if self.programs.poll_pages(Now::read(), header_bytes) {
                self.channels.header_bytes_recorded();
            }
        }
        if fetched {
            self.judge_fetched(now);
            self.waiter.found_work();
        } else {
            self.idle(now);
        }
        true
    }

    /// Judges the fetched packets, for which the steady clock reads `now_ns`.
    fn judge_fetched(&mut self, now_ns: u64) {
        self.channels.for_each_fetched(|i, channel| {
            // One delay for the batch, whose verdicts are published together.
            if self.delay_ns > 0 {
                spin(self.delay_ns.saturating_mul(channel.fetched()));
            }
            if channel.judge_batch(&mut self.programs, now_ns) {
                // An error means that the mediator has ended.
                let _ = self.doorbells[i].doorbell.ring();
            }
        });
    }

    /// Spins, yields or sleeps, at most until the next log record is due.
    fn idle(&mut self, now_ns: u64) {
        if self.channels.take_sent() {
            self.waiter.skip_yield();
        }
        if self.waiter.stays_awake() {
            return;
        }
        let due = Duration::from_nanos(self.programs.next_log().saturating_sub(now_ns));
        let due = due.max(Duration::from_millis(1));
        // One futex is the mailbox's.
        let at_futexes = self.can_wait && self.channels.all.len() < MAX_FUTEXES;
        self.channels.sleep_at_futexes(at_futexes);
        if at_futexes {
            self.sleep_at_futexes(due);
        } else {
            self.sleep_at_doorbells(due);
        }
    }

    fn sleep_at_futexes(&mut self, due: Duration) {
        let seen = self.mailbox.seen();
        // What was command_doorbell_rang before that is there by now.
        if self.mailbox.pending() {
            return;
        }
        let mailbox = self.mailbox.futex(seen);
        let sleep = |channels: &ServedChannels| {
            let futexes = std::iter::once(mailbox).chain(channels.futexes());
            futex::wait(futexes, due).map(usize::from)
        };
        if self.waiter.sleep_in(&mut self.channels, sleep).is_err() {
            // Memory of a device, as channels are in a virtual machine, has no futexes (EFAULT).
            self.can_wait = false;
        }
    }

    fn sleep_at_doorbells(&mut self, due: Duration) {
        self.drain_doorbells();
        let wake = self.mailbox.doorbell();
        let mut fds: [PollFd<'_>; MAX_CHANNELS + 1] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(wake, PollFlags::IN));
        let mut used = 1;
        for doorbell in self.doorbells.iter().filter(|b| !b.closed) {
            fds[used] = PollFd::new(&doorbell.doorbell, PollFlags::IN);
            used += 1;
        }
        if let Ok(IdleResult::Slept(1..)) = self.waiter.sleep(&mut self.channels, &mut fds[..used], Some(due))
        {
            let [command_doorbell_rang, ringing @ ..] = &fds[..used] else { return };
            self.command_doorbell_rang = !command_doorbell_rang.revents().is_empty();
            let doorbells = self.doorbells.iter().filter(|b| !b.closed);
            doorbells.zip(ringing).for_each(|(doorbell, fd)| doorbell.ringing.set(!fd.revents().is_empty()));
        }
    }

    /// Drains the doorbells that rang. This happens before the next sleep and not after waking, so that no
    /// packet waits for these system calls.
    fn drain_doorbells(&mut self) {
        if std::mem::take(&mut self.command_doorbell_rang) {
            self.mailbox.drain();
        }
        for doorbell in self.doorbells.iter_mut().filter(|b| b.ringing.take()) {
            doorbell.closed = !doorbell.doorbell.drain();
        }
    }

    /// Executes commands. Returns false at the end.
    fn run_commands(&mut self) -> bool {
        while let Some(command) = self.mailbox.take() {
            let answer = match command {
                WorkerCommand::Stop => {
                    self.mailbox.answer(WorkerAnswer::Done);
                    return false;
                }
                WorkerCommand::Attach(served, doorbell) => self.attach(served, doorbell),
                WorkerCommand::Detach(channel) => self.detach(channel),
                WorkerCommand::Status => WorkerAnswer::Status(Box::new(self.status())),
                other => {
                    let header_bytes = self.channels.header_bytes();
                    other.apply_to(&mut self.programs, header_bytes)
                }
            };
            self.mailbox.answer(answer);
        }
        !self.mailbox.disconnected()
    }

    fn attach(&mut self, served: Box<ServedChannel>, doorbell: Doorbell) -> WorkerAnswer {
        let channels = &self.channels.all;
        if channels.len() == MAX_CHANNELS {
            return WorkerAnswer::Failed(format!(
                "the P4 VM has {MAX_CHANNELS} channels already, which is the limit"
            ));
        }
        if channels.iter().any(|c| c.channel == served.channel) {
            return WorkerAnswer::Failed(format!("channel {} is attached already", served.channel));
        }
        if channels.first().is_some_and(|c| c.header_bytes() != served.header_bytes()) {
            return WorkerAnswer::Failed(
                "all channels of a P4 VM must have the same number of header bytes".to_owned(),
            );
        }
        self.channels.add(*served);
        self.doorbells.push(ChannelDoorbell { doorbell, ringing: Cell::new(false), closed: false });
        WorkerAnswer::Done
    }

    fn detach(&mut self, channel: u32) -> WorkerAnswer {
        match self.channels.all.iter().position(|c| c.channel == channel) {
            Some(i) => {
                let doorbell = self.doorbells.swap_remove(i);
                WorkerAnswer::Detached(Box::new(self.channels.remove(i)), doorbell.doorbell)
            }
            None => WorkerAnswer::Failed(format!("channel {channel} is not attached")),
        }
    }

    fn status(&self) -> Status {
        let channel = |c: &ServedChannel| ChannelStatus {
            channel: c.channel,
            answered: c.answered,
            fault: c.responder.fault().map(|f| f.to_string()),
        };
        Status { channels: self.channels.all.iter().map(channel).collect(), vms: self.programs.statuses() }
    }
}

/// Spins for this time, as a slow program would.
#[cold]
fn spin(ns: u64) {
    let start = steady_ns();
    while steady_ns().wrapping_sub(start) < ns {
        std::hint::spin_loop();
    }
}

/// Reads the steady clock of [`Now`] only, in nanoseconds.
pub(crate) fn steady_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The time since boot: neither part is negative.
    t.tv_sec.unsigned_abs().wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec.unsigned_abs())
}
