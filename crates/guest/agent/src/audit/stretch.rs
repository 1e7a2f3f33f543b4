//! Stretches of packets that are compared by their number only: from a record on whose place is given up,
//! until another place is found ([`anchor`](super::anchor)).

use p4shield_abi::Direction;

use super::Report;
use super::finding::Finding;
use super::items::{ItemAudit, Pending, Record, Stretch, TIED};

impl ItemAudit {
    /// Gives the oldest waiting record up: the numbers up to the next one are compared.
    pub(super) fn skip_record(&mut self) {
        let Some(skipped) = self.records.pop_front() else { return };
        if skipped.is_restart
            && let Some(next) = self.records.front_mut()
        {
            next.is_restart = true;
        }
        if self.stretch.is_none() {
            let places = [self.early.min(self.count()), self.count()];
            self.begin_stretch(&skipped, places, skipped.at);
        }
    }

    /// Compares the numbers from a record on, which ends between these places.
    pub(super) fn begin_stretch(&mut self, record: &Record, [low, high]: [u64; 2], since: u64) {
        self.stretch = Some(Stretch {
            packets: record.packets,
            place: high.into(),
            slack: high - low + TIED,
            from: low,
            counted_to: low.min(self.early),
            since,
            is_restart: false,
        });
    }

    /// Begins the stretch between two P4 VMs.
    pub(super) fn begin_restart(&mut self) {
        self.lose_anchor();
        if let Some(stretch) = &mut self.stretch {
            (stretch.packets, stretch.is_restart) = (0, true);
        }
        if let Some(record) = self.records.front_mut() {
            record.is_restart = false;
        }
    }

    /// Gives the place of the newest compared record up: what follows is not compared until another is found.
    ///
    /// Packets of compared records that have not arrived yet are still waited for. Whether packets that
    /// arrived are in the records that follow can no longer be seen: their number is compared, and they no
    /// longer count as compared.
    pub(super) fn lose_anchor(&mut self) {
        let Some(anchor) = self.anchor.take() else { return };
        // A packet that has arrived behind the place has a digest.
        let arrived = self.arrived_after(anchor.place);
        let missing = std::mem::take(&mut self.missing);
        let stays = |p: &Pending| arrived.binary_search(&p.item).is_ok() || !self.take_undigested();
        self.missing = missing.into_iter().filter(stays).collect();
        let undigested: u64 = self.undigested.drain(..).map(|u| u.packets).sum();
        let unjudged = self.unjudged.drain(..).count() as u64;
        self.ledger.not_compared_after_all(unjudged);
        // The place may be wrong by as many packets as are in doubt. It is too low if they seem not to be
        // judged (ingress) or to be lost before that (egress), else too high.
        let doubtful = |accuses: bool| -> u64 {
            let still = self.doubts.iter().filter(|d| d.accuses == accuses && anchor.place < d.until);
            still.map(|d| d.left).sum()
        };
        let above = doubtful(self.direction == Direction::Ingress);
        self.stretch = Some(Stretch {
            packets: anchor.record.packets,
            place: i128::from(anchor.place + above) - i128::from(unjudged) - i128::from(undigested),
            slack: doubtful(true) + doubtful(false),
            from: anchor.place,
            counted_to: anchor.place,
            since: self.samples.back().map_or(0, |s| s.0),
            is_restart: false,
        });
    }

    /// Books packets that are in no other number as not compared. Those behind the newest compared record are
    /// in the records to come.
    pub(super) fn book_rest(&mut self) {
        let end = self.anchor.as_ref().map_or_else(|| self.count(), |anchor| anchor.place);
        let (compared, uncompared) = self.ledger.shares();
        let booked = compared + uncompared + self.unaccounted + self.unaudited();
        self.ledger.uncompared(end.saturating_sub(booked));
    }
}

/// Compares the numbers of a stretch whose end is known.
pub(super) fn close_stretch(audit: &mut ItemAudit, now: u64, packets: u64, place: u64, out: &mut Report) {
    let Some(stretch) = audit.stretch.take() else {
        // What was in flight when the audit began is not part of it.
        let early = audit.early.min(place);
        return audit.ledger.uncompared(place - early);
    };
    let uncompared = place.saturating_sub(stretch.counted_to.max(audit.start_end()));
    let late = audit.arrived_late(stretch.from, place);
    audit.forget_late(stretch.from, place);
    let judged = i128::from(packets) - i128::from(stretch.packets);
    let surplus = i128::from(place) - i128::from(late) - stretch.place - judged;
    let surplus = if surplus < 0 { (surplus + i128::from(stretch.slack)).min(0) } else { surplus };
    let amount = u64::try_from(surplus.unsigned_abs()).unwrap_or(u64::MAX);
    // Packets around a restart are a finding of their own.
    let unaccounted = if stretch.is_restart && surplus > 0 { amount } else { 0 };
    audit.ledger.uncompared(uncompared.saturating_sub(unaccounted));
    audit.unaccounted += unaccounted;
    if stretch.is_restart {
        if surplus > 0 {
            out.findings.push(Finding::Unaccounted { direction: audit.direction, packets: amount });
        }
    } else if surplus > 0 {
        audit.ledger.unjudged(now, amount, false);
    } else {
        audit.ledger.missing(now, amount);
    }
}

/// Books what is certain about a stretch that goes on for long.
pub(super) fn report_long_stretch(audit: &mut ItemAudit, now: u64, conclude: bool) {
    let (grace, count) = (audit.limits.grace_ns, audit.count());
    let Some(stretch) = &audit.stretch else { return };
    if audit.records.iter().any(|r| r.is_restart) {
        return;
    }
    if !conclude && now.saturating_sub(stretch.since) < audit.limits.patience_ns {
        return;
    }
    let judged = |record: &Record| i128::from(record.packets) - i128::from(stretch.packets);
    let late = i128::from(audit.arrived_late(stretch.from, count));
    let certain =
        |r: &Record| i128::from(audit.sample(r.at.checked_sub(grace))) - late - stretch.place - judged(r);
    let surplus = audit.records.back().map_or(0, certain);
    let arrived = i128::from(count) - late - stretch.place + i128::from(stretch.slack);
    let due = audit.records.iter().rev().find(|r| r.at.saturating_add(grace) <= now);
    let missing = due.map_or(0, |r| judged(r) - arrived);
    let (is_restart, uncounted) =
        (stretch.is_restart, count.saturating_sub(stretch.counted_to.max(audit.start_end())));
    let amount = |n: i128| u64::try_from(n.max(0)).unwrap_or(u64::MAX);
    if let Some(stretch) = &mut audit.stretch {
        stretch.counted_to = stretch.counted_to.max(count);
        stretch.since = now;
        if !is_restart {
            stretch.place += surplus.max(0);
            stretch.packets += amount(missing);
        }
    }
    audit.ledger.uncompared(uncounted);
    if !is_restart {
        audit.ledger.unjudged(now, amount(surplus), false);
        audit.ledger.missing(now, amount(missing));
    }
}
