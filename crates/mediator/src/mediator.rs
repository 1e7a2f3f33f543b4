//! Submitting, polling, and all that goes on between.

use crate::config::{Config, ConfigError, FailPolicy, Others, PortSpec, Source, Stages, VmRef};
use crate::counters::{Counters, DirectionCounters};
use crate::lookup::Lookup;
use crate::packet::{Outcome, Packet, Reason, Released};
use crate::parse::{Kind, classify};
use crate::queue::{Flight, State};
use crate::rules;
use crate::tenant::{Fault, Link, Tenant};
use p4shield_abi::Direction;
use p4shield_channel::Sleeper;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The switch side of P4 Shield; see the crate's documentation for what it promises.
///
/// One thread works with it. An attachment with several threads has one mediator each, with channels of its own.
pub struct Mediator<P> {
    tenants: Box<[Tenant<P>]>,
    lookup: Lookup,
    counters: Arc<Counters>,
    /// Tenants with requests that were not published yet.
    dirty: Vec<u16>,
    /// Tenants that hold packets or are owed answers.
    active: Vec<u16>,
    /// Which active tenant's turn it is to be first.
    turn: usize,
}

impl<P: Packet> Mediator<P> {
    /// A mediator with all its memory, no tenant having a channel yet.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        check(config)?;
        let count = config.tenants.len();
        Ok(Self {
            tenants: config.tenants.iter().map(Tenant::new).collect(),
            lookup: Lookup::new(config)?,
            counters: Arc::new(Counters::new(config)),
            dirty: Vec::with_capacity(count),
            active: Vec::with_capacity(count),
            turn: 0,
        })
    }

    /// The counters, for whoever reports them.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Packets held in all.
    #[must_use]
    pub fn held(&self) -> usize {
        self.active.iter().map(|t| self.tenants[usize::from(*t)].held()).sum()
    }

    /// Why a tenant's channel was detached, if it was and has not been replaced.
    #[must_use]
    pub fn fault(&self, tenant: usize) -> Option<Fault> {
        self.tenants.get(tenant).and_then(Tenant::fault)
    }

    /// Whether a tenant has a channel.
    #[must_use]
    pub fn is_attached(&self, tenant: usize) -> bool {
        self.tenants.get(tenant).is_some_and(|t| t.link().is_some())
    }

    /// Gives a tenant a channel to its P4 VM, another one, or none. Heals a fault. Packets that wait for a verdict
    /// are asked again over the new channel, or get the tenant's policy if there is none.
    ///
    /// # Errors
    /// If there is no such tenant.
    pub fn replace_channel(
        &mut self,
        now: u64,
        tenant: usize,
        link: Option<Link>,
    ) -> Result<(), ConfigError> {
        let state = self.tenants.get_mut(tenant).ok_or(ConfigError::NoTenant(tenant))?;
        state.replace(now, link);
        state.publish(now, &self.counters.tenants[tenant]);
        if state.is_busy() {
            self.activate(tenant);
        }
        Ok(())
    }

    /// Takes a packet that came in at `port`. At most one packet comes out at once: this one, if it is decided, or
    /// an older one that makes room for it; all others come out of [`Self::poll`].
    ///
    /// Requests are handed to the P4 VMs in batches of 32, the rest by the next [`Self::poll`] or [`Self::flush`].
    #[inline]
    pub fn submit(&mut self, now: u64, port: &PortSpec, packet: P) -> Option<Released<P>> {
        let kind = classify(packet.bytes());
        let (sender, receiver) = self.parties(kind, port);
        let (vm, direction, next) = match (sender, receiver) {
            (Some(sender), receiver) => (sender, Direction::Egress, receiver),
            (None, Some(receiver)) => (receiver, Direction::Ingress, None),
            (None, None) if self.is_spoofed(kind, port) => return Some(self.spoofed(port, packet)),
            (None, None) => return Some(self.unowned(port, packet)),
        };
        if self.is_spoofed(kind, port) {
            return Some(self.spoofed(port, packet));
        }
        let deadline = 0; // Set when the packet enters a queue.
        self.enter(
            now,
            direction,
            Flight { packet, state: State::Waiting, deadline, received: now, vm, next, port: *port },
        )
    }

    /// Hands over what was submitted, takes answers, and gives out packets that are decided: as many as there are of
    /// those dropped, and `max` of those passed (what a caller's burst has room for). To be called all the time, also
    /// when nothing was submitted. Returns how many passed.
    pub fn poll(&mut self, now: u64, max: usize, sink: impl FnMut(Released<P>)) -> usize {
        self.flush(now);
        let count = self.active.len();
        let mut burst = Burst { room: max, sink };
        for i in 0..count {
            let t = usize::from(self.active[(self.turn + i) % count]);
            let tenant = &mut self.tenants[t];
            let counters = &self.counters.tenants[t];
            // A packet whose answer lies in the ring, behind as many as one poll takes, is not late.
            let expire = tenant.collect(now, &self.lookup, counters);
            // Rings a doorbell that could not be rung before.
            tenant.publish(now, counters);
            for direction in Direction::ALL {
                self.drain(now, t, direction, expire, &mut burst);
            }
        }
        self.flush(now);
        self.turn = self.turn.wrapping_add(1) % count.max(1);
        let tenants = &mut self.tenants;
        self.active.retain(|t| {
            let tenant = &mut tenants[usize::from(*t)];
            tenant.active = tenant.is_busy();
            tenant.active
        });
        max - burst.room
    }

    /// Hands over what was submitted. [`Self::poll`] does it, too.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        while let Some(t) = self.dirty.pop() {
            let t = usize::from(t);
            self.tenants[t].dirty = false;
            self.tenants[t].publish(now, &self.counters.tenants[t]);
        }
    }

    /// When [`Self::poll`] has to be called next though nothing comes in: how long an attachment may sleep. None if
    /// nothing is held. Not in the future if there is work at once.
    #[must_use]
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        self.active.iter().filter_map(|t| self.tenants[usize::from(*t)].next_deadline(now)).min()
    }

    /// The doorbells of attached P4 VMs, by tenant: to be polled for input while the attachment sleeps.
    pub fn doorbells(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.tenants.iter().enumerate().filter_map(|(t, tenant)| Some((t, tenant.link()?.doorbell.fd())))
    }

    /// Silences a tenant's doorbell, after `poll` showed it to be ready. Detaches a P4 VM that closed its end.
    pub fn drain_doorbell(&mut self, tenant: usize) {
        let Some(state) = self.tenants.get_mut(tenant) else { return };
        if state.link().is_some_and(|l| !l.doorbell.drain()) {
            state.detach(Fault::Gone, &self.counters.tenants[tenant]);
        }
    }

    /// Sender and receiver as far as their programs are to be asked.
    #[inline]
    fn parties(&self, kind: Kind, port: &PortSpec) -> (Option<VmRef>, Option<VmRef>) {
        if kind == Kind::Other {
            return (None, None);
        }
        let known = |vm: VmRef| self.counters_of(vm).map(|_| vm);
        match port.stages {
            Stages::Both => {
                let sender = match port.source {
                    Source::Only(vm) => known(vm),
                    Source::Any | Source::Foreign => self.lookup.sender(kind),
                };
                (sender, self.lookup.receiver(kind))
            }
            Stages::EgressOnly(vm) => (known(vm), None),
            Stages::IngressOnly(vm) => (None, known(vm)),
        }
    }

    /// Counters by direction of a VM, if there is such a VM.
    #[inline]
    fn counters_of(&self, vm: VmRef) -> Option<&[DirectionCounters; 2]> {
        let tenant = self.counters.tenants.get(usize::from(vm.tenant))?;
        tenant.vms.get(usize::from(vm.vm)).map(|c| &c.directions)
    }

    #[inline]
    fn is_spoofed(&self, kind: Kind, port: &PortSpec) -> bool {
        port.source != Source::Any && !rules::source_allowed(&self.lookup, kind, port.source)
    }

    #[inline]
    fn unowned(&self, port: &PortSpec, packet: P) -> Released<P> {
        let (counter, outcome) = match port.others {
            Others::Pass => (&self.counters.unowned.passed, Outcome::Pass),
            Others::Drop => (&self.counters.unowned.dropped, Outcome::Drop(Reason::Others)),
        };
        counter.add(1);
        Released { packet, outcome }
    }

    /// Drops a packet with a false source: on the account of the VM whose port it is, or of nobody.
    #[cold]
    fn spoofed(&self, port: &PortSpec, packet: P) -> Released<P> {
        let owner = if let Source::Only(vm) = port.source { self.counters_of(vm) } else { None };
        if let Some(counters) = owner {
            let egress = &counters[Direction::Egress as usize];
            egress.packets_in.add(1);
            egress.bytes_in.add(packet.len() as u64);
            egress.dropped[Reason::Spoofed as usize].add(1);
        } else {
            self.counters.unowned.spoofed.add(1);
        }
        Released { packet, outcome: Outcome::Drop(Reason::Spoofed) }
    }

    /// Puts a packet into a queue, or decides it at once. What comes out is it, or the one that makes room for it.
    ///
    /// Only an egress queue leads on, and only into an ingress queue, so this comes back to itself twice at most.
    fn enter(&mut self, now: u64, direction: Direction, mut flight: Flight<P>) -> Option<Released<P>> {
        let t = usize::from(flight.vm.tenant);
        if let Some(counters) = self.counters_of(flight.vm) {
            counters[direction as usize].packets_in.add(1);
            counters[direction as usize].bytes_in.add(flight.packet.len() as u64);
        }
        let mut ejected = None;
        let full = self.tenants[t].queue(direction).is_full();
        if full {
            if self.tenants[t].fail() == FailPolicy::Drop {
                flight.state = State::Dropped(Reason::Full);
                return self.leave(now, direction, flight);
            }
            ejected = self.eject(now, t, direction);
        }
        let tenant = &mut self.tenants[t];
        flight.deadline = tenant.deadline_from(now);
        match tenant.ask(now, direction, &flight) {
            Ok(()) => self.mark_dirty(t),
            Err(reason) => flight.state = tenant.policy(reason),
        }
        // A packet that is dropped overtakes nobody, nor does one that is let through with nobody before it. Where
        // one was ejected, another must not come out too.
        let queue = self.tenants[t].queue(direction);
        let at_once = match flight.state {
            State::Dropped(_) => true,
            State::LetThrough(_) => queue.is_empty() && !full,
            State::Waiting | State::Passed => false,
        };
        if at_once {
            return self.leave(now, direction, flight);
        }
        queue.push(flight);
        self.activate(t);
        // A P4 VM need not wait for the end of a long burst.
        if self.tenants[t].has_batch() {
            self.tenants[t].publish(now, &self.counters.tenants[t]);
        }
        ejected
    }

    /// Lets the oldest packet of a full queue go, so that a new one can come.
    #[cold]
    fn eject(&mut self, now: u64, t: usize, direction: Direction) -> Option<Released<P>> {
        let tenant = &mut self.tenants[t];
        let policy = tenant.policy(Reason::Full);
        let mut flight = tenant.queue(direction).pop()?;
        if flight.state == State::Waiting {
            flight.state = policy;
        }
        self.leave(now, direction, flight)
    }

    /// Gives out the packets at the front of a queue that are decided: by verdict, or by the clock if they may
    /// `expire`.
    fn drain(
        &mut self,
        now: u64,
        t: usize,
        direction: Direction,
        expire: bool,
        burst: &mut Burst<impl FnMut(Released<P>)>,
    ) {
        let expired = self.tenants[t].policy(Reason::Deadline);
        loop {
            let queue = self.tenants[t].queue(direction);
            let Some(front) = queue.front_mut() else { return };
            if front.state == State::Waiting {
                if !expire || front.deadline > now {
                    return;
                }
                front.state = expired;
            }
            if burst.room == 0 && !matches!(front.state, State::Dropped(_)) {
                return;
            }
            let Some(flight) = queue.pop() else { return };
            if let Some(released) = self.leave(now, direction, flight) {
                burst.room -= usize::from(released.outcome == Outcome::Pass);
                (burst.sink)(released);
            }
        }
    }

    /// Counts a packet that leaves a queue, and sends it where it goes: on to the receiver's ingress, or out.
    #[inline]
    fn leave(&mut self, now: u64, direction: Direction, flight: Flight<P>) -> Option<Released<P>> {
        if let Some(counters) = self.counters_of(flight.vm) {
            count_out(&counters[direction as usize], flight.state, flight.packet.len());
        }
        if let State::Dropped(reason) = flight.state {
            return Some(Released { packet: flight.packet, outcome: Outcome::Drop(reason) });
        }
        match flight.next {
            Some(vm) => self.enter(
                now,
                Direction::Ingress,
                Flight { vm, next: None, state: State::Waiting, ..flight },
            ),
            None => Some(Released { packet: flight.packet, outcome: Outcome::Pass }),
        }
    }

    #[inline]
    fn mark_dirty(&mut self, t: usize) {
        let dirty = &mut self.tenants[t].dirty;
        if !*dirty {
            *dirty = true;
            // `check` limits tenants to what a u16 numbers.
            self.dirty.push(t as u16);
        }
    }

    #[inline]
    fn activate(&mut self, t: usize) {
        let active = &mut self.tenants[t].active;
        if !*active {
            *active = true;
            self.active.push(t as u16);
        }
    }
}

/// Where a poll's packets go.
struct Burst<F> {
    /// Packets that may still pass.
    room: usize,
    sink: F,
}

#[inline]
fn count_out(counters: &DirectionCounters, state: State, len: usize) {
    match state {
        State::Dropped(reason) => {
            counters.dropped[reason as usize].add(1);
            return;
        }
        State::LetThrough(reason) => counters.let_through[reason as usize].add(1),
        State::Passed | State::Waiting => counters.passed.add(1),
    }
    counters.bytes_out.add(len as u64);
}

fn check(config: &Config) -> Result<(), ConfigError> {
    let most = usize::from(u16::MAX);
    if config.tenants.len() > most {
        return Err(ConfigError::TooMany("tenants"));
    }
    for tenant in &config.tenants {
        if tenant.vms.len() > most {
            return Err(ConfigError::TooMany("VMs of one tenant"));
        }
        if tenant.max_held == 0 {
            return Err(ConfigError::HoldsNothing(tenant.name.clone()));
        }
    }
    Ok(())
}

impl<P: Packet> Sleeper for Mediator<P> {
    fn announce(&mut self) -> bool {
        for i in 0..self.active.len() {
            let tenant = &mut self.tenants[usize::from(self.active[i])];
            if tenant.link_mut().is_some_and(|l| !l.requester.announce()) {
                for t in &self.active[..i] {
                    retract(&mut self.tenants[usize::from(*t)]);
                }
                return false;
            }
        }
        true
    }

    fn retract(&mut self) {
        for t in &self.active {
            retract(&mut self.tenants[usize::from(*t)]);
        }
    }
}

fn retract<P: Packet>(tenant: &mut Tenant<P>) {
    if let Some(link) = tenant.link_mut() {
        link.requester.retract();
    }
}
