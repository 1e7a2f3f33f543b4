//! A private copy of the tap's history: the running digest after each recent packet.

/// Number of packets in a history; size of the ring in `tap.bpf.c`.
pub const HISTORY: usize = 1 << 16;

/// The histories of one direction: one of each key with which packets are digested at once.
pub type Histories = [History; 2];

/// Packets before a compared record that are kept while they have two digests.
pub(super) const ROTATION_OVERLAP: u64 = 1 << 16;

/// How a record follows the previous one under another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rekeyed {
    /// No record is missing in between: the interval has the new key.
    Exactly,
    /// Records are missing: the interval may have both keys.
    Somewhere,
}

/// Returns the histories of both keys, that of key number `current` first.
pub(super) const fn in_order(histories: Option<&Histories>, current: usize) -> [Option<&History>; 2] {
    match (histories, current) {
        (Some([first, second]), 0) => [Some(first), Some(second)],
        (Some([first, second]), _) => [Some(second), Some(first)],
        (None, _) => [None, None],
    }
}

/// The running digest of one direction after each recent packet. The engine requests it for "the first n
/// packets", as a P4 VM's record states them.
#[derive(Clone)]
pub struct History {
    after: Box<[u64]>,
    first: u64,
    count: u64,
    /// Number of packets and their sum before the present ring.
    base: (u64, u64),
}

impl Default for History {
    /// An empty history: the digest after no packet is 0.
    fn default() -> Self {
        Self { after: vec![0; HISTORY].into_boxed_slice(), first: 0, count: 0, base: (0, 0) }
    }
}

impl History {
    /// Returns the running digest after the first `n` packets; `None` if they are too old or yet to come.
    #[must_use]
    pub fn after(&self, n: u64) -> Option<u64> {
        (self.first..=self.count).contains(&n).then(|| self.after[n as usize % HISTORY])
    }

    /// Number of packets so far.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Smallest number of packets for which [`Self::after`] returns a digest.
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Adds a packet with this digest.
    pub fn push(&mut self, digest: u64) {
        let sum = self.after[self.count as usize % HISTORY].wrapping_add(digest);
        self.count += 1;
        self.after[self.count as usize % HISTORY] = sum;
        self.first = self.first.max((self.count + 1).saturating_sub(HISTORY as u64));
    }

    /// Copies new entries of a ring that another thread fills. `load(i)` returns its entry `i`, `before` is
    /// its count when copying began, `after` returns its count when copying ended. Entries that may have been
    /// overwritten meanwhile are dropped.
    pub fn follow(&mut self, before: u64, load: impl Fn(usize) -> u64, after: impl FnOnce() -> u64) {
        let (base, sum) = self.base;
        let oldest = |count: u64| count.saturating_add(1).saturating_sub(HISTORY as u64);
        let from = (self.count + 1).max(base + oldest(before));
        let to = base + before;
        if from > to {
            return;
        }
        for n in from..=to {
            self.after[n as usize % HISTORY] = load((n - base) as usize % HISTORY).wrapping_add(sum);
        }
        // The packet after `after()` may be half written: it counts as written.
        let certain = base.saturating_add(oldest(after().saturating_add(1)));
        let kept = if certain <= from { oldest(to) } else { certain.min(to) };
        self.first = self.first.max(kept);
        self.count = to;
    }

    /// Continues with another ring, whose count and sum begin at 0.
    pub fn continue_with_new_ring(&mut self) {
        self.base = (self.count, self.after[self.count as usize % HISTORY]);
    }

    /// Returns how many packets were in previous rings.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base.0
    }

    /// Drops prefixes shorter than `n`, which the tap could not digest.
    pub fn forget_before(&mut self, n: u64) {
        self.first = self.first.max(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_packets_are_known() {
        let mut h = History::default();
        assert_eq!(h.after(0), Some(0));
        for d in 1..=70_000u64 {
            h.push(d);
        }
        let sum = |n: u64| n * (n + 1) / 2;
        assert_eq!(h.after(70_000), Some(sum(70_000)));
        assert_eq!(h.after(70_001), None);
        assert_eq!(h.after(h.first()), Some(sum(h.first())));
        assert_eq!(h.after(h.first() - 1), None);
        assert_eq!(h.first(), 70_001 - HISTORY as u64);
    }

    #[test]
    fn only_new_entries_of_a_ring_are_copied() {
        let mut h = History::default();
        let ring = |n: u64| n * 3;
        // The contents of the ring after `count` packets.
        let at = |count: u64| move |i: usize| ring(count - (count - i as u64) % HISTORY as u64);
        for count in [5u64, 5, 1_000, 70_000, 70_001, 300_000] {
            h.follow(count, |i| if count < HISTORY as u64 { ring(i as u64) } else { at(count)(i) }, || count);
            for n in [h.first(), count.saturating_sub(3), count] {
                assert_eq!(h.after(n), Some(ring(n)), "{n} of {count}");
            }
            assert_eq!((h.count(), h.after(count + 1)), (count, None));
        }
        h.follow(300_000, |_| panic!("nothing is new"), || 300_000);
    }

    #[test]
    fn a_new_ring_continues_the_previous_one() {
        let mut h = History::default();
        h.follow(3, |i| i as u64 * 10, || 3);
        h.continue_with_new_ring();
        h.follow(2, |i| i as u64, || 2);
        assert_eq!((h.count(), h.base()), (5, 3));
        let sums: Vec<_> = (0..=6).map(|n| h.after(n)).collect();
        assert_eq!(sums, [Some(0), Some(10), Some(20), Some(30), Some(31), Some(32), None]);
    }

    #[test]
    fn entries_overwritten_while_copying_are_dropped() {
        let mut h = History::default();
        h.follow(100_000, |i| i as u64, || 100_500);
        assert_eq!(h.first(), 100_502 - HISTORY as u64);
        h.follow(100_010, |_| 7, || 100_600);
        assert_eq!(h.first(), 100_502 - HISTORY as u64, "earlier entries are safe");
        assert_eq!(h.after(100_010), Some(7));
        let mut h = History::default();
        h.follow(10, |_| 0, || 90_000);
        assert_eq!((h.first(), h.count()), (10, 10), "overtaken completely");
    }
}
