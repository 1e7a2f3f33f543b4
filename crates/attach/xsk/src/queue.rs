//! Pumping: the rings of one queue of one interface, moved by whoever comes by; and sleeping until they are to be moved.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use libc::c_int;
use p4shield_xsk_relay::handover::HandOver;
use p4shield_xsk_relay::relay::{ReceivePump, TransmitPump};
use p4shield_xsk_relay::sleep::{Side, Sleepers, Woken};
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
    pub(crate) receive: HandOver<Option<ReceivePump<Verdicts>>>,
    pub(crate) transmit: HandOver<Option<TransmitPump<Verdicts>>>,
    /// Who sleeps for it.
    pub(crate) sleepers: Sleepers,
    /// Whether the kernel has frames for sending.
    sending: AtomicBool,
    /// Whether the kernel did not take all that it was told to send.
    untold: AtomicBool,
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
            receive: HandOver::new(None),
            transmit: HandOver::new(None),
            sleepers: Sleepers::new(),
            sending: AtomicBool::new(false),
            untold: AtomicBool::new(false),
            kernel_wants: AtomicBool::new(false),
            never_calls: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
            calls: AtomicU32::new(0),
        }
    }

    /// Whether frames are on their way out: with a judge, or with the kernel.
    pub(crate) fn sends(&self) -> bool {
        self.sleepers.holds(Side::Transmit) || self.kernel_sends()
    }

    /// Whether the kernel has frames for sending.
    pub(crate) fn kernel_sends(&self) -> bool {
        self.sending.load(Relaxed)
    }

    /// Whether the kernel is to be told again soon.
    pub(crate) fn untold(&self) -> bool {
        self.untold.load(Relaxed)
    }

    /// Whether packets are with judges or were not taken by the kernel, and no thread sleeps that would come for them.
    pub(crate) fn left_alone(&self) -> bool {
        self.untold() || self.sleepers.left_alone()
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
            self.awake(Side::Receive, pump.judges());
            let round = pump.round(now);
            self.sleepers.keep(Side::Receive, round.held > 0, round.moved > 0);
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
            self.awake(Side::Transmit, pump.judges());
            let round = pump.round(now);
            let untold = pump.untold(number);
            if round.untold > 0 && pump.is_told_by_calls(number) {
                if told {
                    tell_all(pump, number, socket);
                } else {
                    (answer, told) = (tell(socket), true);
                }
                if pump.untold(number) < untold {
                    pump.judges().for_each(Verdicts::sent);
                }
                pump.reap();
            }
            self.sleepers.keep(Side::Transmit, round.held > 0, round.moved > 0);
            self.untold.store(pump.is_told_by_calls(number) && pump.untold(number) > 0, Relaxed);
            self.sending.store(pump.under_way() > round.held, Relaxed);
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
        self.sleepers.announced();
        let now = now();
        let mut may = true;
        let received = self.pump_receive(|pump| {
            let told = see(pump) && pump.judges().all(|j| j.announce(now, rest));
            self.sleepers.tell(Side::Receive, told);
            may &= told;
        });
        let sent = self.pump_transmit(socket, false, |pump| {
            let told = pump.judges().all(|j| j.announce(now, rest));
            self.sleepers.tell(Side::Transmit, told);
            may &= told;
        });
        if !may || received.is_none() || sent.is_none() || self.untold() {
            rest.at_most(SOON);
        }
        may
    }

    /// After [`Queue::announce`]: the thread is awake. `rang` if a judge may have woken it. Whoever was told less may sleep
    /// on, so it has to ask whether the queue is [left alone](Self::left_alone).
    pub(crate) fn slept(&self, rang: bool) {
        self.sleepers.slept(rang);
    }

    /// The first thing of a round: takes back what was announced for threads that are awake again.
    fn awake<'j>(&self, side: Side, judges: impl Iterator<Item = &'j mut Verdicts>) {
        let Woken { rang, nobody } = self.sleepers.woken(side);
        if rang || nobody {
            judges.for_each(|j| j.awake(rang, nobody));
        }
    }

    /// Packets have come for sockets that other threads may be waiting for, whose kernel's rings are silent about them.
    fn wake_pollers(&self, pump: &mut ReceivePump<Verdicts>) {
        if self.sleepers.someone_waits() {
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
        let before = pump.untold(number);
        if before == 0 || (tell(socket) < 0 && !AGAIN.contains(&real::errno())) {
            return;
        }
        pump.reap();
        if pump.untold(number) >= before {
            return;
        }
    }
}
