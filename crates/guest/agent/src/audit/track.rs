//! The audit of one direction; see [`super`] for the method.

use std::collections::VecDeque;

use p4shield_abi::Direction;

use super::finding::{Finding, Notice};
use super::history::History;
use super::{Counts, DirectionStatus, Limits, Report};

/// Maximum number of packets that may overtake one packet across the boundary of a prefix.
pub const MAX_REORDERING: u64 = 32;

/// Number of stored records: more than `patience_ns` needs at the default interval.
const RECORDS: usize = 128;

/// Allowance for neighbour discovery of an interface that comes up, in seconds of its usual rate.
const BURST_SECONDS: i128 = 4;

/// Number of pairs of records that are tried per step; each one requires a pass over the history.
const PAIRS: usize = 3;

/// Totals of one record, and the time at which it was first read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) at: u64,
    pub(super) packets: u64,
    pub(super) digest: u64,
}

/// Comparison of a record's digest with the interface's at the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DigestMatch {
    /// The digests are equal.
    Same(u64),
    /// One reordered packet explains the difference.
    Reordered,
    /// The digests differ.
    Different,
    /// No record is comparable.
    Unknown,
}

/// An offset between both counts, with the corresponding difference of the digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alignment {
    offset: i128,
    delta: Option<u64>,
}

/// Bounds of the offset from the newest counts.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i128,
    high: i128,
}

const UNBOUNDED: Bounds = Bounds { low: i128::MIN, high: i128::MAX };

pub(super) struct DirectionAudit {
    direction: Direction,
    limits: Limits,
    records: VecDeque<Totals>,
    /// Number of packets at the interface over time, oldest first.
    samples: VecDeque<(u64, u64)>,
    counts: Counts,
    range: Bounds,
    /// Difference of the digests while the offset is exact and packets are digestible.
    delta: Option<u64>,
    /// Offset of the packets that are already reported.
    accounted: Option<i128>,
    /// Allowance for frames that no mediator submits, at a moment; see [`Self::slack`].
    allowance: (u64, i128),
    suspicious_since: Option<u64>,
    /// The interface's number of the last packet that was accounted for before a restart.
    before_restart: Option<i128>,
    verified: u64,
    verified_to: u64,
    reported_not_whole: bool,
    reported_aligned: bool,
}

impl DirectionAudit {
    pub(super) fn new(direction: Direction, limits: Limits) -> Self {
        Self {
            direction,
            limits,
            records: VecDeque::with_capacity(RECORDS),
            samples: VecDeque::new(),
            counts: Counts::default(),
            range: UNBOUNDED,
            delta: None,
            accounted: None,
            allowance: (0, 0),
            suspicious_since: None,
            before_restart: None,
            verified: 0,
            verified_to: 0,
            reported_not_whole: false,
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

    /// Restarts both counts.
    pub(super) fn restart_both(&mut self) {
        let verified = self.verified;
        *self = Self { verified, ..Self::new(self.direction, self.limits) };
    }

    fn reset_offset(&mut self) {
        self.range = UNBOUNDED;
        self.delta = None;
        self.accounted = None;
        self.suspicious_since = None;
        self.verified_to = 0;
        self.reported_aligned = false;
    }

    pub(super) fn observe(&mut self, now: u64, counts: Counts, history: Option<&History>, out: &mut Report) {
        self.report_undigested(&counts, out);
        self.counts = counts;
        if self.samples.is_empty() {
            self.allowance = (now, i128::from(self.limits.unmediated_per_second) * BURST_SECONDS);
        }
        self.samples.push_back((now, counts.packets));
        let horizon = now.saturating_sub(self.limits.patience_ns.max(4 * self.limits.grace_ns));
        while self.samples.len() > 2 && self.samples[1].0 < horizon {
            self.samples.pop_front();
        }
        let Some(newest) = self.records.back().copied() else { return };
        let bounds = self.bounds(now, newest);
        let fit = self.compare_digests(history);
        if let DigestMatch::Same(packets) = fit {
            self.verified += packets.saturating_sub(self.verified_to);
            self.verified_to = self.verified_to.max(packets);
        }
        let slack = self.slack(now);
        let contradicted = bounds.low > self.range.high.saturating_add(slack) || bounds.high < self.range.low;
        if contradicted || fit == DigestMatch::Different {
            let since = *self.suspicious_since.get_or_insert(now);
            self.examine(now, since, bounds, fit, history, out);
        } else {
            self.suspicious_since = None;
            self.narrow_range(now, bounds, history, out);
        }
    }

    /// Reports once that some packets could not be digested.
    fn report_undigested(&mut self, counts: &Counts, out: &mut Report) {
        if counts.not_whole == self.counts.not_whole {
            return;
        }
        self.delta = None;
        if !self.reported_not_whole {
            self.reported_not_whole = true;
            let not_whole = counts.not_whole - self.counts.not_whole.min(counts.not_whole);
            out.notices.push(Notice::SwapDetectionOff { direction: self.direction, not_whole });
        }
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

    /// Compares the newest record whose packets have all reached the interface.
    fn compare_digests(&self, history: Option<&History>) -> DigestMatch {
        let (Some(offset), Some(delta), Some(history)) = (self.exact_offset(), self.delta, history) else {
            return DigestMatch::Unknown;
        };
        let found = self.records.iter().rev().find_map(|r| {
            let n = interface_number(offset, r.packets).filter(|n| *n <= history.count())?;
            Some((r, n, history.after(n)?))
        });
        let Some((r, n, mine)) = found else { return DigestMatch::Unknown };
        let difference = r.digest.wrapping_add(delta).wrapping_sub(mine);
        if difference == 0 {
            DigestMatch::Same(r.packets)
        } else if is_reordering(history, n, difference) {
            DigestMatch::Reordered
        } else {
            DigestMatch::Different
        }
    }

    /// Without a difference: narrows the range, and relates the digests when the offset is exact.
    fn narrow_range(&mut self, now: u64, bounds: Bounds, history: Option<&History>, out: &mut Report) {
        // Frames that no mediator submits may raise the lower bound, but not the accounted offset.
        self.range.low = self.range.low.max(bounds.low).min(self.range.high);
        self.range.high = self.range.high.min(bounds.high).max(self.range.low);
        if self.exact_offset().is_none() || self.delta.is_none() {
            if let Some(offset) = self.quiet_offset(now) {
                return self.accept_offset(now, self.with_delta(offset, history), false, out);
            }
            if let Some(base) = history.and_then(|h| self.align(h, 0)) {
                return self.accept_offset(now, base, false, out);
            }
        }
        if let (Some(offset), None) = (self.accounted.filter(|o| self.exact_offset() == Some(*o)), self.delta)
        {
            self.delta = self.with_delta(offset, history).delta;
        }
    }

    /// With a difference: waits for the exact count and reports it, or the certain part after `patience_ns`.
    fn examine(
        &mut self,
        now: u64,
        since: u64,
        bounds: Bounds,
        fit: DigestMatch,
        history: Option<&History>,
        out: &mut Report,
    ) {
        let different = fit == DigestMatch::Different;
        if let Some(base) = history.and_then(|h| self.align(h, since)) {
            self.accept_offset(now, base, different, out);
        } else if let Some(offset) = self.quiet_offset(now) {
            self.accept_offset(now, self.with_delta(offset, history), different, out);
        } else if now.saturating_sub(since) >= self.limits.patience_ns {
            self.report_certain_part(now, bounds, different, history, out);
        }
    }

    /// The offset is exact: reports its change, and continues from it.
    fn accept_offset(&mut self, now: u64, base: Alignment, different: bool, out: &mut Report) {
        let known = self.accounted.or(self.exact_offset());
        let moved = known.map_or_else(|| distance_from(base.offset, self.range), |known| base.offset - known);
        let exact = known.is_some();
        if moved == 0 && different {
            out.findings.push(Finding::Swapped { direction: self.direction });
        } else if moved > self.slack(now) || moved < 0 {
            self.report(moved, exact, out);
            self.use_allowance(now, 0);
        } else {
            self.use_allowance(now, moved);
        }
        if let Some(before) = self.before_restart.take()
            && let Ok(packets @ 1..) = u64::try_from(base.offset - before)
        {
            out.findings.push(Finding::Unaccounted { direction: self.direction, packets });
        }
        self.range = Bounds { low: base.offset, high: base.offset };
        self.accounted = Some(base.offset);
        self.delta = base.delta;
        self.suspicious_since = None;
        self.verified_to = self.verified_to.max(self.records.back().map_or(0, |r| r.packets));
        if !self.reported_aligned {
            self.reported_aligned = true;
            out.notices.push(Notice::Aligned { direction: self.direction });
        }
    }

    /// The count stays inexact: reports the certain part.
    fn report_certain_part(
        &mut self,
        now: u64,
        bounds: Bounds,
        different: bool,
        history: Option<&History>,
        out: &mut Report,
    ) {
        let slack = self.slack(now);
        let Bounds { low, high } = self.range;
        if bounds.low > high.saturating_add(slack) {
            self.report(bounds.low - self.accounted.unwrap_or(high), false, out);
            self.accounted = self.accounted.map(|_| bounds.low);
            self.range = Bounds { low: bounds.low, high: bounds.high.max(bounds.low) };
            self.delta = None;
        } else if bounds.high < low {
            self.report(bounds.high - self.accounted.unwrap_or(low), false, out);
            self.accounted = self.accounted.map(|_| bounds.high);
            self.range = Bounds { low: bounds.low.min(bounds.high), high: bounds.high };
            self.delta = None;
        } else if different {
            out.findings.push(Finding::Swapped { direction: self.direction });
            self.delta = self.exact_offset().and_then(|o| self.with_delta(o, history).delta);
        }
        self.suspicious_since = None;
        // Older records precede the incident and would detect it again.
        self.records.drain(..self.records.len().saturating_sub(1));
    }

    fn report(&self, moved: i128, exact: bool, out: &mut Report) {
        let packets = u64::try_from(moved.unsigned_abs()).unwrap_or(u64::MAX);
        let direction = self.direction;
        out.findings.push(match direction {
            _ if moved > 0 => Finding::Bypassed { direction, packets, exact },
            Direction::Ingress => Finding::Withheld { packets, exact },
            Direction::Egress => Finding::Invented { packets, exact },
        });
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

    /// Returns this offset with the difference of the digests at the newest comparable record.
    fn with_delta(&self, offset: i128, history: Option<&History>) -> Alignment {
        let delta = history.and_then(|h| {
            self.records.iter().rev().find_map(|r| {
                let mine = h.after(interface_number(offset, r.packets)?)?;
                Some(mine.wrapping_sub(r.digest))
            })
        });
        Alignment { offset, delta }
    }

    /// Returns the only offset at which the packets between two recent records have the expected digest. Uses
    /// only records read from `since` on; older ones precede the incident.
    fn align(&self, history: &History, since: u64) -> Option<Alignment> {
        let mut later = *self.records.back()?;
        let mut tried = 0;
        for earlier in self.records.iter().rev().take_while(|r| r.at >= since) {
            if earlier.packets >= later.packets {
                continue;
            }
            let found = find_alignment(history, *earlier, later);
            // An alignment equal to the present one is no news: packets are reordered at the newest boundary.
            let news = found.filter(|b| Some(b.offset) != self.exact_offset() || b.delta != self.delta);
            if news.is_some() || tried == PAIRS {
                return news;
            }
            tried += 1;
            later = *earlier;
        }
        None
    }

    /// Decides pending differences at the end of the audit.
    pub(super) fn conclude(&mut self, out: &mut Report) {
        let now = self.samples.back().map_or(0, |s| s.0);
        if let (Some(_), Some(newest)) = (self.suspicious_since, self.records.back().copied()) {
            let bounds = self.bounds(now, newest);
            // Packets in flight no longer explain a difference of the digests.
            let contradicted = bounds.low > self.range.high || bounds.high < self.range.low;
            self.report_certain_part(now, bounds, !contradicted, None, out);
        }
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
            verified: self.verified,
            aligned: self.accounted.is_some() && self.exact_offset() == self.accounted,
            suspicious: self.suspicious_since.is_some(),
        }
    }
}

/// Returns the interface's number of the P4 VM's packet `p`.
fn interface_number(offset: i128, p: u64) -> Option<u64> {
    u64::try_from(offset.checked_add(i128::from(p))?).ok()
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

/// Returns whether `difference` arises when a packet before the boundary `n` and one after it swap places.
fn is_reordering(history: &History, n: u64, difference: u64) -> bool {
    let digest = |i: u64| Some(history.after(i)?.wrapping_sub(history.after(i.checked_sub(1)?)?));
    let before = n.saturating_sub(MAX_REORDERING) + 1..=n;
    before.filter_map(digest).any(|out| {
        (n + 1..=n + MAX_REORDERING).filter_map(digest).any(|into| into.wrapping_sub(out) == difference)
    })
}

/// Returns the only offset at which the interface's packets between two records have the same sum.
fn find_alignment(history: &History, earlier: Totals, later: Totals) -> Option<Alignment> {
    let length = later.packets - earlier.packets;
    let wanted = later.digest.wrapping_sub(earlier.digest);
    let mut found = None;
    for start in history.first()..=history.count().checked_sub(length)? {
        let (Some(a), Some(b)) = (history.after(start), history.after(start + length)) else { continue };
        if b.wrapping_sub(a) == wanted {
            if found.is_some() {
                return None;
            }
            let offset = i128::from(start) - i128::from(earlier.packets);
            found = Some(Alignment { offset, delta: Some(a.wrapping_sub(earlier.digest)) });
        }
    }
    found
}
