//! The comparison of one direction packet by packet; see [`super`] for the method.

use std::collections::{HashMap, VecDeque};

use p4shield_abi::Direction;
use p4shield_abi::sketch::Sketch;

use super::finding::Notice;
use super::history::{Histories, History, ROTATION_OVERLAP, Rekeyed, in_order};
use super::ledger::Ledger;
use super::peel::differences;
use super::{Counts, DirectionStatus, Limits, Report};

/// Most records that wait for packets in flight.
const RECORDS: usize = 128;

/// Most packets that wait for a record. More are not compared.
const ARRIVALS: usize = 1 << 20;

/// Packets before a compared record that are kept: what may have been overtaken there.
pub(super) const OVERLAP: u64 = 64;

/// Neighbouring places with equally few differing packets that are as good as one after a restart. A packet
/// that was lost or repeated in the interval adds one of them; [`OVERLAP`] is four times as many.
pub(super) const TIED: u64 = OVERLAP / 4;

/// Losses that are remembered, because a packet that was thought lost may only be late.
pub(super) const REMEMBERED: usize = 8_192;

/// Places of a record that are tried: the expected one, and this many on both sides, so far apart.
const PLACES: i128 = 20;
const PLACE_DISTANCE: i128 = 24;

/// Differing packets up to which the expected place of a record is taken as it is.
const FEW: usize = 4;

/// What one record says of a direction, and the time at which it was first read.
#[derive(Clone)]
pub(super) struct Record {
    pub(super) at: u64,
    pub(super) packets: u64,
    pub(super) sketch: Sketch,
    /// Whether it counts from 0 again: the previous record is of another P4 VM.
    pub(super) is_restart: bool,
    /// Whether its key is another than the previous record's.
    pub(super) rekeyed: Option<Rekeyed>,
}

/// A packet that only one side has so far.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) item: u64,
    /// When it was read.
    pub(super) at: u64,
    /// The place of the record before: it arrived later than that.
    pub(super) after: u64,
}

/// Packets without a digest. Each stands for a judged packet that seems to be missing.
pub(super) struct Undigested {
    pub(super) packets: u64,
    /// When they were read.
    pub(super) at: u64,
    /// The place of the record before.
    pub(super) after: u64,
}

/// How many packets may seem to differ only because the records before the place from which the comparison
/// continued are not compared, or because packets there equal each other.
#[derive(Clone, Copy)]
pub(super) struct Doubt {
    /// Whether such a packet would accuse the cloud; else it would seem to be lost.
    pub(super) accuses: bool,
    pub(super) left: u64,
    /// The number of the last packet at the interface that may be one of them.
    pub(super) until: u64,
}

/// Packets that are compared by their number only, since the last comparison with a result.
pub(super) struct Stretch {
    /// Packets that the P4 VM had judged when it began.
    pub(super) packets: u64,
    /// Number of the interface's packets that belong to them; where it is not known exactly, the most.
    pub(super) place: i128,
    /// How much smaller that number may be.
    pub(super) slack: u64,
    /// The newest compared packet of the interface.
    pub(super) from: u64,
    /// Packets of the interface that are booked already.
    pub(super) counted_to: u64,
    pub(super) since: u64,
    /// Whether the P4 VM restarted in it: packets of its last moments are in no record.
    pub(super) is_restart: bool,
}

/// The newest compared record, and its place among the packets of the interface.
pub(super) struct Anchor {
    pub(super) record: Record,
    pub(super) place: u64,
    /// Whether its place was just found, so that packets near it may belong to either side of it.
    pub(super) fresh: bool,
}

pub(super) struct ItemAudit {
    pub(super) direction: Direction,
    pub(super) limits: Limits,
    /// Records that are not compared yet, oldest first.
    pub(super) records: VecDeque<Record>,
    pub(super) anchor: Option<Anchor>,
    /// Packets since the last comparison without a result; before the first, since the audit began.
    pub(super) stretch: Option<Stretch>,
    /// Items of packets at the interface, from number `first` on; 0 for those without a digest.
    pub(super) arrivals: VecDeque<u64>,
    /// The items of the same packets under the other key; 0 unless the key rotates.
    pub(super) twins: VecDeque<u64>,
    /// Number of the newest packet that has such an item.
    pub(super) newest_twin: Option<u64>,
    /// Number of the key under which packets are compared.
    pub(super) key: usize,
    pub(super) first: u64,
    /// Number of packets at the interface over time, oldest first.
    pub(super) samples: VecDeque<(u64, u64)>,
    pub(super) counts: Counts,
    /// Packets at the interface that no record contains yet.
    pub(super) unjudged: Vec<Pending>,
    /// Packets of compared records that have not reached the interface yet.
    pub(super) missing: Vec<Pending>,
    /// Packets without a digest among those that were compared.
    pub(super) undigested: VecDeque<Undigested>,
    /// How uncertain the place is from which the comparison continued.
    pub(super) doubts: Vec<Doubt>,
    /// Losses, at the time at which they were taken for such.
    pub(super) lost: VecDeque<Pending>,
    pub(super) ledger: Ledger,
    recorded: u64,
    restarted: bool,
    reported_not_whole: bool,
    pub(super) reported_aligned: bool,
    /// Packets at the interface that are no part of the audit, since it was still beginning, and when it
    /// began.
    pub(super) early: u64,
    /// Packets behind the first place of a record that turned out to be of an earlier one.
    pub(super) judged_before: u64,
    /// Packets around restarts that are a finding.
    pub(super) unaccounted: u64,
    /// How long it was beginning.
    pub(super) early_ns: u64,
    pub(super) started: Option<u64>,
    /// The first place of a record that was found.
    pub(super) begun_at: Option<u64>,
}

impl ItemAudit {
    pub(super) fn new(direction: Direction, limits: Limits) -> Self {
        Self {
            direction,
            limits,
            records: VecDeque::new(),
            anchor: None,
            stretch: None,
            arrivals: VecDeque::new(),
            twins: VecDeque::new(),
            newest_twin: None,
            key: 0,
            first: 0,
            samples: VecDeque::new(),
            counts: Counts::default(),
            unjudged: Vec::new(),
            missing: Vec::new(),
            undigested: VecDeque::new(),
            doubts: Vec::new(),
            lost: VecDeque::new(),
            ledger: Ledger::new(direction, limits),
            recorded: 0,
            restarted: false,
            reported_not_whole: false,
            reported_aligned: false,
            early: 0,
            judged_before: 0,
            unaccounted: 0,
            early_ns: 0,
            started: None,
            begun_at: None,
        }
    }

    pub(super) fn record(&mut self, mut record: Record) {
        record.is_restart = std::mem::take(&mut self.restarted);
        self.recorded = record.packets;
        if self.records.len() == RECORDS {
            self.lose_anchor();
            self.follow_key();
            self.skip_record();
        }
        self.records.push_back(record);
    }

    /// The next record counts from 0 again; the interface's counts continue. Records that wait are still
    /// compared.
    pub(super) const fn restart(&mut self) {
        self.restarted = true;
    }

    /// Takes the items of new packets over. Those that the tap overwrote meanwhile have no digest.
    pub(super) fn follow(&mut self, histories: Option<&Histories>, packets: u64) {
        let [history, other] = in_order(histories, self.key);
        let count = history.map_or(packets, History::count);
        if count.saturating_sub(self.first) > ARRIVALS as u64 {
            self.lose_anchor();
            self.forget(count - ARRIVALS as u64 / 2);
        }
        for n in self.count() + 1..=count {
            let of = |h: &History| Some(h.after(n)?.wrapping_sub(h.after(n - 1)?));
            let item = |h: Option<&History>| h.and_then(of).filter(|d| *d != 0).map_or(0, Sketch::item);
            self.arrivals.push_back(item(history));
            let twin = item(other);
            self.twins.push_back(twin);
            if twin != 0 {
                self.newest_twin = Some(n);
            }
        }
    }

    /// Forgets the packets before number `first`.
    fn forget(&mut self, first: u64) {
        let surplus = first.saturating_sub(self.first) as usize;
        self.arrivals.drain(..surplus.min(self.arrivals.len()));
        self.twins.drain(..surplus.min(self.twins.len()));
        self.first = self.first.max(first);
    }

    /// Returns the number of packets at the interface.
    pub(super) fn count(&self) -> u64 {
        self.first + self.arrivals.len() as u64
    }

    /// Returns the items of the packets after number `from`, up to number `to`.
    pub(super) fn items(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let at = |n: u64| (n.max(self.first) - self.first) as usize;
        self.arrivals.range(at(from).min(at(to))..at(to).min(self.arrivals.len())).copied()
    }

    /// Reports once that some packets could not be digested.
    pub(super) fn report_undigested(&mut self, counts: &Counts, out: &mut Report) {
        if counts.not_whole > self.counts.not_whole && !self.reported_not_whole {
            self.reported_not_whole = true;
            let not_whole = counts.not_whole - self.counts.not_whole;
            out.notices.push(Notice::SwapDetectionOff { direction: self.direction, not_whole });
        }
    }

    /// Returns the interface's count at `t`; 0 before the audit.
    pub(super) fn sample(&self, t: Option<u64>) -> u64 {
        let Some(t) = t else { return 0 };
        self.samples.iter().rev().find(|s| s.0 <= t).map_or(0, |s| s.1)
    }

    /// Returns the interface's count when it was first read at or after `t`.
    pub(super) fn sample_after(&self, t: u64) -> Option<u64> {
        let at = self.samples.partition_point(|s| s.0 < t);
        self.samples.get(at).map(|s| s.1)
    }

    /// Compares the oldest waiting record. Returns whether it was, or can never be.
    pub(super) fn compare_next(&mut self, now: u64) -> bool {
        if self.records.front().is_some_and(|r| r.is_restart) {
            self.begin_restart();
            return true;
        }
        self.follow_key();
        let (Some(anchor), Some(record)) = (&self.anchor, self.records.front()) else { return false };
        let judged = record.packets.saturating_sub(anchor.record.packets);
        let is_due = now >= record.at.saturating_add(self.limits.grace_ns);
        let expected = i128::from(anchor.place) - self.unjudged.len() as i128 + i128::from(judged);
        let count = self.count();
        if expected > i128::from(count) && !is_due {
            return false;
        }
        // Packets that arrived long before the record are in it, if they were judged.
        let low = anchor.place.max(self.sample(record.at.checked_sub(self.limits.grace_ns)));
        let wanted = record.sketch.since(&anchor.record.sketch);
        if wanted.is_empty() && judged == 0 {
            let extra: Vec<_> = self.items(anchor.place, low).map(|item| (item, -1)).collect();
            self.accept(now, low, extra);
            return true;
        }
        match self.place(&wanted, low, count, expected, anchor.place) {
            Some((place, found)) => self.accept(now, place, found),
            None if is_due => self.lose_anchor(),
            None => return false,
        }
        true
    }

    /// Returns the place of the record near the expected one at which the fewest packets differ, and these.
    fn place(
        &self,
        wanted: &Sketch,
        low: u64,
        count: u64,
        expected: i128,
        from: u64,
    ) -> Option<(u64, Vec<(u64, i64)>)> {
        let clamp = |n: i128| u64::try_from(n.clamp(low.into(), count.into())).unwrap_or(low);
        let middle = clamp(expected);
        let mut rest = *wanted;
        self.items(from, middle).filter(|item| *item != 0).for_each(|item| rest.subtract(item, 1));
        let at = |place: u64| {
            let mut rest = rest;
            self.items(middle, place).filter(|item| *item != 0).for_each(|item| rest.subtract(item, 1));
            self.items(place, middle).filter(|item| *item != 0).for_each(|item| rest.subtract(item, -1));
            Some((place, differences(rest)?))
        };
        let first = at(middle);
        if first.as_ref().is_some_and(|(_, found)| found.len() <= FEW) {
            return first;
        }
        // A judged packet that arrived behind a place shows that the place is too low.
        let reach = (PLACES * PLACE_DISTANCE).unsigned_abs() as u64 * 2;
        let begin = middle.saturating_sub(reach).max(from);
        let numbers: HashMap<u64, u64> = self.items(begin, middle + reach).zip(begin + 1..).collect();
        let cost = |(place, found): &(u64, Vec<(u64, i64)>)| -> u64 {
            let of = |(item, times): &(u64, i64)| match times {
                1.. if numbers.get(item).is_some_and(|n| n > place) => 2,
                1.. => 0,
                _ => u64::from(!self.missing.iter().any(|p| p.item == *item)),
            };
            found.iter().map(of).sum()
        };
        let around = |middle: u64, distance: i128, of: i128| {
            let places = (-of..=of).map(move |n| clamp(i128::from(middle) + n * distance));
            places.filter_map(&at).min_by_key(|place| (cost(place), i128::from(place.0).abs_diff(expected)))
        };
        let near = around(middle, PLACE_DISTANCE, PLACES)?;
        around(near.0, 1, PLACE_DISTANCE / 2)
    }

    /// The oldest waiting record is compared: it ends at `place`, and these packets differ.
    fn accept(&mut self, now: u64, place: u64, found: Vec<(u64, i64)>) {
        let (Some(record), Some(anchor)) = (self.records.pop_front(), self.anchor.take()) else { return };
        let copies =
            |from: u64, to: u64, item: u64| self.items(from, to).filter(|i| *i == item).count() as u64;
        let (mut judged_only, mut seen_only, mut overtaken) = (Vec::new(), Vec::new(), 0);
        for (item, times) in found.into_iter().filter(|(item, _)| *item != 0) {
            let at = anchor.place;
            let nearby = match anchor.fresh {
                false => 0,
                true if times > 0 => copies(at.saturating_sub(OVERLAP), at, item),
                true => copies(at, at + OVERLAP, item),
            };
            // Packets that may be of earlier records, which are not compared, are not compared either.
            let nearby = nearby.min(times.unsigned_abs());
            overtaken += if times < 0 { nearby } else { 0 };
            let list = if times > 0 { &mut judged_only } else { &mut seen_only };
            list.extend(std::iter::repeat_n(item, (times.unsigned_abs() - nearby) as usize));
        }
        let undigested = self.items(anchor.place, place).filter(|item| *item == 0).count() as u64;
        self.refresh(now, [anchor.place, place], &seen_only);
        for item in judged_only {
            if !take(&mut self.unjudged, item) {
                self.missing.push(Pending { item, at: record.at, after: anchor.place });
            }
        }
        for item in seen_only {
            // A packet that was judged before a rotation is missing under the key of that time.
            let was_missing = take(&mut self.missing, item)
                || self.twin(item).is_some_and(|twin| take(&mut self.missing, twin));
            if !was_missing {
                self.unjudged.push(Pending { item, at: now, after: anchor.place });
            }
        }
        if undigested > 0 {
            self.undigested.push_back(Undigested { packets: undigested, at: now, after: anchor.place });
        }
        let others = undigested + overtaken;
        self.ledger.compared(place.saturating_sub(anchor.place).saturating_sub(others));
        self.ledger.uncompared(undigested);
        if self.begun_at == Some(anchor.place) {
            self.judged_before += overtaken;
        } else {
            self.ledger.uncompared(overtaken);
        }
        self.anchor = Some(Anchor { record, place, fresh: false });
        let overlap = if self.has_twins() { ROTATION_OVERLAP } else { OVERLAP };
        self.forget(place.saturating_sub(overlap));
    }

    /// Returns the number of packets at the interface after the newest compared record, if there are any.
    pub(super) fn unrecorded(&self) -> Option<u64> {
        let place = self.anchor.as_ref()?.place;
        self.count().checked_sub(place).filter(|n| *n > 0)
    }

    /// Returns the number of packets that arrived so long ago that a compared record should contain them.
    pub(super) fn overdue(&self) -> Option<u64> {
        let now = self.samples.back()?.0;
        let arrived = self.sample(now.checked_sub(3 * self.limits.grace_ns));
        arrived.checked_sub(self.anchor.as_ref()?.place).filter(|n| *n > 0)
    }

    /// Returns the number of packets at the start of the audit that were not compared at all.
    pub(super) fn unaudited(&self) -> u64 {
        self.start_end() + self.judged_before
    }

    /// Returns the number of the last packet that is no part of the audit, since it was still beginning.
    pub(super) fn start_end(&self) -> u64 {
        self.begun_at.map_or(self.early, |place| place.min(self.early))
    }

    pub(super) fn status(&self) -> DirectionStatus {
        let (verified, uncompared) = self.ledger.shares();
        DirectionStatus {
            interface: self.counts,
            recorded: self.recorded,
            verified,
            uncompared,
            lost: self.ledger.lost(),
            late: self.ledger.late(),
            unaudited: self.unaudited(),
            unaudited_ms: self.early_ns / 1_000_000,
            has_findings: false,
            aligned: self.anchor.is_some(),
            suspicious: !self.unjudged.is_empty()
                || !self.undigested.is_empty()
                || !self.missing.is_empty()
                || self.ledger.is_open()
                || (self.begun_at.is_some() && self.anchor.is_none()),
        }
    }
}

/// Takes a packet out of a list. Returns whether it was there.
fn take(list: &mut Vec<Pending>, item: u64) -> bool {
    let at = list.iter().position(|p| p.item == item);
    at.map(|at| list.swap_remove(at)).is_some()
}
