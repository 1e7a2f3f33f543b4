//! `p4shield audit`: reads the log page and the interface, and feeds the verdict engine.

mod log;
mod witness;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use p4shield_abi::Direction;
use p4shield_seal::{Identity, KeyError, Now, PacketDigest, TenantKey};
use serde::Serialize;

use crate::audit::finding::{Finding, Notice, exit_code_of};
use crate::audit::{Audit, Limits, Report, Standing};
use crate::config::{AuditConfig, ConfigError};
use crate::page::Place;
use crate::publish::AgentError;
use crate::tap::TapError;
use log::LogPage;
use witness::Witness;

/// How often both sides are looked at.
const POLL: Duration = Duration::from_millis(25);

/// How often the sink is told where the audit stands.
const STATUS_NS: u64 = 1_000_000_000;

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The log page cannot be mapped.
    #[error(transparent)]
    Page(#[from] AgentError),
    /// The interface cannot be watched at all.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The interface is not among those of `/proc/net/dev`.
    #[error("there is no interface {0}; `ip link` lists them")]
    NoInterface(String),
}

/// What an audit tells while it runs. Serialises as one JSON object, told apart by `event`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// It began.
    Started {
        /// Where the interface is watched.
        place: String,
        /// What this way of watching cannot see; empty if nothing.
        blind: String,
    },
    /// Something is wrong.
    Found(Finding),
    /// Something worth knowing.
    Noticed(Notice),
    /// Where it stands, once a second.
    Standing(Standings),
}

/// Where both directions stand.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Standings {
    /// Packets to this VM; none if they are not audited.
    pub ingress: Option<Standing>,
    /// Packets from this VM, likewise.
    pub egress: Option<Standing>,
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
                    let state = match (s.suspicious, s.aligned) {
                        (true, _) => "looking into a difference",
                        (false, true) => "every packet went through",
                        (false, false) => "not yet certain",
                    };
                    write!(f, "{name}: {state} ({} seen, {} compared", s.interface.packets, s.verified)?;
                    write!(f, ", {} others)", s.interface.others)?;
                }
                Ok(())
            }
        }
    }
}

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// All that was found, in order.
    pub findings: Vec<Finding>,
    /// Where both directions stood at the end.
    pub standing: Standings,
    /// The exit code that says the same; see [`crate::audit::finding::exit_code`].
    pub exit_code: u8,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.findings.is_empty() {
            return match self.standing {
                Standings { ingress: None, .. } => {
                    f.write_str("egress: every packet went through (ingress: not audited)")
                }
                Standings { egress: None, .. } => {
                    f.write_str("ingress: every packet went through (egress: not audited)")
                }
                Standings { .. } => f.write_str("every packet went through"),
            };
        }
        let lines: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Audits until `stop` is set, then until nothing is being looked into any more (a few seconds at most). Runs on the
/// calling thread, in whose network namespace the interface is.
///
/// # Errors
///
/// When it cannot begin: configuration, key, page or interface. Without the rights for the tap it begins with the
/// interface's counters, and says what these cannot see.
pub fn run_audit(
    config: &AuditConfig,
    mut sink: impl FnMut(&Event),
    stop: &AtomicBool,
) -> Result<Summary, AuditError> {
    let mut auditor = Auditor::new(config)?;
    sink(&auditor.witness.introduce());
    let mut findings = Vec::new();
    let mut ending: Option<u64> = None;
    let mut told = 0;
    loop {
        std::thread::sleep(POLL);
        let now = Now::read();
        let mut report = auditor.step(now);
        if ending.is_none() && stop.load(Ordering::Relaxed) {
            // What is in flight now is still compared.
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
        if done || now.mono_ns.saturating_sub(told) >= STATUS_NS {
            told = now.mono_ns;
            sink(&Event::Standing(auditor.standings()));
        }
        if done {
            let exit_code = exit_code_of(&findings);
            return Ok(Summary { findings, standing: auditor.standings(), exit_code });
        }
    }
}

struct Auditor {
    limits: Limits,
    audit: Audit,
    log: LogPage,
    place: Place,
    witness: Witness,
}

impl Auditor {
    fn new(config: &AuditConfig) -> Result<Self, AuditError> {
        config.check()?;
        let key = TenantKey::load(&config.vm.key)?;
        let identity = Identity { tenant: &config.vm.tenant, vm: &config.vm.name };
        let (log, place) = LogPage::open(&config.log_page, &key, &identity)?;
        let witness = Witness::new(config, PacketDigest::for_vm(&key, &identity))?;
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        let mut limits = Limits::new(ns(config.log_interval_ms), ns(config.hold_ms));
        if !witness.tells_others_apart() {
            limits.unmediated_per_second = config.unmediated_per_second;
        }
        Ok(Self { limits, audit: Audit::new(limits, &config.directions(), Now::read()), log, place, witness })
    }

    /// One look at both sides.
    fn step(&mut self, now: Now) -> Report {
        if let Some(memory) = self.place.made_anew(now.mono_ns) {
            self.log.follow(memory);
        }
        self.log.read(now, &mut self.audit);
        // Zero until the P4 VM has a channel: then it judges nothing that could be compared.
        let cover = self.audit.last_record().map(|r| r.header_bytes).filter(|n| *n != 0);
        if self.witness.watch(cover) {
            self.audit.interface_restarted();
        }
        for direction in Direction::ALL {
            self.witness.observe(now, direction, &mut self.audit);
        }
        self.audit.take(now)
    }

    /// Whether the audit can end, so long after it was asked to.
    fn settled(&self, since_stop: u64) -> bool {
        let suspicious = Direction::ALL.iter().any(|d| self.audit.standing(*d).is_some_and(|s| s.suspicious));
        let enough = if suspicious { self.limits.patience_ns } else { 2 * self.limits.grace_ns };
        since_stop > enough
    }

    fn standings(&self) -> Standings {
        Standings {
            ingress: self.audit.standing(Direction::Ingress),
            egress: self.audit.standing(Direction::Egress),
        }
    }
}

pub(crate) use log::fuzz as fuzz_log_page;

#[cfg(test)]
mod tests {
    use super::*;

    /// What scripts read: a change here is a change of the interface.
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
        let standing = Standings { ingress: Some(Standing::default()), egress: None };
        let shape = json(&Event::Standing(standing));
        assert_eq!(shape["event"], "standing");
        assert_eq!(shape["ingress"]["interface"]["packets"], 0);
        assert!(shape["egress"].is_null(), "not audited");
        let summary = Summary { findings: vec![found], standing, exit_code: 10 };
        let shape = serde_json::to_value(&summary).unwrap();
        assert_eq!(shape["findings"][0]["finding"], "bypassed");
        assert_eq!(shape["exit_code"], 10);
    }

    #[test]
    fn words_are_plain() {
        let found = |packets, exact| Finding::Bypassed { direction: Direction::Ingress, packets, exact };
        assert_eq!(found(3, true).to_string(), "ingress: 3 packets went round the program");
        assert_eq!(found(1, false).to_string(), "ingress: at least 1 packet went round the program");
        let withheld = Finding::Withheld { packets: 2, exact: true };
        assert_eq!(withheld.to_string(), "ingress: 2 packets judged but never arrived");
        let words = |ingress, egress| {
            Summary { findings: vec![], standing: Standings { ingress, egress }, exit_code: 0 }.to_string()
        };
        let audited = Some(Standing::default());
        assert_eq!(words(audited, audited), "every packet went through");
        assert_eq!(words(audited, None), "ingress: every packet went through (egress: not audited)");
        assert_eq!(words(None, audited), "egress: every packet went through (ingress: not audited)");
    }
}
