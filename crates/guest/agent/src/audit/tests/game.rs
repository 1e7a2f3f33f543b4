//! A cloud, a P4 VM with a sealed log, and a VM's interface, for games of an adversary against the audit.

use std::collections::VecDeque;

use p4shield_abi::Direction;
use p4shield_abi::log_page::LogRecord;
use p4shield_abi::sketch::Sketch;
use p4shield_seal::{Epoch, Identity, LogKey, LogOpener, LogSealer, Now, PacketDigest, TenantKey};

use super::super::expect::{Expectations, ExpectedProgram};
use super::super::finding::{Digest, Finding};
use super::super::history::Histories;
use super::super::{Audit, Counts, DirectionStatus, Limits, Method, Track};
pub(super) use super::moves::{Hole, Move};

const MS: u64 = 1_000_000;
/// Milliseconds between records, between looks of the auditor, and of a packet's way.
pub(super) const INTERVAL: u64 = 20;
const POLL: u64 = 5;
const DELAY: u64 = 2;
/// Milliseconds from a new key file to the agent's first snapshot, and from a rekeyed log to the end of the
/// old key's digests.
pub(super) const SETTLING: u64 = 30;
const BOTH_KEYS: u64 = 500;
const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };
/// The packet that others equal.
pub(super) const EQUAL: Packet = 7;
pub(super) const PROGRAM: [u8; 32] = [0xa; 32];
pub(super) const OTHER: [u8; 32] = [0xe; 32];

/// A packet, by its contents.
type Packet = u64;

/// A rotation of the key.
struct Rotation {
    /// When the P4 VM's log may follow.
    from: u64,
    /// When the old key's digests end, once the log has followed.
    until: Option<u64>,
}

/// A packet on its way to the interface.
struct InFlight {
    due: u64,
    /// `None` if the tap cannot digest it.
    packet: Option<Packet>,
}

pub(super) struct Game {
    hole: Hole,
    pub(super) audit: Audit,
    pub(super) now: u64,
    seed: u64,
    /// Number of the VM's key, and of the one that the P4 VM has. A key's digests have its number modulo 2.
    key: u8,
    p4vm_key: u8,
    digests: [PacketDigest; 2],
    rotation: Option<Rotation>,
    sealer: LogSealer,
    opener: LogOpener,
    epoch: u64,
    pub(super) record: LogRecord,
    /// Sealed records that are not delivered yet.
    pub(super) held: VecDeque<(u64, u64, Vec<u8>)>,
    pub(super) hold_until: u64,
    in_flight: Vec<InFlight>,
    pub(super) jitter_until: u64,
    pub(super) undigested_until: u64,
    counts: Counts,
    histories: Histories,
    /// Packets that reached the VM otherwise than the expected program says.
    pub(super) treason: u64,
    /// Judged packets that reached it long after their verdict.
    pub(super) late: u64,
    /// Whether something else judged than the tenant expects.
    pub(super) is_other_judge: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) direction: Direction,
}

pub(super) fn now(ms: u64) -> Now {
    let mono_ns = (ms + 3_600_000) * MS;
    Now { mono_ns, real_ns: mono_ns + 1_700_000_000_000_000_000 }
}

fn audit(hole: Hole, at: u64, direction: Direction) -> Audit {
    let known = ExpectedProgram::OneOf(vec![Digest(PROGRAM)]);
    let expected = match hole {
        Hole::NoExpectations => {
            Expectations { header_bytes: 0, replacements: u32::MAX, ..Expectations::default() }
        }
        _ => Expectations { programs: [known.clone(), known], ..Expectations::default() },
    };
    let mut limits = Limits::new(INTERVAL * MS, DELAY * MS);
    if hole == Hole::UndigestedSwitchesOff {
        limits.min_compared_ppm = 0;
    }
    let method = if hole == Hole::NumbersOnly { Method::Counters } else { Method::Digests };
    Audit::new(limits, expected, &[direction], method, now(at))
}

fn key(number: u8) -> TenantKey {
    TenantKey::from_bytes([7 + number; 32])
}

fn sealer(floor: u64, number: u8) -> LogSealer {
    LogSealer::new(&key(number), &WEB, Epoch::from_floor(floor).unwrap())
}

impl Game {
    pub(super) fn new(seed: u64, hole: Hole) -> Self {
        let mut game = Self::fresh(seed, hole, Direction::Ingress);
        // What happens at the start of an audit is no part of it.
        game.forward(500);
        game
    }

    pub(super) fn fresh(seed: u64, hole: Hole, direction: Direction) -> Self {
        Self {
            hole,
            audit: audit(hole, 0, direction),
            now: 0,
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            key: 0,
            p4vm_key: 0,
            digests: [PacketDigest::for_vm(&key(0), &WEB), PacketDigest::for_vm(&key(0), &WEB)],
            rotation: None,
            sealer: sealer(1, 0),
            opener: LogOpener::new(&key(0), &WEB),
            epoch: 0,
            record: LogRecord { header_bytes: 128, programs: [PROGRAM, PROGRAM], ..LogRecord::default() },
            held: VecDeque::new(),
            hold_until: 0,
            in_flight: Vec::new(),
            jitter_until: 0,
            undigested_until: 0,
            counts: Counts::default(),
            histories: Histories::default(),
            treason: 0,
            late: 0,
            is_other_judge: false,
            findings: Vec::new(),
            direction,
        }
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    /// Returns a new packet.
    pub(super) fn packet(&mut self) -> Packet {
        self.random(u64::MAX)
    }

    /// Returns a packet's digest under a key.
    fn digest(&self, packet: Packet, key: u8) -> u64 {
        let mut frame = [8; 64];
        frame[48..56].copy_from_slice(&packet.to_le_bytes());
        self.digests[usize::from(key % 2)].digest(&frame, 64)
    }

    pub(super) fn judge(&mut self, packet: Packet) {
        let digest = self.digest(packet, self.p4vm_key);
        let d = self.direction as usize;
        let t = &mut self.record.totals[d];
        (t.judged, t.passed) = (t.judged + 1, t.passed + 1);
        t.without_program += u64::from(self.record.programs[0] == [0; 32]);
        self.is_other_judge |= self.record.programs[0] != PROGRAM;
        self.record.sketches[d].add(Sketch::item(digest));
    }

    pub(super) fn arrive(&mut self, packet: Option<Packet>) {
        let jitter = if self.now < self.jitter_until { self.random(15) } else { 0 };
        let packet = packet.filter(|_| self.now >= self.undigested_until);
        self.in_flight.push(InFlight { due: self.now + DELAY + jitter, packet });
    }

    /// A packet as it should be.
    pub(super) fn honest(&mut self) {
        let packet = self.packet();
        self.honest_one(packet);
    }

    pub(super) fn honest_one(&mut self, packet: Packet) {
        if self.direction == Direction::Egress {
            self.see(Some(packet));
            self.arrive(Some(packet));
        } else {
            self.judge(packet);
            self.arrive(Some(packet));
        }
    }

    /// A packet without a verdict.
    pub(super) fn bypass(&mut self) {
        let packet = self.packet();
        self.treason += 1;
        self.arrive(Some(packet));
    }

    pub(super) fn modify(&mut self) {
        let (judged, arrived) = (self.packet(), self.packet());
        self.treason += 1;
        self.judge(judged);
        self.arrive(Some(arrived));
    }

    /// Milliseconds of honest traffic.
    pub(super) fn forward(&mut self, ms: u64) {
        for _ in 0..ms {
            if self.random(3) > 0 {
                self.honest();
            }
            self.wait(1);
        }
    }

    pub(super) fn wait(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += 1;
            self.deliver();
            if self.now.is_multiple_of(INTERVAL) {
                self.publish();
            }
            if self.now.is_multiple_of(POLL) {
                self.poll();
            }
        }
    }

    pub(super) fn see(&mut self, packet: Option<Packet>) {
        self.counts.packets += 1;
        self.counts.not_whole += u64::from(packet.is_none());
        for k in [self.key, self.key + 1] {
            let is_used = k == self.key || self.rotation.is_some();
            let digest = packet.filter(|_| is_used).map_or(0, |packet| self.digest(packet, k));
            self.histories[usize::from(k % 2)].push(digest);
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        for p in self.in_flight.extract_if(.., |p| p.due <= now).collect::<Vec<_>>() {
            if self.direction == Direction::Egress {
                if let Some(packet) = p.packet {
                    self.judge(packet);
                }
                continue;
            }
            self.see(p.packet);
            if p.packet.is_none() && self.hole == Hole::UndigestedSwitchesOff {
                self.end_comparison();
            }
        }
    }

    /// Puts a former defect back: the comparison ends for a while, and what differed is forgotten.
    fn end_comparison(&mut self) {
        for track in self.audit.tracks.iter_mut().flatten() {
            let Track::Items(items) = track else { continue };
            items.unjudged.clear();
            items.missing.clear();
            items.lose_anchor();
        }
    }

    pub(super) fn publish(&mut self) {
        self.record.published_ns = now(self.now).real_ns;
        if self.record.header_bytes == 0 && self.hole == Hole::NoChannelSwitchesOff {
            self.end_comparison();
        }
        let sealed = self.sealer.seal(&self.record);
        self.epoch = sealed.epoch;
        self.held.push_back((sealed.epoch, sealed.counter, sealed.bytes.to_vec()));
        if self.rotation.as_ref().is_some_and(|r| self.now >= r.from) && self.p4vm_key == self.key {
            self.p4vm_key += 1;
            self.sealer.rotate(&mut LogKey::new(&key(self.p4vm_key), &WEB));
        }
    }

    /// Returns how many rotations have ended.
    pub(super) const fn rotations(&self) -> u8 {
        self.key
    }

    /// The key file of the VM has a new key, which the agent uses soon.
    pub(super) fn rotate(&mut self) {
        if self.rotation.is_some() {
            return;
        }
        let next = self.key + 1;
        self.digests[usize::from(next % 2)] = PacketDigest::for_vm(&key(next), &WEB);
        self.opener.rotate(LogKey::new(&key(next), &WEB), u64::MAX, 0);
        self.rotation = Some(Rotation { from: self.now + SETTLING, until: None });
    }

    pub(super) fn poll(&mut self) {
        let at = now(self.now);
        if self.now >= self.hold_until {
            for (epoch, counter, bytes) in std::mem::take(&mut self.held) {
                self.open(epoch, counter, &bytes);
            }
        }
        self.audit.observe(at, self.direction, self.counts, Some(&self.histories));
        self.findings.extend(self.audit.take_report(at).findings);
        if self.rotation.as_ref().and_then(|r| r.until).is_some_and(|until| self.now >= until) {
            self.rotation = None;
            self.key += 1;
        }
    }

    pub(super) fn open(&mut self, epoch: u64, counter: u64, bytes: &[u8]) {
        match self.opener.open(epoch, counter, bytes) {
            Ok(opened) => {
                if let Some(rotation) = self.rotation.as_mut().filter(|_| opened.is_rekeyed) {
                    rotation.until = Some(self.now + BOTH_KEYS);
                }
                self.audit.record(now(self.now), &opened);
            }
            Err(refusal) => self.audit.refused(now(self.now), refusal),
        }
    }

    pub(super) fn restart(&mut self) {
        self.sealer = sealer(self.epoch + 1, self.p4vm_key);
        let programs = self.record.programs;
        self.record = LogRecord { header_bytes: 128, programs, ..LogRecord::default() };
    }

    pub(super) fn replug(&mut self, unseen: u64) {
        self.poll();
        if self.hole == Hole::ForgetOnReplug {
            self.audit = audit(self.hole, self.now, self.direction);
            (self.counts, self.histories) = Default::default();
            return;
        }
        self.audit.found(Finding::Replugged);
        if unseen > 0 && self.hole != Hole::IgnoreUnseen {
            self.audit.found(Finding::Unseen { direction: Direction::Ingress, frames: unseen });
        }
        if self.hole == Hole::IgnoreUnseen {
            // An auditor that does not look at the interface's counters does not see a new one either.
            let found = self.audit.take_report(now(self.now)).findings;
            self.findings.extend(found.into_iter().filter(|f| *f != Finding::Replugged));
        }
    }

    pub(super) fn load(&mut self, digest: [u8; 32]) {
        self.record.replacements += u32::from(self.record.programs[0] != [0; 32]);
        self.record.programs[0] = digest;
    }

    /// Ends the audit after a quiet moment. Returns the findings and the status.
    pub(super) fn end(&mut self) -> (Vec<Finding>, DirectionStatus) {
        self.forward(100);
        self.wait(800);
        self.findings.extend(self.audit.conclude(now(self.now)).findings);
        let status = self.audit.status(self.direction).unwrap_or_default();
        (std::mem::take(&mut self.findings), status)
    }

    /// Returns whether the cloud did more than the shares say that the audit states.
    pub(super) fn exceeds(&self, status: &DirectionStatus) -> bool {
        let is_old = matches!(self.hole, Hole::UndigestedSwitchesOff | Hole::NumbersOnly);
        let stated = if is_old { 0 } else { status.uncompared };
        self.is_other_judge || self.treason > stated || self.late > stated + status.late
    }

    /// Whether a packet was treated otherwise than the expected program says.
    pub(super) const fn is_treason(&self) -> bool {
        self.is_other_judge || self.treason > 0 || self.late > 0
    }
}
