//! Packets on which both sides of one direction differ: what they are waited for, and what becomes of them.

use std::collections::HashMap;

use p4shield_abi::Direction;

use super::items::{Doubt, ItemAudit, Pending, REMEMBERED};

impl ItemAudit {
    /// Packets with the same contents are one to the audit: what waits for its verdict is the latest of them.
    /// Otherwise, where losses shift the places of records, one of many equal packets seems to wait for ever.
    pub(super) fn refresh(&mut self, now: u64, [from, to]: [u64; 2], seen_only: &[u64]) {
        if self.unjudged.is_empty() {
            return;
        }
        let mut judged: HashMap<u64, u64> = self.unjudged.iter().map(|p| (p.item, 0)).collect();
        for item in self.items(from, to) {
            judged.entry(item).and_modify(|n| *n += 1);
        }
        for item in seen_only {
            judged.entry(*item).and_modify(|n| *n = n.saturating_sub(1));
        }
        for p in &mut self.unjudged {
            if let Some(n) = judged.get_mut(&p.item).filter(|n| **n > 0) {
                *n -= 1;
                p.at = now;
            }
        }
    }

    /// Decides about packets that were waited for long enough.
    pub(super) fn expire(&mut self, now: u64) {
        let grace = self.limits.grace_ns;
        let Some(anchor) = &self.anchor else {
            self.expire_missing(now, self.stretch.as_ref().map_or(self.first, |s| s.from));
            return;
        };
        let (compared_to, place) = (anchor.record.at, anchor.place);
        let expired: Vec<_> =
            self.unjudged.extract_if(.., |p| p.at.saturating_add(grace) <= compared_to).collect();
        for p in expired {
            self.resolve(now, p, self.direction == Direction::Ingress);
        }
        self.expire_missing(now, place);
        // Whatever did not stand for a judged packet was not judged. The place of a record is uncertain by
        // such packets, so they are waited for longer.
        while let Some(old) = self.undigested.pop_front_if(|u| u.at + 3 * grace <= compared_to) {
            let accuses = self.direction == Direction::Ingress;
            let certain = (0..old.packets).filter(|_| !self.is_doubtful(old.after, accuses)).count();
            self.ledger.unjudged(now, certain as u64, false);
        }
    }

    /// Decides about packets of records up to `place` that have not arrived.
    fn expire_missing(&mut self, now: u64, place: u64) {
        let grace = self.limits.grace_ns;
        if !self.missing.iter().any(|p| p.at.saturating_add(grace) <= now) {
            return;
        }
        // Packets that arrived after the newest compared record are late, but not missing. Each stands for
        // one, the newest first: of many that equal it, the others are missing.
        let late = self.arrived_after(place);
        let mut left: HashMap<u64, u64> = self.missing.iter().map(|p| (p.item, 0)).collect();
        for item in &late {
            left.entry(*item).and_modify(|n| *n += 1);
        }
        self.missing.sort_by_key(|p| std::cmp::Reverse(p.at));
        let is_missing = |p: &mut Pending| {
            let has_arrived = left.get_mut(&p.item).filter(|n| **n > 0).map(|n| *n -= 1).is_some();
            !has_arrived && p.at + grace <= now
        };
        // Those without a digest among them may stand for any.
        let mut waiting = late.partition_point(|item| *item == 0);
        for p in self.missing.extract_if(.., is_missing).collect::<Vec<_>>() {
            if self.take_undigested() {
                continue;
            }
            if waiting > 0 {
                waiting -= 1;
                self.missing.push(p);
            } else {
                self.resolve(now, p, self.direction == Direction::Egress);
            }
        }
    }

    /// Returns the items of the packets after number `place`, under both keys, in order.
    pub(super) fn arrived_after(&self, place: u64) -> Vec<u64> {
        let mut arrived: Vec<u64> = self.items(place, self.count()).collect();
        if self.has_twins() {
            let from = (place.max(self.first) - self.first) as usize;
            arrived.extend(self.twins.range(from.min(self.twins.len())..).filter(|twin| **twin != 0));
        }
        arrived.sort_unstable();
        arrived
    }

    /// Returns how many packets after number `from`, up to number `to`, are of earlier, compared records.
    pub(super) fn arrived_late(&self, from: u64, to: u64) -> u64 {
        self.late_among(from, to).iter().filter(|is_late| **is_late).count() as u64
    }

    /// No longer waits for the packets that [`Self::arrived_late`] counts.
    pub(super) fn forget_late(&mut self, from: u64, to: u64) {
        let mut late = self.late_among(from, to).into_iter();
        self.missing.retain(|_| !late.next().unwrap_or(false));
    }

    /// Returns for each missing packet whether it is in this range.
    fn late_among(&self, from: u64, to: u64) -> Vec<bool> {
        if self.missing.is_empty() {
            return Vec::new();
        }
        let mut left: HashMap<u64, u64> = self.missing.iter().map(|p| (p.item, 0)).collect();
        let at = |n: u64| (n.saturating_sub(self.first) as usize).min(self.arrivals.len());
        let range = at(from)..at(to).max(at(from));
        for (item, twin) in self.arrivals.range(range.clone()).zip(self.twins.range(range)) {
            let key = if left.contains_key(item) { item } else { twin };
            left.entry(*key).and_modify(|n| *n += 1);
        }
        let take = |p: &Pending| left.get_mut(&p.item).filter(|n| **n > 0).map(|n| *n -= 1).is_some();
        self.missing.iter().map(take).collect()
    }

    /// Returns whether a difference behind number `after` may come from the place at which the comparison
    /// continued; as many of them as may are taken for that.
    fn is_doubtful(&mut self, after: u64, accuses: bool) -> bool {
        let is_of = |d: &&mut Doubt| d.accuses == accuses && d.left > 0 && after < d.until;
        self.doubts.iter_mut().find(is_of).map(|doubt| doubt.left -= 1).is_some()
    }

    /// Takes the oldest packet without a digest. Returns whether there is one.
    pub(super) fn take_undigested(&mut self) -> bool {
        let Some(oldest) = self.undigested.front_mut() else { return false };
        oldest.packets -= 1;
        if oldest.packets == 0 {
            self.undigested.pop_front();
        }
        true
    }

    /// Books a packet that one side lacks: as an accusation, unless it was thought lost before, or as a loss.
    fn resolve(&mut self, now: u64, p: Pending, accuses: bool) {
        let item = p.item;
        let has_arrived = accuses == (self.direction == Direction::Ingress);
        if self.is_doubtful(p.after, accuses) {
            if accuses {
                self.ledger.not_compared_after_all(1);
            } else if has_arrived {
                // It was judged before the audit began.
                self.ledger.not_audited_after_all(1);
                self.judged_before += 1;
            }
            return;
        }
        // A packet that was judged long ago was kept, and is no late one.
        let oldest = now.saturating_sub(self.limits.patience_ns);
        let twin = if accuses { self.twin(item) } else { None };
        let is_late = |lost: &Pending| (lost.item == item || Some(lost.item) == twin) && lost.at >= oldest;
        if accuses && let Some(at) = self.lost.iter().position(is_late) {
            self.lost.remove(at);
            self.ledger.found();
            return;
        }
        if !accuses {
            if self.lost.len() == REMEMBERED {
                self.lost.pop_front();
            }
            self.lost.push_back(Pending { at: now, ..p });
        }
        if has_arrived {
            self.ledger.unjudged(now, 1, true);
        } else {
            self.ledger.missing(now, 1);
        }
    }
}
