//! Rings whose reader takes frames without a notification, and the numbers of these rings.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sync::AtomicU32;

/// No frame.
const NONE: u32 = u32::MAX;

/// The frames that this library wrote to a ring, by position. The reader's index shows which of them it
/// has taken.
///
/// One thread at a time records; any thread may query. Positions wrap at 2^32, and a frame may stay with
/// the application until they do, so a position counts only while its slot still names the frame.
pub struct RingHistory {
    /// Reads the reader's index.
    tail: Box<dyn Fn() -> u32 + Send + Sync>,
    /// The writer's index.
    head: AtomicU32,
    /// The frame in each slot.
    slots: Box<[AtomicU32]>,
}

impl RingHistory {
    /// Creates the history of an empty ring of `entries` entries whose indexes are at `start`. `tail`
    /// reads the index of the ring's reader.
    ///
    /// # Panics
    /// If the number of entries is not a power of two, which no AF_XDP ring has.
    #[must_use]
    pub fn new(entries: u32, start: u32, tail: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        assert!(entries.is_power_of_two());
        Self {
            tail: Box::new(tail),
            head: AtomicU32::new(start),
            slots: (0..entries).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    /// Records that the next entry is `frame`; returns its position.
    pub(super) fn record(&self, frame: u32) -> u32 {
        let at = self.head.load(Relaxed);
        self.slot(at).store(frame, Relaxed);
        self.head.store(at.wrapping_add(1), Release);
        at
    }

    /// Records an entry that is not a frame of the ledger.
    pub(super) fn record_foreign(&self) {
        self.record(NONE);
    }

    /// Returns whether the reader has not yet taken `frame` from `position`.
    pub(super) fn contains(&self, position: u32, frame: u32) -> bool {
        let head = self.head.load(Acquire);
        let tail = (self.tail)();
        let waiting = position.wrapping_sub(tail) < head.wrapping_sub(tail);
        waiting && self.slot(position).load(Relaxed) == frame
    }

    fn slot(&self, at: u32) -> &AtomicU32 {
        &self.slots[at as usize & (self.slots.len() - 1)]
    }
}

impl fmt::Debug for RingHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingHistory").field("entries", &self.slots.len()).field("head", &self.head).finish()
    }
}

/// The number of a ring among all rings of one UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingId(u16);

impl RingId {
    pub(super) const NONE: Self = Self(0);
    /// The largest number that a frame record has bits for.
    const LAST: usize = 0xfff;

    pub(super) const fn number(self) -> u16 {
        self.0
    }

    pub(super) const fn of(number: u16) -> Self {
        Self(number)
    }
}

/// The rings of one UMEM, whose sockets come and go.
#[derive(Debug, Default)]
pub struct RingRegistry {
    histories: Mutex<Vec<Option<Arc<RingHistory>>>>,
    /// Counts the changes, so that a [`RingView`] is copied only after one.
    version: AtomicU32,
}

impl RingRegistry {
    /// Assigns a number to a ring. `None` if all 4095 numbers are in use.
    pub fn register(&self, history: Arc<RingHistory>) -> Option<RingId> {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        if histories.is_empty() {
            histories.push(None);
        }
        // Number 0 is `RingId::NONE`.
        let free = histories.iter().skip(1).position(Option::is_none).map_or(histories.len(), |n| n + 1);
        if free > RingId::LAST {
            return None;
        }
        if free == histories.len() {
            histories.push(None);
        }
        histories[free] = Some(history);
        self.version.fetch_add(1, Release);
        u16::try_from(free).ok().map(RingId)
    }

    /// Frees the number of a ring. The application owns the frames in it from now on.
    pub fn unregister(&self, ring_id: RingId) {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(history) = histories.get_mut(usize::from(ring_id.0)) {
            *history = None;
        }
        self.version.fetch_add(1, Release);
    }

    /// Returns a copy of the list of rings.
    #[must_use]
    pub fn view(&self) -> RingView {
        let mut view = RingView::default();
        view.refresh(self);
        view
    }
}

/// A thread's own copy of the list of rings.
#[derive(Debug, Default)]
pub struct RingView {
    histories: Vec<Option<Arc<RingHistory>>>,
    version: Option<u32>,
}

impl RingView {
    /// Copies the list if it has changed; costs one load if it has not.
    pub fn refresh(&mut self, registry: &RingRegistry) {
        let version = registry.version.load(Acquire);
        if self.version != Some(version) {
            self.histories.clone_from(&registry.histories.lock().unwrap_or_else(PoisonError::into_inner));
            self.version = Some(version);
        }
    }

    /// Returns whether a frame is still in a ring; false if the ring is closed.
    pub(super) fn contains(&self, ring_id: RingId, position: u32, frame: u32) -> bool {
        let history = self.histories.get(usize::from(ring_id.0)).and_then(Option::as_ref);
        history.is_some_and(|h| h.contains(position, frame))
    }
}
