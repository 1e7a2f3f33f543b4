//! The audit engine: compares the P4 VM's log with the packets that the VM's interface counted.
//!
//! A pure state machine. Its inputs are records, refusals and counts with the time at which they were
//! read; its outputs are findings. It does no I/O and reads no clock, so tests can simulate any cloud.
//!
//! # Comparison
//!
//! | direction | the P4 VM's record | the interface |
//! |---|---|---|
//! | ingress | passed packets | frames that came in |
//! | egress | judged packets | frames that went out |
//!
//! Each record counts the packets since the start of the P4 VM, and contains a
//! [`Sketch`](p4shield_abi::sketch::Sketch) of them. The tap stores the digest of each packet. For two
//! records, the audit subtracts the packets of the interface between them from the difference of their
//! sketches. What remains are the packets that differ; up to about a hundred can be listed
//! (`peel`), among any number that are equal.
//!
//! # Packets in flight
//!
//! The two sides are never read at the same instant. [`Limits::grace_ns`] bounds the difference: twice the
//! log's interval (a record may have just missed a packet, and a reader a record), the maximum time that
//! a mediator holds a packet, and scheduling delays. A packet that one side has and the other has not is
//! waited for as long. Packets may overtake each other; their order is not compared.
//!
//! Where a record ends among the packets of the interface follows from the previous record: so many packets
//! later. At first, and after a stretch with too many differences, it is searched (`anchor`): there, the
//! packets between two records differ least.
//!
//! # What a difference means
//!
//! | | the log lacks the packet | the interface lacks the packet |
//! |---|---|---|
//! | ingress | it bypassed the program | it was lost after judgment |
//! | egress | it was lost before judgment, or bypassed the program | the VM never sent it |
//! | both at once | swapped | swapped |
//!
//! An honest cloud loses packets: deadlines pass, queues are full. Losses are shares with a limit
//! ([`Limits::max_loss_ppm`]) and no accusation. A packet that was only late is no loss. Packets
//! that could not be compared are a share, too ([`Limits::min_compared_ppm`]): those of stretches with more
//! differences than a sketch can list, and those without a digest (super-packets of other protocols than
//! TCP). Of these, the audit compares the numbers.
//!
//! Without a tap, the audit compares the interface's own counters with the records (`counts`).
//!
//! # What is kept
//!
//! A restart of the P4 VM, a new interface, a broken chain, and losses beyond what a sketch lists end a
//! stretch of packets, which are compared by number or reported as unaccounted. No such event discards a
//! suspicion: judged packets that did not arrive are waited for as before, and packets that arrived without
//! a verdict so far count as not compared. Programs, replacements and header bytes are compared with what
//! the tenant expects ([`expect`]).
//!
//! # Limitations
//!
//! A program that removes bytes from the front of packets needs a channel whose header copies are that
//! much longer than [`DIGEST_HEADER_BYTES`]. Otherwise the P4 VM cannot digest the packets that it passed,
//! and they seem swapped.
//!
//! Two packets with the same digest are one to the audit: swapping them, their further bytes or their VLAN
//! tags is not detected. Packets of the first three times of grace may not be part of the audit, which
//! states their number, nor are those after the last record at its end. On egress the audit ends at the P4
//! VM: the receiver has to check whether a passed packet left the cloud.

mod anchor;
mod compare;
mod counts;
pub mod exit_code;
pub mod expect;
pub mod finding;
pub mod history;
mod items;
mod ledger;
mod logwatch;
mod notice;
mod peel;
mod pending;
mod rekey;
pub mod settings;
mod stretch;
mod values;

use p4shield_abi::Direction;
use p4shield_abi::log_page::{DIGEST_HEADER_BYTES, LogRecord};
use p4shield_seal::{Continuity, LogRefusal, Now, OpenedRecord};
use serde::Serialize;

use counts::{CountAudit, Totals};
use expect::{Expectations, ProgramWatch};
use finding::{Finding, Notice};
use history::{Histories, Rekeyed};
use items::{ItemAudit, Record};
use logwatch::LogWatch;
use settings::SettingsWatch;

/// Default of [`Limits::max_loss_ppm`]: one percent.
pub const MAX_LOSS_PPM: u32 = 10_000;
/// Default of [`Limits::min_compared_ppm`]: 95 percent.
pub const MIN_COMPARED_PPM: u32 = 950_000;

/// Bounds of the engine; times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum time between the counting of a packet on both sides.
    pub grace_ns: u64,
    /// Maximum time until an incident is reported without an exact count.
    pub patience_ns: u64,
    /// Maximum silence of the log.
    pub stopped_ns: u64,
    /// Maximum difference between a record's time and the time at which it is first read.
    pub late_ns: u64,
    /// Frames per second in the counts that no mediator submits; 0 with the tap, which counts them
    /// separately.
    pub unmediated_per_second: u64,
    /// Losses between P4 VM and interface that the tenant accepts, in millionths of all packets.
    pub max_loss_ppm: u32,
    /// Packets that have to be compared by their digests, in millionths of all packets.
    pub min_compared_ppm: u32,
}

impl Limits {
    /// Computes the limits from the log's interval and the maximum time that a mediator holds a packet.
    #[must_use]
    pub fn new(interval_ns: u64, hold_ns: u64) -> Self {
        const SCHEDULING_NS: u64 = 100_000_000;
        let grace_ns = interval_ns.saturating_mul(2).saturating_add(hold_ns).saturating_add(SCHEDULING_NS);
        Self {
            grace_ns,
            patience_ns: grace_ns.saturating_mul(8).max(3_000_000_000),
            stopped_ns: interval_ns.saturating_mul(10).max(1_000_000_000),
            late_ns: interval_ns.saturating_mul(10).max(2_000_000_000),
            unmediated_per_second: 0,
            max_loss_ppm: MAX_LOSS_PPM,
            min_compared_ppm: MIN_COMPARED_PPM,
        }
    }
}

/// Counts of the interface in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that a mediator submits.
    pub packets: u64,
    /// Their bytes, without VLAN tags.
    pub bytes: u64,
    /// Packets among them that could not be digested.
    pub not_whole: u64,
    /// Frames that a mediator does not submit (ARP, neighbour discovery, other addresses).
    pub others: u64,
}

impl Counts {
    /// Returns the counts of an interface that continues `self`.
    #[must_use]
    pub const fn and(self, next: Self) -> Self {
        Self {
            packets: self.packets + next.packets,
            bytes: self.bytes + next.bytes,
            not_whole: self.not_whole + next.not_whole,
            others: self.others + next.others,
        }
    }
}

/// Output of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Findings in order.
    pub findings: Vec<Finding>,
    /// Notices in order.
    pub notices: Vec<Notice>,
}

/// Status of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DirectionStatus {
    /// Counts of the interface since the audit began.
    pub interface: Counts,
    /// Packets in the P4 VM's newest record, since its epoch began.
    pub recorded: u64,
    /// Packets that were compared by their digests.
    pub verified: u64,
    /// Packets that were compared by their number only.
    pub uncompared: u64,
    /// Packets that were lost after judgment (ingress), or have no verdict (egress).
    pub lost: u64,
    /// Packets that were delivered so late after judgment that they counted as lost until then.
    pub late: u64,
    /// Packets at the start of the audit that were not compared at all: they may have been judged before.
    pub unaudited: u64,
    /// The duration of that start, in milliseconds.
    pub unaudited_ms: u64,
    /// Whether a finding concerns this direction.
    pub has_findings: bool,
    /// Whether the newest record is compared.
    pub aligned: bool,
    /// Whether a difference is being examined.
    pub suspicious: bool,
}

/// How one direction is compared.
enum Track {
    Items(Box<ItemAudit>),
    Counts(Box<CountAudit>),
}

impl Track {
    fn new(direction: Direction, method: Method, limits: Limits) -> Self {
        match method {
            Method::Digests => Self::Items(Box::new(ItemAudit::new(direction, limits))),
            Method::Counters => Self::Counts(Box::new(CountAudit::new(direction, limits))),
        }
    }

    fn status(&self) -> DirectionStatus {
        match self {
            Self::Items(items) => items.status(),
            Self::Counts(counts) => counts.status(),
        }
    }
}

/// What the interface shows of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A tap counts and digests them.
    Digests,
    /// Their number only.
    Counters,
}

/// The audit engine.
pub struct Audit {
    /// By [`Direction`]; `None` for a direction that is not audited.
    tracks: [Option<Track>; 2],
    programs: ProgramWatch,
    settings: SettingsWatch,
    log: LogWatch,
    last: Option<LogRecord>,
    /// Header bytes that digests cover, once the P4 VM had a channel.
    covered: Option<u32>,
    /// By [`Direction`]: whether a finding concerns it.
    has_findings: [bool; 2],
    report: Report,
}

impl Audit {
    /// Starts an audit of these directions.
    #[must_use]
    pub fn new(
        limits: Limits,
        expected: Expectations,
        directions: &[Direction],
        method: Method,
        now: Now,
    ) -> Self {
        let audited = Direction::ALL.map(|d| directions.contains(&d));
        Self {
            tracks: Direction::ALL.map(|d| audited[d as usize].then(|| Track::new(d, method, limits))),
            settings: SettingsWatch::new(expected.settings.clone(), audited),
            programs: ProgramWatch::new(expected, audited, limits),
            log: LogWatch::new(limits, now.mono_ns),
            last: None,
            covered: None,
            has_findings: [false; 2],
            report: Report::default(),
        }
    }

    /// Processes a genuine record.
    pub fn record(&mut self, now: Now, opened: &OpenedRecord) {
        self.log.accepted(now, opened.record.published_ns, &mut self.report);
        if let Continuity::Restart { .. } = opened.continuity {
            self.report.findings.push(Finding::Restarted { epoch: opened.epoch });
            self.restart_comparison();
            self.programs.restarted();
        } else if self.last.is_some_and(|last| totals_decreased(&last, &opened.record)) {
            self.log.inconsistent(now.mono_ns);
            self.restart_comparison();
        }
        let rekeyed = opened.is_rekeyed.then_some(match opened.continuity {
            Continuity::Next => Rekeyed::Exactly,
            _ => Rekeyed::Somewhere,
        });
        if rekeyed.is_some() {
            self.report.notices.push(Notice::KeyRotated);
        }
        self.log.info(now.mono_ns, opened.record.info);
        self.programs.record(now.mono_ns, &opened.record, &mut self.report);
        self.settings.record(opened.record.settings, &mut self.report);
        let is_other_cover = self.covers_otherwise(opened.record.header_bytes);
        for (d, track) in Direction::ALL.into_iter().zip(&mut self.tracks) {
            let packets = packets(d, &opened.record);
            match track {
                Some(Track::Items(items)) => {
                    if is_other_cover {
                        items.lose_anchor();
                    }
                    let sketch = opened.record.sketches[d as usize];
                    let at = now.mono_ns;
                    items.record(Record { at, packets, sketch, is_restart: false, rekeyed });
                }
                Some(Track::Counts(counts)) => counts.record(Totals { at: now.mono_ns, packets }),
                None => {}
            }
        }
        self.last = Some(opened.record);
    }

    /// Returns whether the digests of the next record cover other bytes of packets than before. Without a
    /// channel, the P4 VM judges and digests no packets.
    fn covers_otherwise(&mut self, header_bytes: u32) -> bool {
        if header_bytes == 0 {
            return false;
        }
        let covered = header_bytes.min(DIGEST_HEADER_BYTES as u32);
        let Some(before) = self.covered.replace(covered).filter(|before| *before != covered) else {
            return false;
        };
        self.report.notices.push(Notice::CoverChanged { from: before, to: covered });
        true
    }

    /// Processes a publication on the log page that the opener refused.
    pub fn refused(&mut self, now: Now, refusal: LogRefusal) {
        self.log.refused(now.mono_ns, refusal);
        if refusal == LogRefusal::ChainBroken {
            // The following records continue another history than the compared one.
            self.restart_comparison();
            self.programs.broken();
        }
    }

    fn restart_comparison(&mut self) {
        self.last = None;
        self.log.restarted();
        for track in self.tracks.iter_mut().flatten() {
            match track {
                Track::Items(items) => items.restart(),
                Track::Counts(counts) => counts.restart(),
            }
        }
    }

    /// Processes the counts of the interface, with `histories` if packets are digested.
    pub fn observe(&mut self, now: Now, direction: Direction, counts: Counts, histories: Option<&Histories>) {
        match &mut self.tracks[direction as usize] {
            Some(Track::Items(items)) => items.observe(now.mono_ns, counts, histories, &mut self.report),
            Some(Track::Counts(track)) => track.observe(now.mono_ns, counts, &mut self.report),
            None => {}
        }
    }

    /// Reports a finding about the interface or its tap. The comparison continues: the counts of a new
    /// interface continue those of the previous one.
    pub fn found(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    /// Reports a notice about the auditor itself.
    pub fn noticed(&mut self, notice: Notice) {
        self.report.notices.push(notice);
    }

    /// Returns the findings and notices since the last call.
    pub fn take_report(&mut self, now: Now) -> Report {
        self.log.tick(now.mono_ns, false, &mut self.report);
        self.hand_out()
    }

    fn hand_out(&mut self) -> Report {
        for finding in &self.report.findings {
            let concerns = |d: Direction| finding.direction().is_none_or(|only| only == d);
            Direction::ALL.into_iter().for_each(|d| self.has_findings[d as usize] |= concerns(d));
        }
        std::mem::take(&mut self.report)
    }

    /// Ends the audit: decides pending differences and returns the last findings.
    pub fn conclude(&mut self, now: Now) -> Report {
        for track in self.tracks.iter_mut().flatten() {
            match track {
                Track::Items(items) => items.conclude(&mut self.report),
                Track::Counts(counts) => counts.conclude(&mut self.report),
            }
        }
        self.programs.conclude(&mut self.report);
        self.log.tick(now.mono_ns, true, &mut self.report);
        let stopped = self.log.is_stopped();
        let unrecorded = Direction::ALL.into_iter().zip(&self.tracks).filter_map(|(direction, track)| {
            let packets = match track.as_ref()? {
                Track::Items(items) if stopped => items.unrecorded(),
                Track::Items(items) => items.overdue(),
                Track::Counts(counts) => counts.unrecorded().filter(|_| stopped),
            }?;
            Some(Finding::Unrecorded { direction, packets })
        });
        self.report.findings.extend(unrecorded);
        self.hand_out()
    }

    /// Returns the audited directions whose program the tenant did not name.
    pub fn unverified_programs(&self) -> Vec<Direction> {
        self.programs.unverified().collect()
    }

    /// Returns the status of a direction; `None` if it is not audited.
    #[must_use]
    pub fn status(&self, direction: Direction) -> Option<DirectionStatus> {
        let status = self.tracks[direction as usize].as_ref()?.status();
        // Without records, no packet is proven.
        let aligned = status.aligned && !self.log.is_stopped();
        Some(DirectionStatus { aligned, has_findings: self.has_findings[direction as usize], ..status })
    }

    /// Returns the newest record.
    #[must_use]
    pub const fn last_record(&self) -> Option<&LogRecord> {
        self.last.as_ref()
    }
}

const fn packets(direction: Direction, record: &LogRecord) -> u64 {
    let t = &record.totals[direction as usize];
    match direction {
        Direction::Ingress => t.passed,
        Direction::Egress => t.judged,
    }
}

fn totals_decreased(last: &LogRecord, next: &LogRecord) -> bool {
    last.totals.iter().zip(&next.totals).any(|(a, b)| b.passed < a.passed || b.judged < a.judged)
}

#[cfg(test)]
mod tests;
