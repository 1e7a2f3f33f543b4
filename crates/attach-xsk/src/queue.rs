//! Pumping: the rings of one queue of one interface, moved by whoever comes by.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use libc::c_int;
use p4shield_afxdp::handover::HandOver;
use p4shield_afxdp::relay::{ReceivePump, TransmitPump};
use rustix::time::{ClockId, clock_gettime};

use crate::judge::Verdicts;
use crate::real;

/// Calls for sending that one round makes for verdicts that came while nobody sent: 32 packets each in copy mode.
const MOST_CALLS: u32 = 64;

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
    /// Whether frames are on their way out: with a judge, or with the kernel.
    pub(crate) sending: AtomicBool,
    /// Whether received packets are with a judge.
    pub(crate) judging: AtomicBool,
    /// Whether the kernel asks for a call to look at its fill ring.
    pub(crate) kernel_wants: AtomicBool,
    /// Counts the application's calls; the drain thread leaves alone what moves by itself.
    pub(crate) calls: AtomicU32,
    /// Threads of the application that wait in `poll`.
    pub(crate) waiting: AtomicU32,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            receive: HandOver::new(None),
            transmit: HandOver::new(None),
            sending: AtomicBool::new(false),
            judging: AtomicBool::new(false),
            kernel_wants: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        }
    }

    /// Whether packets are neither with the application nor with the kernel's receiving side: someone has to come by.
    pub(crate) fn busy(&self) -> bool {
        self.judging.load(Relaxed) || self.sending.load(Relaxed)
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
            let round = pump.round(now);
            self.judging.store(round.held > 0, Relaxed);
            moved |= round.moved > 0;
            see(pump);
        });
        done.then_some(moved)
    }

    /// Moves what is sent, and tells the kernel by `socket` if there is something to tell: once and with its answer if
    /// the application `asked`, else until it has taken all. Returns what the application's call is to return.
    pub(crate) fn pump_transmit(&self, (number, socket): (u32, RawFd), asked: bool) -> isize {
        let mut answer = 0;
        let mut told = !asked;
        self.transmit.run(|pump| {
            let Some(pump) = pump else { return };
            let round = pump.round(now);
            if round.untold > 0 && pump.is_told_by_calls(number) {
                if told {
                    tell_all(pump, number, socket);
                } else {
                    (answer, told) = (tell(socket), true);
                }
                pump.reap();
            }
            self.sending.store(pump.under_way() > 0, Relaxed);
        });
        answer
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
