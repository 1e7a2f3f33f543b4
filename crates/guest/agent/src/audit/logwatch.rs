//! The health of the log itself: forged, replayed, broken, delayed, stopped, resumed.

use p4shield_abi::log::InfoTotals;
use p4shield_seal::{LogRefusal, Now};

use super::finding::{Finding, Notice};
use super::{Limits, Report};

/// Incidents of one kind are gathered for this long before they are reported, with their count.
const GATHER_NS: u64 = 1_000_000_000;

#[derive(Default)]
struct Gathered {
    count: u64,
    since: u64,
}

impl Gathered {
    fn add(&mut self, now: u64, n: u64) {
        if self.count == 0 {
            self.since = now;
        }
        self.count += n;
    }

    /// The count, when it is time to tell.
    fn due(&mut self, now: u64, conclude: bool) -> Option<u64> {
        let due = self.count > 0 && (conclude || now.saturating_sub(self.since) >= GATHER_NS);
        due.then(|| std::mem::take(&mut self.count))
    }
}

pub(super) struct LogWatch {
    limits: Limits,
    last_good: u64,
    stopped: bool,
    forged: Gathered,
    replayed: Gathered,
    broken: Gathered,
    delayed: Gathered,
    /// Whether the last record was late: a log that stays so is told once.
    late: bool,
    worst_delay_ns: u64,
    info: Option<InfoTotals>,
    info_forged: Gathered,
    info_replayed: Gathered,
    info_stale: Gathered,
}

impl LogWatch {
    /// Whether the log has been silent for too long, and still is.
    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn new(limits: Limits, now: u64) -> Self {
        Self {
            limits,
            last_good: now,
            stopped: false,
            forged: Gathered::default(),
            replayed: Gathered::default(),
            broken: Gathered::default(),
            delayed: Gathered::default(),
            late: false,
            worst_delay_ns: 0,
            info: None,
            info_forged: Gathered::default(),
            info_replayed: Gathered::default(),
            info_stale: Gathered::default(),
        }
    }

    pub(super) fn accepted(&mut self, now: Now, published_ns: u64, out: &mut Report) {
        self.last_good = now.mono_ns;
        if std::mem::take(&mut self.stopped) {
            out.notices.push(Notice::LogResumed);
        }
        let off = now.real_ns.abs_diff(published_ns);
        let late = off > self.limits.late_ns;
        if late {
            self.worst_delay_ns = self.worst_delay_ns.max(off);
            self.delayed.add(now.mono_ns, u64::from(!self.late));
        }
        self.late = late;
    }

    /// What the P4 VM saw on its info page. Its first word about it in an epoch is of the time before.
    pub(super) fn info(&mut self, now: u64, tally: InfoTotals) {
        if let Some(last) = self.info.replace(tally) {
            self.info_forged.add(now, tally.forged.saturating_sub(last.forged));
            self.info_replayed.add(now, tally.replayed.saturating_sub(last.replayed));
            self.info_stale.add(now, tally.stale.saturating_sub(last.stale));
        }
    }

    /// The P4 VM counts anew.
    pub(super) const fn restarted(&mut self) {
        self.info = None;
    }

    pub(super) fn refused(&mut self, now: u64, refusal: LogRefusal) {
        match refusal {
            LogRefusal::Replayed => self.replayed.add(now, 1),
            LogRefusal::ChainBroken => self.broken.add(now, 1),
            LogRefusal::Unchanged => {}
            _ => self.forged.add(now, 1),
        }
    }

    /// Records whose totals go back within one epoch: genuine, and impossible.
    pub(super) fn inconsistent(&mut self, now: u64) {
        self.broken.add(now, 1);
    }

    pub(super) fn tick(&mut self, now: u64, conclude: bool, out: &mut Report) {
        let findings = &mut out.findings;
        findings.extend(self.forged.due(now, conclude).map(|records| Finding::LogForged { records }));
        findings.extend(self.replayed.due(now, conclude).map(|records| Finding::LogReplayed { records }));
        findings.extend(self.broken.due(now, conclude).map(|records| Finding::LogChainBroken { records }));
        if self.delayed.due(now, conclude).is_some() {
            let by_ms = std::mem::take(&mut self.worst_delay_ns) / 1_000_000;
            findings.push(Finding::LogDelayed { by_ms });
        }
        let [forged, replayed] =
            [&mut self.info_forged, &mut self.info_replayed].map(|g| g.due(now, conclude).unwrap_or(0));
        if forged > 0 || replayed > 0 {
            findings.push(Finding::InfoRefused { forged, replayed });
        }
        out.notices.extend(self.info_stale.due(now, conclude).map(|times| Notice::InfoStale { times }));
        let silent = now.saturating_sub(self.last_good);
        if silent > self.limits.stopped_ns && !self.stopped {
            self.stopped = true;
            out.findings.push(Finding::LogStopped { silent_ms: silent / 1_000_000 });
        }
    }
}
