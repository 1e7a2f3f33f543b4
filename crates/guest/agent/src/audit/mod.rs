//! The verdict engine: what the P4 VM says it judged, against what the VM's interface saw.
//!
//! A pure state machine. Records, refusals and counts go in with the time they were seen at; findings come out. It
//! does no I/O and reads no clock, so that tests can play any cloud against it.
//!
//! # What is compared
//!
//! | direction | the P4 VM's record | the interface |
//! |---|---|---|
//! | ingress | `passed`, `passed_digest` | frames that came in |
//! | egress | `judged`, `judged_digest` | frames that went out |
//!
//! Both count from moments of their own. What ties them together is the *offset*: the interface's number of a packet
//! minus the P4 VM's number of it. With an honest cloud it is a constant; the whole audit is about noticing that it,
//! or the sum of the digests up to a packet, is not.
//!
//! # Packets in flight
//!
//! The two sides are never looked at in the same instant. The bound is one of time, [`Limits::grace_ns`]: twice the
//! log's interval (a record may have just missed a packet, and a reader may have just missed a record), the longest
//! time that a mediator holds a packet, and what scheduling adds. From it follow, for each record with `p` packets
//! that was seen at `t`:
//!
//! * what the interface had counted by `t - grace` is covered by `p`: the offset is at least `count(t - grace) - p`;
//! * what `p` covers has reached the interface by `t + grace`: the offset is at most `count(t + grace) - p`.
//!
//! Each record narrows that range. When it becomes empty, packets went round the program (the lower end rose) or never
//! arrived (the upper end sank). In a quiet moment the range is a single number, so every packet counts.
//!
//! # Digests
//!
//! Under load the range stays as wide as what is in flight, and a cloud could hide in it. Digests close that: the tap
//! keeps the running digest after every packet, so the record's sum is compared with that of *the same prefix*. One
//! packet too many, too few, or another one, makes every later comparison fail. The engine then looks for the offset
//! at which the stretch between two later records fits again: it tells how many went round or were lost, exactly; if
//! it did not move, packets were swapped. The digest is a sum, so the order inside a prefix does not matter, and one
//! packet that was overtaken across the boundary of a prefix by up to [`track::REORDER`] others is allowed for.
//!
//! # What is reported when
//!
//! An incident is reported once, with its count, and the comparison goes on from there. It is held back until the
//! count is certain, at most [`Limits::patience_ns`]; then the certain part is reported as "at least".
//!
//! # What it cannot see
//!
//! A program that takes bytes off the front of packets needs a channel whose header copies are that much longer than
//! the 128 bytes of a digest: else the P4 VM does not know what it passed, and passed packets look swapped. Super-packets
//! of segmentation offloads, and VLAN tags kept beside the data, are counted and not digested; the audit says so.
//!
//! A packet whose first 128 bytes and length equal another's has the same digest: swapping the two, or their bytes
//! beyond, goes unseen. While the log is stopped, which is a finding of its own, packets are compared with nothing: how
//! many went round is told when records come again, or when the audit ends, as how many no record speaks of. What is
//! in flight when the audit begins belongs to the time before it. Packets between the
//! last record of a P4 VM and its restart are reported as unaccounted. On egress the audit ends at the P4 VM: whether
//! a passed packet left the cloud is the receiver's to see, and a packet that was lost before the P4 VM looks like one
//! that went round it.

pub mod finding;
pub mod history;
mod logwatch;
pub mod track;

use p4shield_abi::Direction;
use p4shield_abi::log::LogRecord;
use p4shield_seal::{Continuity, LogRefusal, Now, OpenedRecord};
use serde::Serialize;

use finding::{Finding, Notice};
use history::History;
use logwatch::LogWatch;
use track::{Totals, Track};

/// The bounds in time that the engine judges by, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest that a packet can be counted on one side and not yet on the other.
    pub grace_ns: u64,
    /// Longest that an incident waits for its exact count.
    pub patience_ns: u64,
    /// Longest silence of the log.
    pub stopped_ns: u64,
    /// Most that a record's time may be off when it is first seen.
    pub late_ns: u64,
    /// Frames a second that the counts may contain although no mediator submits them; 0 with the tap, which tells
    /// them apart.
    pub unmediated_per_second: u64,
}

impl Limits {
    /// From the log's interval and the longest time that a mediator holds a packet.
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

/// What the interface has counted in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that a mediator submits.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them, those that could not be digested.
    pub not_whole: u64,
    /// Frames that a mediator does not submit (ARP, neighbour discovery, other addresses).
    pub others: u64,
}

/// What came out of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Findings, in the order found.
    pub findings: Vec<Finding>,
    /// Notices, likewise.
    pub notices: Vec<Notice>,
}

/// Where one direction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// What the interface counted, since the audit began.
    pub interface: Counts,
    /// Packets that the P4 VM's newest record speaks of, since its epoch began.
    pub recorded: u64,
    /// Packets that were compared and found the same, by count and digest.
    pub verified: u64,
    /// Whether every packet is accounted for exactly.
    pub aligned: bool,
    /// Whether something is being looked into.
    pub suspicious: bool,
}

/// The engine.
pub struct Audit {
    /// By [`Direction`]; none where nothing is compared.
    tracks: [Option<Track>; 2],
    log: LogWatch,
    last: Option<LogRecord>,
    report: Report,
}

impl Audit {
    /// An audit of these directions that begins now.
    #[must_use]
    pub fn new(limits: Limits, directions: &[Direction], now: Now) -> Self {
        Self {
            tracks: Direction::ALL.map(|d| directions.contains(&d).then(|| Track::new(d, limits))),
            log: LogWatch::new(limits, now.mono_ns),
            last: None,
            report: Report::default(),
        }
    }

    /// A record was read and is genuine.
    pub fn record(&mut self, now: Now, opened: &OpenedRecord) {
        self.log.accepted(now, opened.record.published_ns, &mut self.report);
        if let Continuity::Restart { .. } = opened.continuity {
            self.report.findings.push(Finding::Restarted { epoch: opened.epoch });
            self.begin_anew();
        } else if self.last.is_some_and(|last| goes_back(&last, &opened.record)) {
            self.log.inconsistent(now.mono_ns);
            self.begin_anew();
        }
        self.log.info(now.mono_ns, opened.record.info);
        for (d, track) in Direction::ALL.into_iter().zip(&mut self.tracks) {
            if let Some(track) = track {
                track.record(totals(d, &opened.record, now.mono_ns));
            }
        }
        self.last = Some(opened.record);
    }

    /// A publication on the log page was refused.
    pub fn refused(&mut self, now: Now, refusal: LogRefusal) {
        self.log.refused(now.mono_ns, refusal);
        if refusal == LogRefusal::ChainBroken {
            // What follows continues another history than what was compared so far.
            self.begin_anew();
        }
    }

    fn begin_anew(&mut self) {
        self.last = None;
        self.log.restarted();
        for track in self.tracks.iter_mut().flatten() {
            track.restart();
        }
    }

    /// What the interface has counted by now; `history` where packets are digested.
    pub fn observe(&mut self, now: Now, direction: Direction, counts: Counts, history: Option<&History>) {
        if let Some(track) = &mut self.tracks[direction as usize] {
            track.observe(now.mono_ns, counts, history, &mut self.report);
        }
    }

    /// The interface was made anew, or its tap: counts begin from 0.
    pub fn interface_restarted(&mut self) {
        for track in self.tracks.iter_mut().flatten() {
            track.forget();
        }
    }

    /// Findings and notices since the last call.
    pub fn take(&mut self, now: Now) -> Report {
        self.log.tick(now.mono_ns, false, &mut self.report);
        std::mem::take(&mut self.report)
    }

    /// The last findings, when the audit ends: what is still being looked into is decided now.
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

    /// Where a direction stands; none if it is not audited.
    #[must_use]
    pub fn standing(&self, direction: Direction) -> Option<Standing> {
        let standing = self.tracks[direction as usize].as_ref()?.standing();
        // Nothing is vouched for while no records come.
        Some(Standing { aligned: standing.aligned && !self.log.is_stopped(), ..standing })
    }

    /// The newest record.
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

fn goes_back(last: &LogRecord, next: &LogRecord) -> bool {
    last.totals.iter().zip(&next.totals).any(|(a, b)| b.passed < a.passed || b.judged < a.judged)
}

#[cfg(test)]
mod tests;
