//! The comparison of one direction across a rotation of the VM's key.
//!
//! From the first record under a new key on, the P4 VM's digests have that key. Each interval between two
//! records has one key, and the tap digests packets with both meanwhile. So the comparison changes to the
//! other digests between two records; packets on which the sides differ at that moment keep their place:
//! each packet of the interface is known by both digests.

use super::history::Rekeyed;
use super::items::{ItemAudit, Pending};

impl ItemAudit {
    /// If the oldest waiting record is under another key, compares with that key's digests from now on.
    pub(super) fn follow_key(&mut self) {
        let Some(rekeyed) = self.records.front_mut().and_then(|r| r.rekeyed.take()) else { return };
        if rekeyed == Rekeyed::Somewhere {
            self.lose_anchor();
        }
        if !self.translate() {
            // What differs cannot be named by the new key: its number is compared.
            self.lose_anchor();
        }
        std::mem::swap(&mut self.arrivals, &mut self.twins);
        self.key ^= 1;
    }

    /// Names the packets that only the interface has by the other key. Returns false if that is not possible.
    fn translate(&mut self) -> bool {
        let twins: Option<Vec<_>> =
            self.unjudged.iter().map(|p| self.twin(p.item).map(|item| Pending { item, ..*p })).collect();
        twins.map(|twins| self.unjudged = twins).is_some()
    }

    /// Returns the item of a packet of the interface under the other key, if it has both.
    pub(super) fn twin(&self, item: u64) -> Option<u64> {
        if !self.has_twins() {
            return None;
        }
        let at = self.arrivals.iter().rposition(|arrived| *arrived == item)?;
        self.twins.get(at).copied().filter(|twin| *twin != 0)
    }

    /// Whether the kept packets have items under two keys.
    pub(super) fn has_twins(&self) -> bool {
        self.newest_twin.is_some_and(|n| n > self.first)
    }
}
