//! Receiving: from the application's fill ring to its receive rings, through the kernel and a verdict
//! source.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use p4shield_afxdp::ring::{Consumer, Descriptor, Producer};
use p4shield_afxdp::{Error, Result};

use super::fragments::{FragmentLists, PacketDestinations};
use super::packet::RelayedPacket;
use super::rings::{FillRings, ReceiveRings};
use super::table::FrameTable;
use super::verdicts::{PumpProgress, VerdictSource};
use crate::frames::{RingHistory, RingId, RingView};

/// Moves the received packets of one queue, for all sockets of that queue.
#[derive(Debug)]
pub struct ReceivePump<J> {
    frames: Arc<FrameTable>,
    view: RingView,
    fill: FillRings,
    ring_id: RingId,
    history: Arc<RingHistory>,
    sockets: Vec<ReceiveSocket<J>>,
    /// Frames that wait for a verdict or for the last buffer of their packet.
    held: u32,
}

#[derive(Debug)]
struct ReceiveSocket<J> {
    number: u32,
    rings: ReceiveRings,
    ring_id: RingId,
    history: Arc<RingHistory>,
    fragments: FragmentLists,
    verdicts: J,
    /// Frames of this socket that wait for a verdict.
    held: u32,
}

/// The rings that judged packets go to.
struct ReceiveDestinations<'p> {
    frames: &'p FrameTable,
    fill: &'p mut Producer<u64>,
    fill_history: &'p RingHistory,
    receive: &'p mut Producer<Descriptor>,
    ring_id: RingId,
    history: &'p RingHistory,
    moved: u32,
}

impl<J: VerdictSource> ReceivePump<J> {
    /// Creates the pump of a queue without sockets.
    ///
    /// # Errors
    /// [`Error::Config`] if the memory has too many rings.
    pub fn new(frames: Arc<FrameTable>, fill: FillRings) -> Result<Self> {
        let history =
            Arc::new(RingHistory::new(fill.kernel.capacity(), fill.kernel.position(), fill.kernel.reader()));
        let ring_id = frames.registry.register(Arc::clone(&history)).ok_or_else(too_many)?;
        let view = frames.registry.view();
        Ok(Self { frames, view, fill, ring_id, history, sockets: Vec::new(), held: 0 })
    }

    /// Adds a socket under a number that no other socket of the queue has.
    ///
    /// # Errors
    /// [`Error::Config`] if the memory has too many rings.
    pub fn add(&mut self, number: u32, rings: ReceiveRings, verdicts: J) -> Result<()> {
        let ring = &rings.application;
        let history = Arc::new(RingHistory::new(ring.capacity(), ring.position(), ring.reader()));
        let ring_id = self.frames.registry.register(Arc::clone(&history)).ok_or_else(too_many)?;
        let fragments = FragmentLists::new(ring.capacity());
        self.sockets.push(ReceiveSocket { number, rings, ring_id, history, fragments, verdicts, held: 0 });
        Ok(())
    }

    /// Removes a socket. Its held packets return to the fill ring; packets in its receive ring belong to
    /// the application. Returns whether no socket is left.
    pub fn remove(&mut self, number: u32) -> bool {
        while let Some(at) = self.sockets.iter().position(|s| s.number == number) {
            let mut socket = self.sockets.swap_remove(at);
            let (mut destinations, fragments, verdicts, _) =
                socket.split(&self.frames, &mut self.fill.kernel, &self.history);
            fragments.drop_all(verdicts, &mut destinations);
            self.held -= socket.held;
            self.fill.kernel.publish();
            self.frames.ledger.reclaim(socket.ring_id);
            self.frames.registry.unregister(socket.ring_id);
        }
        self.sockets.is_empty()
    }

    /// Moves all available descriptors once.
    pub fn process(&mut self, clock: impl Fn() -> u64) -> PumpProgress {
        self.view.refresh(&self.frames.registry);
        let mut moved = 0;
        for socket in &mut self.sockets {
            let before = socket.held;
            moved += socket.process(
                &self.frames,
                (&mut self.fill.kernel, self.ring_id, &self.history),
                &clock,
                self.held,
            );
            self.held = self.held + socket.held - before;
        }
        moved += self.refill();
        PumpProgress { moved, held: self.held, ..PumpProgress::default() }
    }

    /// Returns the number of packets in a socket's receive ring.
    pub fn ready(&mut self, number: u32) -> u32 {
        let socket = self.sockets.iter_mut().find(|s| s.number == number);
        socket.map_or(0, |s| s.rings.application.pending())
    }

    /// Returns the number of packets in each socket's receive ring, with the sockets' numbers.
    pub fn all_ready(&mut self) -> impl Iterator<Item = (u32, u32)> {
        self.sockets.iter_mut().map(|s| (s.number, s.rings.application.pending()))
    }

    /// Returns the verdict sources of all sockets.
    pub fn verdict_sources(&mut self) -> impl Iterator<Item = &mut J> {
        self.sockets.iter_mut().map(|s| &mut s.verdicts)
    }

    /// Returns whether a socket's receive ring has room for one packet more than is held; true for a socket
    /// without a receive ring, which only sends.
    pub fn has_room(&mut self, number: u32) -> bool {
        let socket = self.sockets.iter_mut().find(|s| s.number == number);
        socket.is_none_or(|s| s.rings.application.room(s.held + 1) > s.held)
    }

    /// Returns whether the queue can receive nothing until the application acts. The caller must check
    /// again later, since no event announces the change. A queue whose sockets only send never stalls.
    pub fn is_stalled(&mut self) -> bool {
        let full = |s: &mut ReceiveSocket<J>| s.rings.application.room(s.held + 1) <= s.held;
        !self.sockets.is_empty() && (self.fill.kernel.pending() == 0 || self.sockets.iter_mut().any(full))
    }

    /// Returns whether the kernel waits for a system call before it reads the fill ring.
    #[must_use]
    pub fn kernel_needs_wakeup(&self) -> bool {
        self.fill.kernel.need_wakeup()
    }

    /// Sets or clears the need_wakeup flag of the application's fill ring.
    pub fn set_need_wakeup(&self, needed: bool) {
        self.fill.application.set_need_wakeup(needed);
    }

    /// Returns whether a peer wrote an impossible index to a ring, which then moves nothing.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.fill.broken() || self.sockets.iter().any(|s| s.rings.broken())
    }

    /// Moves the application's frames to the kernel's fill ring, while that keeps room for all frames
    /// that may return.
    fn refill(&mut self) -> u32 {
        let Self { frames, view, fill, ring_id, history, sockets, held } = self;
        let coming: u32 = sockets.iter_mut().map(|s| s.rings.kernel.pending()).sum();
        let reserved = coming.saturating_add(*held);
        let waiting = fill.application.available();
        let mut room =
            if waiting == 0 { 0 } else { fill.kernel.room(reserved + waiting).saturating_sub(reserved) };
        let mut moved = 0;
        while room > 0 {
            let Some(address) = fill.application.pop() else { break };
            moved += 1;
            let filled = frames.ledger.fill(address, *ring_id, history, view);
            room -= u32::from(frames.push(&mut fill.kernel, filled.map(|_| address)));
        }
        if moved > 0 {
            fill.kernel.publish();
        }
        // The application gets slots back as the kernel uses frames, so that it never has more frames in
        // rings.
        if fill.application.unreleased() > 0 {
            let pending = fill.kernel.pending();
            fill.application.release_but(pending);
        }
        moved
    }
}

impl<J: VerdictSource> ReceiveSocket<J> {
    fn split<'p>(
        &'p mut self,
        frames: &'p FrameTable,
        fill: &'p mut Producer<u64>,
        fill_history: &'p RingHistory,
    ) -> (ReceiveDestinations<'p>, &'p mut FragmentLists, &'p mut J, &'p mut Consumer<Descriptor>) {
        let destinations = ReceiveDestinations {
            frames,
            fill,
            fill_history,
            receive: &mut self.rings.application,
            ring_id: self.ring_id,
            history: &self.history,
            moved: 0,
        };
        (destinations, &mut self.fragments, &mut self.verdicts, &mut self.rings.kernel)
    }

    fn process(
        &mut self,
        frames: &FrameTable,
        (fill, fill_ring_id, fill_history): (&mut Producer<u64>, RingId, &RingHistory),
        clock: &impl Fn() -> u64,
        held_by_all: u32,
    ) -> u32 {
        let waiting = self.rings.kernel.available();
        if waiting == 0 && self.held == 0 {
            return 0;
        }
        let now = clock();
        // Room for one packet more than is held, in each of the two rings that it may go to.
        let held = self.held;
        let spare = |ring: u32, held: u32| ring.saturating_sub(held);
        let in_fill = spare(fill.room(held_by_all + waiting), held_by_all);
        let in_receive = spare(self.rings.application.room(held + waiting), held);
        let take = waiting.min(in_fill).min(in_receive);
        let (mut destinations, fragments, verdicts, kernel) = self.split(frames, fill, fill_history);
        // First, since polling processes the lane's events.
        verdicts.poll(now, |judged| fragments.dispatch(judged, &mut destinations));
        let mut taken = 0;
        for _ in 0..take {
            let Some(d) = kernel.pop() else { break };
            match frames.ledger.received(d.address, d.len, fill_ring_id) {
                Ok(frame) => {
                    taken += 1;
                    fragments.accept(
                        (d, frame),
                        frames.ledger.geometry(),
                        (&mut *verdicts, now),
                        &mut destinations,
                    );
                }
                Err(fault) => frames.faults.count(fault),
            }
        }
        if take > 0 {
            kernel.release();
        }
        if taken > 0 {
            verdicts.poll(now, |judged| fragments.dispatch(judged, &mut destinations));
        }
        let gone = destinations.moved;
        if gone > 0 {
            destinations.receive.publish();
            destinations.fill.publish();
        }
        self.held = self.held + taken - gone;
        taken + gone
    }
}

impl PacketDestinations for ReceiveDestinations<'_> {
    fn forward(&mut self, descriptor: Descriptor, frame: u32) {
        self.moved += 1;
        let delivered = self.frames.ledger.deliver(frame, self.ring_id, self.history);
        self.frames.push(self.receive, delivered.map(|()| descriptor));
    }

    fn give_back(&mut self, frame: u32) {
        self.moved += 1;
        self.frames.push(self.fill, self.frames.ledger.recycle(frame, self.fill_history));
    }

    fn count_too_long(&self) {
        self.frames.faults.kernel.fetch_add(1, Relaxed);
    }
}

impl<J> Drop for ReceivePump<J> {
    fn drop(&mut self) {
        for socket in &self.sockets {
            self.frames.ledger.reclaim(socket.ring_id);
            self.frames.registry.unregister(socket.ring_id);
        }
        self.frames.ledger.reclaim(self.ring_id);
        self.frames.registry.unregister(self.ring_id);
    }
}

pub(super) fn too_many() -> Error {
    Error::Config { what: "number of rings on one UMEM", value: 4096, rule: "it must be 4095 at most" }
}

/// A packet is moved several times, so it should fit one cache line.
const _: () = assert!(size_of::<RelayedPacket>() <= 64);
