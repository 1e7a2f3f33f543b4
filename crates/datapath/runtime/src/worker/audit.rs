//! The running digests of one user VM's packets, for its log records.
//!
//! Digests are summed, so a packet's digest may be added after its verdict, but before the next record:
//! [`Audit::sums`] adds all. Packets wait so that several are digested at once.

use p4shield_abi::Direction;
use p4shield_abi::sketch::Sketch;
use p4shield_seal::{DigestBatch, LANES, PacketDigest};

/// Sums of digests of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Of usage was judged, as it came.
    pub(super) judged: u64,
    /// Of usage was passed, as it left.
    pub(super) passed: u64,
}

/// The sums that a digest belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct DigestUse {
    direction: u8,
    judged: bool,
    passed: bool,
}

/// DigestBatch of one user VM's packets.
pub(super) struct Audit {
    key: PacketDigest,
    waiting: DigestBatch,
    uses: [DigestUse; LANES],
    sums: [Sums; 2],
    /// Of the packets that the auditor sees: passed ones of ingress, judged ones of egress.
    sketches: [Sketch; 2],
}

impl Audit {
    pub(super) fn new(key: PacketDigest) -> Self {
        Self {
            key,
            waiting: DigestBatch::default(),
            uses: Default::default(),
            sums: Default::default(),
            sketches: Default::default(),
        }
    }

    /// Digests further packets with another key.
    pub(super) fn set_key(&mut self, key: &PacketDigest) {
        self.digest();
        self.key.clone_from(key);
    }

    /// Adds a packet that is to be judged.
    #[inline]
    pub(super) fn received(&mut self, direction: Direction, header: &[u8], packet_len: u32) {
        self.add(header, packet_len, DigestUse { direction: direction as u8, judged: true, passed: false });
    }

    /// Records that the last packet was passed unchanged.
    #[inline]
    pub(super) fn passed(&mut self) {
        // The packet still waits: waiting packets are digested when another arrives, or before a record.
        if let Some(last) = self.waiting.len().checked_sub(1) {
            self.uses[last].passed = true;
        }
    }

    /// Records that the last packet was passed with this header and length.
    #[inline]
    pub(super) fn passed_as(&mut self, direction: Direction, header: &[u8], packet_len: u32) {
        self.add(header, packet_len, DigestUse { direction: direction as u8, judged: false, passed: true });
    }

    /// Returns the sums of all packets so far, by direction.
    pub(super) fn sums(&mut self) -> [Sums; 2] {
        self.digest();
        self.sums
    }

    /// Returns the sketches of the packets in [`Self::sums`], by direction.
    pub(super) const fn sketches(&self) -> &[Sketch; 2] {
        &self.sketches
    }

    #[inline]
    fn add(&mut self, header: &[u8], packet_len: u32, usage: DigestUse) {
        if self.waiting.len() == LANES {
            self.digest();
        }
        if let Some(slot) = self.waiting.add(header, packet_len) {
            self.uses[slot] = usage;
        }
    }

    #[inline(never)]
    fn digest(&mut self) {
        let count = self.waiting.len();
        let digests = self.waiting.finish(&self.key);
        for (digest, usage) in digests.iter().zip(&self.uses).take(count) {
            let direction = usize::from(usage.direction & 1);
            let sums = &mut self.sums[direction];
            sums.judged = sums.judged.wrapping_add(if usage.judged { *digest } else { 0 });
            sums.passed = sums.passed.wrapping_add(if usage.passed { *digest } else { 0 });
            if [usage.passed, usage.judged][direction] {
                self.sketches[direction].add(Sketch::item(*digest));
            }
        }
    }
}
