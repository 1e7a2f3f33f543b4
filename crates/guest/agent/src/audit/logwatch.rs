//! The state of the log itself: forged, replayed, broken, delayed, stopped, resumed.

use p4shield_abi::log_page::InfoTotals;
use p4shield_seal::{LogRefusal, Now};

use super::finding::{Finding, Notice};
use super::{Limits, Report};

/// Time for which incidents of one kind are counted before they are reported.
const REPORT_AFTER_NS: u64 = 1_000_000_000;

#[derive(Default)]
struct IncidentCounter {
    count: u64,
    since: u64,
}

impl IncidentCounter {
    fn add(&mut self, now: u64, n: u64) {
        if self.count == 0 {
            self.since = now;
        }
        self.count += n;
    }

    /// Returns the count when it is due, and resets it.
    fn take_if_due(&mut self, now: u64, conclude: bool) -> Option<u64> {
        let due = self.count > 0 && (conclude || now.saturating_sub(self.since) >= REPORT_AFTER_NS);
        due.then(|| std::mem::take(&mut self.count))
    }
}

pub(super) struct LogWatch {
    limits: Limits,
    last_good: u64,
    stopped: bool,
    forged: IncidentCounter,
    replayed: IncidentCounter,
    broken: IncidentCounter,
    old_key: IncidentCounter,
    delayed: IncidentCounter,
    /// Whether the last record was late; a log that remains late is reported once.
    late: bool,
    worst_delay_ns: u64,
    info: Option<InfoTotals>,
    info_forged: IncidentCounter,
    info_replayed: IncidentCounter,
    info_stale: IncidentCounter,
}

impl LogWatch {
    /// Returns whether the log is silent for too long.
    pub(super) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn new(limits: Limits, now: u64) -> Self {
        Self {
            limits,
            last_good: now,
            stopped: false,
            forged: IncidentCounter::default(),
            replayed: IncidentCounter::default(),
            broken: IncidentCounter::default(),
            old_key: IncidentCounter::default(),
            delayed: IncidentCounter::default(),
            late: false,
            worst_delay_ns: 0,
            info: None,
            info_forged: IncidentCounter::default(),
            info_replayed: IncidentCounter::default(),
            info_stale: IncidentCounter::default(),
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

    /// Processes the P4 VM's counters of its info page. The first ones of an epoch are only the baseline.
    pub(super) fn info(&mut self, now: u64, totals: InfoTotals) {
        if let Some(last) = self.info.replace(totals) {
            self.info_forged.add(now, totals.forged.saturating_sub(last.forged));
            self.info_replayed.add(now, totals.replayed.saturating_sub(last.replayed));
            self.info_stale.add(now, totals.stale.saturating_sub(last.stale));
        }
    }

    /// The P4 VM's counters restart.
    pub(super) const fn restarted(&mut self) {
        self.info = None;
    }

    pub(super) fn refused(&mut self, now: u64, refusal: LogRefusal) {
        match refusal {
            LogRefusal::Replayed => self.replayed.add(now, 1),
            LogRefusal::ChainBroken => self.broken.add(now, 1),
            LogRefusal::OldKey => self.old_key.add(now, 1),
            LogRefusal::Unchanged => {}
            _ => self.forged.add(now, 1),
        }
    }

    /// Totals decreased within one epoch, which genuine records cannot do.
    pub(super) fn inconsistent(&mut self, now: u64) {
        self.broken.add(now, 1);
    }

    pub(super) fn tick(&mut self, now: u64, conclude: bool, out: &mut Report) {
        let findings = &mut out.findings;
        findings.extend(self.forged.take_if_due(now, conclude).map(|records| Finding::LogForged { records }));
        findings
            .extend(self.replayed.take_if_due(now, conclude).map(|records| Finding::LogReplayed { records }));
        findings.extend(
            self.broken.take_if_due(now, conclude).map(|records| Finding::LogChainBroken { records }),
        );
        findings
            .extend(self.old_key.take_if_due(now, conclude).map(|records| Finding::LogOldKey { records }));
        if self.delayed.take_if_due(now, conclude).is_some() {
            let by_ms = std::mem::take(&mut self.worst_delay_ns) / 1_000_000;
            findings.push(Finding::LogDelayed { by_ms });
        }
        let [forged, replayed] = [&mut self.info_forged, &mut self.info_replayed]
            .map(|g| g.take_if_due(now, conclude).unwrap_or(0));
        if forged > 0 || replayed > 0 {
            findings.push(Finding::InfoRefused { forged, replayed });
        }
        out.notices
            .extend(self.info_stale.take_if_due(now, conclude).map(|times| Notice::InfoStale { times }));
        let silent = now.saturating_sub(self.last_good);
        if silent > self.limits.stopped_ns && !self.stopped {
            self.stopped = true;
            out.findings.push(Finding::LogStopped { silent_ms: silent / 1_000_000 });
        }
    }
}
