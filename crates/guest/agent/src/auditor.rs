//! `p4shield audit`: reads the log page and the interface, and feeds the audit engine.

mod interface_watch;
mod keys;
mod log;
mod summary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use p4shield_abi::Direction;
use p4shield_seal::{KeyError, KeyFile, Now, PacketDigest};
use serde::Serialize;

use crate::audit::expect::Expectations;
use crate::audit::finding::{Finding, Notice};
use crate::audit::{Audit, DirectionStatus, Limits, Method, Report};
use crate::config::{AuditConfig, ConfigError};
use crate::error::AgentError;
use crate::page::PageWatch;
use crate::session_note::{SessionNote, SessionNoteError};
use crate::tap::TapError;
use interface_watch::InterfaceWatch;
use keys::KeyFollower;
use log::LogPage;
pub use summary::Summary;

/// Interval between reads of the log page and of the interface.
const POLL: Duration = Duration::from_millis(25);

/// Interval between status events.
const STATUS_NS: u64 = 1_000_000_000;

/// Reason why an audit cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The note of the session cannot be read.
    #[error(transparent)]
    Note(#[from] SessionNoteError),
    /// The log page cannot be mapped.
    #[error(transparent)]
    Page(#[from] AgentError),
    /// The interface cannot be watched.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// `/proc/net/dev` does not list the interface.
    #[error("interface {0} does not exist: `ip link` lists the interfaces")]
    NoInterface(String),
}

/// An event of a running audit. Serialises as a JSON object with the tag `event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The audit started.
    Started {
        /// Interface and hook of the audit.
        place: String,
        /// Limitation of this kind of audit; empty if there is none.
        blind: String,
    },
    /// The audit found a problem.
    Found(Finding),
    /// The audit noticed a fact that is not a problem.
    Noticed(Notice),
    /// The status, once per second.
    Standing(AuditStatus),
}

/// Status of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AuditStatus {
    /// Packets to this VM; `None` if they are not audited.
    pub ingress: Option<DirectionStatus>,
    /// Packets from this VM; `None` if they are not audited.
    pub egress: Option<DirectionStatus>,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Started { place, blind } if blind.is_empty() => write!(f, "watching: {place}"),
            Self::Started { place, blind } => write!(f, "watching: {place}; {blind}"),
            Self::Found(finding) => finding.fmt(f),
            Self::Noticed(notice) => notice.fmt(f),
            Self::Standing(s) => {
                for (name, s) in [("ingress", s.ingress), ("; egress", s.egress)] {
                    let Some(s) = s else {
                        write!(f, "{name}: not audited")?;
                        continue;
                    };
                    let state = match s {
                        DirectionStatus { suspicious: true, .. } => "examining a difference",
                        DirectionStatus { has_findings: true, .. } => "there are findings",
                        DirectionStatus { aligned: true, .. } => "no packet bypassed the P4 VM",
                        _ => "not certain yet",
                    };
                    write!(f, "{name}: {state} ({} seen, {} compared", s.interface.packets, s.verified)?;
                    write!(f, ", {} lost, {} others)", s.lost, s.interface.others)?;
                }
                Ok(())
            }
        }
    }
}

/// Audits until `stop` is set and pending differences are examined, which takes a few seconds at most.
/// The calling thread has to be in the network namespace of the interface.
///
/// # Errors
///
/// If configuration, key, page or interface are not usable. Without the rights for the tap, the audit
/// uses the interface's counters and reports their limitations.
pub fn run_audit(
    config: &AuditConfig,
    mut sink: impl FnMut(&Event),
    stop: &AtomicBool,
) -> Result<Summary, AuditError> {
    let mut auditor = Auditor::new(config)?;
    sink(&auditor.interface.started_event());
    let mut findings = Vec::new();
    let mut ending: Option<u64> = None;
    let mut reported = 0;
    loop {
        std::thread::sleep(POLL);
        let now = Now::read();
        let mut report = auditor.step(now);
        if ending.is_none() && stop.load(Ordering::Relaxed) {
            // Packets in flight are still compared.
            ending = Some(now.mono_ns);
        }
        let done = ending.is_some_and(|since| auditor.settled(now.mono_ns.saturating_sub(since)));
        if done {
            let last = auditor.audit.conclude(now);
            report.findings.extend(last.findings);
            report.notices.extend(last.notices);
        }
        report.notices.into_iter().for_each(|n| sink(&Event::Noticed(n)));
        for finding in report.findings {
            sink(&Event::Found(finding.clone()));
            findings.push(finding);
        }
        if done || now.mono_ns.saturating_sub(reported) >= STATUS_NS {
            reported = now.mono_ns;
            sink(&Event::Standing(auditor.status()));
        }
        if done {
            let summary = Summary::new(findings, auditor.status(), &auditor.expected, auditor.method);
            let settings = auditor.audit.last_record().map(|record| record.settings);
            let summary = summary.with_settings(settings);
            return Ok(summary.with_session(SessionNote::load(&config.vm.key)?));
        }
    }
}

struct Auditor {
    limits: Limits,
    audit: Audit,
    log: LogPage,
    log_watch: PageWatch,
    interface: InterfaceWatch,
    keys: KeyFollower,
    expected: Expectations,
    method: Method,
}

impl Auditor {
    fn new(config: &AuditConfig) -> Result<Self, AuditError> {
        config.check()?;
        let (file, key) = KeyFile::open(&config.vm.key)?;
        let identity = config.vm.identity();
        let (log, log_watch) = LogPage::open(&config.log_page, &key, &identity)?;
        let interface = InterfaceWatch::new(config, PacketDigest::for_vm(&key, &identity))?;
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        let keys = KeyFollower::new(config.vm.clone(), file, ns(config.key_window_ms));
        let mut limits = Limits::new(ns(config.log_interval_ms), ns(config.hold_ms));
        let method = interface.method();
        if method == Method::Counters {
            limits.unmediated_per_second = config.unmediated_per_second;
        }
        limits.max_loss_ppm = config.max_loss_ppm;
        limits.min_compared_ppm = config.min_compared_ppm;
        let expected = config.expected.clone();
        let audit = Audit::new(limits, expected.clone(), &config.directions(), method, Now::read());
        Ok(Self { limits, audit, log, log_watch, interface, keys, expected, method })
    }

    /// Reads the log page and the interface once.
    fn step(&mut self, now: Now) -> Report {
        if let Some(memory) = self.log_watch.recreated(now.mono_ns) {
            self.log.reopen(memory);
        }
        self.log.read(now, &mut self.audit);
        self.keys.step(now.mono_ns, &mut self.log, &mut self.interface, &mut self.audit);
        // Zero until the P4 VM has a channel; until then it judges no packets.
        let cover = self.audit.last_record().map(|r| r.header_bytes).filter(|n| *n != 0);
        for finding in self.interface.refresh(cover) {
            self.audit.found(finding);
        }
        for direction in Direction::ALL {
            self.interface.observe(now, direction, &mut self.audit);
        }
        self.audit.take_report(now)
    }

    /// Returns whether the audit can end, `since_stop` after the stop request.
    fn settled(&self, since_stop: u64) -> bool {
        let suspicious = Direction::ALL.iter().any(|d| self.audit.status(*d).is_some_and(|s| s.suspicious));
        let enough = if suspicious { self.limits.patience_ns } else { 0 }.max(4 * self.limits.grace_ns);
        since_stop > enough
    }

    fn status(&self) -> AuditStatus {
        AuditStatus {
            ingress: self.audit.status(Direction::Ingress),
            egress: self.audit.status(Direction::Egress),
        }
    }
}

pub(crate) use log::fuzz as fuzz_log_page;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::finding::{Digest, Share};

    /// Scripts read these events: a changed test means a changed interface.
    #[test]
    fn events_have_their_json_shape() {
        let json = |e: &Event| serde_json::to_value(e).unwrap();
        let found = Finding::Bypassed { direction: Direction::Ingress, packets: 3, exact: true };
        assert_eq!(
            json(&Event::Found(found.clone())),
            serde_json::json!({
                "event": "found", "finding": "bypassed", "direction": "ingress", "packets": 3, "exact": true
            })
        );
        assert_eq!(
            json(&Event::Noticed(Notice::Aligned { direction: Direction::Egress })),
            serde_json::json!({ "event": "noticed", "notice": "aligned", "direction": "egress" })
        );
        let standing = AuditStatus { ingress: Some(DirectionStatus::default()), egress: None };
        let shape = json(&Event::Standing(standing));
        assert_eq!(shape["event"], "standing");
        assert_eq!(shape["ingress"]["interface"]["packets"], 0);
        assert!(shape["egress"].is_null(), "not audited");
        let lost = Finding::Withheld { share: Share { packets: 1, of: 9 } };
        assert_eq!(
            json(&Event::Found(lost)),
            serde_json::json!({ "event": "found", "finding": "withheld", "packets": 1, "of": 9 })
        );
        let other = Finding::OtherProgram { direction: Direction::Egress, digest: Digest([0xab; 32]) };
        let shape = json(&Event::Found(other));
        assert_eq!((&shape["finding"], &shape["direction"]), (&"other_program".into(), &"egress".into()));
        assert_eq!(shape["digest"], "ab".repeat(32));
        assert_eq!(json(&Event::Found(Finding::Replugged))["finding"], "replugged");
    }

    #[test]
    fn the_status_line_does_not_contradict_findings() {
        let said = |status| Event::Standing(AuditStatus { ingress: Some(status), egress: None }).to_string();
        let good = DirectionStatus { aligned: true, ..DirectionStatus::default() };
        assert!(said(good).starts_with("ingress: no packet bypassed the P4 VM ("));
        let found = DirectionStatus { has_findings: true, ..good };
        assert!(said(found).starts_with("ingress: there are findings ("));
    }

    #[test]
    fn findings_are_readable() {
        let found = |packets, exact| Finding::Bypassed { direction: Direction::Ingress, packets, exact };
        assert_eq!(
            found(3, true).to_string(),
            "ingress: 3 packets bypassed the program; ask the provider why the mediator did not submit them"
        );
        assert!(found(1, false).to_string().starts_with("ingress: at least 1 packet bypassed the program"));
        let withheld = Finding::Withheld { share: Share { packets: 2, of: 4_000 } };
        let words = "ingress: 2 of 4000 packets (0.050 %) were lost after judgment";
        assert!(withheld.to_string().starts_with(words), "{withheld}");
    }
}
