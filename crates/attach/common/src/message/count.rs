//! Packet counts in messages.

use p4shield_mediator::{Counters, DirectionCounts, UnownedCounters};
use serde::{Deserialize, Serialize};

/// Packet counts of one direction of one VM in one lane, since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Index of the tenant.
    pub tenant: u16,
    /// Index of the VM.
    pub vm: u16,
    /// [`p4shield_abi::Direction`] as a number.
    pub direction: u8,
    /// The counts. [`DirectionCounts::held`] is not sent.
    counts: DirectionCounts,
}

impl Count {
    /// Creates the count of one direction of one VM.
    #[must_use]
    pub const fn new((tenant, vm, direction): (u16, u16, u8), counts: DirectionCounts) -> Self {
        Self { tenant, vm, direction, counts }
    }

    /// Returns the counts, with `held` computed so that no more packets left than arrived.
    #[must_use]
    pub fn tally(&self) -> DirectionCounts {
        DirectionCounts { held: self.counts.packets_in.saturating_sub(self.counts.left()), ..self.counts }
    }

    /// Returns the counts of a mediator that are not zero.
    pub(crate) fn of(counters: &Counters) -> impl Iterator<Item = Self> {
        Self::all(counters).filter(|count| count.counts.packets_in != 0)
    }

    /// Returns all counts of a mediator.
    pub fn all(counters: &Counters) -> impl Iterator<Item = Self> {
        counters.tenants.iter().zip(0..).flat_map(|(t, tenant)| {
            t.vms.iter().zip(0..).flat_map(move |(v, vm)| {
                p4shield_abi::Direction::ALL.into_iter().map(move |direction| {
                    Self::new((tenant, vm, direction as u8), v.direction(direction).read())
                })
            })
        })
    }
}

/// What happened to packets that were of no VM, since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnownedCounts {
    /// Passed.
    pub passed: u64,
    /// Dropped, on a port that drops those.
    pub dropped: u64,
    /// Dropped for a source address that is a VM's.
    pub spoofed: u64,
    /// Dropped before their owner could be determined (ambiguous contents, no memory, an internal error), or
    /// invalid transitions of AF_XDP frames.
    pub refused: u64,
}

impl UnownedCounts {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        let Self { passed, dropped, spoofed, refused } = *other;
        let sums = [&mut self.passed, &mut self.dropped, &mut self.spoofed, &mut self.refused];
        for (sum, n) in sums.into_iter().zip([passed, dropped, spoofed, refused]) {
            *sum = sum.saturating_add(n);
        }
    }
}

impl From<&UnownedCounters> for UnownedCounts {
    fn from(u: &UnownedCounters) -> Self {
        Self { passed: u.passed.get(), dropped: u.dropped.get(), spoofed: u.spoofed.get(), refused: 0 }
    }
}
