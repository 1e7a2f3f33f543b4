//! What happened to the packets, for metrics.
//!
//! The mediator's thread alone writes, so counting is a load, an addition and a store: no locked instruction, no
//! cache line that two cores write. Any thread may read at any time.

use crate::config::{Config, VmRef};
use crate::packet::Reason;
use crate::queue::{Flight, Owner, State};
use p4shield_abi::Direction;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// For the one writer. Release, so that a reader who sees a packet leave has seen it come.
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
    /// Packets about which nobody is asked.
    pub unowned: UnownedCounters,
}

/// Counters of one tenant.
#[derive(Debug)]
pub struct TenantCounters {
    /// The tenant's name.
    pub name: String,
    /// By VM, in the order of the configuration.
    pub vms: Box<[VmCounters]>,
    /// Answers that came after their packet had been decided by policy.
    pub late: Counter,
    /// Times that the channel was detached because the P4 VM broke the protocol, stalled or went away.
    pub faults: Counter,
    /// Times that a sleeping P4 VM was woken.
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

/// Counters of one direction of one VM. On cache lines of their own.
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

/// Counters of packets that no program is asked about: those of no VM, and those of VMs that want nobody asked.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct UnownedCounters {
    /// Passed.
    pub passed: Counter,
    /// Dropped, on a port that drops those.
    pub dropped: Counter,
    /// Dropped because their source is a VM's, on a port from which no VM sends.
    pub spoofed: Counter,
}

/// The counters of one direction of one VM at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounts {
    /// Packets that came.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that the program passed.
    pub passed: u64,
    /// Bytes of the packets that went on, as they left.
    pub bytes_out: u64,
    /// Packets that the program passed with a rewrite.
    pub rewritten: u64,
    /// Packets dropped, by [`Reason`].
    pub dropped: [u64; Reason::ALL.len()],
    /// Packets let through unjudged, by [`Reason`].
    pub let_through: [u64; Reason::ALL.len()],
    /// Packets held at the moment: `packets_in - passed - let through - dropped`. Whoever is told the others knows it.
    #[serde(skip)]
    pub held: u64,
}

impl DirectionCounts {
    /// Packets that left, one way or the other.
    #[must_use]
    pub fn left(&self) -> u64 {
        let unjudged = self.dropped.iter().chain(&self.let_through);
        unjudged.fold(self.passed, |sum, n| sum.wrapping_add(*n))
    }

    /// Packets dropped for a reason.
    #[must_use]
    pub fn dropped_for(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets let through for a reason.
    #[must_use]
    pub fn let_through_for(&self, reason: Reason) -> u64 {
        self.let_through[reason as usize]
    }
}

impl DirectionCounters {
    /// Reads all. Exact when the mediator rests; while it works, packets that leave during the reading count as held.
    #[must_use]
    pub fn read(&self) -> DirectionCounts {
        // What left is read before what came, so that never more has left than came.
        let mut tally = DirectionCounts {
            passed: self.passed.get(),
            bytes_out: self.bytes_out.get(),
            rewritten: self.rewritten.get(),
            dropped: std::array::from_fn(|i| self.dropped[i].get()),
            let_through: std::array::from_fn(|i| self.let_through[i].get()),
            bytes_in: self.bytes_in.get(),
            packets_in: self.packets_in.get(),
            held: 0,
        };
        tally.held = tally.packets_in.wrapping_sub(tally.left());
        tally
    }
}

impl VmCounters {
    /// The counters of a direction.
    #[must_use]
    pub fn direction(&self, direction: Direction) -> &DirectionCounters {
        &self.directions[direction as usize]
    }
}

/// Packets of one VM and direction in a row, added to their counters together.
#[derive(Debug)]
struct Run {
    owner: Owner,
    direction: Direction,
    packets: u64,
    bytes: u64,
}

impl Default for Run {
    fn default() -> Self {
        Self { owner: Owner::NOBODY, direction: Direction::Ingress, packets: 0, bytes: 0 }
    }
}

impl Run {
    #[inline]
    fn is_of(&self, owner: Owner, direction: Direction) -> bool {
        self.owner == owner && self.direction == direction
    }

    #[inline]
    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Gives what was counted to `store`, if anything was, and goes on with these.
    #[inline]
    fn turn_to(&mut self, owner: Owner, direction: Direction, store: impl FnOnce(&Self, Owner, Direction)) {
        if self.packets != 0 {
            store(self, self.owner, self.direction);
        }
        *self = Self { owner, direction, packets: 0, bytes: 0 };
    }
}

/// What one call to the mediator has counted and not stored yet: a packet costs two additions, a run two stores.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    came: Run,
    passed: Run,
    /// Packets of nobody that passed.
    unowned: u64,
}

impl Runs {
    /// Packets enter a queue.
    #[inline]
    pub(crate) fn came(
        &mut self,
        counters: &Counters,
        owner: Owner,
        direction: Direction,
        (packets, bytes): (u64, u64),
    ) {
        if !self.came.is_of(owner, direction) {
            self.settle_came(counters, owner, direction);
        }
        self.came.add(packets, bytes);
    }

    /// A packet of nobody passes.
    #[inline]
    pub(crate) fn unowned_passed(&mut self) {
        self.unowned += 1;
    }

    /// A packet leaves a queue that its program passed.
    #[inline]
    pub(crate) fn passed(&mut self, counters: &Counters, owner: Owner, direction: Direction, bytes: usize) {
        if !self.passed.is_of(owner, direction) {
            self.settle(counters);
            (self.passed.owner, self.passed.direction) = (owner, direction);
        }
        self.passed.add(1, bytes as u64);
    }

    /// A packet leaves a queue otherwise: counted at once.
    pub(crate) fn unjudged(
        &mut self,
        counters: &Counters,
        flight: &Flight,
        bytes: usize,
        direction: Direction,
    ) {
        self.settle_came(counters, Owner::NOBODY, direction);
        let Some(counters) = counters.of(flight.vm.vm()).map(|c| &c[direction as usize]) else { return };
        match flight.state {
            State::Dropped => counters.dropped[flight.reason as usize].add(1),
            State::LetThrough => {
                counters.let_through[flight.reason as usize].add(1);
                counters.bytes_out.add(bytes as u64);
            }
            // These are counted by `passed`, and not given here.
            State::Waiting | State::Passed => {}
        }
    }

    /// Stores what is left: first what came, so that nobody sees more leave than came.
    #[inline(never)]
    pub(crate) fn settle(&mut self, counters: &Counters) {
        self.settle_came(counters, Owner::NOBODY, Direction::Ingress);
        if self.unowned != 0 {
            counters.unowned.passed.add(std::mem::take(&mut self.unowned));
        }
        self.passed.turn_to(Owner::NOBODY, Direction::Ingress, |run, owner, direction| {
            if let Some(counters) = counters.of(owner.vm()) {
                counters[direction as usize].passed.add(run.packets);
                counters[direction as usize].bytes_out.add(run.bytes);
            }
        });
    }

    #[inline(never)]
    fn settle_came(&mut self, counters: &Counters, owner: Owner, direction: Direction) {
        self.came.turn_to(owner, direction, |run, owner, direction| {
            if let Some(counters) = counters.of(owner.vm()) {
                counters[direction as usize].packets_in.add(run.packets);
                counters[direction as usize].bytes_in.add(run.bytes);
            }
        });
    }
}

impl Counters {
    /// Counters by direction of a VM, if there is such a VM.
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
