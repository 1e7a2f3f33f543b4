//! The lowest epoch that a writer without storage may take, kept by the process that starts it.
//!
//! A P4 VM has an empty root and cannot store its epochs. Its clock makes them grow, until the clock
//! is set back: then the auditor in the user VM takes a new P4 VM's records for replays of an old
//! one's. The host daemon, which has storage, keeps a floor and sends it to the P4 VM, which does not
//! trust it ([`Epoch::from_floor`]): a host gains no more by a false floor than by setting the clock.
//!
//! [`Epoch::from_floor`]: crate::Epoch::from_floor

use std::path::PathBuf;

use crate::clock::Now;
use crate::epoch::{EpochError, RANDOM, load, lock, store};

/// Rise of the floor for each start, in nanoseconds: a minute. An epoch that a writer takes within a
/// minute after it received its floor is below the next floor, also if the daemon dies before it
/// calls [`EpochFloor::confirm`].
const RESERVED: u64 = 1 << 36;

/// A floor that rises with each start of a writer.
#[derive(Debug, Default)]
pub struct EpochFloor {
    /// File of the floor; none: it is kept in memory.
    path: Option<PathBuf>,
    next: u64,
}

impl EpochFloor {
    /// A floor in file `path`; `path` with `.lock` and `.new` appended are used, too. The directory
    /// has to exist. Without a path the floor is kept in memory.
    #[must_use]
    pub const fn new(path: Option<PathBuf>) -> Self {
        Self { path, next: 0 }
    }

    /// Returns the floor for a writer that starts now, above all epochs of earlier writers; and
    /// whether it was stored. If the file cannot be read or written, the floor covers the starts that
    /// this object has seen.
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

    /// Confirms that the writer has taken its epoch. Raises the floor if the clock was set ahead
    /// since [`Self::reserve`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read or written.
    pub fn confirm(&mut self) -> Result<(), EpochError> {
        self.confirm_at(Now::read().real_ns)
    }

    fn confirm_at(&mut self, real_ns: u64) -> Result<(), EpochError> {
        let taken = real_ns.saturating_add(RANDOM);
        if taken < self.next {
            return Ok(());
        }
        self.raise(|next| next.max(taken.saturating_add(1)))
    }

    /// Raises the floor to the value that `to` returns, and stores it before it returns.
    fn raise(&mut self, to: impl FnOnce(u64) -> u64) -> Result<(), EpochError> {
        let Some(path) = self.path.clone() else {
            self.next = to(self.next);
            return Ok(());
        };
        // Locked only while the file is changed, because the next daemon may start before this one has ended.
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

    /// Returns the highest epoch that a writer can take with floor `floor` when its clock reads `real_ns`.
    fn highest(floor: u64, real_ns: u64) -> u64 {
        floor.max(real_ns) + RANDOM
    }

    fn reserve(floor: &mut EpochFloor, real_ns: u64) -> u64 {
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
            let mut floor = EpochFloor::new(path.clone());
            let mut taken = 0;
            // Set back at each start, in the end to 1970, like a machine without a battery.
            for hours in (0..500_000).step_by(50_000).chain([500_000]) {
                let clock = NOW - hours * HOUR;
                let received = reserve(&mut floor, clock);
                assert!(received > taken, "{hours} hours back: {received} is not above {taken}");
                taken = highest(received, clock);
                floor.confirm_at(clock).unwrap();
                if path.is_some() {
                    // The daemon restarts, too.
                    floor = EpochFloor::new(path.clone());
                }
            }
        }
    }

    #[test]
    fn the_floor_covers_a_clock_jump_before_the_epoch() {
        let (_dir, path) = in_file();
        let mut floor = EpochFloor::new(Some(path.clone()));
        let received = reserve(&mut floor, 0);
        // The machine receives the time of day just then, and loses it again.
        let taken = highest(received, NOW);
        floor.confirm_at(NOW).unwrap();
        assert!(reserve(&mut EpochFloor::new(Some(path)), 0) > taken);
    }

    #[test]
    fn the_floor_survives_a_daemon_crash() {
        let (_dir, path) = in_file();
        let received = reserve(&mut EpochFloor::new(Some(path.clone())), NOW);
        // The writer takes its epoch within a minute.
        let taken = highest(received, NOW + HOUR / 61);
        assert!(reserve(&mut EpochFloor::new(Some(path)), NOW - HOUR) > taken);
    }

    #[test]
    fn without_a_file_the_floor_holds_in_memory() {
        let (dir, path) = in_file();
        let mut floor = EpochFloor::new(Some(path));
        drop(dir);
        let (first, kept) = floor.reserve_at(NOW);
        assert!(matches!(kept, Err(EpochError::Io { .. })), "{kept:?}");
        let (second, _) = floor.reserve_at(NOW - HOUR);
        assert!(second > highest(first, NOW));
    }

    #[test]
    fn floors_follow_the_real_time_clock() {
        let before = Now::read().real_ns;
        let mut floor = EpochFloor::default();
        assert!(floor.reserve().0 >= before);
        let mut floor = EpochFloor::default();
        floor.confirm().unwrap();
        assert!(reserve(&mut floor, 0) > highest(0, before));
    }

    #[test]
    fn a_damaged_file_counts_as_lost() {
        let (_dir, path) = in_file();
        std::fs::write(&path, "epoch 18446744073709551615 0000000000000000\n").unwrap();
        assert_eq!(reserve(&mut EpochFloor::new(Some(path)), NOW), NOW);
    }
}
