//! Where a record ends among the packets of the interface, when the comparison does not know it: at the
//! start of the audit, after a restart of the P4 VM, and after a stretch with too many differences.

use p4shield_abi::Direction;

use super::Report;
use super::items::{Anchor, Doubt, ItemAudit, OVERLAP, Record, TIED};
use super::peel::differences;
use super::stretch::close_stretch;

/// Distance of places that are tried first in a long range. Half of it differs at most, on both ends of an
/// interval, which leaves room for losses.
const STEP: u64 = 32;

/// Differing packets of an interval, as a fraction of its packets, with which its place is still certain.
const MOST_DIFFERENT: u64 = 4;

/// Packets of a range for each that may equal another, while the network repeats some.
const FEW_EQUAL: usize = 16;

/// Most places that are tried one by one where packets are equal: far from the right place, they may differ
/// as little as next to it.
const MOST_PLACES: u64 = 4096;

/// Looks for the place of the oldest waiting record. Returns whether there is progress.
pub(super) fn find(audit: &mut ItemAudit, now: u64, out: &mut Report) -> bool {
    if audit.records.front().is_some_and(|r| r.is_restart) {
        audit.begin_restart();
    }
    audit.follow_key();
    let grace = audit.limits.grace_ns;
    // Earlier records may lack packets that passed the interface just before the audit counted there.
    if audit.begun_at.is_none() && audit.stretch.is_none() {
        let begin = audit.started.unwrap_or(now).saturating_add(grace);
        let early = audit.records.partition_point(|r| r.at < begin && !r.is_restart && r.rekeyed.is_none());
        audit.records.drain(..early);
    }
    let is_due = |record: &Record| now >= record.at.saturating_add(grace);
    let Some(first) = audit.records.front().filter(|r| is_due(r)) else { return false };
    let Some(high) = audit.sample_after(first.at.saturating_add(grace)) else { return false };
    let base = audit.stretch.as_ref().map_or(audit.first, |s| s.from.max(audit.first));
    let low = base.max(audit.sample(first.at.checked_sub(grace)));
    let (place, fresh) = if low >= high {
        (Some(low), false)
    } else {
        let Some(second) = audit.records.get(1).filter(|r| is_due(r)) else { return false };
        if second.rekeyed.is_some() {
            // The packets between both have another key than `first`.
            audit.records.pop_front();
            return true;
        }
        // Packets of the records before this one, which are not compared, may still arrive.
        let overtaken = Doubt { accuses: true, left: OVERLAP, until: high };
        let found = search(audit, first, second, low, high);
        if let Some((_, doubt)) = found {
            audit.doubts = [Some(overtaken), doubt].into_iter().flatten().collect();
        }
        (found.map(|(place, _)| place), true)
    };
    let place = place.or_else(|| among_equals(audit, low, high));
    let Some(record) = audit.records.pop_front() else { return false };
    if let Some(place) = place {
        close_stretch(audit, now, record.packets, place, out);
        audit.anchor = Some(Anchor { record, place, fresh });
        audit.begun_at.get_or_insert(place);
    } else if audit.stretch.is_none() {
        // From here on the numbers are compared. The record ends somewhere between `low` and `high`.
        audit.begin_stretch(&record, [low, high], now);
    }
    true
}

/// Returns a place between `low` and `high` if the packets there are equal. They have no place among each
/// other, so it is the one that the numbers demand. Where these are unknown, at the start of the audit, it is
/// the one from which an honest cloud can only seem to lose packets; as many of these are no loss.
fn among_equals(audit: &mut ItemAudit, low: u64, high: u64) -> Option<u64> {
    let mut items = audit.items(low, high);
    let first = items.next().filter(|first| *first != 0)?;
    if !items.all(|item| item == first) {
        return None;
    }
    drop(items);
    if let Some(demanded) = demanded(audit, audit.records.front()?, high) {
        let left = audit.stretch.as_ref().map_or(0, |s| s.slack);
        audit.doubts = vec![Doubt { accuses: false, left, until: u64::MAX }];
        return Some(demanded.clamp(low, high));
    }
    audit.doubts = vec![Doubt { accuses: false, left: high - low, until: u64::MAX }];
    Some(if audit.direction == Direction::Ingress { high } else { low })
}

/// Returns the place of a record that the numbers of the stretch demand if no packet was lost or bypassed.
/// Where they are known up to some slack only, it is the one that accuses no one.
fn demanded(audit: &ItemAudit, record: &Record, high: u64) -> Option<u64> {
    let stretch = audit.stretch.as_ref().filter(|s| !s.is_restart)?;
    let slack = if audit.direction == Direction::Ingress { 0 } else { stretch.slack };
    let late = audit.arrived_late(stretch.from, high);
    let judged = i128::from(record.packets) - i128::from(stretch.packets);
    u64::try_from(stretch.place - i128::from(slack) + i128::from(late) + judged).ok()
}

/// Returns the only place of `first` in a range at which the packets between both records differ least, and
/// the doubt that remains.
/// Where the number of packets up to there accuses no one, at the start and after a restart, it may be one of
/// a few neighbours.
fn search(
    audit: &ItemAudit,
    first: &Record,
    second: &Record,
    low: u64,
    high: u64,
) -> Option<(u64, Option<Doubt>)> {
    let judged = second.packets.checked_sub(first.packets).filter(|n| *n > 0 && !second.is_restart)?;
    let high = high.min(audit.count().saturating_sub(judged)).max(low);
    let distinct = are_distinct(audit, low, high);
    let step = if distinct && high - low > 4 * STEP { STEP } else { 1 };
    if !distinct && high - low > MOST_PLACES {
        return None;
    }
    let best = |low, high, step| best_of(audit, [first, second], judged, (low, high), step);
    let mut found = best(low, high, step)?;
    if step > 1 {
        let (_, place, _) = found;
        found = best(low.max(place.saturating_sub(step)), high.min(place + step), 1)?;
    }
    let (different, place, last) = found;
    if !distinct
        && let Some(demanded) = demanded(audit, first, high).filter(|n| (low..=high).contains(n))
        && let Some((more, ..)) = best(demanded, demanded, 1)
        && more <= different + demanded.abs_diff(place)
        && more * MOST_DIFFERENT <= judged
    {
        // Among packets of few kinds, losses make another place look better by as many packets.
        let left = audit.stretch.as_ref().map_or(0, |s| s.slack);
        return Some((demanded, Some(Doubt { accuses: false, left, until: u64::MAX })));
    }
    // Where packets equal others, each that differs may have moved the place by one. So may each packet
    // without a digest nearby, also where the others differ.
    let moved = if distinct { undigested(audit, place, judged).max(last - place) } else { different };
    let doubt = (moved > 0).then_some(Doubt { accuses: true, left: moved.min(TIED), until: u64::MAX });
    // Equal packets hide which of two places is right, also from what follows.
    let accuses = audit.stretch.as_ref().is_some_and(|s| !s.is_restart && s.slack == 0);
    let tied = if accuses || !distinct { 0 } else { TIED };
    (last - place <= tied && different * MOST_DIFFERENT <= judged).then_some((place, doubt))
}

/// Returns how many packets of an interval from `place` on, and next to it, have no digest.
fn undigested(audit: &ItemAudit, place: u64, judged: u64) -> u64 {
    let near = audit.items(place.saturating_sub(OVERLAP), place + judged + OVERLAP);
    near.filter(|item| *item == 0).count() as u64
}

/// Returns whether few packets of a range have another's digest.
fn are_distinct(audit: &ItemAudit, low: u64, high: u64) -> bool {
    let mut items: Vec<u64> = audit.items(low, high + 1).filter(|item| *item != 0).collect();
    items.sort_unstable();
    let equal = items.windows(2).filter(|pair| pair[0] == pair[1]).count();
    equal * FEW_EQUAL <= items.len()
}

/// Returns the least number of differing packets, and the first and the last place that has it.
fn best_of(
    audit: &ItemAudit,
    [first, second]: [&Record; 2],
    judged: u64,
    (low, high): (u64, u64),
    step: u64,
) -> Option<(u64, u64, u64)> {
    let mut rest = second.sketch.since(&first.sketch);
    let mut book = |from: u64, to: u64, times: i64| {
        let digested = audit.items(from, to).filter(|item| *item != 0);
        digested.for_each(|item| rest.subtract(item, times));
        rest
    };
    let mut window = book(low, low + judged, 1);
    let mut best: Option<(u64, u64, u64)> = None;
    let mut place = low;
    loop {
        if let Some(found) = differences(window) {
            let different = found.iter().map(|(_, times)| times.unsigned_abs()).sum();
            best = match best {
                Some((least, at, _)) if different == least => Some((least, at, place)),
                Some(kept) if different > kept.0 => Some(kept),
                _ => Some((different, place, place)),
            };
        }
        if place + step > high {
            return best;
        }
        book(place, place + step, -1);
        window = book(place + judged, place + judged + step, 1);
        place += step;
    }
}
