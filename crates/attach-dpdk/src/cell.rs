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
use std::cell::Cell as Slot;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that are freed together.
const TOGETHER: usize = 64;

/// Packets of the caller's burst: those received, and room for those that go back.
pub(crate) type Slots = [Slot<MaybeUninit<*mut RawMbuf>>];

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
    pub(crate) unsafe fn burst(&self, slots: &Slots, received: usize) -> usize {
        let received = received.min(slots.len());
        let mut out = Out { slots, passed: 0, freed: Freed::new(self.dpdk) };
        let mut inside = self.lane.try_enter();
        match inside.as_deref_mut() {
            Some(Some(lane)) => {
                let now = self.clock.now();
                if received != 0 {
                    // SAFETY: as the caller promises.
                    let whole = unsafe { self.admit(&mut out, received) };
                    // SAFETY: `admit` left packets in so many slots. What comes out is put into slots whose packets were
                    // taken before: no more than one comes for each.
                    let packets = slots[..whole].iter().filter_map(|slot| unsafe { take(slot) });
                    lane.submit_burst(now, packets, |released| out.put(released));
                }
                let room = slots.len() - out.passed;
                lane.poll(now, room, |released| out.put(released));
            }
            // SAFETY: as the caller promises.
            _ => unsafe { self.refuse(&mut out, received) },
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

    /// Looks whether each packet's front is in one piece, makes it so or frees the packet, and fetches the fronts into
    /// the cache. Returns how many packets there are then, in their order in the first slots.
    ///
    /// # Safety
    /// The first `received` slots hold packets.
    #[inline]
    unsafe fn admit(&self, out: &mut Out<'_>, received: usize) -> usize {
        let mut whole = 0;
        for slot in &out.slots[..received] {
            // SAFETY: as the caller promises; slots behind this one are overwritten only.
            let Some(mut packet) = (unsafe { take(slot) }) else { continue };
            if !packet.is_whole() && packet.make_whole().is_err() {
                add(&self.refused, 1);
                out.freed.push(packet);
                continue;
            }
            prefetch(packet.bytes().as_ptr());
            out.slots[whole].set(MaybeUninit::new(packet.into_raw()));
            whole += 1;
        }
        whole
    }

    /// Nobody is there to judge: frees the burst.
    ///
    /// # Safety
    /// The first `received` slots hold packets.
    #[cold]
    unsafe fn refuse(&self, out: &mut Out<'_>, received: usize) {
        for slot in &out.slots[..received] {
            // SAFETY: as the caller promises.
            if let Some(packet) = unsafe { take(slot) } {
                out.freed.push(packet);
            }
        }
        add(&self.refused, received);
    }
}

/// The packet in a slot.
///
/// # Safety
/// There is one, and it is not taken twice.
#[inline]
unsafe fn take(slot: &Slot<MaybeUninit<*mut RawMbuf>>) -> Option<Mbuf> {
    // SAFETY: as the caller promises.
    unsafe { Mbuf::from_raw(slot.get().assume_init()) }
}

/// A counter that has one writer at a time, but where two threads poll one queue, which costs a count.
#[inline]
fn add(counter: &AtomicU64, n: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n as u64), Ordering::Release);
}

/// The burst on its way out.
struct Out<'a> {
    slots: &'a Slots,
    passed: usize,
    freed: Freed,
}

impl Out<'_> {
    #[inline]
    fn put(&mut self, released: Released<Mbuf>) {
        match (released.outcome, self.slots.get(self.passed)) {
            (Outcome::Pass, Some(slot)) => {
                slot.set(MaybeUninit::new(released.packet.into_raw()));
                self.passed += 1;
            }
            _ => self.freed.push(released.packet),
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
