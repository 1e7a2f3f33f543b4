//! A receive queue's lane, and the processing of a burst.
//!
//! A mediated queue is created once for a receive queue and never freed, because DPDK may keep its
//! address for the life of the process. Its lane is made and dropped with the receive queue.
//! Without a lane, received packets are freed.
//!
//! If the library panics while it processes a burst, the lane's held packets are freed and a new
//! lane replaces it; the tenants' policies apply until the new lane has channels.
//!
//! A burst continues in [`Lane::submit_burst`] and [`Lane::poll`], of the crate `p4shield-attach`.

use crate::clock::Clock;
use crate::dpdk::Dpdk;
use crate::exclusive::Exclusive;
use crate::mbuf::{Mbuf, RawMbuf};
use crate::panics::catch_panic;
use crate::tunnel::{Inside, MAX_OUTER, Origin, Seen, SharedTunnels, Tunnels};
use p4shield_attach::Lane;
use p4shield_mediator::{Disposition, Packet, ReleasedPacket};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Packets that one call of DPDK frees.
const FREE_BATCH: usize = 64;
/// Panics after which a queue gets no further lane, and its packets are freed.
pub(crate) const MAX_PANICS: u32 = 16;

/// The array of the switch's burst: received packets, and room for returned packets.
pub(crate) type Slots = [Cell<MaybeUninit<*mut RawMbuf>>];

/// Function that makes a queue's lane.
type MakeLane = Box<dyn Fn(Arc<AtomicU64>) -> Lane<Mbuf> + Send>;

/// State of the polling thread.
#[derive(Default)]
struct PollState {
    lane: Option<Lane<Mbuf>>,
    /// The function that made the lane.
    make: Option<MakeLane>,
    tunnels: Seen,
    panics: u32,
}

/// A receive queue with its lane and counters.
pub(crate) struct MediatedQueue {
    state: Exclusive<PollState>,
    /// The tunnels that the switch terminates.
    tunnels: Arc<SharedTunnels>,
    /// Whether any packet's outer headers were ever hidden.
    hides: AtomicBool,
    /// Whether the device ever moved VLAN tags out of a packet.
    strips: AtomicBool,
    clock: Clock,
    dpdk: &'static Dpdk,
    received: AtomicU64,
    returned: AtomicU64,
    freed: AtomicU64,
    refused: Arc<AtomicU64>,
}

/// Counts of a receive queue's packets since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueCounts {
    /// Packets received from the driver.
    pub(crate) received: u64,
    /// Packets returned to the application.
    pub(crate) returned: u64,
    /// Packets freed, for any reason.
    pub(crate) freed: u64,
    /// Of the freed packets, those that were not submitted: no memory to join segments, VLAN tags that
    /// cannot be put back, an ambiguous tunnel, a second thread polled the queue, or the library panicked.
    pub(crate) refused: u64,
}

impl QueueCounts {
    /// Returns the number of held packets.
    pub(crate) const fn held(&self) -> u64 {
        self.received.wrapping_sub(self.returned).wrapping_sub(self.freed)
    }
}

impl MediatedQueue {
    /// Creates a mediated queue without a lane, for a switch with these tunnels.
    pub(crate) fn new(clock: Clock, dpdk: &'static Dpdk, tunnels: Arc<SharedTunnels>) -> &'static Self {
        Box::leak(Box::new(Self {
            state: Exclusive::new(PollState::default()),
            tunnels,
            hides: AtomicBool::new(false),
            strips: AtomicBool::new(false),
            clock,
            dpdk,
            received: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            refused: Arc::default(),
        }))
    }

    /// Makes a lane if there is none. `make` gets the counter of refused packets.
    pub(crate) fn open(&self, make: impl Fn(Arc<AtomicU64>) -> Lane<Mbuf> + Send + 'static) {
        let mut state = self.state.lock();
        if state.lane.is_none() {
            state.lane = Some(make(Arc::clone(&self.refused)));
            state.make = Some(Box::new(make));
        }
    }

    /// Frees the lane's held packets and drops the lane.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.make = None;
        let lane = state.lane.take();
        drop(state);
        if let Some(mut lane) = lane {
            let mut freed = FreeBatch::new(self.dpdk);
            lane.drain(|released| freed.push(released.packet));
            add(&self.freed, freed.finish());
        }
    }

    /// Returns the clock.
    #[inline]
    pub(crate) const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the packet counts.
    pub(crate) fn counts(&self) -> QueueCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // Reads the counts of returned and freed packets first, so that they never exceed the
        // received packets.
        let (returned, freed, refused) = (read(&self.returned), read(&self.freed), read(&self.refused));
        QueueCounts { received: read(&self.received), returned, freed, refused }
    }

    /// Submits the first `received` packets of a burst and replaces them by packets that pass, as
    /// many as there are slots. Returns the number of packets that pass. The caller calls this at
    /// each poll, with or without packets. Does not panic.
    ///
    /// # Safety
    /// The first `received` slots hold packets of the caller, who gives them away.
    #[inline]
    pub(crate) unsafe fn process(&self, slots: &Slots, received: usize) -> usize {
        let received = received.min(slots.len());
        let mut out = Output { slots, passed: 0, freed: FreeBatch::new(self.dpdk) };
        let mut remaining = [].iter();
        // SAFETY: as the caller promises.
        let mediate = || unsafe { self.mediate(&mut out, &mut remaining, received) };
        if catch_panic("mediating a burst", mediate).is_none() {
            // SAFETY: the iterator advanced past each packet that was taken before the panic.
            unsafe { self.replace_lane(&mut out, remaining) };
        }
        let (passed, freed) = (out.passed, out.freed.finish());
        if self.hides.load(Ordering::Relaxed) {
            // SAFETY: `out` put packets there.
            unsafe { for_each(&slots[..passed], Mbuf::show) };
        }
        if self.strips.load(Ordering::Relaxed) {
            // SAFETY: as above.
            unsafe { for_each(&slots[..passed], Mbuf::strip_tags) };
        }
        // Most polls receive no packets.
        if received | passed | freed != 0 {
            add(&self.received, received);
            add(&self.returned, passed);
            add(&self.freed, freed);
        }
        passed
    }

    /// Submits a burst and polls the lane. `remaining` has the burst's packets that are not
    /// submitted yet, in case of a panic.
    ///
    /// # Safety
    /// The first `received` slots of `out` hold packets.
    #[inline]
    unsafe fn mediate<'s>(&self, out: &mut Output<'s>, remaining: &mut Remaining<'s>, received: usize) {
        let slots = out.slots;
        let mut state = self.state.try_lock();
        let Some(PollState { lane: Some(lane), tunnels, .. }) = state.as_deref_mut() else {
            // SAFETY: as the caller promises.
            return unsafe { self.free_unjudged(out, slots[..received].iter()) };
        };
        let now = self.clock.now();
        lane.check(now);
        if !lane.judges() && lane.held() == 0 {
            // The slots hold what passes.
            out.passed = received;
            return;
        }
        if received != 0 {
            // SAFETY: as the caller promises.
            let mut whole = unsafe { self.retain(out, received, |packet| self.make_judgeable(packet)) };
            let tunnels = tunnels.of(&self.tunnels);
            let mut one_network = true;
            if !tunnels.is_empty() {
                let from = if lane.is_vms() { Origin::Vm } else { Origin::Shared };
                // SAFETY: the call before left packets in the first `whole` slots.
                whole = unsafe { self.retain(out, whole, |packet| self.hide_tunnel(packet, tunnels, from)) };
                one_network = !tunnels.distinguish_networks();
            }
            *remaining = slots[..whole].iter();
            if one_network {
                // SAFETY: as above. At most one packet comes out for each that was taken, so output
                // goes into slots whose packets were taken before.
                let packets = remaining.by_ref().filter_map(|slot| unsafe { take(slot) });
                lane.submit_burst(now, packets, |released| out.put(released));
            } else {
                // SAFETY: as above.
                unsafe { submit_by_network(lane, tunnels, now, out, remaining) };
            }
        }
        let room = slots.len() - out.passed;
        lane.poll(now, room, |released| out.put(released));
    }

    /// Keeps the packets that `keep` accepts, in order in the first slots, and frees the others.
    /// Returns the number of kept packets.
    ///
    /// # Safety
    /// The first `count` slots hold packets.
    #[inline]
    unsafe fn retain(
        &self,
        out: &mut Output<'_>,
        count: usize,
        mut keep: impl FnMut(&mut Mbuf) -> bool,
    ) -> usize {
        let (slots, mut kept) = (out.slots, 0);
        for slot in &slots[..count] {
            // SAFETY: as the caller promises; only slots before this one are overwritten.
            let Some(mut packet) = (unsafe { take(slot) }) else { continue };
            if keep(&mut packet) {
                slots[kept].set(MaybeUninit::new(packet.into_raw()));
                kept += 1;
            } else {
                add(&self.refused, 1);
                out.freed.push(packet);
            }
        }
        kept
    }

    /// Makes a received packet what it was on the wire, and judgeable. Returns false if the packet must be
    /// freed.
    #[inline]
    fn make_judgeable(&self, packet: &mut Mbuf) -> bool {
        if packet.is_stripped() {
            self.strips.store(true, Ordering::Relaxed);
            if packet.restore_tags().is_err() {
                return false;
            }
        }
        make_judgeable(packet)
    }

    /// Hides the outer headers of a tunnelled packet, so that programs judge the inner packet.
    /// Returns false if the packet must be freed.
    fn hide_tunnel(&self, packet: &mut Mbuf, tunnels: &Tunnels, from: Origin) -> bool {
        // Outer and inner headers must be in one segment.
        if !packet.is_whole_behind(MAX_OUTER) && packet.make_whole().is_err() {
            return false;
        }
        match tunnels.inspect(packet.bytes(), from) {
            Inside::Nothing => true,
            Inside::Unknown => false,
            Inside::Frame(outer) => {
                self.hides.store(true, Ordering::Relaxed);
                packet.hide(outer).is_ok()
            }
        }
    }

    /// Frees packets that no lane can judge.
    ///
    /// # Safety
    /// The slots hold packets.
    #[cold]
    unsafe fn free_unjudged(&self, out: &mut Output<'_>, packets: Remaining<'_>) {
        for slot in packets {
            // SAFETY: as the caller promises.
            if let Some(packet) = unsafe { take(slot) } {
                add(&self.refused, 1);
                out.freed.push(packet);
            }
        }
    }

    /// Handles a panic: frees the packets that the lane still holds, and makes a new lane. At most
    /// one packet, which was being moved, is lost.
    ///
    /// # Safety
    /// The slots hold packets.
    #[cold]
    unsafe fn replace_lane(&self, out: &mut Output<'_>, packets: Remaining<'_>) {
        // SAFETY: as the caller promises.
        unsafe { self.free_unjudged(out, packets) };
        let mut state = self.state.lock();
        state.panics += 1;
        if let Some(mut lane) = state.lane.take() {
            catch_panic("freeing held packets", || lane.drain(|released| out.freed.push(released.packet)));
            catch_panic("dropping a lane", || drop(lane));
        }
        if state.panics <= MAX_PANICS
            && let Some(make) = &state.make
        {
            state.lane = catch_panic("making a lane", || make(Arc::clone(&self.refused)));
        }
    }
}

impl std::fmt::Debug for MediatedQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MediatedQueue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// Slots whose packets are not taken yet.
type Remaining<'s> = slice::Iter<'s, Cell<MaybeUninit<*mut RawMbuf>>>;

/// Submits runs of packets of one network, in order: tunnelled packets with the tunnel's network,
/// the others with their port's.
///
/// # Safety
/// The slots of `remaining` hold packets.
#[cold]
unsafe fn submit_by_network(
    lane: &mut Lane<Mbuf>,
    tunnels: &Tunnels,
    now: u64,
    out: &mut Output<'_>,
    remaining: &mut Remaining<'_>,
) {
    let network = |slot: &Cell<MaybeUninit<*mut RawMbuf>>| {
        // SAFETY: as the caller promises; the packet stays in its slot.
        let packet = unsafe { take(slot) }?;
        (packet.hidden() != 0).then(|| tunnels.network(packet.hidden_bytes()))
    };
    while let Some(first) = remaining.as_slice().first() {
        let of = network(first);
        let run = remaining.as_slice().iter().take_while(|slot| network(slot) == of).count();
        // SAFETY: as the caller promises. Output goes into slots whose packets were taken before.
        let packets = remaining.by_ref().take(run).filter_map(|slot| unsafe { take(slot) });
        match of {
            Some(of) => lane.submit_burst_in(of, now, packets, |released| out.put(released)),
            None => lane.submit_burst(now, packets, |released| out.put(released)),
        }
    }
}

/// Joins a packet's first segments and prefetches its headers. Returns false if there is no memory.
#[inline]
pub(crate) fn make_judgeable(packet: &mut Mbuf) -> bool {
    let whole = packet.is_whole() || packet.make_whole().is_ok();
    prefetch(packet.bytes().as_ptr());
    whole
}

/// Changes packets in their slots: restores hidden outer headers, or strips VLAN tags.
///
/// # Safety
/// The slots hold packets.
#[cold]
unsafe fn for_each(slots: &Slots, change: impl Fn(&mut Mbuf)) {
    for slot in slots {
        // SAFETY: as the caller promises.
        if let Some(mut packet) = unsafe { take(slot) } {
            change(&mut packet);
            // The change may have put a copy in the packet's place.
            slot.set(MaybeUninit::new(packet.into_raw()));
        }
    }
}

/// Takes the packet out of a slot.
///
/// # Safety
/// The slot holds a packet, which is not taken twice.
#[inline]
unsafe fn take(slot: &Cell<MaybeUninit<*mut RawMbuf>>) -> Option<Mbuf> {
    // SAFETY: as the caller promises.
    unsafe { Mbuf::from_raw(slot.get().assume_init()) }
}

/// Adds to a counter with one writer at a time. If two threads poll one queue, an addition may be lost.
#[inline]
pub(crate) fn add(counter: &AtomicU64, n: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n as u64), Ordering::Release);
}

/// Output of a burst: packets that pass, and packets to free.
struct Output<'a> {
    slots: &'a Slots,
    passed: usize,
    freed: FreeBatch,
}

impl Output<'_> {
    #[inline]
    fn put(&mut self, released: ReleasedPacket<Mbuf>) {
        match (released.disposition, self.slots.get(self.passed)) {
            (Disposition::Pass, Some(slot)) => {
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
    // SAFETY: a prefetch only affects the cache, for any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Packets to free, which DPDK frees in batches.
pub(crate) struct FreeBatch {
    dpdk: &'static Dpdk,
    packets: [MaybeUninit<*mut RawMbuf>; FREE_BATCH],
    waiting: usize,
    done: usize,
}

impl FreeBatch {
    #[inline]
    pub(crate) fn new(dpdk: &'static Dpdk) -> Self {
        Self { dpdk, packets: [const { MaybeUninit::uninit() }; FREE_BATCH], waiting: 0, done: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, packet: Mbuf) {
        self.packets[self.waiting].write(packet.into_raw());
        self.waiting += 1;
        if self.waiting == FREE_BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        // At most `FREE_BATCH`.
        let count = self.waiting as u32;
        // SAFETY: the first `waiting` entries hold packets that only this batch owns.
        unsafe { (self.dpdk.rte_pktmbuf_free_bulk)(self.packets.as_mut_ptr().cast(), count) };
        self.done += self.waiting;
        self.waiting = 0;
    }

    /// Frees the remaining packets and returns the number of all freed packets.
    #[inline]
    pub(crate) fn finish(mut self) -> usize {
        if self.waiting != 0 {
            self.flush();
        }
        self.done
    }
}
