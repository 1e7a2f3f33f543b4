//! One direction of an audit; see [`super`] for the reasoning.

use std::collections::VecDeque;

use p4shield_abi::Direction;

use super::finding::{Finding, Notice};
use super::history::History;
use super::{Counts, Limits, Report, Standing};

/// How many packets may overtake one packet across the boundary of a prefix.
pub const REORDER: u64 = 32;

/// Records that are remembered: more than patience needs at the default interval.
const RECORDS: usize = 128;

/// An interface that comes up sends and gets some seconds' worth of neighbour discovery at once.
const BURST_SECONDS: i128 = 4;

/// How many pairs of records are tried for a fit at each step; each costs a walk over the history.
const PAIRS: usize = 3;

/// Totals of one record, and when it was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) at: u64,
    pub(super) packets: u64,
    pub(super) digest: u64,
}

/// How a record's digest compares with the interface's at the same packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The same.
    Same(u64),
    /// Explained by one packet that was overtaken.
    Overtaken,
    /// Another.
    Different,
    /// No record can be compared yet, or any more.
    Unknown,
}

/// An offset between both counts, with the difference of the digests that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    offset: i128,
    delta: Option<u64>,
}

/// Bounds of the offset that the newest counts give.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i128,
    high: i128,
}

const ANYTHING: Bounds = Bounds { low: i128::MIN, high: i128::MAX };

pub(super) struct Track {
    direction: Direction,
    limits: Limits,
    records: VecDeque<Totals>,
    /// The interface's packets over time, oldest first.
    samples: VecDeque<(u64, u64)>,
    counts: Counts,
    range: Bounds,
    /// Difference of the digests, while the offset is known exactly and packets are whole.
    delta: Option<u64>,
    /// Offset up to which everything was reported.
    accounted: Option<i128>,
    /// Frames that no mediator submits and that were allowed for at a moment; see [`Self::slack`].
    allowance: (u64, i128),
    suspicious_since: Option<u64>,
    /// The interface's number of the last packet that was accounted for before a restart.
    before_restart: Option<i128>,
    verified: u64,
    verified_to: u64,
    told_not_whole: bool,
    told_aligned: bool,
}

impl Track {
    pub(super) fn new(direction: Direction, limits: Limits) -> Self {
        Self {
            direction,
            limits,
            records: VecDeque::with_capacity(RECORDS),
            samples: VecDeque::new(),
            counts: Counts::default(),
            range: ANYTHING,
            delta: None,
            accounted: None,
            allowance: (0, 0),
            suspicious_since: None,
            before_restart: None,
            verified: 0,
            verified_to: 0,
            told_not_whole: false,
            told_aligned: false,
        }
    }

    pub(super) fn record(&mut self, totals: Totals) {
        if self.records.len() == RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(totals);
    }

    /// The P4 VM's counts begin anew; the interface's go on.
    pub(super) fn restart(&mut self) {
        let accounted_to = self.accounted.zip(self.records.back()).map(|(o, r)| o + i128::from(r.packets));
        self.before_restart = self.before_restart.or(accounted_to);
        self.records.clear();
        self.unknown();
    }

    /// Both counts begin anew.
    pub(super) fn forget(&mut self) {
        let verified = self.verified;
        *self = Self { verified, ..Self::new(self.direction, self.limits) };
    }

    fn unknown(&mut self) {
        self.range = ANYTHING;
        self.delta = None;
        self.accounted = None;
        self.suspicious_since = None;
        self.verified_to = 0;
        self.told_aligned = false;
    }

    pub(super) fn observe(&mut self, now: u64, counts: Counts, history: Option<&History>, out: &mut Report) {
        self.whole(&counts, out);
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
        let fit = self.fit(history);
        if let Fit::Same(packets) = fit {
            self.verified += packets.saturating_sub(self.verified_to);
            self.verified_to = self.verified_to.max(packets);
        }
        let slack = self.slack(now);
        let contradicted = bounds.low > self.range.high.saturating_add(slack) || bounds.high < self.range.low;
        if contradicted || fit == Fit::Different {
            let since = *self.suspicious_since.get_or_insert(now);
            self.resolve(now, since, bounds, fit, history, out);
        } else {
            self.suspicious_since = None;
            self.narrow(now, bounds, history, out);
        }
    }

    /// Says once that packets come which cannot be digested.
    fn whole(&mut self, counts: &Counts, out: &mut Report) {
        if counts.not_whole == self.counts.not_whole {
            return;
        }
        self.delta = None;
        if !self.told_not_whole {
            self.told_not_whole = true;
            let not_whole = counts.not_whole - self.counts.not_whole.min(counts.not_whole);
            out.notices.push(Notice::SwapDetectionOff { direction: self.direction, not_whole });
        }
    }

    /// What the counts alone say about the offset.
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

    /// What the interface had counted at `t`.
    fn sample(&self, t: u64) -> Option<u64> {
        self.samples.iter().rev().find(|s| s.0 <= t).map(|s| s.1)
    }

    /// The offset itself, if nothing has moved on either side for long enough and the log goes on.
    fn quiet(&self, now: u64) -> Option<i128> {
        let still = 2 * self.limits.grace_ns;
        let newest = self.records.back()?;
        let since = now.checked_sub(still)?;
        let earlier = self.records.iter().rev().find(|r| r.at <= since)?;
        let log_goes_on = newest.at.saturating_add(self.limits.grace_ns) >= now;
        (log_goes_on && earlier.packets == newest.packets && self.sample(since) == Some(self.counts.packets))
            .then(|| i128::from(self.counts.packets) - i128::from(newest.packets))
    }

    /// The exact offset, if it is known.
    fn exact(&self) -> Option<i128> {
        (self.range.low == self.range.high).then_some(self.range.low)
    }

    /// Compares the newest record whose packets have all reached the interface.
    fn fit(&self, history: Option<&History>) -> Fit {
        let (Some(offset), Some(delta), Some(history)) = (self.exact(), self.delta, history) else {
            return Fit::Unknown;
        };
        let found = self.records.iter().rev().find_map(|r| {
            let n = at(offset, r.packets).filter(|n| *n <= history.count())?;
            Some((r, n, history.after(n)?))
        });
        let Some((r, n, mine)) = found else { return Fit::Unknown };
        let difference = r.digest.wrapping_add(delta).wrapping_sub(mine);
        if difference == 0 {
            Fit::Same(r.packets)
        } else if overtaken(history, n, difference) {
            Fit::Overtaken
        } else {
            Fit::Different
        }
    }

    /// Nothing is wrong: the range narrows, and the digests are tied together when it is one number.
    fn narrow(&mut self, now: u64, bounds: Bounds, history: Option<&History>, out: &mut Report) {
        // Frames that no mediator submits may lift the lower bound; they must not lift what is accounted for.
        self.range.low = self.range.low.max(bounds.low).min(self.range.high);
        self.range.high = self.range.high.min(bounds.high).max(self.range.low);
        if self.exact().is_none() || self.delta.is_none() {
            if let Some(offset) = self.quiet(now) {
                return self.settle(now, self.with_delta(offset, history), false, out);
            }
            if let Some(base) = history.and_then(|h| self.align(h, 0)) {
                return self.settle(now, base, false, out);
            }
        }
        if let (Some(offset), None) = (self.accounted.filter(|o| self.exact() == Some(*o)), self.delta) {
            self.delta = self.with_delta(offset, history).delta;
        }
    }

    /// Something is wrong: wait for the exact count, and report it, or what is certain when patience ends.
    fn resolve(
        &mut self,
        now: u64,
        since: u64,
        bounds: Bounds,
        fit: Fit,
        history: Option<&History>,
        out: &mut Report,
    ) {
        let different = fit == Fit::Different;
        if let Some(base) = history.and_then(|h| self.align(h, since)) {
            self.settle(now, base, different, out);
        } else if let Some(offset) = self.quiet(now) {
            self.settle(now, self.with_delta(offset, history), different, out);
        } else if now.saturating_sub(since) >= self.limits.patience_ns {
            self.give_up(now, bounds, different, history, out);
        }
    }

    /// The exact offset is known: reports how far it moved, and goes on from it.
    fn settle(&mut self, now: u64, base: Base, different: bool, out: &mut Report) {
        let known = self.accounted.or(self.exact());
        let moved = known.map_or_else(|| outside(base.offset, self.range), |known| base.offset - known);
        let exact = known.is_some();
        if moved == 0 && different {
            out.findings.push(Finding::Swapped { direction: self.direction });
        } else if moved > self.slack(now) || moved < 0 {
            self.report(moved, exact, out);
            self.allow(now, 0);
        } else {
            self.allow(now, moved);
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
        if !self.told_aligned {
            self.told_aligned = true;
            out.notices.push(Notice::Aligned { direction: self.direction });
        }
    }

    /// No exact count can be had: reports what is certain.
    fn give_up(
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
            self.delta = self.exact().and_then(|o| self.with_delta(o, history).delta);
        }
        self.suspicious_since = None;
        // Older records belong to before the incident, and would lead back there.
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

    /// Frames that no mediator submits and that the counts may contain: a bucket that fills at the configured rate.
    fn slack(&self, now: u64) -> i128 {
        let (at, level) = self.allowance;
        let elapsed = now.saturating_sub(at).min(i64::MAX.unsigned_abs());
        let filled = i128::from(self.limits.unmediated_per_second) * i128::from(elapsed) / 1_000_000_000;
        level.saturating_add(filled)
    }

    /// Takes `used` frames from the bucket, which holds [`BURST_SECONDS`] of them once the count is exact.
    fn allow(&mut self, now: u64, used: i128) {
        let most = i128::from(self.limits.unmediated_per_second) * BURST_SECONDS;
        self.allowance = (now, (self.slack(now) - used).min(most));
    }

    /// This offset, with the digests tied together at the newest record that can be compared.
    fn with_delta(&self, offset: i128, history: Option<&History>) -> Base {
        let delta = history.and_then(|h| {
            self.records.iter().rev().find_map(|r| {
                let mine = h.after(at(offset, r.packets)?)?;
                Some(mine.wrapping_sub(r.digest))
            })
        });
        Base { offset, delta }
    }

    /// The one offset at which the packets between two of the latest records have the digest that they should;
    /// only records seen from `since` on count, those before tell of the time before an incident.
    fn align(&self, history: &History, since: u64) -> Option<Base> {
        let mut later = *self.records.back()?;
        let mut tried = 0;
        for earlier in self.records.iter().rev().take_while(|r| r.at >= since) {
            if earlier.packets >= later.packets {
                continue;
            }
            let found = fitting(history, *earlier, later);
            // What fits the comparison so far is no news: the newest record's boundary is merely out of order.
            let news = found.filter(|b| Some(b.offset) != self.exact() || b.delta != self.delta);
            if news.is_some() || tried == PAIRS {
                return news;
            }
            tried += 1;
            later = *earlier;
        }
        None
    }

    /// Decides now about what is still being looked into.
    pub(super) fn conclude(&mut self, out: &mut Report) {
        let now = self.samples.back().map_or(0, |s| s.0);
        if let (Some(_), Some(newest)) = (self.suspicious_since, self.records.back().copied()) {
            let bounds = self.bounds(now, newest);
            // A suspicion that rests on digests alone is no longer explained by packets in flight.
            let contradicted = bounds.low > self.range.high || bounds.high < self.range.low;
            self.give_up(now, bounds, !contradicted, None, out);
        }
        if self.accounted.is_none() {
            out.findings.push(Finding::Unproven { direction: self.direction });
        }
    }

    /// Packets that the interface has counted beyond what the newest record speaks of, if there are any and the offset
    /// is known.
    pub(super) fn unrecorded(&self) -> Option<u64> {
        let newest = self.records.back()?;
        let beyond = i128::from(self.counts.packets) - i128::from(newest.packets) - self.accounted?;
        u64::try_from(beyond).ok().filter(|n| *n > 0)
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            interface: self.counts,
            recorded: self.records.back().map_or(0, |r| r.packets),
            verified: self.verified,
            aligned: self.accounted.is_some() && self.exact() == self.accounted,
            suspicious: self.suspicious_since.is_some(),
        }
    }
}

/// The interface's number of the P4 VM's packet `p`.
fn at(offset: i128, p: u64) -> Option<u64> {
    u64::try_from(offset.checked_add(i128::from(p))?).ok()
}

/// How far `offset` is outside a range.
const fn outside(offset: i128, range: Bounds) -> i128 {
    if offset > range.high {
        offset - range.high
    } else if offset < range.low {
        offset - range.low
    } else {
        0
    }
}

/// Whether `difference` is what one packet before the boundary `n` and one after it make when they change places.
fn overtaken(history: &History, n: u64, difference: u64) -> bool {
    let digest = |i: u64| Some(history.after(i)?.wrapping_sub(history.after(i.checked_sub(1)?)?));
    let before = n.saturating_sub(REORDER) + 1..=n;
    before
        .filter_map(digest)
        .any(|out| (n + 1..=n + REORDER).filter_map(digest).any(|into| into.wrapping_sub(out) == difference))
}

/// The only offset at which the interface's packets between the two records have the same sum, if there is just one.
fn fitting(history: &History, earlier: Totals, later: Totals) -> Option<Base> {
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
            found = Some(Base { offset, delta: Some(a.wrapping_sub(earlier.digest)) });
        }
    }
    found
}
