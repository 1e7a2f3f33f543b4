//! What the comparison of one direction amounts to: accusations, losses, and what was not compared.

use p4shield_abi::Direction;

use super::finding::{Finding, Notice, Share};
use super::{Limits, Report};

/// Time over which shares are computed.
const WINDOW_NS: u64 = 10_000_000_000;

/// Packets of which one is missing on the other side, since the incident began.
#[derive(Clone, Copy, Default)]
struct Incident {
    /// Packets that reached the interface and that the P4 VM's log does not contain.
    unjudged: u64,
    /// Packets of the log that did not reach the interface.
    missing: u64,
    /// Whether more packets may have bypassed the program.
    inexact: bool,
    since: u64,
    newest: u64,
}

/// Totals since the audit began.
#[derive(Clone, Copy, Default)]
struct Totals {
    packets: u64,
    lost: u64,
    /// Packets that were thought lost, and came.
    late: u64,
    compared: u64,
    uncompared: u64,
}

pub(super) struct Ledger {
    direction: Direction,
    limits: Limits,
    incident: Incident,
    totals: Totals,
    /// Totals at the beginning of the window, and its time.
    before: Totals,
    window: Option<u64>,
    /// Whether a share beyond its limit is reported and has not recovered.
    reported_loss: bool,
    reported_share: bool,
}

impl Ledger {
    pub(super) fn new(direction: Direction, limits: Limits) -> Self {
        Self {
            direction,
            limits,
            incident: Incident::default(),
            totals: Totals::default(),
            before: Totals::default(),
            window: None,
            reported_loss: false,
            reported_share: false,
        }
    }

    /// Adds packets that the log should contain and does not.
    pub(super) fn unjudged(&mut self, now: u64, packets: u64, exact: bool) {
        self.begin(now, packets);
        self.incident.unjudged += packets;
        self.incident.inexact |= !exact;
    }

    /// Adds packets that should have reached the interface and did not.
    pub(super) fn missing(&mut self, now: u64, packets: u64) {
        self.begin(now, packets);
        self.incident.missing += packets;
    }

    fn begin(&mut self, now: u64, packets: u64) {
        if packets == 0 {
            return;
        }
        if self.incident.unjudged == 0 && self.incident.missing == 0 {
            self.incident.since = now;
        }
        self.incident.newest = now;
    }

    /// Takes back a loss: the packet was late. Late packets count as lost ones for the limit, since a verdict
    /// that is that old may be wrong.
    pub(super) const fn found(&mut self) {
        if self.incident_lost() > 0 {
            match self.direction {
                Direction::Ingress => self.incident.missing -= 1,
                Direction::Egress => self.incident.unjudged -= 1,
            }
        } else {
            self.totals.lost = self.totals.lost.saturating_sub(1);
        }
        self.totals.late += 1;
    }

    const fn incident_lost(&self) -> u64 {
        match self.direction {
            Direction::Ingress => self.incident.missing,
            Direction::Egress => self.incident.unjudged,
        }
    }

    pub(super) const fn compared(&mut self, packets: u64) {
        self.totals.compared += packets;
    }

    pub(super) const fn uncompared(&mut self, packets: u64) {
        self.totals.uncompared += packets;
    }

    /// Takes back that packets were compared: what differed about them can no longer be decided.
    pub(super) const fn not_compared_after_all(&mut self, packets: u64) {
        self.totals.compared = self.totals.compared.saturating_sub(packets);
        self.totals.uncompared += packets;
    }

    /// Takes back that packets were compared: they are no part of the audit.
    pub(super) const fn not_audited_after_all(&mut self, packets: u64) {
        self.totals.compared = self.totals.compared.saturating_sub(packets);
    }

    /// Returns how many packets were compared by their digests, and how many were not.
    pub(super) const fn shares(&self) -> (u64, u64) {
        (self.totals.compared, self.totals.uncompared)
    }

    /// Returns how many packets were lost between the P4 VM and the interface.
    pub(super) const fn lost(&self) -> u64 {
        self.totals.lost + self.incident_lost()
    }

    /// Returns how many packets were delivered so late that they counted as lost before.
    pub(super) const fn late(&self) -> u64 {
        self.totals.late
    }

    /// Whether an incident is not reported yet.
    pub(super) const fn is_open(&self) -> bool {
        self.incident.unjudged > 0 || self.incident.missing > 0
    }

    /// Reports what is due.
    pub(super) fn tick(&mut self, now: u64, packets: u64, conclude: bool, out: &mut Report) {
        self.totals.packets = packets;
        let Incident { since, newest, .. } = self.incident;
        let over = now.saturating_sub(newest) >= self.limits.grace_ns
            || now.saturating_sub(since) >= self.limits.patience_ns;
        if self.is_open() && (over || conclude) {
            self.settle(out);
        }
        let start = *self.window.get_or_insert(now);
        if conclude || now.saturating_sub(start) >= WINDOW_NS {
            self.check_shares(conclude, out);
            self.window = Some(now);
            self.before = self.totals;
        }
    }

    /// Decides what an incident was. One packet too many and one too few are a swap. What is left over is a
    /// loss, if it can be one: packets to the VM are lost after judgment, packets from it before.
    fn settle(&mut self, out: &mut Report) {
        let Incident { unjudged, missing, inexact, .. } = std::mem::take(&mut self.incident);
        let direction = self.direction;
        let swapped = unjudged.min(missing);
        if swapped > 0 {
            out.findings.push(Finding::Swapped { direction, packets: swapped });
        }
        let (unjudged, missing) = (unjudged - swapped, missing - swapped);
        match direction {
            Direction::Ingress if unjudged > 0 => {
                out.findings.push(Finding::Bypassed { direction, packets: unjudged, exact: !inexact });
            }
            Direction::Egress if missing > 0 => {
                out.findings.push(Finding::Invented { packets: missing, exact: true });
            }
            Direction::Ingress => self.totals.lost += missing,
            Direction::Egress => self.totals.lost += unjudged,
        }
    }

    fn check_shares(&mut self, conclude: bool, out: &mut Report) {
        let (b, t) = (self.before, self.totals);
        let lost_or_late = |t: Totals| t.lost + t.late;
        let lost = Share {
            packets: lost_or_late(t).saturating_sub(lost_or_late(b)),
            of: t.packets.saturating_sub(b.packets),
        };
        let all = Share { packets: lost_or_late(t), of: t.packets };
        let beyond = [lost, all].into_iter().find(|s| self.is_beyond(*s));
        match beyond {
            Some(share) if !self.reported_loss => out.findings.push(self.loss(share)),
            None if lost.packets > 0 && !conclude => {
                out.notices.push(Notice::Lost { direction: self.direction, share: lost });
            }
            _ => {}
        }
        let is_loss = beyond.is_some();
        if conclude && !is_loss && !self.reported_loss && t.lost > 0 && self.direction == Direction::Egress {
            out.findings.push(Finding::Unjudged { share: Share { packets: t.lost, of: t.packets } });
        }
        self.reported_loss = is_loss;
        let window = (t.compared.saturating_sub(b.compared), t.uncompared - b.uncompared);
        let low = [window, self.shares()].into_iter().find(|s| self.is_low(*s, conclude));
        if let Some((packets, not)) = low.filter(|_| !self.reported_share) {
            let share = Share { packets, of: packets + not };
            out.findings.push(Finding::Uncompared { direction: self.direction, share });
        }
        self.reported_share = low.is_some();
    }

    /// Whether more packets are lost than the tenant accepts. A few packets are no share.
    fn is_beyond(&self, lost: Share) -> bool {
        let expected = lost.of as f64 * f64::from(self.limits.max_loss_ppm) / 1e6;
        lost.packets as f64 > expected + 3.0 * expected.sqrt() + 4.0
    }

    /// Whether fewer packets are compared than the tenant accepts.
    fn is_low(&self, (compared, not): (u64, u64), conclude: bool) -> bool {
        let all = compared + not;
        let enough = all as f64 * f64::from(self.limits.min_compared_ppm) / 1e6;
        not > 0 && (conclude || all >= 100) && (compared as f64) < enough
    }

    fn loss(&self, share: Share) -> Finding {
        match self.direction {
            Direction::Ingress => Finding::Withheld { share },
            Direction::Egress => {
                let (direction, packets) = (Direction::Egress, share.packets);
                Finding::Bypassed { direction, packets, exact: true }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_past_hides_no_window_without_comparisons() {
        let mut ledger = Ledger::new(Direction::Ingress, Limits::new(10_000_000, 0));
        let mut out = Report::default();
        ledger.tick(0, 0, false, &mut out);
        ledger.compared(1_000_000);
        ledger.tick(WINDOW_NS, 1_000_000, false, &mut out);
        assert_eq!(out.findings, []);
        ledger.uncompared(1000);
        ledger.tick(2 * WINDOW_NS, 1_001_000, false, &mut out);
        let share = Share { packets: 0, of: 1000 };
        assert_eq!(out.findings, [Finding::Uncompared { direction: Direction::Ingress, share }]);
    }
}
