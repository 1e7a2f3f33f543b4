//! Sending: from the application's transmit rings to its completion ring, by a judge and the kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::chain::{Chains, Ways};
use super::receive::too_many;
use super::{Frames, Judge, Judged, Round};
use crate::frames::{Fault, Ledger, Seat, Track, View};
use p4shield_afxdp::Result;
use p4shield_afxdp::ring::{Consumer, Descriptor, Producer};

/// The two completion rings of a queue.
#[derive(Debug)]
pub struct CompletionRings {
    /// The application's, which we write.
    pub application: Producer<u64>,
    /// The kernel's, which we read.
    pub kernel: Consumer<u64>,
}

/// The two transmit rings of a socket.
#[derive(Debug)]
pub struct TransmitRings {
    /// The application's, which we read.
    pub application: Consumer<Descriptor>,
    /// The kernel's, which we write.
    pub kernel: Producer<Descriptor>,
}

/// Moves what is sent by one queue, for all sockets of that queue.
#[derive(Debug)]
pub struct TransmitPump<J> {
    frames: Arc<Frames>,
    view: View,
    completion: CompletionRings,
    seat: Seat,
    track: Arc<Track>,
    sockets: Vec<TransmitSide<J>>,
    /// Frames taken from the application and not completed: with judges or with the kernel.
    under_way: u32,
}

#[derive(Debug)]
struct TransmitSide<J> {
    number: u32,
    rings: TransmitRings,
    chains: Chains,
    judge: J,
    /// Frames that the judge has.
    held: u32,
    /// Whether the kernel says by its flag when it wants to be told; else it always does.
    by_flag: bool,
}

/// Where what is judged goes.
struct Way<'p> {
    frames: &'p Frames,
    transmit: &'p mut Producer<Descriptor>,
    completion: &'p mut Producer<u64>,
    track: &'p Track,
    passed: u32,
    dropped: u32,
}

impl<J: Judge> TransmitPump<J> {
    /// Of a queue that no socket sends by yet.
    ///
    /// # Errors
    /// [`p4shield_afxdp::Error::Config`] if the memory has too many rings.
    pub fn new(frames: Arc<Frames>, completion: CompletionRings) -> Result<Self> {
        let ring = &completion.application;
        let track = Arc::new(Track::new(ring.capacity(), ring.position(), ring.reader()));
        let seat = frames.seats.take(Arc::clone(&track)).ok_or_else(too_many)?;
        let view = frames.seats.view();
        Ok(Self { frames, view, completion, seat, track, sockets: Vec::new(), under_way: 0 })
    }

    /// Adds a socket, by a number of its own.
    pub fn add(&mut self, number: u32, rings: TransmitRings, judge: J) {
        let chains = Chains::new(rings.application.capacity());
        // The kernel sets it at bind if it is to be used at all.
        let by_flag = rings.kernel.needs_wakeup();
        self.sockets.push(TransmitSide { number, rings, chains, judge, held: 0, by_flag });
    }

    /// Removes a socket: what its judge holds is completed unsent. Returns whether no socket is left.
    pub fn remove(&mut self, number: u32) -> bool {
        while let Some(at) = self.sockets.iter().position(|s| s.number == number) {
            let mut side = self.sockets.swap_remove(at);
            let TransmitSide { rings, chains, judge, .. } = &mut side;
            let mut way = Way {
                frames: &self.frames,
                transmit: &mut rings.kernel,
                completion: &mut self.completion.application,
                track: &self.track,
                passed: 0,
                dropped: 0,
            };
            judge.drain(|j| chains.go(Judged { pass: false, ..j }, &mut way));
            if let Some(parcel) = chains.unfinished() {
                chains.go(Judged { pass: false, parcel }, &mut way);
            }
            self.under_way -= way.dropped;
            self.completion.application.publish();
        }
        self.sockets.is_empty()
    }

    /// One round: moves what there is. The kernel has to be told by a system call of what it finds in its transmit
    /// ring ([`Round::untold`]).
    pub fn round(&mut self, clock: impl Fn() -> u64) -> Round {
        self.view.refresh(&self.frames.seats);
        let mut round = Round { moved: self.complete(), ..Round::default() };
        for at in 0..self.sockets.len() {
            round.moved += self.send(at, &clock);
            let side = &mut self.sockets[at];
            round.held += side.held;
            round.untold += if self.under_way > 0 { side.rings.kernel.pending() } else { 0 };
        }
        if round.moved > 0 {
            self.completion.application.publish();
        }
        round.sending = self.under_way - round.held;
        round
    }

    /// Moves what the kernel has sent, and nothing else. Returns how many.
    pub fn reap(&mut self) -> u32 {
        let moved = self.complete();
        if moved > 0 {
            self.completion.application.publish();
        }
        moved
    }

    /// The judges of all sockets.
    pub fn judges(&mut self) -> impl Iterator<Item = &mut J> {
        self.sockets.iter_mut().map(|s| &mut s.judge)
    }

    /// Packets of a socket that stand in the kernel's transmit ring.
    pub fn untold(&mut self, number: u32) -> u32 {
        let side = self.sockets.iter_mut().find(|s| s.number == number);
        side.map_or(0, |s| s.rings.kernel.pending())
    }

    /// Whether the kernel looks at a socket's transmit ring only in a system call.
    #[must_use]
    pub fn is_told_by_calls(&self, number: u32) -> bool {
        let asks = |s: &TransmitSide<J>| !s.by_flag || s.rings.kernel.needs_wakeup();
        self.sockets.iter().any(|s| s.number == number && asks(s))
    }

    /// Frames that were taken from the application and not completed.
    #[must_use]
    pub const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether half of a socket's transmit ring is free, which is when the kernel would call it writable.
    pub fn writable(&mut self, number: u32) -> bool {
        let side = self.sockets.iter_mut().find(|s| s.number == number);
        side.is_some_and(|s| s.rings.application.pending() <= s.rings.application.capacity() / 2)
    }

    /// Sets the flag by which the application is asked to make a system call when it has put packets into the ring.
    pub fn ask_for_wakeup(&self, ask: bool) {
        for side in &self.sockets {
            side.rings.application.set_needs_wakeup(ask);
        }
    }

    /// Whether a ring's other end wrote an impossible index; such a ring moves nothing any more.
    #[must_use]
    pub fn broken(&self) -> bool {
        let rings = |s: &TransmitSide<J>| s.rings.application.broken() || s.rings.kernel.broken();
        self.completion.application.broken()
            || self.completion.kernel.broken()
            || self.sockets.iter().any(rings)
    }

    fn complete(&mut self) -> u32 {
        let mut moved = 0;
        while let Some(address) = self.completion.kernel.pop() {
            moved += 1;
            match self.frames.ledger.completed(address, self.seat, &self.track) {
                Ok(address) => {
                    self.under_way -= 1;
                    let pushed = self.completion.application.push(address);
                    debug_assert!(pushed, "room was reserved");
                }
                Err(fault) => self.frames.faults.count(fault),
            }
        }
        if moved > 0 {
            self.completion.kernel.release();
        }
        moved
    }

    fn send(&mut self, at: usize, clock: &impl Fn() -> u64) -> u32 {
        let Self { frames, view, completion, seat, track, sockets, under_way } = self;
        let TransmitSide { rings, chains, judge, held, .. } = &mut sockets[at];
        let waiting = rings.application.available();
        if waiting == 0 && *held == 0 {
            return 0;
        }
        let now = clock();
        let completion = &mut completion.application;
        let in_completion = completion.room(*under_way + waiting).saturating_sub(*under_way);
        let in_transmit = rings.kernel.room(*held + waiting).saturating_sub(*held);
        let take = waiting.min(in_completion).min(in_transmit);
        let mut way = Way { frames, transmit: &mut rings.kernel, completion, track, passed: 0, dropped: 0 };
        // First, because it is what tells a judge of changes.
        judge.poll(now, |judged| chains.go(judged, &mut way));
        let mut taken = 0;
        for _ in 0..take {
            let Some(d) = rings.application.pop() else { break };
            match frames.ledger.sent(d.address, d.len, *seat, view) {
                Ok(cell) => {
                    taken += 1;
                    chains.take((d, cell), frames.ledger.shape(), (&mut *judge, now), &mut way);
                }
                Err(fault) => way.refuse(fault, d.address),
            }
        }
        if take > 0 {
            rings.application.release();
        }
        if taken > 0 {
            judge.poll(now, |judged| chains.go(judged, &mut way));
        }
        let (passed, dropped) = (way.passed, way.dropped);
        if passed > 0 {
            rings.kernel.publish();
        }
        *held = *held + taken - passed - dropped;
        *under_way = *under_way + taken - dropped;
        take + passed + dropped
    }
}

impl Ways for Way<'_> {
    fn on(&mut self, descriptor: Descriptor, cell: u32) {
        self.passed += 1;
        match self.frames.ledger.transmit(cell) {
            Ok(()) => {
                let pushed = self.transmit.push(descriptor);
                debug_assert!(pushed, "room was reserved");
            }
            Err(fault) => self.frames.faults.count(fault),
        }
    }

    fn back(&mut self, cell: u32) {
        self.dropped += 1;
        match self.frames.ledger.finish(cell, self.track) {
            Ok(address) => {
                let pushed = self.completion.push(address);
                debug_assert!(pushed, "room was reserved");
            }
            Err(fault) => self.frames.faults.count(fault),
        }
    }

    fn too_long(&self) {
        self.frames.faults.application.fetch_add(1, Relaxed);
    }
}

impl Way<'_> {
    /// The application sent what it may not. An address that is in no frame is skipped, as the kernel does. One that
    /// is in a frame is completed, unsent: the application counts completions, and another owner's frame stays his.
    fn refuse(&mut self, fault: Fault, address: u64) {
        self.frames.faults.count(fault);
        if let Fault::NotApplications { .. } = fault {
            Ledger::complete_refused(self.track);
            let pushed = self.completion.push(address);
            debug_assert!(pushed, "room was reserved");
        }
    }
}

impl<J> Drop for TransmitPump<J> {
    fn drop(&mut self) {
        self.frames.ledger.abandon(self.seat);
        self.frames.seats.leave(self.seat);
    }
}
