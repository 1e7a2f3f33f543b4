//! The running digests of one user VM's packets, as its log records have them.
//!
//! Digests are sums, so a packet's may be added later than the packet is judged: before the next record, by when
//! [`Audit::sums`] has added all. Until then packets wait to be digested several at once.

use p4shield_abi::Direction;
use p4shield_seal::{DigestBatch, LANES, PacketDigest};

/// Sums of digests of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Of what was judged, as it came.
    pub(super) judged: u64,
    /// Of what was passed, as it left.
    pub(super) passed: u64,
}

/// To which sums a digest belongs.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    direction: u8,
    judged: bool,
    passed: bool,
}

/// Digests of one user VM's packets.
pub(super) struct Audit {
    key: PacketDigest,
    waiting: DigestBatch,
    uses: [Use; LANES],
    sums: [Sums; 2],
}

impl Audit {
    pub(super) fn new(key: PacketDigest) -> Self {
        Self { key, waiting: DigestBatch::default(), uses: Default::default(), sums: Default::default() }
    }

    /// A packet came to be judged.
    #[inline]
    pub(super) fn came(&mut self, direction: Direction, header: &[u8], packet_len: u32) {
        self.add(header, packet_len, Use { direction: direction as u8, judged: true, passed: false });
    }

    /// The packet that came last was passed as it was.
    #[inline]
    pub(super) fn passed(&mut self) {
        // It still waits: those that wait are digested when another comes, or before a record.
        if let Some(last) = self.waiting.len().checked_sub(1) {
            self.uses[last].passed = true;
        }
    }

    /// The packet that came last was passed, and looks like this now.
    #[inline]
    pub(super) fn passed_as(&mut self, direction: Direction, header: &[u8], packet_len: u32) {
        self.add(header, packet_len, Use { direction: direction as u8, judged: false, passed: true });
    }

    /// The sums of all so far, by direction.
    pub(super) fn sums(&mut self) -> [Sums; 2] {
        self.digest();
        self.sums
    }

    #[inline]
    fn add(&mut self, header: &[u8], packet_len: u32, what: Use) {
        if self.waiting.len() == LANES {
            self.digest();
        }
        if let Some(place) = self.waiting.add(header, packet_len) {
            self.uses[place] = what;
        }
    }

    #[inline(never)]
    fn digest(&mut self) {
        let count = self.waiting.len();
        let digests = self.waiting.finish(&self.key);
        for (digest, what) in digests.iter().zip(&self.uses).take(count) {
            let sums = &mut self.sums[usize::from(what.direction & 1)];
            sums.judged = sums.judged.wrapping_add(if what.judged { *digest } else { 0 });
            sums.passed = sums.passed.wrapping_add(if what.passed { *digest } else { 0 });
        }
    }
}
