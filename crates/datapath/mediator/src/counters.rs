//! Packet counters, for metrics.
//!
//! Only the mediator's thread writes, so counting is a load, an addition and a store, without locked
//! instructions and without cache lines that two cores write. Any thread may read at any time.

use crate::config::{Config, VmRef};
use crate::flight::{Flight, FlightState, Owner};
use crate::packet::Reason;
use p4shield_abi::Direction;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows, with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Adds; for the one writer. Release, so that a reader that sees a packet leave has seen it enter.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Release);
    }
}

/// All counters of one mediator.
#[derive(Debug)]
pub struct Counters {
    /// By tenant, in the order of the configuration.
    pub tenants: Box<[TenantCounters]>,
    /// Packets that no program judges.
    pub unowned: UnownedCounters,
}

/// Counters of one tenant.
#[derive(Debug)]
pub struct TenantCounters {
    /// The tenant's name.
    pub name: String,
    /// By VM, in the order of the configuration.
    pub vms: Box<[VmCounters]>,
    /// Answers that came after the policy had decided their packet.
    pub late: Counter,
    /// Times that the mediator detached the channel because the P4 VM broke the protocol, stalled or exited.
    pub faults: Counter,
    /// Times that the mediator woke the sleeping P4 VM.
    pub wakeups: Counter,
}

/// Counters of one VM.
#[derive(Debug)]
pub struct VmCounters {
    /// The VM's name.
    pub name: String,
    /// By [`Direction`].
    pub directions: [DirectionCounters; 2],
}

/// Counters of one direction of one VM, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct DirectionCounters {
    pub(crate) packets_in: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) passed: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) rewritten: Counter,
    pub(crate) dropped: [Counter; Reason::ALL.len()],
    pub(crate) let_through: [Counter; Reason::ALL.len()],
}

/// Counters of packets that no program judges: those of no VM, and those of VMs whose direction has
/// no program.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UnownedCounters {
    /// Passed.
    pub passed: Counter,
    /// Dropped on a port whose policy for unowned packets is to drop them.
    pub dropped: Counter,
    /// Dropped because their source address is a VM's and no VM sends from their port.
    pub spoofed: Counter,
}

/// Values of [`DirectionCounters`] at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounts {
    /// Packets that entered.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that the program passed.
    pub passed: u64,
    /// Bytes of the packets that were passed or let through, after rewrites.
    pub bytes_out: u64,
    /// Packets that the program passed with a rewrite.
    pub rewritten: u64,
    /// Packets dropped, by [`Reason`].
    pub dropped: [u64; Reason::ALL.len()],
    /// Packets let through without a verdict, by [`Reason`].
    pub let_through: [u64; Reason::ALL.len()],
    /// Packets held at the moment: `packets_in - passed - let through - dropped`. Not serialised,
    /// because the other fields determine it.
    #[serde(skip)]
    pub held: u64,
}

impl DirectionCounts {
    /// Returns how many packets have left.
    #[must_use]
    pub fn left(&self) -> u64 {
        let unjudged = self.dropped.iter().chain(&self.let_through);
        unjudged.fold(self.passed, |sum, n| sum.wrapping_add(*n))
    }

    /// Returns how many packets were dropped for a reason.
    #[must_use]
    pub fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Returns how many packets were let through for a reason.
    #[must_use]
    pub fn let_through_for(&self, reason: Reason) -> u64 {
        self.let_through[reason as usize]
    }
}

impl DirectionCounters {
    /// Reads all counters. The result is exact while the mediator is idle; otherwise packets that
    /// leave during the reading count as held.
    #[must_use]
    pub fn read(&self) -> DirectionCounts {
        // Packets that left are read before packets that entered, so that never more have left than entered.
        let mut counts = DirectionCounts {
            passed: self.passed.get(),
            bytes_out: self.bytes_out.get(),
            rewritten: self.rewritten.get(),
            dropped: std::array::from_fn(|i| self.dropped[i].get()),
            let_through: std::array::from_fn(|i| self.let_through[i].get()),
            bytes_in: self.bytes_in.get(),
            packets_in: self.packets_in.get(),
            held: 0,
        };
        counts.held = counts.packets_in.wrapping_sub(counts.left());
        counts
    }
}

impl VmCounters {
    /// Returns the counters of a direction.
    #[must_use]
    pub fn direction(&self, direction: Direction) -> &DirectionCounters {
        &self.directions[direction as usize]
    }
}

/// Consecutive packets of one VM and direction, which are added to their counters together.
#[derive(Debug)]
struct PendingCount {
    owner: Owner,
    direction: Direction,
    packets: u64,
    bytes: u64,
}

impl Default for PendingCount {
    fn default() -> Self {
        Self { owner: Owner::NONE, direction: Direction::Ingress, packets: 0, bytes: 0 }
    }
}

impl PendingCount {
    #[inline]
    fn is_of(&self, owner: Owner, direction: Direction) -> bool {
        self.owner == owner && self.direction == direction
    }

    #[inline]
    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Passes the count to `store` unless it is zero, and starts a new one for `owner` and `direction`.
    #[inline]
    fn restart(&mut self, owner: Owner, direction: Direction, store: impl FnOnce(&Self, Owner, Direction)) {
        if self.packets != 0 {
            store(self, self.owner, self.direction);
        }
        *self = Self { owner, direction, packets: 0, bytes: 0 };
    }
}

/// Counts of one call to the mediator that are not stored yet: a packet costs two additions, a row of
/// packets of one VM two stores.
#[derive(Debug, Default)]
pub(crate) struct CounterBatch {
    entered: PendingCount,
    passed: PendingCount,
    /// Unowned packets that passed.
    unowned: u64,
}

impl CounterBatch {
    /// Counts packets that enter a queue.
    #[inline]
    pub(crate) fn entered(
        &mut self,
        counters: &Counters,
        owner: Owner,
        direction: Direction,
        (packets, bytes): (u64, u64),
    ) {
        if !self.entered.is_of(owner, direction) {
            self.store_entered(counters, owner, direction);
        }
        self.entered.add(packets, bytes);
    }

    /// Counts an unowned packet that passes.
    #[inline]
    pub(crate) fn unowned_passed(&mut self) {
        self.unowned += 1;
    }

    /// Counts a packet that its program passed and that leaves its queue.
    #[inline]
    pub(crate) fn passed(&mut self, counters: &Counters, owner: Owner, direction: Direction, bytes: usize) {
        if !self.passed.is_of(owner, direction) {
            self.store(counters);
            (self.passed.owner, self.passed.direction) = (owner, direction);
        }
        self.passed.add(1, bytes as u64);
    }

    /// Counts a packet that leaves its queue dropped or let through. Stored at once.
    pub(crate) fn not_passed(
        &mut self,
        counters: &Counters,
        flight: &Flight,
        bytes: usize,
        direction: Direction,
    ) {
        self.store_entered(counters, Owner::NONE, direction);
        let Some(counters) = counters.of(flight.vm.vm()).map(|c| &c[direction as usize]) else { return };
        match flight.state {
            FlightState::Dropped => counters.dropped[flight.reason as usize].add(1),
            FlightState::LetThrough => {
                counters.let_through[flight.reason as usize].add(1);
                counters.bytes_out.add(bytes as u64);
            }
            // `passed` counts these.
            FlightState::Waiting | FlightState::Passed => {}
        }
    }

    /// Stores the counts: packets that entered first, so that no reader sees more packets leave than enter.
    #[inline(never)]
    pub(crate) fn store(&mut self, counters: &Counters) {
        self.store_entered(counters, Owner::NONE, Direction::Ingress);
        if self.unowned != 0 {
            counters.unowned.passed.add(std::mem::take(&mut self.unowned));
        }
        self.passed.restart(Owner::NONE, Direction::Ingress, |count, owner, direction| {
            if let Some(counters) = counters.of(owner.vm()) {
                counters[direction as usize].passed.add(count.packets);
                counters[direction as usize].bytes_out.add(count.bytes);
            }
        });
    }

    #[inline(never)]
    fn store_entered(&mut self, counters: &Counters, owner: Owner, direction: Direction) {
        self.entered.restart(owner, direction, |count, owner, direction| {
            if let Some(counters) = counters.of(owner.vm()) {
                counters[direction as usize].packets_in.add(count.packets);
                counters[direction as usize].bytes_in.add(count.bytes);
            }
        });
    }
}

impl Counters {
    /// Returns the counters of a VM by direction, if there is such a VM.
    #[inline]
    pub(crate) fn of(&self, vm: VmRef) -> Option<&[DirectionCounters; 2]> {
        let tenant = self.tenants.get(usize::from(vm.tenant))?;
        tenant.vms.get(usize::from(vm.vm)).map(|c| &c.directions)
    }

    pub(crate) fn new(config: &Config) -> Self {
        let tenants = config.tenants.iter().map(|tenant| TenantCounters {
            name: tenant.name.clone(),
            vms: tenant
                .vms
                .iter()
                .map(|vm| VmCounters { name: vm.name.clone(), directions: Default::default() })
                .collect(),
            late: Counter::default(),
            faults: Counter::default(),
            wakeups: Counter::default(),
        });
        Self { tenants: tenants.collect(), unowned: UnownedCounters::default() }
    }
}
