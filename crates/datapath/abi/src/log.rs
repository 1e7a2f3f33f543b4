//! The execution log: what a P4 VM says it did, for the auditor in the user VM.
//!
//! One [`LogRecord`] an interval, with running totals since the P4 VM's epoch began, so that a reader who missed
//! records loses resolution and nothing else. Records travel sealed in the log page ([`crate::page`]); each names
//! the authentication tag of the one before it.

use crate::bytes::{Reader, Writer};

/// Version of the record's layout; part of what a seal authenticates.
pub const LOG_VERSION: u32 = 1;

/// Bytes of a packet that a digest covers at most; see [`DirectionTotals::passed_digest`].
pub const DIGEST_BYTES: usize = 128;

/// Running totals of one direction of one VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionTotals {
    /// Packets that the program judged.
    pub judged: u64,
    /// Their bytes, as they came.
    pub judged_bytes: u64,
    /// Packets that it passed.
    pub passed: u64,
    /// Their bytes, as they left.
    pub passed_bytes: u64,
    /// Packets that it dropped: `judged - passed`.
    pub dropped: u64,
    /// Their bytes, as they came.
    pub dropped_bytes: u64,
    /// Sum modulo 2^64 of the packet digests of what was judged, as it came.
    pub judged_digest: u64,
    /// Sum modulo 2^64 of the packet digests of what was passed, as it left. The digest of one packet is keyed and
    /// covers its length and up to [`DIGEST_BYTES`] bytes from the Ethernet header on, layer-4 checksum zeroed
    /// (offloads fill that in anywhere between the two who compare).
    pub passed_digest: u64,
    /// Of those dropped: the program read unknown information and did not ask whether it was known.
    pub undecided: u64,
    /// Of those dropped: the engine stopped the program (budget) or there was no program.
    pub failed: u64,
}

/// What a P4 VM saw on its info page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoTotals {
    /// Snapshots accepted.
    pub accepted: u64,
    /// Publications that did not authenticate.
    pub forged: u64,
    /// Genuine publications older than one already accepted.
    pub replayed: u64,
    /// Times that the newest snapshot passed the age limit.
    pub stale: u64,
}

/// One record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRecord {
    /// Nanoseconds of the P4 VM's real-time clock when the record was made.
    pub published_ns: u64,
    /// Authentication tag of the record before this one; zeros in the first of an epoch.
    pub previous_tag: [u8; 16],
    /// Header bytes a packet that the channel hands over: digests cover `min(header_bytes, DIGEST_BYTES)`.
    pub header_bytes: u32,
    /// How often the programs of this VM were replaced.
    pub replacements: u32,
    /// By [`crate::Direction`].
    pub totals: [DirectionTotals; 2],
    /// In-VM information.
    pub info: InfoTotals,
    /// SHA-256 digest of the program of each direction; zeros where there is none.
    pub programs: [[u8; 32]; 2],
}

/// Bytes of an encoded [`LogRecord`].
pub const RECORD_SIZE: usize = 8 + 16 + 4 + 4 + 2 * 10 * 8 + 4 * 8 + 2 * 32;

impl DirectionTotals {
    const fn fields(&self) -> [u64; 10] {
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
        }
    }
}

impl LogRecord {
    /// Encodes it.
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
        debug_assert_eq!(w.len(), RECORD_SIZE);
        out
    }

    /// Decodes it.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back() {
        let mut bytes = [0; RECORD_SIZE];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i % 251) as u8;
        }
        assert_eq!(LogRecord::decode(&bytes).encode(), bytes);
    }
}
