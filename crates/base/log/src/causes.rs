//! How many lines of each cause may be written now.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most lines of a cause at once.
pub(crate) const BURST: u32 = 20;
/// Time for each further line of a cause.
pub(crate) const REFILL: Duration = Duration::from_secs(10);
/// Least time between two reports of a cause's omitted lines.
pub(crate) const REPORT: Duration = Duration::from_secs(60);
/// The most causes that are told apart; further ones share a limit until others have been quiet.
pub(crate) const MOST: usize = 4096;
/// Least time between two searches for quiet causes, so that invented causes cost little time.
const SWEEP: Duration = Duration::from_secs(1);
/// The cause that stands for all further ones.
const OTHERS: (u64, &str) = (0, "others");

/// The causes that have had lines of late.
pub(crate) struct Causes {
    known: HashMap<u64, Cause>,
    /// When the reports that are due were taken last.
    reported: Instant,
    /// When quiet causes were forgotten last.
    swept: Instant,
}

struct Cause {
    /// The `event` of its lines.
    event: String,
    left: u32,
    refilled: Instant,
    /// Lines that were omitted since the last report.
    omitted: u64,
    /// Whether the log says already that lines of this cause are omitted.
    is_told: bool,
}

/// Lines that were omitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Omitted {
    /// Their `event`.
    pub(crate) event: String,
    /// Their number since the last report.
    pub(crate) lines: u64,
}

impl Causes {
    pub(crate) fn new(now: Instant) -> Self {
        Self { known: HashMap::new(), reported: now, swept: now }
    }

    /// Decides about a line of the cause with this key. Returns also what is to be reported before it.
    pub(crate) fn admit(&mut self, now: Instant, key: u64, event: &str) -> (bool, Vec<Omitted>) {
        let (key, event) = if self.has_room(now, key) { (key, event) } else { OTHERS };
        let cause = self.known.entry(key).or_insert_with(|| Cause::new(now, event));
        let admitted = cause.take(now);
        // The first omission is reported at once: a reader should not wait for a line that never comes.
        let first = (!admitted && !cause.is_told).then(|| cause.report(now)).flatten();
        let mut reports = self.due(now);
        reports.extend(first);
        (admitted, reports)
    }

    /// Returns whether the cause has, or can have, a limit of its own.
    fn has_room(&mut self, now: Instant, key: u64) -> bool {
        let is_full = self.known.len() >= MOST && !self.known.contains_key(&key);
        if is_full && now.duration_since(self.swept) >= SWEEP {
            self.swept = now;
            self.known.retain(|_, cause| !cause.is_quiet(now));
        }
        self.known.len() < MOST || self.known.contains_key(&key)
    }

    /// Takes the reports that are due. Looks at all causes, but rarely.
    fn due(&mut self, now: Instant) -> Vec<Omitted> {
        if now.duration_since(self.reported) < REPORT {
            return Vec::new();
        }
        self.reported = now;
        self.known.values_mut().filter_map(|cause| cause.report(now)).collect()
    }
}

impl Cause {
    fn new(now: Instant, event: &str) -> Self {
        Self { event: event.to_owned(), left: BURST, refilled: now, omitted: 0, is_told: false }
    }

    fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        self.omitted += u64::from(!may);
        may
    }

    fn refill(&mut self, now: Instant) {
        let due = now.duration_since(self.refilled).as_nanos() / REFILL.as_nanos();
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        if due >= BURST - self.left {
            (self.left, self.refilled) = (BURST, now);
            return;
        }
        self.left += due;
        self.refilled += REFILL * due;
    }

    fn is_quiet(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left == BURST && self.omitted == 0
    }

    /// Takes the report, if lines were omitted.
    fn report(&mut self, now: Instant) -> Option<Omitted> {
        let lines = std::mem::take(&mut self.omitted);
        // After a quiet time, the next omission is a first one again.
        self.is_told = lines > 0 || (self.is_told && !self.is_quiet(now));
        (lines > 0).then(|| Omitted { event: self.event.clone(), lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Causes with a clock of their own.
    struct Rig {
        causes: Causes,
        start: Instant,
        /// What was reported.
        reports: Vec<(String, u64)>,
    }

    impl Rig {
        fn new() -> Self {
            let start = Instant::now();
            Self { causes: Causes::new(start), start, reports: Vec::new() }
        }

        /// Returns how many of `lines` at this second are written.
        fn at(&mut self, seconds: u64, key: u64, lines: u32) -> u32 {
            let now = self.start + Duration::from_secs(seconds);
            let mut written = 0;
            for _ in 0..lines {
                let (admitted, reports) = self.causes.admit(now, key, "flap");
                written += u32::from(admitted);
                self.reports.extend(reports.into_iter().map(|o| (o.event, o.lines)));
            }
            written
        }
    }

    #[test]
    fn a_cause_has_a_burst_and_a_rate() {
        let mut rig = Rig::new();
        assert_eq!(rig.at(0, 1, 1000), BURST);
        assert_eq!(rig.at(9, 1, 1000), 0);
        assert_eq!(rig.at(10, 1, 1000), 1);
        assert_eq!(rig.at(10_000, 1, 1000), BURST);
    }

    #[test]
    fn causes_do_not_share_their_limits() {
        let mut rig = Rig::new();
        assert_eq!(rig.at(0, 1, 1000), BURST);
        assert_eq!(rig.at(0, 2, 3), 3);
    }

    #[test]
    fn each_omitted_line_is_counted_in_a_report() {
        let mut rig = Rig::new();
        let mut written = 0;
        for second in 0..1000 {
            written += rig.at(second, 1, 7);
        }
        // A line of any cause brings the rest.
        rig.at(2000, 2, 1);
        let omitted: u64 = rig.reports.iter().map(|(_, lines)| lines).sum();
        assert_eq!(u64::from(written) + omitted, 7000);
        assert_eq!(rig.reports[0], ("flap".into(), 1), "the first omission is reported at once");
        assert!(rig.reports.len() <= 2 + 1000 / 60, "{} reports", rig.reports.len());
    }

    #[test]
    fn invented_causes_share_a_limit_and_take_no_memory() {
        let mut rig = Rig::new();
        let written: u32 = (1..100_000).map(|key| rig.at(0, key, 1)).sum();
        assert_eq!(rig.causes.known.len(), MOST + 1);
        assert_eq!(written, MOST as u32 + BURST);
        // Once the others have been quiet, a cause has its own limit again.
        assert_eq!(rig.at(5, 200_000, 5), 0);
        assert_eq!(rig.at(1000, 300_000, 5), 5);
    }
}
