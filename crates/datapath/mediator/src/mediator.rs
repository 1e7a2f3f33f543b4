//! Submitting and polling, as an attachment sees them.

use crate::admit::{Admission, Decision, What};
use crate::config::{AllowedSources, Config, ConfigError, PortSpec, UnownedPolicy, VmRef};
use crate::counters::{Counters, Runs};
use crate::inline::InlineEngine;
use crate::lookup::Lookup;
use crate::packet::{Disposition, Packet, Reason, ReleasedPacket};
use crate::ports::Ports;
use crate::queue::{Flight, Owner};
use crate::tenant::{P4VmChannel, P4VmFault, Tenant};
use p4shield_abi::Direction;
use p4shield_channel::Sleeper;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The switch side of P4 Shield; see the crate's documentation for what it promises.
///
/// One thread works with it. An attachment with several threads has one mediator each, with channels of its own.
pub struct Mediator<P> {
    pub(crate) tenants: Box<[Tenant<P>]>,
    pub(crate) lookup: Lookup,
    pub(crate) counters: Arc<Counters>,
    pub(crate) ports: Ports,
    /// Tenants with requests that were not published yet.
    pub(crate) dirty: Vec<u16>,
    /// Tenants that hold packets or are owed answers.
    pub(crate) active: Vec<u16>,
    /// Which active tenant's turn it is to be first.
    turn: usize,
    /// The tenant whose packet passed last, if nobody was told since that it was sent.
    passed: Option<usize>,
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
            ports: Ports::new(),
            dirty: Vec::with_capacity(count),
            active: Vec::with_capacity(count),
            turn: 0,
            passed: None,
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
    pub fn fault(&self, tenant: usize) -> Option<P4VmFault> {
        self.tenants.get(tenant).and_then(Tenant::fault)
    }

    /// Whether a tenant has a channel, or is judged in place.
    #[must_use]
    pub fn is_attached(&self, tenant: usize) -> bool {
        self.tenants.get(tenant).is_some_and(Tenant::is_attached)
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
        link: Option<P4VmChannel>,
    ) -> Result<(), ConfigError> {
        let state = self.tenants.get_mut(tenant).ok_or(ConfigError::NoTenant(tenant))?;
        state.replace(now, link, &self.ports);
        state.publish(now, &self.counters.tenants[tenant]);
        if state.is_busy() {
            self.activate(tenant);
        }
        Ok(())
    }

    /// Has a tenant's packets judged in place, instead of over the channel that it may have had. Heals a fault. Packets
    /// that wait for a verdict are judged so too. [`Self::replace_channel`] ends it.
    ///
    /// # Errors
    /// If there is no such tenant.
    pub fn attach_inline(&mut self, tenant: usize, engine: Box<dyn InlineEngine>) -> Result<(), ConfigError> {
        self.tenants.get_mut(tenant).ok_or(ConfigError::NoTenant(tenant))?.attach_inline(engine);
        Ok(())
    }

    /// From now on the ingress of these VMs, and of no others, is asked where packets are handed to them and not where they
    /// come in: another mediator has the transmit side of their ports ([`crate::Stages::IngressOnly`]).
    pub fn defer_ingress(&mut self, vms: &[VmRef]) {
        self.lookup.defer_ingress(vms);
    }

    /// Takes a packet that came in at `port`. At most one packet comes out at once: this one, if it is decided, or
    /// an older one that makes room for it; all others come out of [`Self::poll`].
    ///
    /// Requests are handed to the P4 VMs in batches of 32, the rest by the next [`Self::poll`] or [`Self::flush`].
    #[inline]
    pub fn submit(&mut self, now: u64, port: &PortSpec, packet: P) -> Option<ReleasedPacket<P>> {
        let mut runs = Runs::default();
        let number = self.port_number(port);
        let released = self.take(now, number, packet, &mut Admission::new(port), &mut runs);
        runs.settle(&self.counters);
        released
    }

    /// Takes packets that came in at `port`, in their order, and hands the requests to the P4 VMs. What comes out at
    /// once, as of [`Self::submit`], goes to `sink`; all others come out of [`Self::poll`].
    ///
    /// The front of each packet is read here, so an attachment whose packets' memory is cold does well to prefetch it
    /// when it makes the burst.
    pub fn submit_burst(
        &mut self,
        now: u64,
        port: &PortSpec,
        packets: impl IntoIterator<Item = P>,
        mut sink: impl FnMut(ReleasedPacket<P>),
    ) {
        self.prefetch();
        let (mut admission, mut runs) = (Admission::new(port), Runs::default());
        let number = self.port_number(port);
        let mut packets = packets.into_iter();
        let mut next = packets.next();
        while let Some(packet) = next {
            let Decision { what, vm, next: after } =
                admission.decide(&self.lookup, &self.counters, packet.bytes());
            let released = match what {
                What::Judge(direction) => {
                    let flight = Flight::new(now, number, vm, after);
                    let same = |p: &P| admission.is_same(p.bytes());
                    let together = (packet, &mut packets);
                    match self.enter_together(now, direction, flight, together, same, &mut runs) {
                        Ok(follower) => {
                            next = follower;
                            continue;
                        }
                        Err(packet) => self.enter_alone(now, direction, flight, packet, &mut runs),
                    }
                }
                What::Nobody => Some(self.unowned(now, (port, after), packet, &mut runs)),
                What::Skipped => Some(self.skipped(now, after, packet, &mut runs)),
                What::Spoofed => Some(self.spoofed(port, packet)),
                What::Ambiguous => Some(self.ambiguous(packet)),
            };
            if let Some(released) = released {
                sink(released);
            }
            next = packets.next();
        }
        runs.settle(&self.counters);
        self.flush(now);
    }

    /// Has what the next [`Self::poll`] looks at brought here from the P4 VMs' cores, while packets are submitted.
    #[inline]
    fn prefetch(&self) {
        for t in self.active.iter().take(EXPECTED) {
            if let Some(link) = self.tenants[usize::from(*t)].link() {
                link.requester.prefetch();
            }
        }
    }

    #[inline]
    fn port_number(&mut self, port: &PortSpec) -> u32 {
        let tenants = &self.tenants;
        self.ports.number(port, |n| tenants.iter().any(|tenant| tenant.names_port(n)))
    }

    #[inline]
    fn take(
        &mut self,
        now: u64,
        port: u32,
        packet: P,
        admission: &mut Admission<'_>,
        runs: &mut Runs,
    ) -> Option<ReleasedPacket<P>> {
        let Decision { what, vm, next } = admission.decide(&self.lookup, &self.counters, packet.bytes());
        match what {
            What::Judge(direction) => {
                let flight = Flight::new(now, port, vm, next);
                self.enter(now, direction, flight, packet, runs)
            }
            What::Nobody => Some(self.unowned(now, (admission.port(), next), packet, runs)),
            What::Skipped => Some(self.skipped(now, next, packet, runs)),
            What::Spoofed => Some(self.spoofed(admission.port(), packet)),
            What::Ambiguous => Some(self.ambiguous(packet)),
        }
    }

    /// Hands over what was submitted, takes answers, and gives out packets that are decided: as many as there are of
    /// those dropped, and `max` of those passed (what a caller's burst has room for). To be called all the time, also
    /// when nothing was submitted. Returns how many passed.
    pub fn poll(&mut self, now: u64, max: usize, sink: impl FnMut(ReleasedPacket<P>)) -> usize {
        if self.active.is_empty() && self.dirty.is_empty() {
            return 0;
        }
        self.flush(now);
        let mut burst = Burst { room: max, sink, runs: Runs::default() };
        self.round(now, &mut burst);
        // A packet that is judged in place and leads on to another such tenant need not wait for the next poll.
        if self.active.iter().any(|t| self.tenants[usize::from(*t)].can_judge_at_once()) {
            self.round(now, &mut burst);
        }
        burst.runs.settle(&self.counters);
        self.flush(now);
        self.turn = self.turn.wrapping_add(1);
        let tenants = &mut self.tenants;
        self.active.retain(|t| {
            let tenant = &mut tenants[usize::from(*t)];
            tenant.active = tenant.is_busy();
            tenant.active
        });
        max - burst.room
    }

    /// Takes the answers of each active tenant and gives out what is decided.
    fn round(&mut self, now: u64, burst: &mut Burst<impl FnMut(ReleasedPacket<P>)>) {
        let count = self.active.len();
        for i in 0..count {
            let t = usize::from(self.active[self.turn.wrapping_add(i) % count]);
            let tenant = &mut self.tenants[t];
            // A packet whose answer lies in the ring, behind as many as one poll takes, is not late.
            let room = burst.room;
            let expire = tenant.collect(now, (&self.lookup, &self.ports), (&self.counters, t), burst);
            for direction in Direction::ALL {
                self.drain(now, t, direction, expire, burst);
            }
            if burst.room != room {
                self.passed = Some(t);
            }
        }
    }

    /// Hands over what was submitted. [`Self::submit_burst`] and [`Self::poll`] do it, too.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        while let Some(t) = self.dirty.pop() {
            let t = usize::from(t);
            self.tenants[t].dirty = false;
            self.tenants[t].publish(now, &self.counters.tenants[t]);
        }
    }

    /// Packets that [`Self::poll`] gave out have been sent: tells the P4 VM of the tenant whose packet was the last to pass, once,
    /// and so of nobody else's packets. For attachments that know when that is; without it nothing is lost but time on a core
    /// that the P4 VM shares with whom they were for.
    #[inline]
    pub fn notify_sent(&mut self) {
        if let Some(t) = self.passed.take()
            && let Some(link) = self.tenants[t].link_mut()
        {
            link.requester.notify_sent();
        }
    }

    /// When [`Self::poll`] has to be called next though nothing comes in: how long an attachment may sleep. None if
    /// nothing is held. Not in the future if there is work at once.
    #[must_use]
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        self.active.iter().filter_map(|t| self.tenants[usize::from(*t)].next_deadline(now)).min()
    }

    /// The doorbells of P4 VMs that owe answers, by tenant: to be polled for input by who sleeps no longer than until
    /// [`Self::next_deadline`], and has [`Sleeper::announce`]d it.
    pub fn awaited_doorbells(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let tenants = self.active.iter().map(|t| usize::from(*t));
        tenants.filter_map(|t| Some((t, self.tenants[t].link()?.doorbell.fd())))
    }

    /// The doorbells of attached P4 VMs, by tenant: to be polled for input while the attachment sleeps.
    pub fn doorbells(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        self.tenants.iter().enumerate().filter_map(|(t, tenant)| Some((t, tenant.link()?.doorbell.fd())))
    }

    /// Silences the doorbells of [`Self::awaited_doorbells`]. Detaches P4 VMs that closed their ends.
    pub fn drain_doorbells(&mut self) {
        for i in 0..self.active.len() {
            self.drain_doorbell(usize::from(self.active[i]));
        }
    }

    /// Silences a tenant's doorbell, after `poll` showed it to be ready. Detaches a P4 VM that closed its end.
    pub fn drain_doorbell(&mut self, tenant: usize) {
        let Some(state) = self.tenants.get_mut(tenant) else { return };
        if state.link().is_some_and(|l| !l.doorbell.drain()) {
            state.detach(P4VmFault::Gone, &self.counters.tenants[tenant]);
        }
    }

    /// Has the P4 VM awake in time of a VM whose ingress is about to be asked elsewhere: waking takes it longer than the
    /// switch takes to get the packet there.
    #[inline]
    fn rouse(&mut self, now: u64, vm: Owner) {
        if vm != Owner::NOBODY {
            let t = vm.tenant();
            self.tenants[t].rouse(now, &self.counters.tenants[t]);
        }
    }

    #[inline]
    fn unowned(
        &mut self,
        now: u64,
        (port, next): (&PortSpec, Owner),
        packet: P,
        runs: &mut Runs,
    ) -> ReleasedPacket<P> {
        let disposition = match port.unowned {
            UnownedPolicy::Pass => {
                self.rouse(now, next);
                runs.unowned_passed();
                Disposition::Pass
            }
            UnownedPolicy::Drop => {
                self.counters.unowned.dropped.add(1);
                Disposition::Drop(Reason::Unowned)
            }
        };
        ReleasedPacket { packet, disposition }
    }

    /// Passes a packet about which its tenant wants nobody asked.
    #[inline]
    fn skipped(&mut self, now: u64, next: Owner, packet: P, runs: &mut Runs) -> ReleasedPacket<P> {
        self.rouse(now, next);
        runs.unowned_passed();
        ReleasedPacket { packet, disposition: Disposition::Pass }
    }

    /// Drops a packet of one of several VMs, on nobody's account: whose cannot be told.
    #[cold]
    fn ambiguous(&self, packet: P) -> ReleasedPacket<P> {
        self.counters.unowned.dropped.add(1);
        ReleasedPacket { packet, disposition: Disposition::Drop(Reason::Unowned) }
    }

    /// Drops a packet with a false source: on the account of the VM whose port it is, or of nobody.
    #[cold]
    fn spoofed(&self, port: &PortSpec, packet: P) -> ReleasedPacket<P> {
        let owner = if let AllowedSources::Only(vm) = port.source { self.counters.of(vm) } else { None };
        if let Some(counters) = owner {
            let egress = &counters[Direction::Egress as usize];
            egress.packets_in.add(1);
            egress.bytes_in.add(packet.len() as u64);
            egress.dropped[Reason::Spoofed as usize].add(1);
        } else {
            self.counters.unowned.spoofed.add(1);
        }
        ReleasedPacket { packet, disposition: Disposition::Drop(Reason::Spoofed) }
    }

    #[inline]
    pub(crate) fn activate(&mut self, t: usize) {
        let active = &mut self.tenants[t].active;
        if !*active {
            *active = true;
            // `check` limits tenants to what a u16 numbers.
            self.active.push(t as u16);
        }
    }
}

/// Tenants whose answers are brought here ahead of time, at most: with more, the first of them are pushed out again.
const EXPECTED: usize = 4;

/// Where a poll's packets go.
pub(crate) struct Burst<F> {
    /// Packets that may still pass.
    pub(crate) room: usize,
    pub(crate) sink: F,
    pub(crate) runs: Runs,
}

impl<F> Burst<F> {
    /// Gives out a packet that its program passed and that is nobody's any more. There is room for it.
    #[inline(always)]
    pub(crate) fn pass<P: Packet>(
        &mut self,
        counters: &Counters,
        owner: Owner,
        direction: Direction,
        packet: P,
    ) where
        F: FnMut(ReleasedPacket<P>),
    {
        self.runs.passed(counters, owner, direction, packet.len());
        self.room -= 1;
        (self.sink)(ReleasedPacket { packet, disposition: Disposition::Pass });
    }
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
