//! The audit engine: compares the P4 VM's log with the packets that the VM's interface counted.
//!
//! A pure state machine. Its inputs are records, refusals and counts with the time at which they were
//! read; its outputs are findings. It does no I/O and reads no clock, so tests can simulate any cloud.
//!
//! # Comparison
//!
//! | direction | the P4 VM's record | the interface |
//! |---|---|---|
//! | ingress | `passed`, `passed_digest` | frames that came in |
//! | egress | `judged`, `judged_digest` | frames that went out |
//!
//! Both sides count from different moments. The *offset* relates them: the interface's number of a packet
//! minus the P4 VM's number of it. With an honest cloud the offset is constant. The audit detects when the
//! offset, or the sum of the digests up to a packet, changes.
//!
//! # Packets in flight
//!
//! The two sides are never read at the same instant. [`Limits::grace_ns`] bounds the difference: twice the
//! log's interval (a record may have just missed a packet, and a reader a record), the maximum time that
//! a mediator holds a packet, and scheduling delays. For each record with `p` packets that was read at
//! `t` it follows:
//!
//! * `p` includes the packets that the interface had counted by `t - grace`: the offset is at least
//!   `count(t - grace) - p`;
//! * the packets in `p` have reached the interface by `t + grace`: the offset is at most
//!   `count(t + grace) - p`.
//!
//! Each record narrows that range. When the range becomes empty, packets bypassed the program (the lower
//! end rose) or never arrived (the upper end fell). In a quiet moment the range is a single number, so
//! every packet counts.
//!
//! # Digests
//!
//! Under load the range is as wide as the number of packets in flight, and a cloud could hide in it.
//! Digests prevent that: the tap stores the running digest after every packet, so a record's sum is
//! compared with the sum of *the same prefix*. One additional, missing or different packet makes every
//! later comparison fail. The engine then searches the offset at which the stretch between two later
//! records fits again. That offset yields the exact number of bypassed or lost packets; if it did not
//! change, packets were swapped. The digest is a sum, so the order inside a prefix does not matter. One
//! packet that up to [`track::MAX_REORDERING`] others overtook across the boundary of a prefix is tolerated.
//!
//! # Reports
//!
//! An incident is reported once, with its count, and the comparison continues from there. The report
//! waits until the count is exact, at most for [`Limits::patience_ns`]; then it states the certain part as
//! "at least".
//!
//! # Limitations
//!
//! A program that removes bytes from the front of packets needs a channel whose header copies are that
//! much longer than the 128 bytes of a digest. Otherwise the P4 VM cannot digest the packets that it
//! passed, and they seem swapped. Super-packets of segmentation offloads, and packets whose VLAN tags are
//! stored beside the data, are counted but not digested; a notice reports them.
//!
//! Two packets with the same length and the same first 128 bytes have the same digest, so swapping them or
//! their further bytes is not detected. While the log is stopped, which is a finding of its own, no packets
//! are compared: the number of bypassed packets is reported when records resume, or, as unrecorded
//! packets, when the audit ends. Packets in flight at the start of the audit are not part of it. Packets
//! between the last record of a P4 VM and its restart are reported as unaccounted. On egress the audit
//! ends at the P4 VM: the receiver has to check whether a passed packet left the cloud, and a packet
//! that was lost before the P4 VM appears as a bypass.

pub mod finding;
pub mod history;
mod logwatch;
pub mod track;

use p4shield_abi::Direction;
use p4shield_abi::log_page::LogRecord;
use p4shield_seal::{Continuity, LogRefusal, Now, OpenedRecord};
use serde::Serialize;

use finding::{Finding, Notice};
use history::History;
use logwatch::LogWatch;
use track::{DirectionAudit, Totals};

/// Time bounds of the engine in nanoseconds.
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
        }
    }
}

/// Counts of the interface in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that a mediator submits.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets among them that could not be digested.
    pub not_whole: u64,
    /// Frames that a mediator does not submit (ARP, neighbour discovery, other addresses).
    pub others: u64,
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
    /// Packets whose count and digest were compared successfully.
    pub verified: u64,
    /// Whether every packet is accounted for exactly.
    pub aligned: bool,
    /// Whether a difference is being examined.
    pub suspicious: bool,
}

/// The audit engine.
pub struct Audit {
    /// By [`Direction`]; `None` for a direction that is not audited.
    tracks: [Option<DirectionAudit>; 2],
    log: LogWatch,
    last: Option<LogRecord>,
    report: Report,
}

impl Audit {
    /// Starts an audit of these directions.
    #[must_use]
    pub fn new(limits: Limits, directions: &[Direction], now: Now) -> Self {
        Self {
            tracks: Direction::ALL.map(|d| directions.contains(&d).then(|| DirectionAudit::new(d, limits))),
            log: LogWatch::new(limits, now.mono_ns),
            last: None,
            report: Report::default(),
        }
    }

    /// Processes a genuine record.
    pub fn record(&mut self, now: Now, opened: &OpenedRecord) {
        self.log.accepted(now, opened.record.published_ns, &mut self.report);
        if let Continuity::Restart { .. } = opened.continuity {
            self.report.findings.push(Finding::Restarted { epoch: opened.epoch });
            self.restart_comparison();
        } else if self.last.is_some_and(|last| totals_decreased(&last, &opened.record)) {
            self.log.inconsistent(now.mono_ns);
            self.restart_comparison();
        }
        self.log.info(now.mono_ns, opened.record.info);
        for (d, track) in Direction::ALL.into_iter().zip(&mut self.tracks) {
            if let Some(track) = track {
                track.record(totals(d, &opened.record, now.mono_ns));
            }
        }
        self.last = Some(opened.record);
    }

    /// Processes a publication on the log page that the opener refused.
    pub fn refused(&mut self, now: Now, refusal: LogRefusal) {
        self.log.refused(now.mono_ns, refusal);
        if refusal == LogRefusal::ChainBroken {
            // The following records continue another history than the compared one.
            self.restart_comparison();
        }
    }

    fn restart_comparison(&mut self) {
        self.last = None;
        self.log.restarted();
        for track in self.tracks.iter_mut().flatten() {
            track.restart();
        }
    }

    /// Processes the counts of the interface, with `history` if packets are digested.
    pub fn observe(&mut self, now: Now, direction: Direction, counts: Counts, history: Option<&History>) {
        if let Some(track) = &mut self.tracks[direction as usize] {
            track.observe(now.mono_ns, counts, history, &mut self.report);
        }
    }

    /// Restarts the comparison after the interface or its tap was re-created with counts of 0.
    pub fn interface_restarted(&mut self) {
        for track in self.tracks.iter_mut().flatten() {
            track.restart_both();
        }
    }

    /// Returns the findings and notices since the last call.
    pub fn take_report(&mut self, now: Now) -> Report {
        self.log.tick(now.mono_ns, false, &mut self.report);
        std::mem::take(&mut self.report)
    }

    /// Ends the audit: decides pending differences and returns the last findings.
    pub fn conclude(&mut self, now: Now) -> Report {
        for track in self.tracks.iter_mut().flatten() {
            track.conclude(&mut self.report);
        }
        self.log.tick(now.mono_ns, true, &mut self.report);
        if self.log.is_stopped() {
            let unrecorded = Direction::ALL.into_iter().zip(&self.tracks).filter_map(|(direction, track)| {
                let packets = track.as_ref()?.unrecorded()?;
                Some(Finding::Unrecorded { direction, packets })
            });
            self.report.findings.extend(unrecorded);
        }
        std::mem::take(&mut self.report)
    }

    /// Returns the status of a direction; `None` if it is not audited.
    #[must_use]
    pub fn status(&self, direction: Direction) -> Option<DirectionStatus> {
        let status = self.tracks[direction as usize].as_ref()?.status();
        // Without records, no packet is proven.
        Some(DirectionStatus { aligned: status.aligned && !self.log.is_stopped(), ..status })
    }

    /// Returns the newest record.
    #[must_use]
    pub const fn last_record(&self) -> Option<&LogRecord> {
        self.last.as_ref()
    }
}

fn totals(direction: Direction, record: &LogRecord, at: u64) -> Totals {
    let t = &record.totals[direction as usize];
    match direction {
        Direction::Ingress => Totals { at, packets: t.passed, digest: t.passed_digest },
        Direction::Egress => Totals { at, packets: t.judged, digest: t.judged_digest },
    }
}

fn totals_decreased(last: &LogRecord, next: &LogRecord) -> bool {
    last.totals.iter().zip(&next.totals).any(|(a, b)| b.passed < a.passed || b.judged < a.judged)
}

#[cfg(test)]
mod tests;
