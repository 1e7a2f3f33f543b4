//! The log page: the execution log, from the P4 VM to the auditor in the user VM.
//!
//! A page ([`crate::page`]) of [`LOG_SLOTS`] slots, each with a sealed [`LogRecord`] of
//! [`RECORD_SIZE`] bytes. Layout of a record, little-endian, version [`LOG_VERSION`]:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | `published_ns` |
//! | 8 | 16 | `previous_tag` |
//! | 24 | 4 | `header_bytes` |
//! | 28 | 4 | `replacements` |
//! | 32 | 2 x 88 | `totals`: [`DirectionTotals`] of ingress and egress, 11 `u64` each in the order of the fields |
//! | 208 | 32 | `info`: [`InfoTotals`], four `u64` in the order of the fields |
//! | 240 | 2 x 32 | `programs`: SHA-256 digests of the ingress and the egress program |
//! | 304 | 4 | `settings.age_limit_ms` |
//! | 308 | 4 | `settings.passes_without_program`: bit 0 for ingress, bit 1 for egress |
//! | 312 | 8 | `settings.budget` |
//! | 320 | 32 | `settings.configuration` |
//! | 352 | 2 x 1536 | `sketches`: [`Sketch`] of the passed ingress and of the judged egress packets |
//!
//! One record per interval contains totals since the start of the P4 VM's epoch, so a reader that
//! misses records loses only resolution. Each record contains the authentication tag of the previous
//! one.

use crate::bytes::{Reader, Writer};
use crate::page::{page_size, slot_stride};
use crate::sketch::{SKETCH_WORDS, Sketch};

/// First eight bytes of a log page.
pub const LOG_MAGIC: u64 = u64::from_le_bytes(*b"P4SHLOGS");

/// Version of the record's layout; part of the associated data of the seal.
pub const LOG_VERSION: u32 = 3;

/// Slots: 25 seconds of records at the default interval.
pub const LOG_SLOTS: u32 = 256;

/// Bytes from one slot to the next.
pub const LOG_SLOT_STRIDE: usize = slot_stride(RECORD_SIZE);

/// Bytes of a log page, a power of two.
pub const LOG_PAGE_SIZE: usize = page_size(LOG_SLOTS, LOG_SLOT_STRIDE);

/// Most bytes of a packet without VLAN tags that its digest covers; see
/// [`DirectionTotals::passed_digest`].
pub const DIGEST_BYTES: usize = 120;

/// Header bytes that a digest needs to cover [`DIGEST_BYTES`]: two VLAN tags more.
pub const DIGEST_HEADER_BYTES: usize = DIGEST_BYTES + 2 * 4;

/// Running totals of one direction of one VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Packets that the program judged.
    pub judged: u64,
    /// Their bytes, before rewrites.
    pub judged_bytes: u64,
    /// Packets that it passed.
    pub passed: u64,
    /// Their bytes, after rewrites.
    pub passed_bytes: u64,
    /// Packets that it dropped: `judged - passed`.
    pub dropped: u64,
    /// Their bytes, before rewrites.
    pub dropped_bytes: u64,
    /// Sum modulo 2^64 of the digests of judged packets, before rewrites.
    pub judged_digest: u64,
    /// Sum modulo 2^64 of the digests of passed packets, after rewrites. A packet's digest is keyed
    /// and covers what offloads do not change between P4 VM and auditor: its length without VLAN tags,
    /// and up to [`DIGEST_BYTES`] bytes from the Ethernet header on, without VLAN tags, and with
    /// IPv4's checksum, its identification except in fragments, and the layer-4 checksum zeroed.
    pub passed_digest: u64,
    /// Dropped packets of a program that read unknown information without checking whether it is known.
    pub undecided: u64,
    /// Dropped packets without a program, or whose program the engine stopped (budget).
    pub failed: u64,
    /// Judged packets, passed or dropped, of which no program was loaded.
    pub without_program: u64,
}

/// Totals of a P4 VM's info page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoTotals {
    /// Snapshots accepted.
    pub accepted: u64,
    /// Publications that did not authenticate.
    pub forged: u64,
    /// Genuine publications older than one already accepted.
    pub replayed: u64,
    /// Times that the newest snapshot exceeded the age limit.
    pub stale: u64,
}

/// What the host said that decides verdicts beside the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Age from which a snapshot is stale, milliseconds.
    pub age_limit_ms: u32,
    /// Whether packets of each direction pass while it has no program.
    pub passes_without_program: [bool; 2],
    /// Instructions that a program may execute for one packet.
    pub budget: u64,
    /// SHA-256 digest of all that the host said of tenant and VM, these values among it.
    pub configuration: [u8; 32],
}

/// One record of the execution log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRecord {
    /// Nanoseconds of the P4 VM's real-time clock when the record was created.
    pub published_ns: u64,
    /// Authentication tag of the previous record; zeros in the first one of an epoch.
    pub previous_tag: [u8; 16],
    /// Least header bytes of a packet in the channels since the previous record, 0 without a channel: digests
    /// cover no more.
    pub header_bytes: u32,
    /// Number of replacements of this VM's programs.
    pub replacements: u32,
    /// Totals by [`crate::Direction`].
    pub totals: [DirectionTotals; 2],
    /// Totals of in-VM information.
    pub info: InfoTotals,
    /// SHA-256 digest of the program of each direction; zeros without a program.
    pub programs: [[u8; 32]; 2],
    /// What else decides verdicts.
    pub settings: Settings,
    /// Packets that the auditor compares: passed ones of ingress, judged ones of egress.
    pub sketches: [Sketch; 2],
}

/// Bytes of an encoded [`LogRecord`].
pub const RECORD_SIZE: usize =
    8 + 16 + 4 + 4 + 2 * 11 * 8 + 4 * 8 + 2 * 32 + SETTINGS_SIZE + 2 * SKETCH_WORDS * 8;

/// Bytes of encoded [`Settings`].
const SETTINGS_SIZE: usize = 4 + 4 + 8 + 32;

impl DirectionTotals {
    const fn fields(&self) -> [u64; 11] {
        [
            self.judged,
            self.judged_bytes,
            self.passed,
            self.passed_bytes,
            self.dropped,
            self.dropped_bytes,
            self.judged_digest,
            self.passed_digest,
            self.undecided,
            self.failed,
            self.without_program,
        ]
    }

    fn read(r: &mut Reader<'_>) -> Self {
        Self {
            judged: r.u64(),
            judged_bytes: r.u64(),
            passed: r.u64(),
            passed_bytes: r.u64(),
            dropped: r.u64(),
            dropped_bytes: r.u64(),
            judged_digest: r.u64(),
            passed_digest: r.u64(),
            undecided: r.u64(),
            failed: r.u64(),
            without_program: r.u64(),
        }
    }
}

impl Settings {
    fn write(&self, w: &mut Writer<'_>) {
        let [ingress, egress] = self.passes_without_program;
        w.u32(self.age_limit_ms);
        w.u32(u32::from(ingress) | u32::from(egress) << 1);
        w.u64(self.budget);
        w.bytes(&self.configuration);
    }

    fn read(r: &mut Reader<'_>) -> Self {
        let (age_limit_ms, passes) = (r.u32(), r.u32());
        let passes_without_program = [passes & 1 != 0, passes & 2 != 0];
        Self { age_limit_ms, passes_without_program, budget: r.u64(), configuration: r.array() }
    }
}

impl LogRecord {
    /// Encodes the record.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let mut out = [0; RECORD_SIZE];
        let mut w = Writer::new(&mut out);
        w.u64(self.published_ns);
        w.bytes(&self.previous_tag);
        w.u32(self.header_bytes);
        w.u32(self.replacements);
        for v in self.totals.iter().flat_map(DirectionTotals::fields) {
            w.u64(v);
        }
        for v in [self.info.accepted, self.info.forged, self.info.replayed, self.info.stale] {
            w.u64(v);
        }
        for p in &self.programs {
            w.bytes(p);
        }
        self.settings.write(&mut w);
        for cell in self.sketches.iter().flat_map(|sketch| sketch.0) {
            w.u64(cell);
        }
        debug_assert_eq!(w.len(), RECORD_SIZE);
        out
    }

    /// Decodes a record.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_SIZE]) -> Self {
        let mut r = Reader::new(bytes);
        Self {
            published_ns: r.u64(),
            previous_tag: r.array(),
            header_bytes: r.u32(),
            replacements: r.u32(),
            totals: [DirectionTotals::read(&mut r), DirectionTotals::read(&mut r)],
            info: InfoTotals { accepted: r.u64(), forged: r.u64(), replayed: r.u64(), stale: r.u64() },
            programs: [r.array(), r.array()],
            settings: Settings::read(&mut r),
            sketches: core::array::from_fn(|_| Sketch(core::array::from_fn(|_| r.u64()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_of_the_settings_are_ignored() {
        let mut bytes = [0; RECORD_SIZE];
        bytes[308..312].copy_from_slice(&u32::MAX.to_le_bytes());
        let settings = Settings { passes_without_program: [true; 2], ..Settings::default() };
        assert_eq!(LogRecord::decode(&bytes), LogRecord { settings, ..LogRecord::default() });
    }

    #[test]
    fn records_read_back() {
        let mut bytes = [0; RECORD_SIZE];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i % 251) as u8;
        }
        bytes[308..312].copy_from_slice(&[2, 0, 0, 0]);
        assert_eq!(LogRecord::decode(&bytes).encode(), bytes);
    }
}
