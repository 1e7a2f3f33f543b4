use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::sync::{AtomicBool, AtomicU32, const_fn};

/// A direction of a queue, each with rings that are moved under a [hand-over](crate::handover) of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is received.
    Receive,
    /// What is sent.
    Transmit,
}

impl Side {
    const ALL: u32 = 3;

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The threads that sleep for a queue. No step but the first and the last needs more than the hand-over of its side, within
/// which it is made: a thread says that it will sleep before it goes in, and what it is to know of is told there.
///
/// ```text
///   who will sleep                         who moves rings
///   announced                              (in)  someone_waits? then ring
///   (in)  nothing is ready; told           (in)  judges have what is new: not told
///   sleep                                  (out) left_alone? then have somebody come
///   slept; left_alone? then have somebody come
/// ```
///
/// Who finds another inside sleeps for a moment only: the other may have looked before it was announced.
#[derive(Debug)]
pub struct Sleepers {
    /// Threads of the application that wait for packets.
    waiting: AtomicU32,
    /// Threads that sleep until a judge rings.
    sleeping: AtomicU32,
    /// Sides of which a judge may have rung, by their bits.
    rung: AtomicU32,
    /// By side: whether judges hold packets;
    held: [AtomicBool; 2],
    /// whether one who sleeps was told of all of them.
    told: [AtomicBool; 2],
}

/// What has changed for judges since rings were moved last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// One of them may have rung.
    pub rang: bool,
    /// Nobody sleeps whom they are to ring for.
    pub nobody: bool,
}

impl Sleepers {
    const_fn! {
        /// Nobody.
        pub fn new() -> Self {
            Self {
                waiting: AtomicU32::new(0),
                sleeping: AtomicU32::new(0),
                rung: AtomicU32::new(0),
                held: [AtomicBool::new(false), AtomicBool::new(false)],
                told: [AtomicBool::new(false), AtomicBool::new(false)],
            }
        }
    }

    /// A thread of the application is about to wait for packets. Before it looks at what is ready.
    pub fn wait(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    /// It waits no longer.
    pub fn waited(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// Whether a thread of the application waits for packets: to be told if there are some. Inside, of the
    /// receive side; elsewhere it is a hint.
    pub fn someone_waits(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// A thread is about to sleep: judges are to ring for it. Before it is told of what they hold.
    pub fn announced(&self) {
        self.sleeping.fetch_add(1, AcqRel);
    }

    /// It is awake again. `rang` if a judge may have woken it. Afterwards it has to ask whether something is
    /// [left alone](Self::left_alone): others who sleep may have been told of less.
    pub fn slept(&self, rang: bool) {
        if rang {
            self.rung.store(Side::ALL, Relaxed);
        }
        self.sleeping.fetch_sub(1, AcqRel);
        self.told.iter().for_each(|told| told.store(false, Release));
    }

    /// Whether one who is about to sleep, and is announced, was told of all that judges hold. Inside, of this side.
    pub fn tell(&self, side: Side, told: bool) {
        self.told[side as usize].store(told, Release);
    }

    /// What judges are to know before they are asked. Inside, of this side.
    pub fn woken(&self, side: Side) -> Woken {
        // First, so that whoever is not counted any more has left word of what rang.
        let nobody = self.sleeping.load(Acquire) == 0;
        let rang = self.rung.load(Relaxed) & side.bit() != 0;
        if rang {
            self.rung.fetch_and(!side.bit(), Relaxed);
        }
        Woken { rang, nobody }
    }

    /// Whether judges hold packets, and may have been given new ones, of which nobody was told. Inside, of this side.
    pub fn keep(&self, side: Side, held: bool, new: bool) {
        self.held[side as usize].store(held, Relaxed);
        if held && new {
            self.tell(side, false);
        }
    }

    /// Whether judges hold packets of a side.
    pub fn holds(&self, side: Side) -> bool {
        self.held[side as usize].load(Relaxed)
    }

    /// Whether judges hold packets of either side: they will ring.
    pub fn held(&self) -> bool {
        self.holds(Side::Receive) || self.holds(Side::Transmit)
    }

    /// Whether judges hold packets that nobody who sleeps was told of.
    pub fn left_alone(&self) -> bool {
        let alone = |side: Side| self.holds(side) && !self.told[side as usize].load(Acquire);
        alone(Side::Receive) || alone(Side::Transmit)
    }
}

impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}
