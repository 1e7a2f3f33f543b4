use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sync::{AtomicBool, AtomicU32, const_fn};

/// One of a queue's two pumps, each of which runs under its own [hand-over](crate::handover).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PumpSide {
    /// The receive pump.
    Receive,
    /// The transmit pump.
    Transmit,
}

impl PumpSide {
    const ALL: u32 = 3;

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The threads that sleep for a queue.
///
/// "Inside" means within the hand-over of a pump. Only the first and last step of each thread are
/// outside: a thread announces its sleep before it goes in, and starts to watch the P4 VMs' doorbells
/// inside.
///
/// ```text
///   a thread that will sleep               a thread that moves rings
///   enter_sleep                            (in)  has_waiters? then signal the sockets
///   (in)  nothing is ready; watched        (in)  new packets are held: not watched
///   sleep                                  (out) is_unattended? then wake the drain thread
///   leave_sleep; is_unattended? then wake the drain thread
/// ```
///
/// A thread that finds another one inside sleeps only briefly, since the other may have checked before
/// the announcement.
#[derive(Debug)]
pub struct QueueSleepers {
    /// Threads of the application that wait for packets.
    waiting: AtomicU32,
    /// Threads that sleep until a P4 VM rings their doorbell.
    sleeping: AtomicU32,
    /// The pumps for which a doorbell may have rung, by their bits.
    rung: AtomicU32,
    /// By pump: whether packets are held.
    held: [AtomicBool; 2],
    /// By pump: whether a sleeping thread watches the doorbells for all held packets.
    watched: [AtomicBool; 2],
}

/// What has changed for the lanes of a pump since it last ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeState {
    /// Whether a doorbell may have rung.
    pub rang: bool,
    /// Whether no thread sleeps that a doorbell must wake.
    pub no_sleeper: bool,
}

impl QueueSleepers {
    const_fn! {
        /// Creates an empty set.
        pub fn new() -> Self {
            Self {
                waiting: AtomicU32::new(0),
                sleeping: AtomicU32::new(0),
                rung: AtomicU32::new(0),
                held: [AtomicBool::new(false), AtomicBool::new(false)],
                watched: [AtomicBool::new(false), AtomicBool::new(false)],
            }
        }
    }

    /// Registers a thread of the application that is about to wait for packets, before it checks for
    /// ready packets.
    pub fn begin_wait(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    /// Removes a thread that no longer waits for packets.
    pub fn end_wait(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// Returns whether a thread of the application waits for packets. Exact inside the receive pump;
    /// elsewhere a hint.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Registers a thread that is about to sleep, before it goes inside to watch doorbells.
    pub fn enter_sleep(&self) {
        self.sleeping.fetch_add(1, AcqRel);
    }

    /// Removes a thread that is awake again; `rang` if a doorbell may have woken it. Then the thread
    /// must check [`Self::is_unattended`]: other sleeping threads may watch fewer doorbells.
    pub fn leave_sleep(&self, rang: bool) {
        if rang {
            self.rung.store(PumpSide::ALL, Relaxed);
        }
        self.sleeping.fetch_sub(1, AcqRel);
        self.watched.iter().for_each(|watched| watched.store(false, Release));
    }

    /// Records whether a registered thread watches the doorbells for all held packets. Inside, of this pump.
    pub fn set_watched(&self, side: PumpSide, watched: bool) {
        self.watched[side as usize].store(watched, Release);
    }

    /// Takes the wake state of a pump, before its lanes are polled. Inside, of this pump.
    pub fn take_wake_state(&self, side: PumpSide) -> WakeState {
        // First: a thread that is no longer counted has already stored what rang.
        let no_sleeper = self.sleeping.load(Acquire) == 0;
        let rang = self.rung.load(Relaxed) & side.bit() != 0;
        if rang {
            self.rung.fetch_and(!side.bit(), Relaxed);
        }
        WakeState { rang, no_sleeper }
    }

    /// Records whether packets are held, and whether some of them may be `new`, which no thread watches.
    /// Inside, of this pump.
    pub fn update_held(&self, side: PumpSide, held: bool, new: bool) {
        self.held[side as usize].store(held, Relaxed);
        if held && new {
            self.set_watched(side, false);
        }
    }

    /// Returns whether packets of a pump are held.
    pub fn holds(&self, side: PumpSide) -> bool {
        self.held[side as usize].load(Relaxed)
    }

    /// Returns whether packets of either pump are held.
    pub fn holds_any(&self) -> bool {
        self.holds(PumpSide::Receive) || self.holds(PumpSide::Transmit)
    }

    /// Returns whether packets are held for which no sleeping thread watches the doorbells.
    pub fn is_unattended(&self) -> bool {
        let unattended = |side: PumpSide| self.holds(side) && !self.watched[side as usize].load(Acquire);
        unattended(PumpSide::Receive) || unattended(PumpSide::Transmit)
    }
}

impl Default for QueueSleepers {
    fn default() -> Self {
        Self::new()
    }
}
