//! Receiving: from the application's fill ring to its receive rings, by the kernel and a judge.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::chain::{Chains, Ways};
use super::{Frames, Judge, Judged, Parcel, Round};
use crate::frames::{Seat, Track, View};
use p4shield_afxdp::ring::{Consumer, Descriptor, Producer};
use p4shield_afxdp::{Error, Result};

/// The two fill rings of a queue.
#[derive(Debug)]
pub struct FillRings {
    /// The application's, which we read.
    pub application: Consumer<u64>,
    /// The kernel's, which we write.
    pub kernel: Producer<u64>,
}

/// The two receive rings of a socket.
#[derive(Debug)]
pub struct ReceiveRings {
    /// The application's, which we write.
    pub application: Producer<Descriptor>,
    /// The kernel's, which we read.
    pub kernel: Consumer<Descriptor>,
}

/// Moves what is received on one queue, for all sockets of that queue.
#[derive(Debug)]
pub struct ReceivePump<J> {
    frames: Arc<Frames>,
    view: View,
    fill: FillRings,
    seat: Seat,
    track: Arc<Track>,
    sockets: Vec<ReceiveSide<J>>,
    /// Frames with judges or in unfinished packets.
    held: u32,
}

#[derive(Debug)]
struct ReceiveSide<J> {
    number: u32,
    rings: ReceiveRings,
    seat: Seat,
    track: Arc<Track>,
    chains: Chains,
    judge: J,
    /// Frames of this socket that judges have.
    held: u32,
}

/// Where what is judged goes.
struct Way<'p> {
    frames: &'p Frames,
    fill: &'p mut Producer<u64>,
    fill_track: &'p Track,
    receive: &'p mut Producer<Descriptor>,
    seat: Seat,
    track: &'p Track,
    moved: u32,
}

impl<J: Judge> ReceivePump<J> {
    /// Of a queue that no socket receives from yet.
    ///
    /// # Errors
    /// [`Error::Config`] if the memory has too many rings.
    pub fn new(frames: Arc<Frames>, fill: FillRings) -> Result<Self> {
        let track =
            Arc::new(Track::new(fill.kernel.capacity(), fill.kernel.position(), fill.kernel.reader()));
        let seat = frames.seats.take(Arc::clone(&track)).ok_or_else(too_many)?;
        let view = frames.seats.view();
        Ok(Self { frames, view, fill, seat, track, sockets: Vec::new(), held: 0 })
    }

    /// Adds a socket, by a number of its own.
    ///
    /// # Errors
    /// [`Error::Config`] if the memory has too many rings.
    pub fn add(&mut self, number: u32, rings: ReceiveRings, judge: J) -> Result<()> {
        let ring = &rings.application;
        let track = Arc::new(Track::new(ring.capacity(), ring.position(), ring.reader()));
        let seat = self.frames.seats.take(Arc::clone(&track)).ok_or_else(too_many)?;
        let chains = Chains::new(ring.capacity());
        self.sockets.push(ReceiveSide { number, rings, seat, track, chains, judge, held: 0 });
        Ok(())
    }

    /// Removes a socket: what its judge holds goes to the fill ring, what stands in its receive ring is the
    /// application's. Returns whether no socket is left.
    pub fn remove(&mut self, number: u32) -> bool {
        while let Some(at) = self.sockets.iter().position(|s| s.number == number) {
            let mut side = self.sockets.swap_remove(at);
            let (mut way, chains, judge) = side.split(&self.frames, &mut self.fill.kernel, &self.track);
            judge.drain(|j| chains.go(Judged { pass: false, ..j }, &mut way));
            if let Some(parcel) = chains.unfinished() {
                chains.go(Judged { pass: false, parcel }, &mut way);
            }
            self.held -= side.held;
            self.fill.kernel.publish();
            self.frames.ledger.abandon(side.seat);
            self.frames.seats.leave(side.seat);
        }
        self.sockets.is_empty()
    }

    /// One round: moves what there is.
    pub fn round(&mut self, clock: impl Fn() -> u64) -> Round {
        self.view.refresh(&self.frames.seats);
        let mut moved = 0;
        for side in &mut self.sockets {
            let before = side.held;
            moved +=
                side.round(&self.frames, (&mut self.fill.kernel, self.seat, &self.track), &clock, self.held);
            self.held = self.held + side.held - before;
        }
        moved += self.refill();
        Round { moved, held: self.held, ..Round::default() }
    }

    /// Packets that stand in a socket's receive ring, for the application to take.
    pub fn ready(&mut self, number: u32) -> u32 {
        let side = self.sockets.iter_mut().find(|s| s.number == number);
        side.map_or(0, |s| s.rings.application.pending())
    }

    /// The same of all sockets, by their numbers.
    pub fn all_ready(&mut self) -> impl Iterator<Item = (u32, u32)> {
        self.sockets.iter_mut().map(|s| (s.number, s.rings.application.pending()))
    }

    /// The judges of all sockets.
    pub fn judges(&mut self) -> impl Iterator<Item = &mut J> {
        self.sockets.iter_mut().map(|s| &mut s.judge)
    }

    /// Whether the application left room in a socket's receive ring for one more than is held.
    pub fn has_room(&mut self, number: u32) -> bool {
        let side = self.sockets.iter_mut().find(|s| s.number == number);
        side.is_some_and(|s| s.rings.application.room(s.held + 1) > s.held)
    }

    /// Whether nothing can be received before the application does something: it is to be looked at again, since
    /// nothing will tell.
    pub fn starves(&mut self) -> bool {
        let full = |s: &mut ReceiveSide<J>| s.rings.application.room(s.held + 1) <= s.held;
        self.fill.kernel.pending() == 0 || self.sockets.iter_mut().any(full)
    }

    /// Whether the kernel asks for a system call to look at its fill ring.
    #[must_use]
    pub fn kernel_needs_wakeup(&self) -> bool {
        self.fill.kernel.needs_wakeup()
    }

    /// Sets the flag by which the application is asked to make a system call when it has nothing to do.
    pub fn ask_for_wakeup(&self, ask: bool) {
        self.fill.application.set_needs_wakeup(ask);
    }

    /// Whether a ring's other end wrote an impossible index; such a ring moves nothing any more.
    #[must_use]
    pub fn broken(&self) -> bool {
        let rings = |s: &ReceiveSide<J>| s.rings.application.broken() || s.rings.kernel.broken();
        self.fill.application.broken() || self.fill.kernel.broken() || self.sockets.iter().any(rings)
    }

    /// Hands the application's frames on to the kernel, as long as there is room for all that may come back.
    fn refill(&mut self) -> u32 {
        let Self { frames, view, fill, seat, track, sockets, held } = self;
        let coming: u32 = sockets.iter_mut().map(|s| s.rings.kernel.pending()).sum();
        let reserved = coming.saturating_add(*held);
        let waiting = fill.application.available();
        let mut room =
            if waiting == 0 { 0 } else { fill.kernel.room(reserved + waiting).saturating_sub(reserved) };
        let mut moved = 0;
        while room > 0 {
            let Some(address) = fill.application.pop() else { break };
            moved += 1;
            match frames.ledger.fill(address, *seat, track, view) {
                Ok(_) => {
                    let pushed = fill.kernel.push(address);
                    debug_assert!(pushed, "there was room");
                    room -= 1;
                }
                Err(fault) => frames.faults.count(fault),
            }
        }
        if moved > 0 {
            fill.kernel.publish();
        }
        // Slots go back as the kernel uses frames, so that the application never has more of them in rings.
        if fill.application.unreleased() > 0 {
            let pending = fill.kernel.pending();
            fill.application.release_but(pending);
        }
        moved
    }
}

impl<J: Judge> ReceiveSide<J> {
    fn split<'p>(
        &'p mut self,
        frames: &'p Frames,
        fill: &'p mut Producer<u64>,
        fill_track: &'p Track,
    ) -> (Way<'p>, &'p mut Chains, &'p mut J) {
        let way = Way {
            frames,
            fill,
            fill_track,
            receive: &mut self.rings.application,
            seat: self.seat,
            track: &self.track,
            moved: 0,
        };
        (way, &mut self.chains, &mut self.judge)
    }

    fn round(
        &mut self,
        frames: &Frames,
        (fill, fill_seat, fill_track): (&mut Producer<u64>, Seat, &Track),
        clock: &impl Fn() -> u64,
        held_by_all: u32,
    ) -> u32 {
        let waiting = self.rings.kernel.available();
        if waiting == 0 && self.held == 0 {
            return 0;
        }
        let now = clock();
        // Room for one packet more than is held, in each of the two rings it may go to.
        let held = self.held;
        let spare = |ring: u32, held: u32| ring.saturating_sub(held);
        let in_fill = spare(fill.room(held_by_all + waiting), held_by_all);
        let in_receive = spare(self.rings.application.room(held + waiting), held);
        let take = waiting.min(in_fill).min(in_receive);
        let Self { rings: ReceiveRings { application, kernel }, seat, track, chains, judge, .. } = self;
        let mut way = Way { frames, fill, fill_track, receive: application, seat: *seat, track, moved: 0 };
        // First, because it is what tells a judge of changes.
        judge.poll(now, |judged| chains.go(judged, &mut way));
        let mut taken = 0;
        for _ in 0..take {
            let Some(d) = kernel.pop() else { break };
            match frames.ledger.received(d.address, d.len, fill_seat) {
                Ok(cell) => {
                    taken += 1;
                    chains.take((d, cell), frames.ledger.shape(), (&mut *judge, now), &mut way);
                }
                Err(fault) => frames.faults.count(fault),
            }
        }
        if take > 0 {
            kernel.release();
        }
        if taken > 0 {
            judge.poll(now, |judged| chains.go(judged, &mut way));
        }
        let gone = way.moved;
        if gone > 0 {
            way.receive.publish();
            way.fill.publish();
        }
        self.held = self.held + taken - gone;
        taken + gone
    }
}

impl Ways for Way<'_> {
    fn on(&mut self, descriptor: Descriptor, cell: u32) {
        self.moved += 1;
        match self.frames.ledger.announce(cell, self.seat, self.track) {
            Ok(()) => {
                let pushed = self.receive.push(descriptor);
                debug_assert!(pushed, "room was reserved");
            }
            Err(fault) => self.frames.faults.count(fault),
        }
    }

    fn back(&mut self, cell: u32) {
        self.moved += 1;
        match self.frames.ledger.refill(cell, self.fill_track) {
            Ok(address) => {
                let pushed = self.fill.push(address);
                debug_assert!(pushed, "room was reserved");
            }
            Err(fault) => self.frames.faults.count(fault),
        }
    }

    fn too_long(&self) {
        self.frames.faults.kernel.fetch_add(1, Relaxed);
    }
}

impl<J> Drop for ReceivePump<J> {
    fn drop(&mut self) {
        for side in &self.sockets {
            self.frames.ledger.abandon(side.seat);
            self.frames.seats.leave(side.seat);
        }
        self.frames.ledger.abandon(self.seat);
        self.frames.seats.leave(self.seat);
    }
}

pub(super) fn too_many() -> Error {
    Error::Config { what: "number of rings on one packet memory", value: 4096, rule: "it is 4095 at most" }
}

/// A parcel is moved about for each packet; it should stay in few cache lines.
const _: () = assert!(size_of::<Parcel>() <= 64);
