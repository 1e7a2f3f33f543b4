//! The lowest epoch that a writer without storage may take next, kept by whoever starts it.
//!
//! A P4 VM lives in an empty root and forgets its epochs. Its clock makes them grow, until that is set back: then the
//! auditor in the user VM takes a new P4 VM's records for replays of an old one's. The host daemon, which has storage,
//! keeps a floor for it. It is told to the P4 VM and not believed by it ([`Epoch::from_floor`]): a host that lies
//! about the floor gains what it would gain by setting the clock, and no more.
//!
//! [`Epoch::from_floor`]: crate::Epoch::from_floor

use std::path::PathBuf;

use crate::clock::Now;
use crate::epoch::{EpochError, RANDOM, load, lock, store};

/// What a floor rises by for each start, nanoseconds of the clock: a minute. Whatever a writer takes within a minute of
/// being told its floor is below the next one, also when nobody lives to call [`Floor::settle`].
const RESERVED: u64 = 1 << 36;

/// A floor that rises with each start of a writer.
#[derive(Debug, Default)]
pub struct Floor {
    /// None: it lasts as long as this does.
    path: Option<PathBuf>,
    next: u64,
}

impl Floor {
    /// One that is kept in file `path`, besides which `path` with `.lock` and `.new` appended are used; the directory
    /// must exist. Without a path it is kept in memory.
    #[must_use]
    pub const fn new(path: Option<PathBuf>) -> Self {
        Self { path, next: 0 }
    }

    /// The floor for a writer that starts now, above all epochs of the writers before it; and whether it was kept. Where
    /// the file cannot be read or stored, the floor holds for what this object has seen.
    pub fn reserve(&mut self) -> (u64, Result<(), EpochError>) {
        self.reserve_at(Now::read().real_ns)
    }

    fn reserve_at(&mut self, real_ns: u64) -> (u64, Result<(), EpochError>) {
        let mut floor = 0;
        let kept = self.raise(|next| {
            floor = next.max(real_ns);
            floor.saturating_add(RESERVED)
        });
        (floor, kept)
    }

    /// To be called once the writer has taken its epoch: covers a clock that was set ahead between the two.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or stored.
    pub fn settle(&mut self) -> Result<(), EpochError> {
        self.settle_at(Now::read().real_ns)
    }

    fn settle_at(&mut self, real_ns: u64) -> Result<(), EpochError> {
        let taken = real_ns.saturating_add(RANDOM);
        if taken < self.next {
            return Ok(());
        }
        self.raise(|next| next.max(taken.saturating_add(1)))
    }

    /// Raises the floor to what `to` makes of it, in the file before this returns.
    fn raise(&mut self, to: impl FnOnce(u64) -> u64) -> Result<(), EpochError> {
        let Some(path) = self.path.clone() else {
            self.next = to(self.next);
            return Ok(());
        };
        // Held while the file is changed only: the next daemon may start before this one has ended.
        let held = lock(&path).and_then(|held| Ok((load(&path)?, held)));
        let stored = held.as_ref().map_or(None, |(stored, _)| *stored);
        self.next = to(self.next.max(stored.unwrap_or(0)));
        held.and_then(|_held| store(&path, self.next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;
    const NOW: u64 = 500_000 * HOUR;

    /// The highest epoch that a writer can take that is told `floor` and reads `real_ns` from its clock.
    fn highest(floor: u64, real_ns: u64) -> u64 {
        floor.max(real_ns) + RANDOM
    }

    fn reserve(floor: &mut Floor, real_ns: u64) -> u64 {
        let (floor, kept) = floor.reserve_at(real_ns);
        kept.unwrap();
        floor
    }

    fn in_file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("red.epoch");
        (dir, path)
    }

    #[test]
    fn a_clock_set_back_does_not_lower_the_floor() {
        let (_dir, path) = in_file();
        for path in [None, Some(path)] {
            let mut floor = Floor::new(path.clone());
            let mut taken = 0;
            // Set back by an hour at each start, in the end to 1970, as a machine without a battery does.
            for hours in (0..500_000).step_by(50_000).chain([500_000]) {
                let clock = NOW - hours * HOUR;
                let told = reserve(&mut floor, clock);
                assert!(told > taken, "{hours} hours back: {told} is not above {taken}");
                taken = highest(told, clock);
                floor.settle_at(clock).unwrap();
                if path.is_some() {
                    // The daemon starts anew, too.
                    floor = Floor::new(path.clone());
                }
            }
        }
    }

    #[test]
    fn the_floor_covers_a_clock_jump_before_the_epoch() {
        let (_dir, path) = in_file();
        let mut floor = Floor::new(Some(path.clone()));
        let told = reserve(&mut floor, 0);
        // The machine learns the time of day just then, and forgets it again.
        let taken = highest(told, NOW);
        floor.settle_at(NOW).unwrap();
        assert!(reserve(&mut Floor::new(Some(path)), 0) > taken);
    }

    #[test]
    fn the_floor_survives_a_daemon_crash() {
        let (_dir, path) = in_file();
        let told = reserve(&mut Floor::new(Some(path.clone())), NOW);
        // The writer took its time, less than a minute.
        let taken = highest(told, NOW + HOUR / 61);
        assert!(reserve(&mut Floor::new(Some(path)), NOW - HOUR) > taken);
    }

    #[test]
    fn without_a_file_the_floor_holds_in_memory() {
        let (dir, path) = in_file();
        let mut floor = Floor::new(Some(path));
        drop(dir);
        let (first, kept) = floor.reserve_at(NOW);
        assert!(matches!(kept, Err(EpochError::Io { .. })), "{kept:?}");
        let (second, _) = floor.reserve_at(NOW - HOUR);
        assert!(second > highest(first, NOW));
    }

    #[test]
    fn a_damaged_file_counts_as_lost() {
        let (_dir, path) = in_file();
        std::fs::write(&path, "epoch 18446744073709551615 0000000000000000\n").unwrap();
        assert_eq!(reserve(&mut Floor::new(Some(path)), NOW), NOW);
    }
}
