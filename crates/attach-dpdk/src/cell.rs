//! Where a receive queue's lane lives, and what is done with a burst.
//!
//! A cell is made once for a queue and never freed, since DPDK may hold its address for as long as the process lives.
//! Its lane comes and goes with the queue. A queue whose cell has no lane gets no packet: what is received is freed.

use crate::clock::Clock;
use crate::dpdk::Dpdk;
use crate::gate::Gate;
use crate::mbuf::{Mbuf, RawMbuf};
use p4shield_attach::Lane;
use p4shield_mediator::{Outcome, Packet, Released};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that are freed together.
const TOGETHER: usize = 64;
/// How many packets ahead the front is fetched into the cache.
const AHEAD: usize = 4;

/// Packets of the caller's burst: those received, and room for those that go back.
pub(crate) type Slots = [MaybeUninit<*mut RawMbuf>];

/// A receive queue's place.
#[derive(Debug)]
pub(crate) struct Cell {
    lane: Gate<Option<Lane<Mbuf>>>,
    clock: Clock,
    dpdk: &'static Dpdk,
    received: AtomicU64,
    returned: AtomicU64,
    freed: AtomicU64,
    refused: AtomicU64,
}

/// What became of a queue's packets since its cell was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Taken from the driver.
    pub(crate) received: u64,
    /// Given to the application.
    pub(crate) returned: u64,
    /// Freed, for whatever reason.
    pub(crate) freed: u64,
    /// Of these, freed without asking anybody: no memory to put a scattered front together, or two threads polled the
    /// queue at once.
    pub(crate) refused: u64,
}

impl Tally {
    /// Packets that are held.
    pub(crate) const fn held(&self) -> u64 {
        self.received.wrapping_sub(self.returned).wrapping_sub(self.freed)
    }
}

impl Cell {
    /// A place without a lane.
    pub(crate) fn new(clock: Clock, dpdk: &'static Dpdk) -> &'static Self {
        Box::leak(Box::new(Self {
            lane: Gate::new(None),
            clock,
            dpdk,
            received: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    /// Gives it a lane if it has none.
    pub(crate) fn open(&self, lane: impl FnOnce() -> Lane<Mbuf>) {
        self.lane.enter().get_or_insert_with(lane);
    }

    /// Frees what the lane holds, and lets the lane go.
    pub(crate) fn close(&self) {
        let lane = self.lane.enter().take();
        if let Some(mut lane) = lane {
            let mut freed = Freed::new(self.dpdk);
            lane.drain(|released| freed.push(released.packet));
            add(&self.freed, freed.finish());
        }
    }

    /// What became of the packets.
    pub(crate) fn tally(&self) -> Tally {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // What went is read before what came: never more has gone than came.
        let (returned, freed, refused) = (read(&self.returned), read(&self.freed), read(&self.refused));
        Tally { received: read(&self.received), returned, freed, refused }
    }

    /// Takes the first `received` packets of a burst and puts packets that may go on in their place, as many as there
    /// are slots. To be called at each poll, also for an empty burst. Returns how many.
    ///
    /// # Safety
    /// The first `received` slots hold packets that the caller owns and gives away.
    #[inline]
    pub(crate) unsafe fn burst(&self, slots: &mut Slots, received: usize) -> usize {
        let received = received.min(slots.len());
        let mut out = Out { slots, passed: 0, freed: Freed::new(self.dpdk) };
        let mut inside = self.lane.try_enter();
        match inside.as_deref_mut() {
            Some(Some(lane)) => {
                let now = self.clock.now();
                lane.look(now);
                for i in 0..received {
                    out.prefetch(i + AHEAD, received);
                    // SAFETY: slot i holds a packet, and what was put into the slots so far is behind it.
                    let Some(packet) = (unsafe { out.take(i) }) else { continue };
                    self.submit(lane, now, packet, &mut out);
                }
                let room = out.slots.len() - out.passed;
                lane.poll(now, room, |released| out.put(released));
            }
            _ => self.refuse(&mut out, received),
        }
        drop(inside);
        let (passed, freed) = (out.passed, out.freed.finish());
        // Nearly all polls of a switch bring nothing.
        if received | passed | freed != 0 {
            add(&self.received, received);
            add(&self.returned, passed);
            add(&self.freed, freed);
        }
        passed
    }

    #[inline]
    fn submit(&self, lane: &mut Lane<Mbuf>, now: u64, mut packet: Mbuf, out: &mut Out<'_>) {
        if !packet.is_whole() && packet.make_whole().is_err() {
            add(&self.refused, 1);
            out.freed.push(packet);
        } else if let Some(released) = lane.submit(now, packet) {
            out.put(released);
        }
    }

    /// Nobody is there to judge: frees the burst.
    #[cold]
    fn refuse(&self, out: &mut Out<'_>, received: usize) {
        for i in 0..received {
            // SAFETY: slot i holds a packet; nothing was put into the slots.
            if let Some(packet) = unsafe { out.take(i) } {
                out.freed.push(packet);
            }
        }
        add(&self.refused, received);
    }
}

/// A counter that has one writer at a time, but where two threads poll one queue, which costs a count.
#[inline]
fn add(counter: &AtomicU64, n: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n as u64), Ordering::Release);
}

/// The burst on its way out.
struct Out<'a> {
    slots: &'a mut Slots,
    passed: usize,
    freed: Freed,
}

impl Out<'_> {
    /// # Safety
    /// Slot `i` holds a packet that was not taken yet.
    #[inline]
    unsafe fn take(&self, i: usize) -> Option<Mbuf> {
        // SAFETY: as this function's.
        unsafe { Mbuf::from_raw(self.slots[i].assume_init()) }
    }

    #[inline]
    fn put(&mut self, released: Released<Mbuf>) {
        match (released.outcome, self.slots.get_mut(self.passed)) {
            (Outcome::Pass, Some(slot)) => {
                slot.write(released.packet.into_raw());
                self.passed += 1;
            }
            _ => self.freed.push(released.packet),
        }
    }

    /// Fetches the front of a packet that is looked at soon.
    #[inline]
    fn prefetch(&self, i: usize, received: usize) {
        if i < received {
            // SAFETY: slot i holds a packet that is not taken before it is `i`'s turn; the handle is forgotten.
            if let Some(packet) = unsafe { Mbuf::from_raw(self.slots[i].assume_init()) } {
                prefetch(packet.bytes().as_ptr());
            }
        }
    }
}

#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Packets to be freed, some at a time.
struct Freed {
    dpdk: &'static Dpdk,
    packets: [MaybeUninit<*mut RawMbuf>; TOGETHER],
    waiting: usize,
    done: usize,
}

impl Freed {
    #[inline]
    fn new(dpdk: &'static Dpdk) -> Self {
        Self { dpdk, packets: [const { MaybeUninit::uninit() }; TOGETHER], waiting: 0, done: 0 }
    }

    #[inline]
    fn push(&mut self, packet: Mbuf) {
        self.packets[self.waiting].write(packet.into_raw());
        self.waiting += 1;
        if self.waiting == TOGETHER {
            self.flush();
        }
    }

    fn flush(&mut self) {
        // `TOGETHER` at most.
        let count = self.waiting as u32;
        // SAFETY: the first `waiting` places hold packets that are ours and that nobody uses any more.
        unsafe { (self.dpdk.rte_pktmbuf_free_bulk)(self.packets.as_mut_ptr().cast(), count) };
        self.done += self.waiting;
        self.waiting = 0;
    }

    /// Frees the rest; how many were freed.
    #[inline]
    fn finish(mut self) -> usize {
        if self.waiting != 0 {
            self.flush();
        }
        self.done
    }
}
