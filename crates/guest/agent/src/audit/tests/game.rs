//! A cloud, a P4 VM with a sealed log, and a VM's interface, for games of an adversary against the audit.

use std::collections::VecDeque;

use p4shield_abi::Direction;
use p4shield_abi::log_page::LogRecord;
use p4shield_abi::sketch::Sketch;
use p4shield_seal::{Epoch, Identity, LogOpener, LogSealer, Now, PacketDigest, TenantKey};

use super::super::expect::{Expectations, ExpectedProgram};
use super::super::finding::{Digest, Finding};
use super::super::history::History;
use super::super::{Audit, Counts, Limits, Method, Track};

const MS: u64 = 1_000_000;
/// Milliseconds between records, between looks of the auditor, and of a packet's way.
const INTERVAL: u64 = 20;
const POLL: u64 = 5;
const DELAY: u64 = 2;
const KEY: TenantKey = TenantKey::from_bytes([7; 32]);
const WEB: Identity<'_> = Identity { tenant: "acme", vm: "web" };
const PROGRAM: [u8; 32] = [0xa; 32];
const OTHER: [u8; 32] = [0xe; 32];

/// What the cloud does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Nothing.
    Forward,
    /// A judged packet is lost.
    Lose,
    /// Many judged packets are lost.
    LoseMany,
    /// Packets arrive late and in another order.
    Jitter,
    /// The tap cannot digest the next packets.
    Undigested,
    /// Records are delivered late.
    HoldLog,
    /// The P4 VM restarts without a packet in flight.
    Restart,
    /// A packet reaches the interface without a verdict.
    Bypass,
    /// As above, and the tap cannot digest it.
    BypassUndigested,
    /// A packet bypasses the program, which judges an earlier one again.
    JudgeTwice,
    /// A packet changes after its verdict.
    Modify,
    /// As above, while many packets are lost.
    ModifyAmongLosses,
    /// As above, beside packets that the tap cannot digest.
    ModifyAmongUndigested,
    /// A packet is judged and arrives, and arrives again much later.
    Replay,
    /// Another program judges.
    OtherProgram,
    /// As above, and for so short that no record shows it.
    OtherProgramForAMoment,
    /// No program judges.
    Unload,
    /// The P4 VM has fewer bytes of a packet, and what is behind them changes.
    ShortHeaders,
    /// Packets bypass the program, and a new interface replaces the one that they reached.
    BypassAndReplug,
    /// Packets bypass the program to a new interface before a tap is attached to it.
    ReplugAndBypass,
    /// The P4 VM restarts, and packets bypass it.
    RestartAndBypass,
    /// An old record is delivered again, and a packet bypasses the program.
    ReplayRecord,
    /// A record is forged, and a packet bypasses the program.
    ForgeRecord,
    /// The log ends, and packets bypass the program.
    StopLog,
}

impl Move {
    const HONEST: [Self; 7] = [
        Self::Forward,
        Self::Lose,
        Self::LoseMany,
        Self::Jitter,
        Self::Undigested,
        Self::HoldLog,
        Self::Restart,
    ];
    const HOSTILE: [Self; 17] = [
        Self::Bypass,
        Self::BypassUndigested,
        Self::JudgeTwice,
        Self::Modify,
        Self::ModifyAmongLosses,
        Self::ModifyAmongUndigested,
        Self::Replay,
        Self::OtherProgram,
        Self::OtherProgramForAMoment,
        Self::Unload,
        Self::ShortHeaders,
        Self::BypassAndReplug,
        Self::ReplugAndBypass,
        Self::RestartAndBypass,
        Self::ReplayRecord,
        Self::ForgeRecord,
        Self::StopLog,
    ];

    pub(super) fn honest(random: u64) -> Self {
        Self::HONEST[random as usize % Self::HONEST.len()]
    }

    pub(super) fn any(random: u64) -> Self {
        let hostile = Self::HOSTILE[(random / 4) as usize % Self::HOSTILE.len()];
        if random.is_multiple_of(4) { hostile } else { Self::honest(random / 4) }
    }
}

/// A former defect of the auditor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hole {
    None,
    /// Programs, replacements and header bytes are not compared.
    NoExpectations,
    /// A new interface starts a new audit.
    ForgetOnReplug,
    /// Frames before the tap are not counted.
    IgnoreUnseen,
    /// One packet without a digest ends the comparison for a while, and that is no finding.
    UndigestedSwitchesOff,
    /// Only the numbers of packets are compared.
    NumbersOnly,
}

impl Hole {
    pub(super) const ALL: [Self; 5] = [
        Self::NoExpectations,
        Self::ForgetOnReplug,
        Self::IgnoreUnseen,
        Self::UndigestedSwitchesOff,
        Self::NumbersOnly,
    ];
}

/// A packet on its way to the interface.
struct InFlight {
    due: u64,
    /// `None` if the tap cannot digest it.
    digest: Option<u64>,
}

pub(super) struct Game {
    hole: Hole,
    audit: Audit,
    now: u64,
    seed: u64,
    digest: PacketDigest,
    sealer: LogSealer,
    opener: LogOpener,
    epoch: u64,
    record: LogRecord,
    /// Sealed records that are not delivered yet.
    held: VecDeque<(u64, u64, Vec<u8>)>,
    hold_until: u64,
    in_flight: Vec<InFlight>,
    jitter_until: u64,
    undigested_until: u64,
    counts: Counts,
    history: History,
    /// Whether a packet was treated otherwise than the expected program says.
    pub(super) is_treason: bool,
    findings: Vec<Finding>,
}

fn now(ms: u64) -> Now {
    let mono_ns = (ms + 3_600_000) * MS;
    Now { mono_ns, real_ns: mono_ns + 1_700_000_000_000_000_000 }
}

fn audit(hole: Hole, at: u64) -> Audit {
    let known = ExpectedProgram::OneOf(vec![Digest(PROGRAM)]);
    let expected = match hole {
        Hole::NoExpectations => {
            Expectations { programs: Default::default(), header_bytes: 0, replacements: u32::MAX }
        }
        _ => Expectations { programs: [known, ExpectedProgram::None], ..Expectations::default() },
    };
    let mut limits = Limits::new(INTERVAL * MS, DELAY * MS);
    if hole == Hole::UndigestedSwitchesOff {
        limits.min_compared_ppm = 0;
    }
    let method = if hole == Hole::NumbersOnly { Method::Counters } else { Method::Digests };
    Audit::new(limits, expected, &[Direction::Ingress], method, now(at))
}

fn sealer(floor: u64) -> LogSealer {
    LogSealer::new(&KEY, &WEB, Epoch::from_floor(floor).unwrap())
}

impl Game {
    pub(super) fn new(seed: u64, hole: Hole) -> Self {
        let mut game = Self {
            hole,
            audit: audit(hole, 0),
            now: 0,
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            digest: PacketDigest::for_vm(&KEY, &WEB),
            sealer: sealer(1),
            opener: LogOpener::new(&KEY, &WEB),
            epoch: 0,
            record: LogRecord { header_bytes: 128, programs: [PROGRAM, [0; 32]], ..LogRecord::default() },
            held: VecDeque::new(),
            hold_until: 0,
            in_flight: Vec::new(),
            jitter_until: 0,
            undigested_until: 0,
            counts: Counts::default(),
            history: History::default(),
            is_treason: false,
            findings: Vec::new(),
        };
        game.wait(200);
        game.forward(60);
        game
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
    }

    /// Returns the digest of a new packet.
    fn packet(&mut self) -> u64 {
        let mut frame = [8; 64];
        frame[48..56].copy_from_slice(&self.random(u64::MAX).to_le_bytes());
        self.digest.digest(&frame, 64)
    }

    fn judge(&mut self, digest: u64) {
        let t = &mut self.record.totals[0];
        (t.judged, t.passed) = (t.judged + 1, t.passed + 1);
        t.without_program += u64::from(self.record.programs[0] == [0; 32]);
        self.is_treason |= self.record.programs[0] != PROGRAM;
        self.record.sketches[0].add(Sketch::item(digest));
    }

    fn arrive(&mut self, digest: Option<u64>) {
        let jitter = if self.now < self.jitter_until { self.random(15) } else { 0 };
        let digest = digest.filter(|_| self.now >= self.undigested_until);
        self.in_flight.push(InFlight { due: self.now + DELAY + jitter, digest });
    }

    /// A packet as it should be.
    fn honest(&mut self) {
        let digest = self.packet();
        self.judge(digest);
        self.arrive(Some(digest));
    }

    /// A packet without a verdict.
    fn bypass(&mut self) {
        let digest = self.packet();
        self.is_treason = true;
        self.arrive(Some(digest));
    }

    fn modify(&mut self) {
        let (judged, arrived) = (self.packet(), self.packet());
        self.is_treason = true;
        self.judge(judged);
        self.arrive(Some(arrived));
    }

    /// Milliseconds of honest traffic.
    fn forward(&mut self, ms: u64) {
        for _ in 0..ms {
            if self.random(3) > 0 {
                self.honest();
            }
            self.wait(1);
        }
    }

    fn wait(&mut self, ms: u64) {
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

    fn deliver(&mut self) {
        let now = self.now;
        for p in self.in_flight.extract_if(.., |p| p.due <= now) {
            self.counts.packets += 1;
            self.counts.not_whole += u64::from(p.digest.is_none());
            self.history.push(p.digest.unwrap_or(0));
            if p.digest.is_none() && self.hole == Hole::UndigestedSwitchesOff {
                for track in self.audit.tracks.iter_mut().flatten() {
                    let Track::Items(items) = track else { continue };
                    items.lose_anchor();
                }
            }
        }
    }

    fn publish(&mut self) {
        self.record.published_ns = now(self.now).real_ns;
        let sealed = self.sealer.seal(&self.record);
        self.epoch = sealed.epoch;
        self.held.push_back((sealed.epoch, sealed.counter, sealed.bytes.to_vec()));
    }

    fn poll(&mut self) {
        let at = now(self.now);
        if self.now >= self.hold_until {
            for (epoch, counter, bytes) in std::mem::take(&mut self.held) {
                self.open(epoch, counter, &bytes);
            }
        }
        self.audit.observe(at, Direction::Ingress, self.counts, Some(&self.history));
        self.findings.extend(self.audit.take_report(at).findings);
    }

    fn open(&mut self, epoch: u64, counter: u64, bytes: &[u8]) {
        match self.opener.open(epoch, counter, bytes) {
            Ok(opened) => self.audit.record(now(self.now), &opened),
            Err(refusal) => self.audit.refused(now(self.now), refusal),
        }
    }

    fn restart(&mut self) {
        self.sealer = sealer(self.epoch + 1);
        let programs = self.record.programs;
        self.record = LogRecord { header_bytes: 128, programs, ..LogRecord::default() };
    }

    fn replug(&mut self, unseen: u64) {
        self.poll();
        if self.hole == Hole::ForgetOnReplug {
            self.audit = audit(self.hole, self.now);
            (self.counts, self.history) = Default::default();
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

    fn load(&mut self, digest: [u8; 32]) {
        self.record.replacements += u32::from(self.record.programs[0] != [0; 32]);
        self.record.programs[0] = digest;
    }

    pub(super) fn make(&mut self, m: Move) {
        let few = 1 + self.random(4);
        match m {
            Move::Forward => self.forward(30),
            Move::Lose => {
                let digest = self.packet();
                self.judge(digest);
            }
            Move::LoseMany => self.lose_many(),
            Move::Jitter => self.jitter_until = self.now + 60,
            Move::Undigested => self.undigested_until = self.now + 10,
            Move::HoldLog => self.hold_until = self.now + 60,
            Move::Restart => {
                self.wait(40);
                self.restart();
            }
            Move::Bypass => (0..few).for_each(|_| self.bypass()),
            Move::BypassUndigested => {
                self.undigested_until = self.now + 1;
                (0..few).for_each(|_| self.bypass());
            }
            Move::JudgeTwice => {
                let digest = self.packet();
                self.judge(digest);
                self.arrive(Some(digest));
                self.judge(digest);
                self.bypass();
            }
            Move::Modify => self.modify(),
            Move::ModifyAmongLosses => {
                self.lose_many();
                self.modify();
            }
            Move::ModifyAmongUndigested => {
                self.undigested_until = self.now + 1;
                self.honest();
                self.wait(2);
                self.modify();
            }
            Move::Replay => {
                let digest = self.packet();
                self.judge(digest);
                self.arrive(Some(digest));
                self.forward(100);
                self.is_treason = true;
                self.arrive(Some(digest));
            }
            Move::OtherProgram => {
                self.load(OTHER);
                self.honest();
                self.forward(2 * INTERVAL);
                self.load(PROGRAM);
            }
            Move::OtherProgramForAMoment => {
                self.load(OTHER);
                self.honest();
                self.load(PROGRAM);
            }
            Move::Unload => {
                self.record.replacements += 1;
                self.record.programs[0] = [0; 32];
                self.honest();
                self.record.programs[0] = PROGRAM;
            }
            Move::ShortHeaders => {
                self.record.header_bytes = 34;
                self.is_treason = true;
                self.forward(2 * INTERVAL);
                self.record.header_bytes = 128;
            }
            Move::BypassAndReplug => {
                (0..few).for_each(|_| self.bypass());
                self.wait(20);
                self.replug(0);
            }
            Move::ReplugAndBypass => {
                self.wait(20);
                self.is_treason = true;
                self.replug(few);
            }
            Move::RestartAndBypass => {
                self.wait(40);
                (0..few).for_each(|_| self.bypass());
                self.restart();
            }
            Move::ReplayRecord | Move::ForgeRecord => {
                self.poll();
                if let Some((epoch, counter, mut bytes)) = self.held.back().cloned() {
                    let change = if m == Move::ForgeRecord { 1 } else { 0 };
                    bytes[100] ^= change;
                    self.open(epoch, counter, &bytes);
                }
                self.bypass();
            }
            Move::StopLog => {
                self.hold_until = u64::MAX;
                (0..few).for_each(|_| self.bypass());
            }
        }
        self.forward(10);
    }

    fn lose_many(&mut self) {
        for _ in 0..150 {
            let digest = self.packet();
            self.judge(digest);
        }
    }

    /// Ends the audit after a quiet moment. Returns the findings, and how many packets were not compared.
    pub(super) fn end(&mut self) -> (Vec<Finding>, u64) {
        self.forward(100);
        self.wait(800);
        self.findings.extend(self.audit.conclude(now(self.now)).findings);
        let uncompared = self.audit.status(Direction::Ingress).map_or(0, |s| s.uncompared);
        (std::mem::take(&mut self.findings), uncompared)
    }
}
