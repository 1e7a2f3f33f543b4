//! The result of an audit, as text, JSON and exit code.

use p4shield_abi::Direction;
use p4shield_abi::log_page::Settings;
use serde::Serialize;

use super::AuditStatus;
use crate::audit::expect::{Expectations, ExpectedProgram};
use crate::audit::finding::{Finding, Share, exit_code, exit_code_of};
use crate::audit::settings::StatedSettings;
use crate::audit::{DirectionStatus, Method};
use crate::session_note::SessionNote;

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// All findings in order.
    pub findings: Vec<Finding>,
    /// What the audit did not verify, in words.
    pub unverified: Vec<String>,
    /// Status of both directions at the end.
    pub standing: AuditStatus,
    /// The exit code, see [`crate::audit::finding::exit_code`].
    pub exit_code: u8,
    /// What the audit verified, by direction, in words; empty if there are findings.
    pub verified: Vec<String>,
    /// The settings of the P4 VM by its last record; none: there was no record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<StatedSettings>,
    /// The session that the log's key comes from; none: the key was copied to this VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionNote>,
}

impl Summary {
    pub(super) fn new(
        findings: Vec<Finding>,
        standing: AuditStatus,
        expected: &Expectations,
        method: Method,
    ) -> Self {
        let (mut verified, mut unverified) = (Vec::new(), Vec::new());
        let mut is_proven = true;
        for (direction, status) in Direction::ALL.into_iter().zip([standing.ingress, standing.egress]) {
            let name = direction.name();
            let Some(status) = status else {
                unverified.push(format!("{name} was not audited"));
                continue;
            };
            if *expected.program(direction) == ExpectedProgram::Unknown {
                is_proven = false;
                unverified.push(format!(
                    "{name}: which program judged was not verified; name it with --expect-{name}"
                ));
            }
            if method == Method::Counters {
                unverified.push(format!("{name}: packets were compared by their number only"));
            } else if status.uncompared > 0 {
                let of = status.verified + status.uncompared;
                let share = Share { packets: status.uncompared, of };
                unverified.push(format!("{name}: {share} were compared by their number only"));
            }
            if status.unaudited > 0 {
                let (packets, seconds) = (status.unaudited, status.unaudited_ms as f64 / 1e3);
                unverified.push(format!(
                    "{name}: the first {packets} packets, in the {seconds:.1} seconds before the audit could \
                     begin"
                ));
            }
            verified.push(words(direction, &status, expected.program(direction), method));
        }
        if !findings.is_empty() {
            verified.clear();
        }
        let mut exit_code = exit_code_of(&findings);
        if exit_code == exit_code::OK && !is_proven {
            exit_code = exit_code::UNPROVEN;
        }
        let seen = [standing.ingress, standing.egress].into_iter().flatten().map(|s| audited(&s));
        if exit_code == exit_code::OK && seen.sum::<u64>() == 0 {
            exit_code = exit_code::NOTHING_SEEN;
        }
        Self { findings, unverified, standing, exit_code, verified, settings: None, session: None }
    }

    /// Adds the settings of the P4 VM.
    #[must_use]
    pub(super) fn with_settings(self, settings: Option<Settings>) -> Self {
        Self { settings: settings.map(StatedSettings::from), ..self }
    }

    /// Adds the session that the log's key comes from.
    #[must_use]
    pub(super) fn with_session(mut self, session: Option<SessionNote>) -> Self {
        if session.as_ref().is_some_and(|session| !session.is_attested) {
            self.unverified.push("the P4 VM is not attested: the provider may have made this log".to_owned());
        }
        self.session = session;
        self
    }
}

/// Returns how many packets of a direction were part of the audit.
const fn audited(status: &DirectionStatus) -> u64 {
    status.interface.packets.saturating_sub(status.unaudited)
}

/// Returns what an audit without findings verified in a direction.
fn words(d: Direction, status: &DirectionStatus, expected: &ExpectedProgram, method: Method) -> String {
    if audited(status) == 0 {
        return format!("{}: no packet to verify", d.name());
    }
    let through = match expected {
        ExpectedProgram::Unknown => "the P4 VM",
        ExpectedProgram::None => "the P4 VM, without a program, as expected",
        ExpectedProgram::OneOf(_) => "the expected program",
    };
    let every = match d {
        Direction::Ingress if status.lost > 0 => "every packet that arrived",
        _ => "every packet",
    };
    let mut words = if status.uncompared > 0 && method == Method::Digests {
        format!("{}: no packet is known to have bypassed {through}", d.name())
    } else {
        format!("{}: {every} went through {through}", d.name())
    };
    if status.lost > 0 {
        let lost = Share { packets: status.lost, of: status.interface.packets };
        words.push_str(&format!("; lost after judgment: {lost}"));
    }
    if status.late > 0 {
        let late = Share { packets: status.late, of: status.interface.packets };
        words.push_str(&format!("; delivered long after judgment: {late}"));
    }
    words
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let findings: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
        let said = if findings.is_empty() { &self.verified } else { &findings };
        f.write_str(&said.join("\n"))?;
        if let Some(settings) = &self.settings {
            write!(f, "\nsettings of the P4 VM: {settings}")?;
        }
        if let Some(session) = &self.session {
            write!(f, "\nsession {} with the P4 VM: {}", session.transcript, session.standing)?;
        }
        self.unverified.iter().try_for_each(|u| write!(f, "\nnot verified: {u}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Counts;
    use crate::audit::finding::Digest;

    fn summary(status: DirectionStatus, expected: ExpectedProgram) -> Summary {
        let expected = Expectations { programs: [expected.clone(), expected], ..Expectations::default() };
        let standing = AuditStatus { ingress: Some(status), egress: None };
        Summary::new(vec![], standing, &expected, Method::Digests)
    }

    fn seen(lost: u64, uncompared: u64) -> DirectionStatus {
        let interface = Counts { packets: 10_000, ..Counts::default() };
        DirectionStatus { interface, verified: 10_000 - uncompared, uncompared, lost, ..Default::default() }
    }

    #[test]
    fn a_session_without_evidence_is_called_not_attested() {
        let known = ExpectedProgram::OneOf(vec![Digest([1; 32])]);
        let note = |is_attested, standing: &str| SessionNote {
            transcript: "ab".into(),
            is_attested,
            standing: standing.into(),
            ..SessionNote::default()
        };
        let said = |note| summary(seen(0, 0), known.clone()).with_session(note).to_string();
        let sample = said(Some(note(false, "not attested: the cloud's host may be the peer")));
        assert!(sample.contains("\nsession ab with the P4 VM: not attested"), "{sample}");
        assert!(sample.contains("not verified: the P4 VM is not attested"), "{sample}");
        let attested = said(Some(note(true, "attested (claims)")));
        assert!(attested.contains("session ab with the P4 VM: attested (claims)"), "{attested}");
        assert!(!attested.contains("not attested"), "{attested}");
        assert!(!said(None).contains("session"));
    }

    #[test]
    fn an_audit_without_packets_verified_nothing() {
        let known = ExpectedProgram::OneOf(vec![Digest([1; 32])]);
        let none = summary(DirectionStatus::default(), known.clone());
        assert_eq!(none.exit_code, exit_code::NOTHING_SEEN);
        assert!(none.to_string().starts_with("ingress: no packet to verify\n"), "{none}");
        let early = DirectionStatus { unaudited: 10_000, unaudited_ms: 1_300, ..seen(0, 0) };
        let early = summary(early, known);
        assert_eq!(early.exit_code, exit_code::NOTHING_SEEN);
        let start = "ingress: the first 10000 packets, in the 1.3 seconds before the audit could begin";
        assert!(early.to_string().contains(start), "{early}");
    }

    #[test]
    fn an_audit_with_findings_verified_nothing() {
        let known = ExpectedProgram::OneOf(vec![Digest([1; 32])]);
        let expected = Expectations { programs: [known.clone(), known], ..Expectations::default() };
        let standing = AuditStatus { ingress: Some(seen(0, 0)), egress: None };
        let found = vec![Finding::LogForged { records: 1 }];
        let summary = Summary::new(found, standing, &expected, Method::Digests);
        assert_eq!((summary.verified, summary.exit_code), (vec![], exit_code::LOG_FORGED));
    }

    #[test]
    fn only_what_was_verified_is_claimed() {
        let known = || ExpectedProgram::OneOf(vec![Digest([1; 32])]);
        let all = summary(seen(0, 0), known());
        let said =
            "ingress: every packet went through the expected program\nnot verified: egress was not audited";
        assert_eq!((all.to_string().as_str(), all.exit_code), (said, exit_code::OK));
        let unknown = summary(seen(0, 0), ExpectedProgram::Unknown);
        assert_eq!(unknown.exit_code, exit_code::UNPROVEN);
        assert!(unknown.to_string().starts_with(
            "ingress: every packet went through the P4 VM\nnot verified: ingress: which program"
        ));
        let lossy = summary(seen(2, 0), known()).to_string();
        assert!(
            lossy.starts_with(
                "ingress: every packet that arrived went through the expected program; lost \
                                   after judgment: 2 of 10000 packets (0.020 %)"
            ),
            "{lossy}"
        );
        let partial = summary(seen(0, 100), known()).to_string();
        assert!(partial.starts_with("ingress: no packet is known to have bypassed the expected program\n"));
        assert!(partial.contains("not verified: ingress: 100 of 10000 packets (1.0 %)"), "{partial}");
    }
}
