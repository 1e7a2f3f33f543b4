//! What happened to packets, as a library tells it.

use p4shield_mediator::{Counters, Reason, Tally, Unowned};
use serde::{Deserialize, Serialize};

/// What happened to packets of one direction of one VM in one lane, since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Index of the tenant.
    pub tenant: u16,
    /// Index of the VM.
    pub vm: u16,
    /// [`p4shield_abi::Direction`] as a number.
    pub direction: u8,
    /// Packets that came.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that the program passed.
    pub passed: u64,
    /// Bytes that went on.
    pub bytes_out: u64,
    /// Packets passed with a rewrite.
    pub rewritten: u64,
    /// Packets dropped, by [`Reason`].
    pub dropped: [u64; Reason::ALL.len()],
    /// Packets let through unjudged, by [`Reason`].
    pub let_through: [u64; Reason::ALL.len()],
}

impl Count {
    /// As the mediator counts. What left is no more than what came, whatever was said.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let mut tally = Tally {
            packets_in: self.packets_in,
            bytes_in: self.bytes_in,
            passed: self.passed,
            bytes_out: self.bytes_out,
            rewritten: self.rewritten,
            dropped: self.dropped,
            let_through: self.let_through,
            held: 0,
        };
        tally.held = tally.packets_in.saturating_sub(tally.left());
        tally
    }

    /// All counts of a mediator that are not zero.
    pub(crate) fn of(counters: &Counters) -> impl Iterator<Item = Self> {
        counters.tenants.iter().zip(0..).flat_map(|(t, tenant)| {
            t.vms.iter().zip(0..).flat_map(move |(v, vm)| {
                p4shield_abi::Direction::ALL.into_iter().filter_map(move |direction| {
                    let tally = v.direction(direction).read();
                    (tally.packets_in != 0).then(|| Self::new(tenant, vm, direction as u8, &tally))
                })
            })
        })
    }

    const fn new(tenant: u16, vm: u16, direction: u8, tally: &Tally) -> Self {
        Self {
            tenant,
            vm,
            direction,
            packets_in: tally.packets_in,
            bytes_in: tally.bytes_in,
            passed: tally.passed,
            bytes_out: tally.bytes_out,
            rewritten: tally.rewritten,
            dropped: tally.dropped,
            let_through: tally.let_through,
        }
    }
}

/// What happened to packets that were of no VM, since the lane was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nobodys {
    /// Passed.
    pub passed: u64,
    /// Dropped, on a port that drops those.
    pub dropped: u64,
    /// Dropped for a source address that is a VM's.
    pub spoofed: u64,
    /// Dropped before anybody could look whose they were: what is inside could not be told, no memory, an error of ours.
    pub refused: u64,
}

impl Nobodys {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &Self) {
        let Self { passed, dropped, spoofed, refused } = *other;
        let sums = [&mut self.passed, &mut self.dropped, &mut self.spoofed, &mut self.refused];
        for (sum, n) in sums.into_iter().zip([passed, dropped, spoofed, refused]) {
            *sum = sum.saturating_add(n);
        }
    }
}

impl From<&Unowned> for Nobodys {
    fn from(u: &Unowned) -> Self {
        Self { passed: u.passed.get(), dropped: u.dropped.get(), spoofed: u.spoofed.get(), refused: 0 }
    }
}
