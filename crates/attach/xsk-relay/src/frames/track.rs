//! Rings whose reader takes frames without telling us.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sync::AtomicU32;

/// No frame.
const NONE: u32 = u32::MAX;

/// What we put into a ring, by position, so that its reader's index tells which frames it has taken.
///
/// One thread at a time puts; any thread asks. Positions run freely over 32 bits, and a frame may rest with the
/// application until they come round: so a position counts only if the slot still names the frame.
pub struct Track {
    /// The reader's index.
    tail: Box<dyn Fn() -> u32 + Send + Sync>,
    /// Our index: entries that we have put.
    head: AtomicU32,
    /// The frame in each slot.
    slots: Box<[AtomicU32]>,
}

impl Track {
    /// Of a ring with this many entries (a power of two) where both indexes stand at `start`; `tail` reads the index
    /// of its reader.
    ///
    /// # Panics
    /// If the number of entries is no power of two: the ring itself would not exist.
    #[must_use]
    pub fn new(entries: u32, start: u32, tail: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        assert!(entries.is_power_of_two());
        Self {
            tail: Box::new(tail),
            head: AtomicU32::new(start),
            slots: (0..entries).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    /// Remembers that the next entry is `cell`; returns its position.
    pub(super) fn put(&self, cell: u32) -> u32 {
        let at = self.head.load(Relaxed);
        self.slot(at).store(cell, Relaxed);
        self.head.store(at.wrapping_add(1), Release);
        at
    }

    /// Remembers an entry that is no frame of the ledger's.
    pub(super) fn skip(&self) {
        self.put(NONE);
    }

    /// Whether the reader has not taken `cell` from `position` yet.
    pub(super) fn holds(&self, position: u32, cell: u32) -> bool {
        let head = self.head.load(Acquire);
        let tail = (self.tail)();
        let waiting = position.wrapping_sub(tail) < head.wrapping_sub(tail);
        waiting && self.slot(position).load(Relaxed) == cell
    }

    fn slot(&self, at: u32) -> &AtomicU32 {
        &self.slots[at as usize & (self.slots.len() - 1)]
    }
}

impl fmt::Debug for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Track").field("entries", &self.slots.len()).field("head", &self.head).finish()
    }
}

/// Number of a ring among all rings of one packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seat(u16);

impl Seat {
    pub(super) const NONE: Self = Self(0);
    /// What a word has bits for.
    const LAST: usize = 0xfff;

    pub(super) const fn number(self) -> u16 {
        self.0
    }

    pub(super) const fn of(number: u16) -> Self {
        Self(number)
    }
}

/// The rings of one packet memory. Sockets that share it come and go.
#[derive(Debug, Default)]
pub struct Seats {
    tracks: Mutex<Vec<Option<Arc<Track>>>>,
    /// Counts the changes, so that a view is taken afresh only after one.
    version: AtomicU32,
}

impl Seats {
    /// A number for one more ring, or `None` if there are 4095.
    pub fn take(&self, track: Arc<Track>) -> Option<Seat> {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        if tracks.is_empty() {
            tracks.push(None);
        }
        // The first stands for none.
        let free = tracks.iter().skip(1).position(Option::is_none).map_or(tracks.len(), |n| n + 1);
        if free > Seat::LAST {
            return None;
        }
        if free == tracks.len() {
            tracks.push(None);
        }
        tracks[free] = Some(track);
        self.version.fetch_add(1, Release);
        u16::try_from(free).ok().map(Seat)
    }

    /// Gives a number back. What stood in that ring is with the application from now on.
    pub fn leave(&self, seat: Seat) {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(track) = tracks.get_mut(usize::from(seat.0)) {
            *track = None;
        }
        self.version.fetch_add(1, Release);
    }

    /// All rings as they are now.
    #[must_use]
    pub fn view(&self) -> View {
        let mut view = View::default();
        view.refresh(self);
        view
    }
}

/// A thread's own list of the rings.
#[derive(Debug, Default)]
pub struct View {
    tracks: Vec<Option<Arc<Track>>>,
    version: Option<u32>,
}

impl View {
    /// Takes over what changed: one load if nothing did.
    pub fn refresh(&mut self, seats: &Seats) {
        let version = seats.version.load(Acquire);
        if self.version != Some(version) {
            self.tracks.clone_from(&seats.tracks.lock().unwrap_or_else(PoisonError::into_inner));
            self.version = Some(version);
        }
    }

    /// Whether a frame still stands in a ring; not in one that is gone.
    pub(super) fn holds(&self, seat: Seat, position: u32, cell: u32) -> bool {
        let track = self.tracks.get(usize::from(seat.0)).and_then(Option::as_ref);
        track.is_some_and(|t| t.holds(position, cell))
    }
}
