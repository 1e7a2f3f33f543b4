//! Sending: from the application's transmit rings to its completion ring, through a verdict source and
//! the kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use p4shield_afxdp::Result;
use p4shield_afxdp::ring::{Descriptor, Producer};

use super::fragments::{FragmentLists, PacketDestinations};
use super::receive::too_many;
use super::rings::{CompletionRings, TransmitRings};
use super::table::FrameTable;
use super::verdicts::{PumpProgress, VerdictSource};
use crate::frames::{FrameFault, Ledger, RingHistory, RingId, RingView};

/// Moves the sent packets of one queue, for all sockets of that queue.
#[derive(Debug)]
pub struct TransmitPump<J> {
    frames: Arc<FrameTable>,
    view: RingView,
    completion: CompletionRings,
    ring_id: RingId,
    history: Arc<RingHistory>,
    sockets: Vec<TransmitSocket<J>>,
    /// Frames taken from the application and not yet completed.
    outstanding: u32,
}

#[derive(Debug)]
struct TransmitSocket<J> {
    number: u32,
    rings: TransmitRings,
    fragments: FragmentLists,
    verdicts: J,
    /// Frames that wait for a verdict.
    held: u32,
    /// Whether the kernel uses the need_wakeup flag; without it, every send needs a system call.
    sets_need_wakeup: bool,
}

/// The rings that judged packets go to.
struct TransmitDestinations<'p> {
    frames: &'p FrameTable,
    transmit: &'p mut Producer<Descriptor>,
    completion: &'p mut Producer<u64>,
    history: &'p RingHistory,
    passed: u32,
    dropped: u32,
}

impl<J: VerdictSource> TransmitPump<J> {
    /// Creates the pump of a queue without sockets.
    ///
    /// # Errors
    /// [`p4shield_afxdp::Error::Config`] if the memory has too many rings.
    pub fn new(frames: Arc<FrameTable>, completion: CompletionRings) -> Result<Self> {
        let ring = &completion.application;
        let history = Arc::new(RingHistory::new(ring.capacity(), ring.position(), ring.reader()));
        let ring_id = frames.registry.register(Arc::clone(&history)).ok_or_else(too_many)?;
        let view = frames.registry.view();
        Ok(Self { frames, view, completion, ring_id, history, sockets: Vec::new(), outstanding: 0 })
    }

    /// Adds a socket under a number that no other socket of the queue has.
    pub fn add(&mut self, number: u32, rings: TransmitRings, verdicts: J) {
        let fragments = FragmentLists::new(rings.application.capacity());
        // The kernel sets the flag at bind if the socket uses it.
        let sets_need_wakeup = rings.kernel.need_wakeup();
        self.sockets.push(TransmitSocket { number, rings, fragments, verdicts, held: 0, sets_need_wakeup });
    }

    /// Removes a socket and completes its held packets unsent. Returns whether no socket is left.
    pub fn remove(&mut self, number: u32) -> bool {
        while let Some(at) = self.sockets.iter().position(|s| s.number == number) {
            let mut socket = self.sockets.swap_remove(at);
            let TransmitSocket { rings, fragments, verdicts, .. } = &mut socket;
            let mut destinations = TransmitDestinations {
                frames: &self.frames,
                transmit: &mut rings.kernel,
                completion: &mut self.completion.application,
                history: &self.history,
                passed: 0,
                dropped: 0,
            };
            fragments.drop_all(verdicts, &mut destinations);
            self.outstanding -= destinations.dropped;
            self.completion.application.publish();
        }
        self.sockets.is_empty()
    }

    /// Moves all available descriptors once. The caller must then make a system call if packets are left
    /// in the kernel's transmit ring ([`PumpProgress::unsent`]).
    pub fn process(&mut self, clock: impl Fn() -> u64) -> PumpProgress {
        self.view.refresh(&self.frames.registry);
        let mut round = PumpProgress { moved: self.complete(), ..PumpProgress::default() };
        for at in 0..self.sockets.len() {
            round.moved += self.send(at, &clock);
            let socket = &mut self.sockets[at];
            round.held += socket.held;
            round.unsent += if self.outstanding > 0 { socket.rings.kernel.pending() } else { 0 };
        }
        if round.moved > 0 {
            self.completion.application.publish();
        }
        round.sending = self.outstanding - round.held;
        round
    }

    /// Moves completions only. Returns their number.
    pub fn reap(&mut self) -> u32 {
        let moved = self.complete();
        if moved > 0 {
            self.completion.application.publish();
        }
        moved
    }

    /// Returns the verdict sources of all sockets.
    pub fn verdict_sources(&mut self) -> impl Iterator<Item = &mut J> {
        self.sockets.iter_mut().map(|s| &mut s.verdicts)
    }

    /// Returns the number of packets in a socket's kernel transmit ring.
    pub fn unsent(&mut self, number: u32) -> u32 {
        let socket = self.sockets.iter_mut().find(|s| s.number == number);
        socket.map_or(0, |s| s.rings.kernel.pending())
    }

    /// Returns whether the kernel reads a socket's transmit ring only in a system call.
    #[must_use]
    pub fn needs_send_call(&self, number: u32) -> bool {
        let needs_call = |s: &TransmitSocket<J>| !s.sets_need_wakeup || s.rings.kernel.need_wakeup();
        self.sockets.iter().any(|s| s.number == number && needs_call(s))
    }

    /// Returns the number of frames taken from the application and not yet completed.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns whether half of a socket's transmit ring is free, which is when the kernel reports
    /// `POLLOUT`.
    pub fn writable(&mut self, number: u32) -> bool {
        let socket = self.sockets.iter_mut().find(|s| s.number == number);
        socket.is_some_and(|s| s.rings.application.pending() <= s.rings.application.capacity() / 2)
    }

    /// Sets or clears the need_wakeup flag of the application's transmit rings.
    pub fn set_need_wakeup(&self, needed: bool) {
        for socket in &self.sockets {
            socket.rings.application.set_need_wakeup(needed);
        }
    }

    /// Returns whether a peer wrote an impossible index to a ring, which then moves nothing.
    #[must_use]
    pub fn broken(&self) -> bool {
        self.completion.broken() || self.sockets.iter().any(|s| s.rings.broken())
    }

    fn complete(&mut self) -> u32 {
        let mut moved = 0;
        while let Some(address) = self.completion.kernel.pop() {
            moved += 1;
            let completed = self.frames.ledger.completed(address, self.ring_id, &self.history);
            self.outstanding -= u32::from(self.frames.push(&mut self.completion.application, completed));
        }
        if moved > 0 {
            self.completion.kernel.release();
        }
        moved
    }

    fn send(&mut self, at: usize, clock: &impl Fn() -> u64) -> u32 {
        let Self { frames, view, completion, ring_id, history, sockets, outstanding } = self;
        let TransmitSocket { rings, fragments, verdicts, held, .. } = &mut sockets[at];
        let waiting = rings.application.available();
        if waiting == 0 && *held == 0 {
            return 0;
        }
        let now = clock();
        let completion = &mut completion.application;
        let in_completion = completion.room(*outstanding + waiting).saturating_sub(*outstanding);
        let in_transmit = rings.kernel.room(*held + waiting).saturating_sub(*held);
        let take = waiting.min(in_completion).min(in_transmit);
        let mut destinations = TransmitDestinations {
            frames,
            transmit: &mut rings.kernel,
            completion,
            history,
            passed: 0,
            dropped: 0,
        };
        // First, since polling processes the lane's events.
        verdicts.poll(now, |judged| fragments.dispatch(judged, &mut destinations));
        let mut taken = 0;
        for _ in 0..take {
            let Some(d) = rings.application.pop() else { break };
            match frames.ledger.send(d.address, d.len, *ring_id, view) {
                Ok(frame) => {
                    taken += 1;
                    fragments.accept(
                        (d, frame),
                        frames.ledger.geometry(),
                        (&mut *verdicts, now),
                        &mut destinations,
                    );
                }
                Err(fault) => destinations.refuse(fault, d.address),
            }
        }
        if take > 0 {
            rings.application.release();
        }
        if taken > 0 {
            verdicts.poll(now, |judged| fragments.dispatch(judged, &mut destinations));
        }
        let (passed, dropped) = (destinations.passed, destinations.dropped);
        if passed > 0 {
            rings.kernel.publish();
        }
        *held = *held + taken - passed - dropped;
        *outstanding = *outstanding + taken - dropped;
        take + passed + dropped
    }
}

impl PacketDestinations for TransmitDestinations<'_> {
    fn forward(&mut self, descriptor: Descriptor, frame: u32) {
        self.passed += 1;
        let sent = self.frames.ledger.transmit(frame);
        self.frames.push(self.transmit, sent.map(|()| descriptor));
    }

    fn give_back(&mut self, frame: u32) {
        self.dropped += 1;
        self.frames.push(self.completion, self.frames.ledger.complete_dropped(frame, self.history));
    }

    fn count_too_long(&self) {
        self.frames.faults.application.fetch_add(1, Relaxed);
    }
}

impl TransmitDestinations<'_> {
    /// Handles a descriptor that the application must not send. An address outside every frame is
    /// skipped, as the kernel does. One in a frame is completed unsent, because the application counts
    /// completions; the frame keeps its owner.
    fn refuse(&mut self, fault: FrameFault, address: u64) {
        self.frames.faults.count(fault);
        if let FrameFault::NotOwnedByApplication { .. } = fault {
            Ledger::record_refused(self.history);
            let pushed = self.completion.push(address);
            debug_assert!(pushed, "room was reserved");
        }
    }
}

impl<J> Drop for TransmitPump<J> {
    fn drop(&mut self) {
        self.frames.ledger.reclaim(self.ring_id);
        self.frames.registry.unregister(self.ring_id);
    }
}
