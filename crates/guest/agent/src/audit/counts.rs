//! The comparison of one direction by numbers of packets only; see [`super`] for the method.

use std::collections::VecDeque;

use p4shield_abi::Direction;

use super::finding::{Finding, Notice};
use super::ledger::Ledger;
use super::{Counts, DirectionStatus, Limits, Report};

/// Number of stored records: more than `patience_ns` needs at the default interval.
const RECORDS: usize = 128;

/// Allowance for neighbour discovery of an interface that comes up, in seconds of its usual rate.
const BURST_SECONDS: i128 = 4;

/// Totals of one record, and the time at which it was first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) at: u64,
    pub(super) packets: u64,
}

/// Bounds of the offset from the newest counts.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i128,
    high: i128,
}

const UNBOUNDED: Bounds = Bounds { low: i128::MIN, high: i128::MAX };

pub(super) struct CountAudit {
    direction: Direction,
    limits: Limits,
    records: VecDeque<Totals>,
    /// Number of packets at the interface over time, oldest first.
    samples: VecDeque<(u64, u64)>,
    counts: Counts,
    range: Bounds,
    /// Offset of the packets that are already reported.
    accounted: Option<i128>,
    /// Allowance for frames that no mediator submits, at a moment; see [`Self::slack`].
    allowance: (u64, i128),
    suspicious_since: Option<u64>,
    /// The interface's number of the last packet that was accounted for before a restart.
    before_restart: Option<i128>,
    ledger: Ledger,
    reported_aligned: bool,
}

impl CountAudit {
    pub(super) fn new(direction: Direction, limits: Limits) -> Self {
        Self {
            direction,
            limits,
            records: VecDeque::with_capacity(RECORDS),
            samples: VecDeque::new(),
            counts: Counts::default(),
            range: UNBOUNDED,
            accounted: None,
            allowance: (0, 0),
            suspicious_since: None,
            before_restart: None,
            ledger: Ledger::new(direction, limits),
            reported_aligned: false,
        }
    }

    pub(super) fn record(&mut self, totals: Totals) {
        if self.records.len() == RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(totals);
    }

    /// Restarts the P4 VM's counts; the interface's continue.
    pub(super) fn restart(&mut self) {
        let accounted_to = self.accounted.zip(self.records.back()).map(|(o, r)| o + i128::from(r.packets));
        self.before_restart = self.before_restart.or(accounted_to);
        self.records.clear();
        self.reset_offset();
    }

    fn reset_offset(&mut self) {
        self.range = UNBOUNDED;
        self.accounted = None;
        self.suspicious_since = None;
        self.reported_aligned = false;
    }

    pub(super) fn observe(&mut self, now: u64, counts: Counts, out: &mut Report) {
        self.counts = counts;
        if self.samples.is_empty() {
            self.allowance = (now, i128::from(self.limits.unmediated_per_second) * BURST_SECONDS);
        }
        self.samples.push_back((now, counts.packets));
        let horizon = now.saturating_sub(self.limits.patience_ns.max(4 * self.limits.grace_ns));
        while self.samples.len() > 2 && self.samples[1].0 < horizon {
            self.samples.pop_front();
        }
        if let Some(newest) = self.records.back().copied() {
            let bounds = self.bounds(now, newest);
            let slack = self.slack(now);
            if bounds.low > self.range.high.saturating_add(slack) || bounds.high < self.range.low {
                let since = *self.suspicious_since.get_or_insert(now);
                self.examine(now, since, bounds, out);
            } else {
                self.suspicious_since = None;
                self.narrow_range(now, bounds, out);
            }
        }
        self.ledger.tick(now, counts.packets, false, out);
    }

    /// Returns the bounds of the offset from the counts alone.
    fn bounds(&self, now: u64, newest: Totals) -> Bounds {
        let grace = self.limits.grace_ns;
        let offset = |interface: u64, record: u64| i128::from(interface) - i128::from(record);
        let before = newest.at.checked_sub(grace).and_then(|t| self.sample(t));
        let arrived = self.records.iter().rev().find(|r| r.at.saturating_add(grace) <= now);
        Bounds {
            low: before.map_or(i128::MIN, |n| offset(n, newest.packets)),
            high: arrived.map_or(i128::MAX, |r| offset(self.counts.packets, r.packets)),
        }
    }

    /// Returns the interface's count at `t`.
    fn sample(&self, t: u64) -> Option<u64> {
        self.samples.iter().rev().find(|s| s.0 <= t).map(|s| s.1)
    }

    /// Returns the offset if neither side has counted packets for long enough while records continued.
    fn quiet_offset(&self, now: u64) -> Option<i128> {
        let still = 2 * self.limits.grace_ns;
        let newest = self.records.back()?;
        let since = now.checked_sub(still)?;
        let earlier = self.records.iter().rev().find(|r| r.at <= since)?;
        let log_goes_on = newest.at.saturating_add(self.limits.grace_ns) >= now;
        (log_goes_on && earlier.packets == newest.packets && self.sample(since) == Some(self.counts.packets))
            .then(|| i128::from(self.counts.packets) - i128::from(newest.packets))
    }

    /// Returns the exact offset, if it is known.
    fn exact_offset(&self) -> Option<i128> {
        (self.range.low == self.range.high).then_some(self.range.low)
    }

    /// Without a difference: narrows the range.
    fn narrow_range(&mut self, now: u64, bounds: Bounds, out: &mut Report) {
        // Frames that no mediator submits may raise the lower bound, but not the accounted offset.
        self.range.low = self.range.low.max(bounds.low).min(self.range.high);
        self.range.high = self.range.high.min(bounds.high).max(self.range.low);
        if (self.exact_offset().is_none() || self.accounted.is_none())
            && let Some(offset) = self.quiet_offset(now)
        {
            self.accept_offset(now, offset, out);
        }
    }

    /// With a difference: waits for the exact count and reports it, or the certain part after `patience_ns`.
    fn examine(&mut self, now: u64, since: u64, bounds: Bounds, out: &mut Report) {
        if let Some(offset) = self.quiet_offset(now) {
            self.accept_offset(now, offset, out);
        } else if now.saturating_sub(since) >= self.limits.patience_ns {
            self.report_certain_part(now, bounds);
        }
    }

    /// The offset is exact: reports its change, and continues from it.
    fn accept_offset(&mut self, now: u64, offset: i128, out: &mut Report) {
        let known = self.accounted.or(self.exact_offset());
        let moved = known.map_or_else(|| distance_from(offset, self.range), |known| offset - known);
        if moved > self.slack(now) || moved < 0 {
            self.report(now, moved, known.is_some());
            self.use_allowance(now, 0);
        } else {
            self.use_allowance(now, moved);
        }
        if let Some(before) = self.before_restart.take()
            && let Ok(packets @ 1..) = u64::try_from(offset - before)
        {
            out.findings.push(Finding::Unaccounted { direction: self.direction, packets });
        }
        self.range = Bounds { low: offset, high: offset };
        self.accounted = Some(offset);
        self.suspicious_since = None;
        if !self.reported_aligned {
            self.reported_aligned = true;
            out.notices.push(Notice::Aligned { direction: self.direction });
        }
    }

    /// The count stays inexact: reports the certain part.
    fn report_certain_part(&mut self, now: u64, bounds: Bounds) {
        let slack = self.slack(now);
        let Bounds { low, high } = self.range;
        if bounds.low > high.saturating_add(slack) {
            self.report(now, bounds.low - self.accounted.unwrap_or(high), false);
            self.accounted = self.accounted.map(|_| bounds.low);
            self.range = Bounds { low: bounds.low, high: bounds.high.max(bounds.low) };
        } else if bounds.high < low {
            self.report(now, bounds.high - self.accounted.unwrap_or(low), false);
            self.accounted = self.accounted.map(|_| bounds.high);
            self.range = Bounds { low: bounds.low.min(bounds.high), high: bounds.high };
        }
        self.suspicious_since = None;
        // Older records precede the incident and would detect it again.
        self.records.drain(..self.records.len().saturating_sub(1));
    }

    fn report(&mut self, now: u64, moved: i128, exact: bool) {
        let packets = u64::try_from(moved.unsigned_abs()).unwrap_or(u64::MAX);
        if moved > 0 {
            self.ledger.unjudged(now, packets, exact);
        } else {
            self.ledger.missing(now, packets);
        }
    }

    /// Returns the allowance for frames that no mediator submits: a bucket filled at the configured rate.
    fn slack(&self, now: u64) -> i128 {
        let (at, level) = self.allowance;
        let elapsed = now.saturating_sub(at).min(i64::MAX.unsigned_abs());
        let filled = i128::from(self.limits.unmediated_per_second) * i128::from(elapsed) / 1_000_000_000;
        level.saturating_add(filled)
    }

    /// Takes `used` frames from the bucket. Once the count is exact, the bucket holds up to
    /// [`BURST_SECONDS`] of frames.
    fn use_allowance(&mut self, now: u64, used: i128) {
        let most = i128::from(self.limits.unmediated_per_second) * BURST_SECONDS;
        self.allowance = (now, (self.slack(now) - used).min(most));
    }

    /// Decides pending differences at the end of the audit.
    pub(super) fn conclude(&mut self, out: &mut Report) {
        let now = self.samples.back().map_or(0, |s| s.0);
        if let (Some(_), Some(newest)) = (self.suspicious_since, self.records.back().copied()) {
            self.report_certain_part(now, self.bounds(now, newest));
        }
        self.ledger.tick(now, self.counts.packets, true, out);
        if self.accounted.is_none() {
            out.findings.push(Finding::Unproven { direction: self.direction });
        }
    }

    /// Returns the number of packets at the interface after the newest record, if there are any and the
    /// offset is known.
    pub(super) fn unrecorded(&self) -> Option<u64> {
        let newest = self.records.back()?;
        let beyond = i128::from(self.counts.packets) - i128::from(newest.packets) - self.accounted?;
        u64::try_from(beyond).ok().filter(|n| *n > 0)
    }

    pub(super) fn status(&self) -> DirectionStatus {
        DirectionStatus {
            interface: self.counts,
            recorded: self.records.back().map_or(0, |r| r.packets),
            verified: 0,
            uncompared: self.counts.packets,
            lost: self.ledger.lost(),
            late: self.ledger.late(),
            unaudited: 0,
            unaudited_ms: 0,
            has_findings: false,
            aligned: self.accounted.is_some() && self.exact_offset() == self.accounted,
            suspicious: self.suspicious_since.is_some() || self.ledger.is_open(),
        }
    }
}

/// Returns the distance of `offset` from a range.
const fn distance_from(offset: i128, range: Bounds) -> i128 {
    if offset > range.high {
        offset - range.high
    } else if offset < range.low {
        offset - range.low
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 50_000_000;

    /// Packets at the interface before the log began.
    const EARLIER: u64 = 200;

    /// A step of time: the log and the interface are read.
    fn step(audit: &mut CountAudit, n: u64, recorded: u64, arrived: u64) {
        audit.record(Totals { at: n * STEP, packets: recorded });
        let counts = Counts { packets: EARLIER + arrived, ..Counts::default() };
        audit.observe(n * STEP, counts, &mut Report::default());
    }

    #[test]
    fn a_certain_loss_under_traffic_is_counted() {
        let limits = Limits::new(10_000_000, 0);
        let mut audit = CountAudit::new(Direction::Ingress, limits);
        // Nothing is sent until the offset is exact.
        (1..40).for_each(|n| step(&mut audit, n, 500, 500));
        assert!(audit.status().aligned && !audit.status().suspicious);
        // 1000 packets are lost, and one packet arrives in each step from then on.
        let grace = limits.grace_ns.div_ceil(STEP);
        let sent = |n: u64| 500 + n - 40;
        let patience = limits.patience_ns.div_ceil(STEP);
        for n in 40..40 + patience {
            step(&mut audit, n, sent(n) + 1000, sent(n));
        }
        let status = audit.status();
        assert_eq!(status.lost, 0, "the exact count is awaited");
        assert!(status.suspicious, "although nothing is reported yet");
        let late = 40 + patience;
        for n in late..late + 2 * grace {
            step(&mut audit, n, sent(n) + 1000, sent(n));
        }
        assert_eq!(audit.status().lost, 1000 - grace, "all but what may still be on its way");
    }
}
