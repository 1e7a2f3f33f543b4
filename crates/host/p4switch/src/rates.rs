//! Rates of ports: what the counts grew by during about the last second.

use crate::api::{Rates, Traffic};
use std::time::{Duration, Instant};

/// Shortest time between two samples.
const SECOND: Duration = Duration::from_secs(1);

/// The last sample of the counts of each port, and what it was compared with.
#[derive(Debug, Default)]
pub(crate) struct Sampled {
    at: Option<Instant>,
    counts: Vec<(u16, Traffic)>,
    rates: Vec<(u16, Rates)>,
}

impl Sampled {
    /// Returns whether the next sample is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.at.is_none_or(|at| now.duration_since(at) >= SECOND)
    }

    /// Compares the counts of each port, by its number, with those before.
    pub(crate) fn take(&mut self, now: Instant, counts: Vec<(u16, Traffic)>) {
        let time = self.at.map(|at| now.duration_since(at));
        let rate = |(number, count): &(u16, Traffic)| {
            let before = self.counts.iter().find(|(n, _)| n == number)?;
            Some((*number, between(&before.1, count, time?)))
        };
        self.rates = counts.iter().filter_map(rate).collect();
        (self.at, self.counts) = (Some(now), counts);
    }

    /// Returns the rates of a port; zeros before its second sample.
    pub(crate) fn of(&self, number: u16) -> Rates {
        self.rates.iter().find(|(n, _)| *n == number).map(|(_, rates)| *rates).unwrap_or_default()
    }
}

/// Returns the growth per second. A port that was deleted and added again starts at zero.
fn between(before: &Traffic, after: &Traffic, time: Duration) -> Rates {
    let per_second = |before: u64, after: u64| {
        let growth = u128::from(after.saturating_sub(before)) * SECOND.as_nanos();
        u64::try_from(growth / time.as_nanos().max(1)).unwrap_or(u64::MAX)
    };
    let bits = |before, after| per_second(before, after).saturating_mul(8);
    Rates {
        received_packets_s: per_second(before.received, after.received),
        received_bits_s: bits(before.received_bytes, after.received_bytes),
        sent_packets_s: per_second(before.sent, after.sent),
        sent_bits_s: bits(before.sent_bytes, after.sent_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_what_the_counts_grew_by_in_a_second() {
        let start = Instant::now();
        let mut sampled = Sampled::default();
        assert!(sampled.is_due(start));
        let counts = |sent| Traffic { sent, sent_bytes: sent * 100, ..Traffic::default() };
        sampled.take(start, vec![(1, counts(10))]);
        assert_eq!(sampled.of(1), Rates::default(), "nothing to compare with");
        let later = start + Duration::from_secs(2);
        assert!(sampled.is_due(later) && !sampled.is_due(start + Duration::from_millis(999)));
        sampled.take(later, vec![(1, counts(30)), (2, counts(5))]);
        let expected = Rates { sent_packets_s: 10, sent_bits_s: 8000, ..Rates::default() };
        assert_eq!((sampled.of(1), sampled.of(2)), (expected, Rates::default()));
        sampled.take(later + SECOND, vec![(1, counts(0))]);
        assert_eq!(sampled.of(1), Rates::default(), "the port is another one");
    }
}
