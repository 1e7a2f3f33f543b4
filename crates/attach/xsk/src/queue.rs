//! The two pumps of one queue of one interface, and how threads sleep until these are to run.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use libc::c_int;
use p4shield_xsk_relay::handover::Handover;
use p4shield_xsk_relay::relay::{ReceivePump, TransmitPump};
use p4shield_xsk_relay::sleep::{PumpSide, QueueSleepers, WakeState};
use rustix::time::{ClockId, clock_gettime};

use crate::next_libc;
use crate::poll_set::PollSet;
use crate::ready_event;
use crate::verdicts::Verdicts;

/// The most send calls in one round for packets whose verdicts came between the application's calls. In
/// copy mode the kernel sends 32 packets in each.
const MAX_SEND_CALLS: u32 = 64;
/// Nanoseconds until a thread checks again for work that no event will announce.
pub(crate) const RECHECK_SOON: u64 = 50_000;

/// Returns nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    // Neither is negative: the clock starts at boot.
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The two pumps of a queue, and hints about them that are read without entering a hand-over.
#[derive(Debug)]
pub(crate) struct XskQueue {
    pub(crate) receive: Handover<Option<ReceivePump<Verdicts>>>,
    pub(crate) transmit: Handover<Option<TransmitPump<Verdicts>>>,
    /// The threads that sleep for the queue.
    pub(crate) sleepers: QueueSleepers,
    /// Whether the kernel is sending frames.
    sending: AtomicBool,
    /// Whether the kernel left packets in its transmit ring.
    unsent: AtomicBool,
    /// Whether the kernel waits for a system call before it reads the fill ring.
    pub(crate) kernel_needs_wakeup: AtomicBool,
    /// Whether the application need not make any call, since its bind requested no need_wakeup flag.
    pub(crate) never_calls: AtomicBool,
    /// Whether the drain thread must come at once, although the application made calls.
    pub(crate) handed_over: AtomicBool,
    /// Counts the application's calls, so that the drain thread leaves a queue alone whose application
    /// makes some.
    pub(crate) calls: AtomicU32,
}

impl XskQueue {
    pub(crate) const fn new() -> Self {
        Self {
            receive: Handover::new(None),
            transmit: Handover::new(None),
            sleepers: QueueSleepers::new(),
            sending: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
            kernel_needs_wakeup: AtomicBool::new(false),
            never_calls: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            calls: AtomicU32::new(0),
        }
    }

    /// Returns whether packets to send wait for a verdict or are with the kernel.
    pub(crate) fn is_sending(&self) -> bool {
        self.sleepers.holds(PumpSide::Transmit) || self.kernel_is_sending()
    }

    /// Returns whether the kernel is sending frames.
    pub(crate) fn kernel_is_sending(&self) -> bool {
        self.sending.load(Relaxed)
    }

    /// Returns whether the kernel left packets in its transmit ring, so that a send call must follow soon.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.load(Relaxed)
    }

    /// Returns whether packets are held or unsent for which no sleeping thread would come.
    pub(crate) fn is_unattended(&self) -> bool {
        self.has_unsent() || self.sleepers.is_unattended()
    }

    /// Counts a call of the application.
    pub(crate) fn count_call(&self) {
        // Two concurrent calls may count as one: any change is enough.
        self.calls.store(self.calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Runs the receive pump and passes it to `inspect`. Returns whether descriptors moved, or `None` if
    /// another thread is inside, which then does another round.
    pub(crate) fn pump_receive(&self, mut inspect: impl FnMut(&mut ReceivePump<Verdicts>)) -> Option<bool> {
        let mut moved = false;
        let done = self.receive.run(|pump| {
            let Some(pump) = pump else { return };
            self.apply_wake_state(PumpSide::Receive, pump.verdict_sources());
            let progress = pump.process(now);
            self.sleepers.update_held(PumpSide::Receive, progress.held > 0, progress.moved > 0);
            moved |= progress.moved > 0;
            if progress.moved > 0 {
                self.signal_waiters(pump);
            }
            inspect(pump);
        });
        done.then_some(moved)
    }

    /// Runs the transmit pump, makes send calls on `fd` if the kernel has packets to send, and passes
    /// the pump to `inspect`. For a send call of the application (`by_application`) makes one call and
    /// returns its result; otherwise repeats the call until the kernel has taken all packets. Returns
    /// `None` if another thread is inside.
    pub(crate) fn pump_transmit(
        &self,
        (number, fd): (u32, RawFd),
        by_application: bool,
        mut inspect: impl FnMut(&mut TransmitPump<Verdicts>),
    ) -> Option<isize> {
        let mut result = 0;
        let mut called = !by_application;
        let done = self.transmit.run(|pump| {
            let Some(pump) = pump else { return };
            self.apply_wake_state(PumpSide::Transmit, pump.verdict_sources());
            let progress = pump.process(now);
            let unsent = pump.unsent(number);
            if progress.unsent > 0 && pump.needs_send_call(number) {
                if called {
                    send_all(pump, number, fd);
                } else {
                    (result, called) = (next_libc::send_empty(fd), true);
                }
                if pump.unsent(number) < unsent {
                    pump.verdict_sources().for_each(Verdicts::sent);
                }
                pump.reap();
            }
            self.sleepers.update_held(PumpSide::Transmit, progress.held > 0, progress.moved > 0);
            self.unsent.store(pump.needs_send_call(number) && pump.unsent(number) > 0, Relaxed);
            self.sending.store(pump.outstanding() > progress.held, Relaxed);
            inspect(pump);
        });
        done.then_some(result)
    }

    /// Prepares a thread's sleep for a socket: adds the P4 VMs' doorbells and deadlines to `set`.
    /// `may_sleep` decides from the receive pump whether the thread may sleep at all.
    /// [`Self::leave_sleep`] must follow. Returns false if the thread must check again instead.
    pub(crate) fn enter_sleep(
        &self,
        socket: (u32, RawFd),
        set: &mut PollSet,
        may_sleep: impl Fn(&mut ReceivePump<Verdicts>) -> bool,
    ) -> bool {
        self.sleepers.enter_sleep();
        let now = now();
        let mut may = true;
        let received = self.pump_receive(|pump| {
            let watched = may_sleep(pump) && pump.verdict_sources().all(|v| v.watch(now, set));
            self.sleepers.set_watched(PumpSide::Receive, watched);
            may &= watched;
        });
        let sent = self.pump_transmit(socket, false, |pump| {
            let watched = pump.verdict_sources().all(|v| v.watch(now, set));
            self.sleepers.set_watched(PumpSide::Transmit, watched);
            may &= watched;
        });
        if !may || received.is_none() || sent.is_none() || self.has_unsent() {
            set.limit(RECHECK_SOON);
        }
        may
    }

    /// Ends a sleep; `rang` if a doorbell may have woken the thread. Other sleeping threads may watch
    /// fewer doorbells, so the caller must check [`Self::is_unattended`].
    pub(crate) fn leave_sleep(&self, rang: bool) {
        self.sleepers.leave_sleep(rang);
    }

    /// Stops the doorbells of threads that are awake again. The first step of every round.
    fn apply_wake_state<'v>(&self, side: PumpSide, sources: impl Iterator<Item = &'v mut Verdicts>) {
        let WakeState { rang, no_sleeper } = self.sleepers.take_wake_state(side);
        if rang || no_sleeper {
            sources.for_each(|v| v.end_watch(rang, no_sleeper));
        }
    }

    /// Signals threads that wait for packets: the kernel's socket is not readable for packets that this
    /// library holds.
    fn signal_waiters(&self, pump: &mut ReceivePump<Verdicts>) {
        if self.sleepers.has_waiters() {
            for (number, ready) in pump.all_ready() {
                if ready > 0 {
                    ready_event::signal(number, ready);
                }
            }
        }
    }
}

/// Repeats the send call while the kernel takes packets. If an interface is down or full, a later round
/// tries again.
fn send_all(pump: &mut TransmitPump<Verdicts>, number: u32, fd: RawFd) {
    const RETRIED: [c_int; 3] = [libc::EAGAIN, libc::EBUSY, libc::ENOBUFS];
    for _ in 0..MAX_SEND_CALLS {
        let before = pump.unsent(number);
        if before == 0 || (next_libc::send_empty(fd) < 0 && !RETRIED.contains(&next_libc::errno())) {
            return;
        }
        pump.reap();
        if pump.unsent(number) >= before {
            return;
        }
    }
}
