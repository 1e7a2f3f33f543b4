//! One step of the comparison of one direction packet by packet: [`items`](super::items) compares while it
//! knows where records end, and [`anchor`] finds that again.

use super::finding::{Finding, Notice};
use super::history::Histories;
use super::items::ItemAudit;
use super::{Counts, Report};
use super::{anchor, stretch};

/// Multiple of [`Limits::grace_ns`](super::Limits::grace_ns) after which an audit has begun: a record that
/// contains all that was in flight, and another to find its place by.
const START_GRACES: u64 = 3;

impl ItemAudit {
    /// Processes the counts of the interface. Without histories their packets have no digest.
    pub(super) fn observe(
        &mut self,
        now: u64,
        counts: Counts,
        histories: Option<&Histories>,
        out: &mut Report,
    ) {
        self.report_undigested(&counts, out);
        self.counts = counts;
        self.follow(histories, counts.packets);
        let elapsed = now.saturating_sub(*self.started.get_or_insert(now));
        if self.begun_at.is_none() && elapsed <= START_GRACES * self.limits.grace_ns {
            (self.early, self.early_ns) = (self.count(), elapsed);
        }
        self.samples.push_back((now, self.count()));
        let horizon = now.saturating_sub(self.limits.patience_ns.max(4 * self.limits.grace_ns));
        while self.samples.len() > 2 && self.samples[1].0 < horizon {
            self.samples.pop_front();
        }
        while if self.anchor.is_some() { self.compare_next(now) } else { anchor::find(self, now, out) } {}
        self.expire(now);
        stretch::report_long_stretch(self, now, false);
        self.ledger.tick(now, self.counts.packets, false, out);
        if self.anchor.is_some() && !self.reported_aligned {
            self.reported_aligned = true;
            out.notices.push(Notice::Aligned { direction: self.direction });
        }
    }

    /// Decides pending differences at the end of the audit.
    pub(super) fn conclude(&mut self, out: &mut Report) {
        let now = self.samples.back().map_or(0, |s| s.0);
        self.expire(now);
        // What still waits was not found in a record, and too young to be one too many.
        self.ledger.not_compared_after_all(self.unjudged.drain(..).count() as u64);
        stretch::report_long_stretch(self, now, true);
        self.book_rest();
        self.ledger.tick(now, self.counts.packets, true, out);
        if self.begun_at.is_none() {
            out.findings.push(Finding::Unproven { direction: self.direction });
        }
    }
}
