//! A lane: the mediator of one queue, and the mailbox through which it learns of changes.

use crate::message::LaneId;
use crate::process;
use p4shield_channel::Sleeper;
use p4shield_mailbox::{Mailbox, Poster, mailbox};
use p4shield_mediator::{
    AllowedSources, Config, Counters, InlineEngine, Mediator, Network, P4VmChannel, P4VmFault, Packet,
    PortSpec, ReleasedPacket, VmRef,
};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak, mpsc};

/// What a lane is told.
enum LaneCommand<P> {
    /// A tenant's channel, or none.
    Channel(usize, Option<P4VmChannel>),
    /// A tenant's programs in this process.
    Inline(usize, Box<dyn InlineEngine>),
    /// What the port is.
    Port(PortSpec),
    /// VMs whose ingress is asked elsewhere.
    DeferIngress(Vec<VmRef>),
    /// Other tenants: a mediator that knows them.
    Tenants(Mediator<P>),
    /// To say why a tenant's channel was taken away.
    Explain(usize),
}

/// What a lane events.
enum LaneEvent<P> {
    /// A tenant's channel was taken away.
    Fault(usize, P4VmFault),
    /// A mediator that holds nothing any more, to be freed by somebody who has the time.
    Retired(Box<Mediator<P>>),
}

/// A lane; used by the thread that polls the queue, which may change between two polls.
///
/// Time is whatever is passed as `now`: nanoseconds of a monotonic clock.
pub struct Lane<P> {
    id: LaneId,
    mediator: Mediator<P>,
    spec: PortSpec,
    mailbox: Mailbox<LaneCommand<P>>,
    events: mpsc::Sender<LaneEvent<P>>,
    /// Mediators of tenants that are no more, as long as they hold packets. Oldest first.
    leaving: Vec<Mediator<P>>,
    /// Tenants that the mediator knows.
    tenants: usize,
    now: u64,
    owner: Weak<dyn LaneOwner>,
}

impl<P: Packet + Send + 'static> Lane<P> {
    /// A lane and the link thread's side of it.
    ///
    /// # Panics
    /// `config` is one that a mediator refuses.
    pub(crate) fn new(
        id: LaneId,
        config: &Config,
        spec: PortSpec,
        owner: Weak<dyn LaneOwner>,
    ) -> (Self, Box<dyn LaneControl>) {
        let mediator = mediator(config);
        let (poster, mailbox) = mailbox();
        let (events, received) = mpsc::channel();
        let remote = LaneHandle { poster, events: received, counters: mediator.counters() };
        let tenants = config.tenants.len();
        let lane = Self { id, mediator, spec, mailbox, events, leaving: Vec::new(), tenants, now: 0, owner };
        (lane, Box::new(remote))
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> LaneId {
        self.id
    }

    /// Whether the port is that of one VM.
    #[must_use]
    #[inline]
    pub const fn is_vms(&self) -> bool {
        matches!(self.spec.source, AllowedSources::Only(_))
    }

    /// Takes a packet that came in at the queue; see [`Mediator::submit`]. What comes out at once
    /// is to be passed on or freed, everything else comes out of [`Self::poll`].
    #[inline]
    pub fn submit(&mut self, now: u64, packet: P) -> Option<ReleasedPacket<P>> {
        self.mediator.submit(now, &self.spec, packet)
    }

    /// Takes packets that came in at the queue, in their order; see [`Mediator::submit_burst`].
    /// Looks for changes first: a queue's first poll may bring packets. What comes out at once goes
    /// to `sink`, everything else comes out of [`Self::poll`].
    #[inline]
    pub fn submit_burst(
        &mut self,
        now: u64,
        packets: impl IntoIterator<Item = P>,
        sink: impl FnMut(ReleasedPacket<P>),
    ) {
        self.check(now);
        self.mediator.submit_burst(now, &self.spec, packets, sink);
    }

    /// [`Self::submit_burst`] of packets whose addresses are of this network.
    pub fn submit_burst_in(
        &mut self,
        network: Network,
        now: u64,
        packets: impl IntoIterator<Item = P>,
        sink: impl FnMut(ReleasedPacket<P>),
    ) {
        self.check(now);
        let spec = PortSpec { network, ..self.spec };
        self.mediator.submit_burst(now, &spec, packets, sink);
    }

    /// Looks for changes: one load if there are none. [`Self::poll`] and [`Self::submit_burst`] do it, too.
    #[inline]
    pub fn check(&mut self, now: u64) {
        self.now = now;
        if self.mailbox.has_messages() || process::is_forked() {
            self.apply();
        }
    }

    /// Gives out packets that are decided, at most `max` of those that pass; see
    /// [`Mediator::poll`]. To be called all the time. Looks for changes first.
    #[inline]
    pub fn poll(&mut self, now: u64, max: usize, mut sink: impl FnMut(ReleasedPacket<P>)) -> usize {
        self.check(now);
        let mut room = max;
        if !self.leaving.is_empty() {
            room -= self.poll_leaving(room, &mut sink);
        }
        max - room + self.mediator.poll(now, room, sink)
    }

    /// Packets that came out of [`Self::poll`] have been sent; see [`Mediator::sent`].
    #[inline]
    pub fn sent(&mut self) {
        self.mediator.notify_sent();
    }

    /// Hands over what was submitted. [`Self::poll`] does it, too.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        self.mediator.flush(now);
    }

    /// Packets held.
    #[must_use]
    #[inline]
    pub fn held(&self) -> usize {
        self.mediator.held() + self.leaving.iter().map(Mediator::held).sum::<usize>()
    }

    /// When [`Self::poll`] has to be called next though nothing comes; see
    /// [`Mediator::next_deadline`]. Changes do not count: whoever sleeps longer learns of them
    /// later.
    #[must_use]
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        self.leaving.first().map(|_| now).or_else(|| self.mediator.next_deadline(now))
    }

    /// Doorbells of P4 VMs that owe answers: to be polled by who sleeps, after an announcement. Who
    /// does not sleep needs none of this.
    pub fn doorbells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.mediator.awaited_doorbells().map(|(_, bell)| bell)
    }

    /// Silences the [`Self::doorbells`], of which one rang. A P4 VM that closed its end is let go of.
    pub fn silence(&mut self) {
        self.mediator.drain_doorbells();
    }

    /// Lets go of all channels and gives out everything that is held, as its tenants' policies say: at close.
    pub fn drain(&mut self, mut sink: impl FnMut(ReleasedPacket<P>)) {
        self.detach_all();
        self.poll_leaving(usize::MAX, &mut sink);
        // Once more for packets that left their sender's queue for their receiver's.
        while self.mediator.held() > 0 {
            self.mediator.poll(self.now, usize::MAX, &mut sink);
        }
    }

    /// Carries out what was left in the mailbox.
    #[cold]
    fn apply(&mut self) {
        while let Some(change) = self.mailbox.take() {
            match change {
                // The link thread knows the tenants.
                LaneCommand::Channel(tenant, link) => {
                    drop(self.mediator.replace_channel(self.now, tenant, link))
                }
                LaneCommand::Inline(tenant, engine) => drop(self.mediator.attach_inline(tenant, engine)),
                LaneCommand::Port(spec) => self.spec = spec,
                LaneCommand::DeferIngress(vms) => self.mediator.defer_ingress(&vms),
                LaneCommand::Tenants(mediator) => self.change_tenants(mediator),
                LaneCommand::Explain(tenant) => {
                    if let Some(fault) = self.mediator.fault(tenant) {
                        // An error means that the session ended.
                        let _ = self.events.send(LaneEvent::Fault(tenant, fault));
                    }
                }
            }
        }
        if process::is_forked() {
            self.detach_all();
        }
    }

    fn change_tenants(&mut self, mediator: Mediator<P>) {
        self.detach_all();
        self.tenants = mediator.counters().tenants.len();
        let old = std::mem::replace(&mut self.mediator, mediator);
        self.leaving.push(old);
    }

    /// Leaves all tenants without a channel.
    fn detach_all(&mut self) {
        for tenant in (0..self.tenants).filter(|t| self.mediator.is_attached(*t)).collect::<Vec<_>>() {
            let _ = self.mediator.replace_channel(self.now, tenant, None);
        }
    }

    #[cold]
    fn poll_leaving(&mut self, max: usize, sink: &mut impl FnMut(ReleasedPacket<P>)) -> usize {
        let mut room = max;
        while let Some(oldest) = self.leaving.first_mut() {
            room -= oldest.poll(self.now, room, &mut *sink);
            if oldest.held() > 0 {
                if room == 0 {
                    break;
                }
                continue;
            }
            let _ = self.events.send(LaneEvent::Retired(Box::new(self.leaving.remove(0))));
        }
        max - room
    }
}

/// To be announced after [`Lane::check`]. Changes that come later are seen by whoever wakes for
/// another reason.
impl<P: Packet + Send + 'static> Sleeper for Lane<P> {
    fn announce(&mut self) -> bool {
        self.leaving.iter().all(|m| m.held() == 0) && self.mediator.announce()
    }

    fn retract(&mut self) {
        self.mediator.retract();
    }
}

/// A mediator of a configuration that was checked.
fn mediator<P: Packet>(config: &Config) -> Mediator<P> {
    Mediator::new(config).expect("whether a mediator is refused was asked before lanes were made")
}

impl<P> std::fmt::Debug for Lane<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("id", &self.id).field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl<P> Drop for Lane<P> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.lane_down(self.id);
        }
    }
}

/// The session, as a lane knows it.
pub(crate) trait LaneOwner: Send + Sync {
    /// A lane ended.
    fn lane_down(&self, lane: LaneId);
}

/// A lane, as the link thread sees it, whatever its packets are.
pub(crate) trait LaneControl: Send {
    /// Gives a tenant a channel, or none.
    fn channel(&self, tenant: usize, link: Option<P4VmChannel>);
    /// Gives a tenant programs in this process, in place of a channel.
    fn attach_inline(&self, tenant: usize, engine: Box<dyn InlineEngine>);
    /// Tells what the port is.
    fn port(&self, spec: PortSpec);
    /// Tells whose ingress is asked elsewhere.
    fn defer_ingress(&self, vms: &[VmRef]);
    /// Replaces the tenants; all are without channels then.
    fn tenants(&mut self, config: &Config);
    /// Asks why a tenant's channel was taken away. Answered by [`Self::faults`], later.
    fn explain(&self, tenant: usize);
    /// Faults that were explained.
    fn faults(&mut self) -> Vec<(usize, P4VmFault)>;
    /// What happened to packets.
    fn counters(&self) -> &Counters;
}

struct LaneHandle<P> {
    poster: Poster<LaneCommand<P>>,
    events: mpsc::Receiver<LaneEvent<P>>,
    counters: Arc<Counters>,
}

impl<P: Packet + Send> LaneControl for LaneHandle<P> {
    fn channel(&self, tenant: usize, link: Option<P4VmChannel>) {
        self.poster.post(LaneCommand::Channel(tenant, link));
    }

    fn attach_inline(&self, tenant: usize, engine: Box<dyn InlineEngine>) {
        self.poster.post(LaneCommand::Inline(tenant, engine));
    }

    fn port(&self, spec: PortSpec) {
        self.poster.post(LaneCommand::Port(spec));
    }

    fn defer_ingress(&self, vms: &[VmRef]) {
        self.poster.post(LaneCommand::DeferIngress(vms.to_vec()));
    }

    fn tenants(&mut self, config: &Config) {
        let mediator = mediator(config);
        self.counters = mediator.counters();
        self.poster.post(LaneCommand::Tenants(mediator));
    }

    fn explain(&self, tenant: usize) {
        self.poster.post(LaneCommand::Explain(tenant));
    }

    fn faults(&mut self) -> Vec<(usize, P4VmFault)> {
        let fault = |said| match said {
            LaneEvent::Fault(tenant, fault) => Some((tenant, fault)),
            LaneEvent::Retired(mediator) => {
                drop(mediator);
                None
            }
        };
        self.events.try_iter().filter_map(fault).collect()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
