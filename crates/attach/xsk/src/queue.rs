//! Pumping: the rings of one queue of one interface, moved by whoever comes by; and sleeping until they are to be moved.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use libc::c_int;
use p4shield_xsk_relay::handover::Handover;
use p4shield_xsk_relay::relay::{ReceivePump, TransmitPump};
use p4shield_xsk_relay::sleep::{PumpSide, QueueSleepers, WakeState};
use rustix::time::{ClockId, clock_gettime};

use crate::judge::Verdicts;
use crate::real;
use crate::rest::Rest;

/// Calls for sending that one round makes for verdicts that came while nobody sent: 32 packets each in copy mode.
const MOST_CALLS: u32 = 64;
/// Nanoseconds until a thread that would sleep looks again where nothing will wake it and something is to be done.
pub(crate) const SOON: u64 = 50_000;

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    // Neither is negative: the clock starts with the machine.
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The two directions of a queue, and hints about them that are read without entering.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) receive: Handover<Option<ReceivePump<Verdicts>>>,
    pub(crate) transmit: Handover<Option<TransmitPump<Verdicts>>>,
    /// Who sleeps for it.
    pub(crate) sleepers: QueueSleepers,
    /// Whether the kernel has frames for sending.
    sending: AtomicBool,
    /// Whether the kernel did not take all that it was told to send.
    unsent: AtomicBool,
    /// Whether the kernel asks for a call to look at its fill ring.
    pub(crate) kernel_wants: AtomicBool,
    /// Whether the application makes no calls at all, by its right: it was bound without a flag that would ask for them.
    pub(crate) never_calls: AtomicBool,
    /// Whether the drain thread is to come for it at once, although calls were made.
    pub(crate) handed_over: AtomicBool,
    /// Counts the application's calls; the drain thread leaves alone what moves by itself.
    pub(crate) calls: AtomicU32,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            receive: Handover::new(None),
            transmit: Handover::new(None),
            sleepers: QueueSleepers::new(),
            sending: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
            kernel_wants: AtomicBool::new(false),
            never_calls: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            calls: AtomicU32::new(0),
        }
    }

    /// Whether frames are on their way out: with a judge, or with the kernel.
    pub(crate) fn sends(&self) -> bool {
        self.sleepers.holds(PumpSide::Transmit) || self.kernel_sends()
    }

    /// Whether the kernel has frames for sending.
    pub(crate) fn kernel_sends(&self) -> bool {
        self.sending.load(Relaxed)
    }

    /// Whether the kernel is to be told again soon.
    pub(crate) fn unsent(&self) -> bool {
        self.unsent.load(Relaxed)
    }

    /// Whether packets are with judges or were not taken by the kernel, and no thread sleeps that would come for them.
    pub(crate) fn is_unattended(&self) -> bool {
        self.unsent() || self.sleepers.is_unattended()
    }

    /// A thread of the application made a call.
    pub(crate) fn called(&self) {
        // Two at once may count one: any change will do.
        self.calls.store(self.calls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Moves what is received. `see` looks at the pump afterwards. Returns whether something moved, or `None` if another
    /// thread is at it.
    pub(crate) fn pump_receive(&self, mut see: impl FnMut(&mut ReceivePump<Verdicts>)) -> Option<bool> {
        let mut moved = false;
        let done = self.receive.run(|pump| {
            let Some(pump) = pump else { return };
            self.awake(PumpSide::Receive, pump.verdict_sources());
            let round = pump.process(now);
            self.sleepers.update_held(PumpSide::Receive, round.held > 0, round.moved > 0);
            moved |= round.moved > 0;
            if round.moved > 0 {
                self.wake_pollers(pump);
            }
            see(pump);
        });
        done.then_some(moved)
    }

    /// Moves what is sent, and tells the kernel by `socket` if there is something to tell: once and with its answer if
    /// the application `asked`, else until it has taken all. `see` looks at the pump afterwards. Returns what the
    /// application's call is to return, or `None` if another thread is at it.
    pub(crate) fn pump_transmit(
        &self,
        (number, socket): (u32, RawFd),
        asked: bool,
        mut see: impl FnMut(&mut TransmitPump<Verdicts>),
    ) -> Option<isize> {
        let mut answer = 0;
        let mut told = !asked;
        let done = self.transmit.run(|pump| {
            let Some(pump) = pump else { return };
            self.awake(PumpSide::Transmit, pump.verdict_sources());
            let round = pump.process(now);
            let unsent = pump.unsent(number);
            if round.unsent > 0 && pump.needs_send_call(number) {
                if told {
                    tell_all(pump, number, socket);
                } else {
                    (answer, told) = (tell(socket), true);
                }
                if pump.unsent(number) < unsent {
                    pump.verdict_sources().for_each(Verdicts::sent);
                }
                pump.reap();
            }
            self.sleepers.update_held(PumpSide::Transmit, round.held > 0, round.moved > 0);
            self.unsent.store(pump.needs_send_call(number) && pump.unsent(number) > 0, Relaxed);
            self.sending.store(pump.outstanding() > round.held, Relaxed);
            see(pump);
        });
        done.then_some(answer)
    }

    /// Before a thread sleeps for a socket: has judges ring for it, and says until when it may sleep. `see` says of what
    /// is received whether it may sleep at all. [`Queue::slept`] has to follow. False if it is to look once more instead.
    pub(crate) fn announce(
        &self,
        socket: (u32, RawFd),
        rest: &mut Rest,
        see: impl Fn(&mut ReceivePump<Verdicts>) -> bool,
    ) -> bool {
        self.sleepers.enter_sleep();
        let now = now();
        let mut may = true;
        let received = self.pump_receive(|pump| {
            let told = see(pump) && pump.verdict_sources().all(|j| j.announce(now, rest));
            self.sleepers.set_watched(PumpSide::Receive, told);
            may &= told;
        });
        let sent = self.pump_transmit(socket, false, |pump| {
            let told = pump.verdict_sources().all(|j| j.announce(now, rest));
            self.sleepers.set_watched(PumpSide::Transmit, told);
            may &= told;
        });
        if !may || received.is_none() || sent.is_none() || self.unsent() {
            rest.at_most(SOON);
        }
        may
    }

    /// After [`Queue::announce`]: the thread is awake. `rang` if a judge may have woken it. Whoever was told less may sleep
    /// on, so it has to ask whether the queue is [left alone](Self::is_unattended).
    pub(crate) fn slept(&self, rang: bool) {
        self.sleepers.leave_sleep(rang);
    }

    /// The first thing of a round: takes back what was announced for threads that are awake again.
    fn awake<'j>(&self, side: PumpSide, judges: impl Iterator<Item = &'j mut Verdicts>) {
        let WakeState { rang, no_sleeper } = self.sleepers.take_wake_state(side);
        if rang || no_sleeper {
            judges.for_each(|j| j.awake(rang, no_sleeper));
        }
    }

    /// Packets have come for sockets that other threads may be waiting for, whose kernel's rings are silent about them.
    fn wake_pollers(&self, pump: &mut ReceivePump<Verdicts>) {
        if self.sleepers.has_waiters() {
            for (number, ready) in pump.all_ready() {
                if ready > 0 {
                    crate::socket::ring(number, ready);
                }
            }
        }
    }
}

/// The empty send by which the kernel looks at a transmit ring.
fn tell(socket: RawFd) -> isize {
    // SAFETY: sends nothing, so no buffer is read; no address is given.
    unsafe { real::sendto()(socket, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) }
}

/// As long as it takes some: an interface that is down or full is told again later.
fn tell_all(pump: &mut TransmitPump<Verdicts>, number: u32, socket: RawFd) {
    const AGAIN: [c_int; 3] = [libc::EAGAIN, libc::EBUSY, libc::ENOBUFS];
    for _ in 0..MOST_CALLS {
        let before = pump.unsent(number);
        if before == 0 || (tell(socket) < 0 && !AGAIN.contains(&real::errno())) {
            return;
        }
        pump.reap();
        if pump.unsent(number) >= before {
            return;
        }
    }
}
