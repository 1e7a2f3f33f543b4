//! A simulated cloud with a P4 VM, a VM's interface and the log page between them.

use std::collections::VecDeque;

use p4shield_abi::Direction;
use p4shield_abi::log_page::LogRecord;
use p4shield_abi::sketch::Sketch;
use p4shield_seal::{Continuity, LogRefusal, Now, OpenedRecord};

use super::super::expect::Expectations;
use super::super::finding::Finding;
use super::super::history::Histories;
use super::super::{Audit, Counts, DirectionStatus, Limits, Method, Report};

pub(super) const MS: u64 = 1_000_000;
const INTERVAL: u64 = 100;
const POLL: u64 = 20;

/// Treatment of a packet on the audited path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The program judges it and the interface counts it, in the order of the direction.
    Honest,
    /// Only the interface counts it.
    Bypass,
    /// Only the P4 VM counts it.
    Judged,
    /// The program judges another packet in its place.
    Swap,
}

pub(super) struct Cloud {
    pub(super) audit: Audit,
    direction: Direction,
    digests: bool,
    now: u64,
    /// Time and digest of packets in flight to the later side, sorted by time.
    in_flight: VecDeque<(u64, u64)>,
    /// Milliseconds between both sides. They vary by up to `jitter`, which reorders packets.
    pub(super) delay: u64,
    pub(super) jitter: u64,
    pub(super) log_stopped: bool,
    pub(super) not_whole: bool,
    pub(super) record: LogRecord,
    interface: Counts,
    histories: Histories,
    others: u64,
    seed: u64,
    epoch: u64,
    counter: u64,
    restarted: bool,
    pub(super) seen: Report,
}

impl Cloud {
    pub(super) fn new(direction: Direction, digests: bool) -> Self {
        let limits = Limits::new(INTERVAL * MS, 20 * MS);
        let mut cloud = Self {
            audit: audit(limits, digests, now(0)),
            direction,
            digests,
            now: 0,
            in_flight: VecDeque::new(),
            delay: 3,
            jitter: 0,
            log_stopped: false,
            not_whole: false,
            record: LogRecord { header_bytes: 128, ..LogRecord::default() },
            interface: Counts::default(),
            histories: Histories::default(),
            others: 0,
            seed: 0x9e37_79b9,
            epoch: 1,
            counter: 0,
            restarted: false,
            seen: Report::default(),
        };
        // The P4 VM has judged packets before the audit.
        cloud.judged(12_345);
        cloud.judged(999);
        cloud
    }

    /// Restarts the audit with an allowance for frames that no mediator submits.
    pub(super) fn allow_unmediated(&mut self, per_second: u64) {
        let mut limits = Limits::new(INTERVAL * MS, 20 * MS);
        limits.unmediated_per_second = per_second;
        self.audit = audit(limits, self.digests, now(self.now));
    }

    /// Begins the audit now: what happened before is not part of it.
    pub(super) fn begin_audit(&mut self) {
        self.audit = audit(Limits::new(INTERVAL * MS, 20 * MS), self.digests, now(self.now));
        (self.interface, self.histories) = (Counts::default(), Histories::default());
        self.seen = Report::default();
    }

    pub(super) fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Restarts the audit with expectations.
    pub(super) fn expect(&mut self, expected: Expectations) {
        let limits = Limits::new(INTERVAL * MS, 20 * MS);
        self.audit = Audit::new(limits, expected, &Direction::ALL, Method::Digests, now(self.now));
    }

    fn judged(&mut self, digest: u64) {
        self.record.sketches[self.direction as usize].add(Sketch::item(digest));
        let t = &mut self.record.totals[self.direction as usize];
        t.judged += 1;
        t.passed += 1;
        t.judged_digest = t.judged_digest.wrapping_add(digest);
        t.passed_digest = t.passed_digest.wrapping_add(digest);
    }

    fn seen(&mut self, digest: u64) {
        self.interface.packets += 1;
        if self.not_whole {
            self.interface.not_whole += 1;
            self.histories[0].push(0);
        } else {
            self.histories[0].push(digest);
        }
        self.histories[1].push(0);
    }

    /// Sends a packet with this digest and treatment.
    pub(super) fn packet(&mut self, content: u64, treatment: Treatment) {
        let (digest, other) = (digest_of(content), digest_of(content ^ 0xdead_beef));
        let (first, second) = match (treatment, self.direction) {
            (Treatment::Honest, _) => (Some(digest), Some(digest)),
            (Treatment::Bypass, Direction::Ingress) | (Treatment::Judged, Direction::Egress) => {
                (None, Some(digest))
            }
            (Treatment::Judged, Direction::Ingress) | (Treatment::Bypass, Direction::Egress) => {
                (Some(digest), None)
            }
            (Treatment::Swap, _) => (Some(digest), Some(other)),
        };
        if let Some(d) = first {
            match self.direction {
                Direction::Ingress => self.judged(d),
                Direction::Egress => self.seen(d),
            }
        }
        if let Some(d) = second {
            let jitter = if self.jitter == 0 { 0 } else { self.random() % (self.jitter + 1) };
            let due = self.now + self.delay + jitter;
            let at = self.in_flight.partition_point(|(t, _)| *t <= due);
            self.in_flight.insert(at, (due, d));
        }
    }

    fn arrive(&mut self) {
        while let Some((_, d)) = self.in_flight.pop_front_if(|(t, _)| *t <= self.now) {
            match self.direction {
                Direction::Ingress => self.seen(d),
                Direction::Egress => self.judged(d),
            }
        }
    }

    /// Simulates a millisecond with this many packets of one treatment, each with its own digest.
    pub(super) fn step(&mut self, packets: u64, treatment: Treatment) {
        self.now += 1;
        self.arrive();
        for _ in 0..packets {
            let digest = self.random();
            self.packet(digest, treatment);
        }
        if self.now.is_multiple_of(INTERVAL) && !self.log_stopped {
            self.publish();
        }
        if self.now.is_multiple_of(POLL) {
            self.poll();
        }
    }

    fn publish(&mut self) {
        let link = match (self.counter, std::mem::take(&mut self.restarted)) {
            (0, false) => Continuity::First,
            (_, true) => Continuity::Restart { previous_epoch: self.epoch - 1, missed: 0 },
            (_, false) => Continuity::Next,
        };
        self.record.published_ns = now(self.now).real_ns;
        let opened = self.opened(link, self.record);
        self.counter += 1;
        self.audit.record(now(self.now), &opened);
    }

    const fn opened(&self, continuity: Continuity, record: LogRecord) -> OpenedRecord {
        let (epoch, counter) = (self.epoch, self.counter);
        OpenedRecord { epoch, counter, continuity, is_rekeyed: false, record }
    }

    fn poll(&mut self) {
        let counts = Counts { others: self.others, ..self.interface };
        let histories = self.digests.then_some(&self.histories);
        self.audit.observe(now(self.now), self.direction, counts, histories);
        // The other direction is idle.
        let idle = Direction::ALL[1 - self.direction as usize];
        self.audit.observe(now(self.now), idle, Counts::default(), None);
        let report = self.audit.take_report(now(self.now));
        self.seen.findings.extend(report.findings);
        self.seen.notices.extend(report.notices);
    }

    /// Simulates milliseconds of honest traffic with this many packets each.
    pub(super) fn run(&mut self, ms: u64, packets: u64) -> &mut Self {
        for _ in 0..ms {
            self.step(packets, Treatment::Honest);
        }
        self
    }

    pub(super) fn refuse(&mut self, refusal: LogRefusal) {
        self.audit.refused(now(self.now), refusal);
    }

    /// Increases the P4 VM's counters of its info page.
    pub(super) fn info(&mut self, forged: u64, replayed: u64, stale: u64) {
        let i = &mut self.record.info;
        (i.forged, i.replayed, i.stale) = (i.forged + forged, i.replayed + replayed, i.stale + stale);
    }

    pub(super) fn restart(&mut self) {
        self.record = LogRecord { header_bytes: 128, ..LogRecord::default() };
        self.epoch += 1;
        self.counter = 0;
        self.restarted = true;
    }

    pub(super) fn publish_late(&mut self, by_ms: u64) {
        let past = now(self.now - by_ms).real_ns;
        let record = LogRecord { published_ns: past, ..self.record };
        let opened = self.opened(Continuity::Next, record);
        self.counter += 1;
        self.audit.record(now(self.now), &opened);
    }

    pub(super) fn findings(&self) -> &[Finding] {
        &self.seen.findings
    }

    /// Ends the audit and returns all findings.
    pub(super) fn conclude(&mut self) -> Vec<Finding> {
        let last = self.audit.conclude(now(self.now));
        self.seen.findings.extend(last.findings);
        self.seen.findings.clone()
    }

    pub(super) fn status(&self) -> DirectionStatus {
        self.audit.status(self.direction).expect("audited")
    }

    pub(super) fn verified(&self) -> u64 {
        self.audit.status(self.direction).expect("audited").verified
    }
}

fn audit(limits: Limits, digests: bool, now: Now) -> Audit {
    let method = if digests { Method::Digests } else { Method::Counters };
    Audit::new(limits, Expectations::default(), &Direction::ALL, method, now)
}

/// Returns the digest of a packet with this content.
fn digest_of(content: u64) -> u64 {
    let mut d = content.wrapping_add(0x9e37_79b9_7f4a_7c15);
    d = (d ^ d >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    d = (d ^ d >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    d ^ d >> 31
}

fn now(ms: u64) -> Now {
    let mono_ns = ms * MS + 3_600_000 * MS;
    Now { mono_ns, real_ns: mono_ns + 1_700_000_000_000_000_000 }
}
