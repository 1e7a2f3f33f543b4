//! What a switch sends to a guest: the VM's ingress program judges it before the guest gets it.
//!
//! Whatever reaches a guest passes `rte_vhost_enqueue_burst`: packets of other ports, those that the host
//! sends, multicast and flooded ones. DPDK copies a packet into the guest's memory, and the application then
//! frees its own. The library keeps a reference to each packet, reports it as sent, and gives it to DPDK once
//! it is judged.
//!
//! # Threads
//!
//! Several threads may send to one queue. One at a time has its *turn*: it submits, polls the lane, and
//! gives DPDK what was judged, so packets keep their order, and DPDK's function never runs twice at a time
//! for one queue. The *state* is locked for a moment only and never while DPDK's function runs, because
//! DPDK may close a queue while it holds the lock that this function waits for.
//!
//! Verdicts arrive later than the call that sent a packet. The thread that sent it delivers it at its next
//! poll of any queue ([`poll_pending`]). A thread that does not poll, such as the main thread of Open
//! vSwitch, leaves its queues to the threads that do.

use crate::clock::Clock;
use crate::dpdk::Dpdk;
use crate::exclusive::Exclusive;
use crate::mbuf::{Mbuf, RawMbuf};
use crate::mediated_queue::{FreeBatch, MAX_PANICS, QueueCounts, add, make_judgeable};
use crate::panics::catch_panic;
use p4shield_attach::Lane;
use p4shield_mediator::{Disposition, ReleasedPacket};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Judged packets that wait for room in the guest's queue; more wait in the lane.
const BACKLOG: usize = 256;
/// Packets that are submitted at a time.
const CHUNK: usize = 32;
/// Room for packets that wait. A lane may release one at once for each that is submitted.
const ROOM: usize = BACKLOG + CHUNK;
/// Nanoseconds after its last poll within which a thread counts as polling.
const POLLING: u64 = 1_000_000;

/// DPDK's `rte_vhost_enqueue_burst`.
pub(crate) type Enqueue = unsafe extern "C" fn(c_int, u16, *mut *mut RawMbuf, u16) -> u16;

/// Function that makes a queue's lane; `None` if the configuration judges the packets elsewhere.
type MakeLane = Box<dyn Fn(Arc<AtomicU64>) -> Option<Lane<Mbuf>> + Send>;

/// A device's number, and the number of a queue of the device.
type Target = (c_int, u16);

#[derive(Default)]
struct State {
    lane: Option<Lane<Mbuf>>,
    make: Option<MakeLane>,
    target: Target,
    /// Judged packets for which the guest had no room.
    backlog: Vec<Mbuf>,
    panics: u32,
}

/// A queue through which a switch sends to a guest, with its lane and counters.
pub(crate) struct TransmitQueue {
    turn: Exclusive<()>,
    state: Exclusive<State>,
    /// A list of queues to poll has this one. Changed in a turn only.
    is_listed: AtomicBool,
    enqueue: Enqueue,
    clock: Clock,
    dpdk: &'static Dpdk,
    /// Packets that the switch sent, delivered ones, freed ones, and of these those that were not submitted.
    sent: AtomicU64,
    delivered: AtomicU64,
    freed: AtomicU64,
    refused: Arc<AtomicU64>,
}

/// Transmit queues that were ever made.
static QUEUES: AtomicUsize = AtomicUsize::new(0);
/// Queues that no polling thread has adopted, and their number.
static ORPHANS: Mutex<Vec<&'static TransmitQueue>> = Mutex::new(Vec::new());
static ORPHAN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The queues that this thread polls; when it ends, other threads adopt them.
#[derive(Default)]
struct Adopted(Vec<&'static TransmitQueue>);

impl Drop for Adopted {
    fn drop(&mut self) {
        self.0.drain(..).for_each(abandon);
    }
}

thread_local! {
    static ADOPTED: RefCell<Adopted> = const { RefCell::new(Adopted(Vec::new())) };
    static LAST_POLL: Cell<u64> = const { Cell::new(0) };
}

/// Leaves a queue to any polling thread.
fn abandon(queue: &'static TransmitQueue) {
    let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
    orphans.push(queue);
    ORPHAN_COUNT.store(orphans.len(), Ordering::Release);
}

/// Delivers what was judged since; called whenever a thread polls. One load if there is no transmit queue.
#[inline]
pub(crate) fn poll_pending(clock: &Clock) {
    if QUEUES.load(Ordering::Relaxed) != 0 {
        poll_adopted(clock.now());
    }
}

#[inline(never)]
fn poll_adopted(now: u64) {
    // No thread-local values are left in a thread that ends.
    let _ = LAST_POLL.try_with(|last| last.set(now));
    let _ = ADOPTED.try_with(|adopted| {
        // An application's function that DPDK calls may poll in turn.
        let Ok(mut adopted) = adopted.try_borrow_mut() else { return };
        if ORPHAN_COUNT.load(Ordering::Acquire) != 0
            && let Ok(mut orphans) = ORPHANS.try_lock()
        {
            adopted.0.append(&mut orphans);
            ORPHAN_COUNT.store(0, Ordering::Release);
        }
        adopted.0.retain(|queue| queue.poll());
    });
}

/// Whether a queue passes its packets on untouched.
enum Passage {
    /// No program judges them.
    Open,
    /// They were submitted or freed.
    Judged,
}

impl TransmitQueue {
    /// Creates a queue without a lane.
    pub(crate) fn new(clock: Clock, dpdk: &'static Dpdk, enqueue: Enqueue) -> &'static Self {
        QUEUES.fetch_add(1, Ordering::Relaxed);
        Box::leak(Box::new(Self {
            turn: Exclusive::new(()),
            state: Exclusive::new(State { backlog: Vec::with_capacity(ROOM), ..State::default() }),
            is_listed: AtomicBool::new(false),
            enqueue,
            clock,
            dpdk,
            sent: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            refused: Arc::default(),
        }))
    }

    /// Makes a lane if there is none. `make` gets the counter of refused packets.
    pub(crate) fn open(
        &self,
        target: Target,
        make: impl Fn(Arc<AtomicU64>) -> Option<Lane<Mbuf>> + Send + 'static,
    ) {
        let is_open = {
            let mut state = self.state.lock();
            state.target = target;
            state.lane.is_some()
        };
        if !is_open {
            // A lane takes a while to make; threads that send wait for the state.
            let lane = make(Arc::clone(&self.refused));
            let mut state = self.state.lock();
            state.lane = lane;
            state.make = Some(Box::new(make));
        }
    }

    /// Frees the packets that the queue holds, and drops the lane.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.make = None;
        let (lane, backlog) = (state.lane.take(), state.backlog.drain(..).collect::<Vec<_>>());
        drop(state);
        let mut freed = FreeBatch::new(self.dpdk);
        backlog.into_iter().for_each(|packet| freed.push(packet));
        if let Some(mut lane) = lane {
            lane.drain(|released| freed.push(released.packet));
        }
        self.freed.fetch_add(freed.finish() as u64, Ordering::Release);
    }

    /// Closes the queue and waits for the turn that may still use the device, which DPDK frees next. Not for
    /// callers that hold a lock of DPDK's queue.
    pub(crate) fn end(&self) {
        self.close();
        drop(self.turn.lock());
    }

    /// Returns the packet counts: sent, delivered, freed, refused.
    pub(crate) fn counts(&self) -> QueueCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let (returned, freed, refused) = (read(&self.delivered), read(&self.freed), read(&self.refused));
        QueueCounts { received: read(&self.sent), returned, freed, refused }
    }

    /// Sends packets to the guest, each once its program has passed it. Returns how many the caller may
    /// take for sent. Does not panic.
    ///
    /// # Safety
    /// `packets` has `count` packets of the caller, which stay the caller's.
    pub(crate) unsafe fn send(&'static self, packets: *mut *mut RawMbuf, count: u16) -> u16 {
        // Another thread's turn is as short as a burst.
        let _turn = self.turn.wait();
        // SAFETY: as the caller promises.
        let burst = unsafe { std::slice::from_raw_parts(packets, count.into()) };
        for (n, chunk) in burst.chunks(CHUNK).enumerate() {
            let submit = || {
                let mut state = self.state.wait();
                // SAFETY: as the caller promises.
                let passage = unsafe { self.submit(&mut state, chunk, n == 0) };
                (passage, state.target)
            };
            match catch_panic("judging what a guest receives", submit) {
                Some((Passage::Open, (vid, queue))) => {
                    // SAFETY: the caller's own packets. The first chunk decides for the burst.
                    return unsafe { (self.enqueue)(vid, queue, packets, count) };
                }
                Some((Passage::Judged, _)) => self.deliver(),
                None => self.replace_lane(),
            }
        }
        self.list_if_busy();
        count
    }

    /// Submits packets to the lane and polls it.
    ///
    /// # Safety
    /// The packets are the caller's, and stay so.
    unsafe fn submit(&self, state: &mut State, packets: &[*mut RawMbuf], may_open: bool) -> Passage {
        let State { lane, backlog, .. } = state;
        let now = self.clock.now();
        if let Some(lane) = lane {
            lane.check(now);
            if may_open && !lane.judges() && lane.held() == 0 && backlog.is_empty() {
                return Passage::Open;
            }
        }
        self.sent.fetch_add(packets.len() as u64, Ordering::Release);
        let Some(lane) = lane else {
            return self.refuse(packets.len());
        };
        let mut freed = FreeBatch::new(self.dpdk);
        let mut refused = FreeBatch::new(self.dpdk);
        let mut release = |released: ReleasedPacket<Mbuf>| match released.disposition {
            Disposition::Pass if backlog.len() < ROOM => backlog.push(released.packet),
            // The guest's queue is full.
            Disposition::Pass | Disposition::Drop(_) => freed.push(released.packet),
        };
        // SAFETY: as the caller promises.
        let shared = packets.iter().filter_map(|packet| unsafe { Mbuf::share(*packet) });
        let judgeable = shared.filter_map(|mut packet| {
            if make_judgeable(&mut packet) {
                Some(packet)
            } else {
                refused.push(packet);
                None
            }
        });
        lane.submit_burst(now, judgeable, &mut release);
        let refused = refused.finish();
        self.freed.fetch_add((freed.finish() + refused) as u64, Ordering::Release);
        add(&self.refused, refused);
        self.poll_lane(state, now);
        Passage::Judged
    }

    /// Counts packets that are not taken. They are the caller's, who frees them.
    fn refuse(&self, count: usize) -> Passage {
        self.freed.fetch_add(count as u64, Ordering::Release);
        add(&self.refused, count);
        Passage::Judged
    }

    fn poll_lane(&self, state: &mut State, now: u64) {
        let State { lane: Some(lane), backlog, .. } = state else { return };
        let mut freed = FreeBatch::new(self.dpdk);
        let room = BACKLOG.saturating_sub(backlog.len());
        lane.poll(now, room, |released| match released.disposition {
            Disposition::Pass => backlog.push(released.packet),
            Disposition::Drop(_) => freed.push(released.packet),
        });
        self.freed.fetch_add(freed.finish() as u64, Ordering::Release);
    }

    /// Gives DPDK the judged packets; called in a turn.
    fn deliver(&self) {
        let mut state = self.state.wait();
        let (count, (vid, queue)) = (state.backlog.len().min(ROOM), state.target);
        if count == 0 {
            return;
        }
        let mut judged = [std::ptr::null_mut(); ROOM];
        for (slot, packet) in judged.iter_mut().zip(state.backlog.drain(..count)) {
            *slot = packet.into_raw();
        }
        drop(state);
        // SAFETY: the first `count` are packets of ours, whose device and queue the application prepared; if
        // the device has gone, DPDK knows no such number and takes none.
        let taken = unsafe { (self.enqueue)(vid, queue, judged.as_mut_ptr(), count as u16) };
        let (taken, mut done) = (usize::from(taken).min(count), FreeBatch::new(self.dpdk));
        // SAFETY: they came from handles that were given away above.
        let mut packets = judged[..count].iter().filter_map(|packet| unsafe { Mbuf::from_raw(*packet) });
        // DPDK has copied these into the guest's memory.
        packets.by_ref().take(taken).for_each(|packet| done.push(packet));
        self.delivered.fetch_add(done.finish() as u64, Ordering::Release);
        if taken < count {
            self.put_back(packets);
        }
        let mut state = self.state.wait();
        if let Some(lane) = &mut state.lane {
            lane.sent();
        }
    }

    /// Keeps judged packets for which the guest has no room; frees them if the queue was closed meanwhile.
    #[cold]
    fn put_back(&self, packets: impl Iterator<Item = Mbuf>) {
        let mut state = self.state.wait();
        if state.lane.is_some() {
            // Empty: only a turn fills it.
            state.backlog.extend(packets);
            return;
        }
        drop(state);
        let mut freed = FreeBatch::new(self.dpdk);
        packets.for_each(|packet| freed.push(packet));
        self.freed.fetch_add(freed.finish() as u64, Ordering::Release);
    }

    /// Delivers what was judged since. Returns whether the queue has to be polled again. Does not panic.
    fn poll(&self) -> bool {
        let Some(_turn) = self.turn.try_lock() else { return true };
        let polled = catch_panic("delivering to a guest", || {
            let mut state = self.state.wait();
            self.poll_lane(&mut state, self.clock.now());
        });
        if polled.is_none() {
            self.replace_lane();
        }
        self.deliver();
        let busy = self.is_busy();
        self.is_listed.store(busy, Ordering::Relaxed);
        busy
    }

    fn is_busy(&self) -> bool {
        let state = self.state.wait();
        !state.backlog.is_empty() || state.lane.as_ref().is_some_and(|lane| lane.held() != 0)
    }

    /// Puts a queue that holds packets on the list of this thread if it polls, else on that of any thread
    /// that does; called in a turn.
    fn list_if_busy(&'static self) {
        if self.is_listed.load(Ordering::Relaxed) || !self.is_busy() {
            return;
        }
        self.is_listed.store(true, Ordering::Relaxed);
        let last = LAST_POLL.try_with(Cell::get).unwrap_or(0);
        let polls = last != 0 && self.clock.now().saturating_sub(last) < POLLING;
        let adopted = polls.then(|| {
            let adopt = |adopted: &RefCell<Adopted>| {
                adopted.try_borrow_mut().map(|mut adopted| adopted.0.push(self)).is_ok()
            };
            ADOPTED.try_with(adopt).unwrap_or_default()
        });
        if adopted != Some(true) {
            abandon(self);
        }
    }

    /// Handles a panic: frees the packets that the lane held, and makes a new lane.
    #[cold]
    fn replace_lane(&self) {
        let mut state = self.state.lock();
        state.panics += 1;
        let mut freed = FreeBatch::new(self.dpdk);
        if let Some(mut lane) = state.lane.take() {
            catch_panic("freeing held packets", || lane.drain(|released| freed.push(released.packet)));
            catch_panic("dropping a lane", || drop(lane));
        }
        self.freed.fetch_add(freed.finish() as u64, Ordering::Release);
        if state.panics <= MAX_PANICS
            && let Some(make) = &state.make
        {
            state.lane = catch_panic("making a lane", || make(Arc::clone(&self.refused))).flatten();
        }
    }
}

impl std::fmt::Debug for TransmitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransmitQueue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
