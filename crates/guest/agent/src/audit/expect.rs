//! What a tenant expects of its P4 VM beside the packets: programs, replacements, header bytes.

use p4shield_abi::Direction;
use p4shield_abi::log_page::{DIGEST_HEADER_BYTES, LogRecord};
use serde::{Deserialize, Serialize};

use super::finding::{Digest, Finding};
use super::settings::ExpectedSettings;
use super::{Limits, Report};

/// Most unexpected programs of a direction that are reported one by one.
const REPORTED: usize = 16;

/// Time for which packets without a program are counted before they are reported again.
const REPORT_AFTER_NS: u64 = 10_000_000_000;

/// The program that a direction should have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpectedProgram {
    /// The tenant does not say. The auditor verifies no program and says so.
    #[default]
    Unknown,
    /// No program: the tenant's configuration treats the packets.
    None,
    /// One of these programs, by digest.
    OneOf(Vec<Digest>),
}

/// What the log has to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectations {
    /// By [`Direction`].
    pub programs: [ExpectedProgram; 2],
    /// Least number of header bytes that the P4 VM has of a packet.
    pub header_bytes: u32,
    /// Replacements of programs that the tenant announces for the time of the audit.
    pub replacements: u32,
    /// What else decides verdicts.
    #[serde(default)]
    pub settings: ExpectedSettings,
}

impl Default for Expectations {
    fn default() -> Self {
        Self {
            programs: Default::default(),
            header_bytes: DIGEST_HEADER_BYTES as u32,
            replacements: 0,
            settings: ExpectedSettings::default(),
        }
    }
}

impl Expectations {
    /// Returns the expectation for a direction.
    #[must_use]
    pub const fn program(&self, direction: Direction) -> &ExpectedProgram {
        &self.programs[direction as usize]
    }
}

/// One direction's programs so far.
#[derive(Default)]
struct ProgramState {
    /// Packets without a program in the newest record of this epoch.
    without_program: u64,
    unreported: u64,
    reported_at: Option<u64>,
    /// Since when the log shows no program.
    absent_since: Option<u64>,
    reported_absent: bool,
    others: Vec<[u8; 32]>,
}

/// Checks records against the expectations.
pub(super) struct ProgramWatch {
    expected: Expectations,
    directions: [bool; 2],
    patience_ns: u64,
    states: [ProgramState; 2],
    /// Replacements in the newest record of this epoch; `None` before the first record.
    replacements: Option<u32>,
    /// Replacements since the audit began.
    replaced: u64,
    header_bytes: u32,
}

impl ProgramWatch {
    pub(super) fn new(expected: Expectations, directions: [bool; 2], limits: Limits) -> Self {
        Self {
            expected,
            directions,
            patience_ns: limits.patience_ns,
            states: Default::default(),
            replacements: None,
            replaced: 0,
            header_bytes: u32::MAX,
        }
    }

    /// The P4 VM restarted: its counters begin at 0.
    pub(super) fn restarted(&mut self) {
        self.replacements = Some(0);
        self.states.iter_mut().for_each(|state| state.without_program = 0);
    }

    /// The log continues from another history: the next record is only the baseline.
    pub(super) const fn broken(&mut self) {
        self.replacements = None;
    }

    pub(super) fn record(&mut self, now: u64, record: &LogRecord, out: &mut Report) {
        let is_first = self.replacements.is_none();
        let before = self.replacements.replace(record.replacements).unwrap_or(record.replacements);
        let announced = u64::from(self.expected.replacements);
        let replaced = self.replaced + u64::from(record.replacements.wrapping_sub(before));
        if replaced > self.replaced.max(announced) {
            out.findings.push(Finding::Replaced { replacements: replaced - self.replaced.max(announced) });
        }
        self.replaced = replaced;
        for direction in Direction::ALL {
            self.direction(now, direction, record, is_first, out);
        }
        // Zero until the P4 VM has a channel.
        let header_bytes = record.header_bytes;
        let is_short = header_bytes != 0 && header_bytes < self.expected.header_bytes;
        if is_short && header_bytes != self.header_bytes {
            let least = self.expected.header_bytes;
            out.findings.push(Finding::ShortHeaders { header_bytes, expected: least });
        }
        self.header_bytes = header_bytes;
    }

    fn direction(&mut self, now: u64, d: Direction, record: &LogRecord, is_first: bool, out: &mut Report) {
        let state = &mut self.states[d as usize];
        let count = record.totals[d as usize].without_program;
        let more = count.saturating_sub(std::mem::replace(&mut state.without_program, count));
        let expected = match self.expected.program(d) {
            _ if !self.directions[d as usize] => return,
            ExpectedProgram::Unknown => return,
            ExpectedProgram::None => &[][..],
            ExpectedProgram::OneOf(digests) => digests,
        };
        let program = record.programs[d as usize];
        let is_loaded = program != [0; 32];
        let is_expected = !is_loaded || expected.iter().any(|e| e.0 == program);
        if !is_expected && !state.others.contains(&program) && state.others.len() < REPORTED {
            state.others.push(program);
            out.findings.push(Finding::OtherProgram { direction: d, digest: Digest(program) });
        }
        if expected.is_empty() {
            return;
        }
        state.unreported += if is_first { 0 } else { more };
        if is_loaded {
            (state.absent_since, state.reported_absent) = (None, false);
        } else {
            let since = *state.absent_since.get_or_insert(now);
            let is_long = now.saturating_sub(since) >= self.patience_ns;
            if is_long && !std::mem::replace(&mut state.reported_absent, is_long) && state.unreported == 0 {
                out.findings.push(Finding::NoProgram { direction: d, packets: 0 });
            }
        }
        let is_due = state.reported_at.is_none_or(|at| now.saturating_sub(at) >= REPORT_AFTER_NS);
        if state.unreported > 0 && is_due {
            state.reported_at = Some(now);
            let packets = std::mem::take(&mut state.unreported);
            out.findings.push(Finding::NoProgram { direction: d, packets });
        }
    }

    /// Reports what is still unreported at the end of the audit.
    pub(super) fn conclude(&mut self, out: &mut Report) {
        for (direction, state) in Direction::ALL.into_iter().zip(&mut self.states) {
            let is_absent = state.absent_since.is_some() && !state.reported_absent;
            let is_new = state.unreported > 0 || (is_absent && state.reported_at.is_none());
            if is_new {
                let packets = std::mem::take(&mut state.unreported);
                out.findings.push(Finding::NoProgram { direction, packets });
            }
        }
    }

    /// Returns the audited directions whose program is not verified.
    pub(super) fn unverified(&self) -> impl Iterator<Item = Direction> {
        Direction::ALL.into_iter().filter(|d| {
            self.directions[*d as usize] && *self.expected.program(*d) == ExpectedProgram::Unknown
        })
    }
}
