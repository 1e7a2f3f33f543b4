//! The sums of all lanes' counters: each lane's mediator has counters of its own.

use p4shield_abi::Direction;
use p4shield_attach::{Count, UnownedCounts};
use p4shield_mediator::{Config, Counters, DirectionCounts, VmRef};

/// Sums of counters over lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// By tenant, VM and [`Direction`].
    tallies: Vec<Vec<[DirectionCounts; 2]>>,
    /// Packets that belong to no VM.
    pub unowned: UnownedCounts,
}

impl Totals {
    /// Returns zeros for the tenants of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let tallies = config.tenants.iter().map(|t| vec![Default::default(); t.vms.len()]).collect();
        Self { tallies, unowned: UnownedCounts::default() }
    }

    /// Changes the tenants: those that both configurations have keep their counts.
    pub(crate) fn set_tenants(&mut self, before: &Config, config: &Config) {
        let old = std::mem::replace(self, Self::new(config));
        self.unowned = old.unowned;
        for (tenant, vms) in (0..).zip(&mut self.tallies) {
            for (vm, tally) in (0..).zip(vms) {
                if config.keeps_vm(before, VmRef { tenant, vm }) {
                    *tally = old.tallies[usize::from(tenant)][usize::from(vm)];
                }
            }
        }
    }

    /// Returns the counters of one mediator.
    #[must_use]
    pub fn of(counters: &Counters) -> Self {
        let tally = |v: &p4shield_mediator::VmCounters| Direction::ALL.map(|d| v.direction(d).read());
        Self {
            tallies: counters.tenants.iter().map(|t| t.vms.iter().map(tally).collect()).collect(),
            unowned: (&counters.unowned).into(),
        }
    }

    /// Returns the counters of one direction of one VM; zeros if it does not exist.
    #[must_use]
    pub fn tally(&self, tenant: usize, vm: usize, direction: Direction) -> DirectionCounts {
        let vm = self.tallies.get(tenant).and_then(|vms| vms.get(vm));
        vm.map(|d| d[direction as usize]).unwrap_or_default()
    }

    /// Adds a lane's counters of one direction. Counters of a VM that does not exist are ignored.
    pub(crate) fn add(&mut self, count: &Count) {
        let vm =
            self.tallies.get_mut(usize::from(count.tenant)).and_then(|t| t.get_mut(usize::from(count.vm)));
        let Some(sum) = vm.and_then(|d| d.get_mut(usize::from(count.direction))) else { return };
        let tally = count.tally();
        let pairs = [
            (&mut sum.packets_in, tally.packets_in),
            (&mut sum.bytes_in, tally.bytes_in),
            (&mut sum.passed, tally.passed),
            (&mut sum.bytes_out, tally.bytes_out),
            (&mut sum.rewritten, tally.rewritten),
            (&mut sum.held, tally.held),
        ];
        let dropped = sum.dropped.iter_mut().zip(tally.dropped);
        let let_through = sum.let_through.iter_mut().zip(tally.let_through);
        for (sum, n) in pairs.into_iter().chain(dropped).chain(let_through) {
            *sum = sum.saturating_add(n);
        }
    }

    /// Sets the number of held packets to zero: lanes that are gone hold none.
    pub(crate) fn clear_held(&mut self) {
        self.tallies.iter_mut().flatten().flatten().for_each(|t| t.held = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_mediator::{TenantConfig, VmConfig};

    #[test]
    fn lanes_are_summed_and_invalid_counts_are_ignored() {
        let vm = VmConfig::new("web", Vec::new());
        let config = Config { tenants: vec![TenantConfig::new("alice", vec![vm])] };
        let mut totals = Totals::new(&config);
        let tally_of_lane = DirectionCounts { packets_in: 10, passed: 7, ..DirectionCounts::default() };
        let count = Count::new((0, 0, 1), tally_of_lane);
        totals.add(&count);
        totals.add(&count);
        for missing in [(1, 0, 1), (0, 1, 1), (0, 0, 2)] {
            totals.add(&Count::new(missing, tally_of_lane));
        }
        let tally = totals.tally(0, 0, Direction::Egress);
        assert_eq!((tally.packets_in, tally.passed, tally.held), (20, 14, 6));
        assert_eq!(totals.tally(0, 0, Direction::Ingress), DirectionCounts::default());
        assert_eq!(totals.tally(7, 0, Direction::Ingress), DirectionCounts::default());
        let huge = DirectionCounts { packets_in: u64::MAX, ..DirectionCounts::default() };
        totals.add(&Count::new((0, 0, 1), huge));
        assert_eq!(
            totals.tally(0, 0, Direction::Egress).packets_in,
            u64::MAX,
            "a false count does not overflow"
        );
        totals.clear_held();
        assert_eq!(totals.tally(0, 0, Direction::Egress).held, 0);
    }
}
