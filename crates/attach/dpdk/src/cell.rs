//! Where a receive queue's lane lives, and what is done with a burst.
//!
//! A cell is made once for a queue and never freed, since DPDK may hold its address for as long as the process lives.
//! Its lane comes and goes with the queue. A queue whose cell has no lane gets no packet: what is received is freed.
//!
//! Should our own code panic while it is at work with a burst, the switch does not notice: what the lane held is freed,
//! and another lane takes its place, whose tenants have their policies until it has channels.

use crate::clock::Clock;
use crate::contain::contained;
use crate::dpdk::Dpdk;
use crate::gate::Gate;
use crate::mbuf::{Mbuf, RawMbuf};
use crate::tunnel::{Inside, MAX_OUTER, Origin, Seen, SharedTunnels, Tunnels};
use p4shield_attach::Lane;
use p4shield_mediator::{Disposition, Packet, ReleasedPacket};
use std::cell::Cell as Slot;
use std::mem::MaybeUninit;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Packets that are freed together.
const TOGETHER: usize = 64;
/// Panics after which a queue's packets are freed and no further lane is tried.
const MOST_PANICS: u32 = 16;

/// Packets of the caller's burst: those received, and room for those that go back.
pub(crate) type Slots = [Slot<MaybeUninit<*mut RawMbuf>>];

/// Makes a queue's lane.
type Make = Box<dyn Fn(Arc<AtomicU64>) -> Lane<Mbuf> + Send>;

/// What the thread that polls works with.
#[derive(Default)]
struct Work {
    lane: Option<Lane<Mbuf>>,
    /// How that was made.
    make: Option<Make>,
    tunnels: Seen,
    panics: u32,
}

/// A receive queue's place.
pub(crate) struct Cell {
    work: Gate<Work>,
    /// The switch's tunnels.
    tunnels: Arc<SharedTunnels>,
    /// Whether the outer headers of any packet were ever hidden.
    hides: AtomicBool,
    clock: Clock,
    dpdk: &'static Dpdk,
    received: AtomicU64,
    returned: AtomicU64,
    freed: AtomicU64,
    refused: Arc<AtomicU64>,
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
    /// Of these, freed without asking anybody: no memory to put a scattered front together, what is inside a tunnel could
    /// not be told, two threads polled the queue at once, or our own code failed.
    pub(crate) refused: u64,
}

impl Tally {
    /// Packets that are held.
    pub(crate) const fn held(&self) -> u64 {
        self.received.wrapping_sub(self.returned).wrapping_sub(self.freed)
    }
}

impl Cell {
    /// A place without a lane, in a switch with these tunnels.
    pub(crate) fn new(clock: Clock, dpdk: &'static Dpdk, tunnels: Arc<SharedTunnels>) -> &'static Self {
        Box::leak(Box::new(Self {
            work: Gate::new(Work::default()),
            tunnels,
            hides: AtomicBool::new(false),
            clock,
            dpdk,
            received: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            refused: Arc::default(),
        }))
    }

    /// Gives it a lane if it has none. `make` gets what counts refused packets.
    pub(crate) fn open(&self, make: impl Fn(Arc<AtomicU64>) -> Lane<Mbuf> + Send + 'static) {
        let mut work = self.work.enter();
        if work.lane.is_none() {
            work.lane = Some(make(Arc::clone(&self.refused)));
            work.make = Some(Box::new(make));
        }
    }

    /// Frees what the lane holds, and lets the lane go.
    pub(crate) fn close(&self) {
        let mut work = self.work.enter();
        work.make = None;
        let lane = work.lane.take();
        drop(work);
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
    /// are slots. To be called at each poll, also for an empty burst. Returns how many. Does not panic.
    ///
    /// # Safety
    /// The first `received` slots hold packets that the caller owns and gives away.
    #[inline]
    pub(crate) unsafe fn burst(&self, slots: &Slots, received: usize) -> usize {
        let received = received.min(slots.len());
        let mut out = Out { slots, passed: 0, freed: Freed::new(self.dpdk) };
        let mut untaken = [].iter();
        // SAFETY: as the caller promises.
        let work = || unsafe { self.mediate(&mut out, &mut untaken, received) };
        if contained("mediating a burst", work).is_none() {
            // SAFETY: whoever took packets from there went on to the next before it could panic.
            unsafe { self.begin_anew(&mut out, untaken) };
        }
        let (passed, freed) = (out.passed, out.freed.finish());
        if self.hides.load(Ordering::Relaxed) {
            // SAFETY: `out` put packets there.
            unsafe { show(&slots[..passed]) };
        }
        // Nearly all polls of a switch bring nothing.
        if received | passed | freed != 0 {
            add(&self.received, received);
            add(&self.returned, passed);
            add(&self.freed, freed);
        }
        passed
    }

    /// Has a burst judged. `untaken` is what is left of its packets, should it not come to an end.
    ///
    /// # Safety
    /// The first `received` slots of `out` hold packets.
    #[inline]
    unsafe fn mediate<'s>(&self, out: &mut Out<'s>, untaken: &mut Untaken<'s>, received: usize) {
        let slots = out.slots;
        let mut inside = self.work.try_enter();
        let Some(Work { lane: Some(lane), tunnels, .. }) = inside.as_deref_mut() else {
            // SAFETY: as the caller promises.
            return unsafe { self.refuse(out, slots[..received].iter()) };
        };
        let now = self.clock.now();
        if received != 0 {
            // SAFETY: as the caller promises.
            let mut whole = unsafe { self.sift(out, received, is_judgeable) };
            let tunnels = tunnels.of(&self.tunnels);
            let mut together = true;
            if !tunnels.is_empty() {
                let from = if lane.is_vms() { Origin::Vm } else { Origin::Shared };
                // SAFETY: `sift` left packets in so many slots; so does this.
                whole = unsafe { self.sift(out, whole, |packet| self.look_inside(packet, tunnels, from)) };
                together = !tunnels.distinguish_networks();
            }
            *untaken = slots[..whole].iter();
            if together {
                // SAFETY: as above. What comes out is put into slots whose packets were taken before: no more than one
                // comes for each.
                let packets = untaken.by_ref().filter_map(|slot| unsafe { take(slot) });
                lane.submit_burst(now, packets, |released| out.put(released));
            } else {
                // SAFETY: as above.
                unsafe { submit_by_network(lane, tunnels, now, out, untaken) };
            }
        }
        let room = slots.len() - out.passed;
        lane.poll(now, room, |released| out.put(released));
    }

    /// Keeps the packets that `keep` says, in their order in the first slots, and frees the others. Returns how many there
    /// are then.
    ///
    /// # Safety
    /// The first `count` slots hold packets.
    #[inline]
    unsafe fn sift(&self, out: &mut Out<'_>, count: usize, mut keep: impl FnMut(&mut Mbuf) -> bool) -> usize {
        let (slots, mut kept) = (out.slots, 0);
        for slot in &slots[..count] {
            // SAFETY: as the caller promises; slots behind this one are overwritten only.
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

    /// Has a packet that came through a tunnel judged by what is inside. False if it is to be freed.
    fn look_inside(&self, packet: &mut Mbuf, tunnels: &Tunnels, from: Origin) -> bool {
        // Both fronts have to be in one piece.
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

    /// Frees packets that nobody is there to judge.
    ///
    /// # Safety
    /// The slots hold packets.
    #[cold]
    unsafe fn refuse(&self, out: &mut Out<'_>, packets: Untaken<'_>) {
        for slot in packets {
            // SAFETY: as the caller promises.
            if let Some(packet) = unsafe { take(slot) } {
                add(&self.refused, 1);
                out.freed.push(packet);
            }
        }
    }

    /// Our own code panicked: what the lane still has is freed, as far as it can be found, and another takes its place.
    /// What was in somebody's hands just then is lost: one packet.
    ///
    /// # Safety
    /// The slots hold packets.
    #[cold]
    unsafe fn begin_anew(&self, out: &mut Out<'_>, packets: Untaken<'_>) {
        // SAFETY: as the caller promises.
        unsafe { self.refuse(out, packets) };
        let mut work = self.work.enter();
        work.panics += 1;
        if let Some(mut lane) = work.lane.take() {
            contained("freeing what is held", || lane.drain(|released| out.freed.push(released.packet)));
            contained("letting a lane go", || drop(lane));
        }
        if work.panics <= MOST_PANICS
            && let Some(make) = &work.make
        {
            work.lane = contained("making a lane", || make(Arc::clone(&self.refused)));
        }
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cell").field("tally", &self.tally()).finish_non_exhaustive()
    }
}

/// Slots whose packets nobody has taken yet.
type Untaken<'s> = slice::Iter<'s, Slot<MaybeUninit<*mut RawMbuf>>>;

/// Submits packets of one network after the other, in their order: those that came through a tunnel by that one's number,
/// the others as of their port.
///
/// # Safety
/// The slots of `untaken` hold packets.
#[cold]
unsafe fn submit_by_network(
    lane: &mut Lane<Mbuf>,
    tunnels: &Tunnels,
    now: u64,
    out: &mut Out<'_>,
    untaken: &mut Untaken<'_>,
) {
    let network = |slot: &Slot<MaybeUninit<*mut RawMbuf>>| {
        // SAFETY: as the caller promises; the packet stays in its slot.
        let packet = unsafe { take(slot) }?;
        (packet.hidden() != 0).then(|| tunnels.network(packet.hidden_bytes()))
    };
    while let Some(first) = untaken.as_slice().first() {
        let of = network(first);
        let run = untaken.as_slice().iter().take_while(|slot| network(slot) == of).count();
        // SAFETY: as the caller promises. What comes out is put into slots whose packets were taken before.
        let packets = untaken.by_ref().take(run).filter_map(|slot| unsafe { take(slot) });
        match of {
            Some(of) => lane.submit_burst_in(of, now, packets, |released| out.put(released)),
            None => lane.submit_burst(now, packets, |released| out.put(released)),
        }
    }
}

/// Makes a packet's front one piece, and fetches it into the cache. False if there is no memory for that.
#[inline]
fn is_judgeable(packet: &mut Mbuf) -> bool {
    let whole = packet.is_whole() || packet.make_whole().is_ok();
    prefetch(packet.bytes().as_ptr());
    whole
}

/// Brings hidden headers back.
///
/// # Safety
/// The slots hold packets.
#[cold]
unsafe fn show(slots: &Slots) {
    for slot in slots {
        // SAFETY: as the caller promises; the packet stays in its slot.
        if let Some(mut packet) = unsafe { take(slot) } {
            packet.show();
        }
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
