//! A lane: one direction of one queue of a port, with its own mediator and channels.
//!
//! The switch's thread submits packets to the lane and polls it. The control thread changes it
//! through a mailbox. A packet continues in [`Mediator::submit_burst`].

use crate::message::LaneId;
use crate::polling::{PollingThread, PollingThreadReader};
use crate::process;
use p4shield_channel::Sleeper;
use p4shield_mailbox::{Mailbox, Poster, mailbox};
use p4shield_mediator::{
    AllowedSources, Config, ConfigError, Counters, InlineEngine, Mediator, Network, P4VmChannel, P4VmFault,
    Packet, PortSpec, ReleasedPacket, RewriteCheck, Stages, VmRef,
};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak, mpsc};

/// A change that the control thread posts to a lane.
enum LaneCommand<P> {
    /// Replaces or detaches a tenant's channel.
    Channel(usize, Option<P4VmChannel>),
    /// Attaches a tenant's programs in this process.
    Inline(usize, Box<dyn InlineEngine>),
    /// Sets the port's description.
    Port(PortSpec),
    /// Sets the VMs whose ingress other lanes judge.
    DeferIngress(Vec<VmRef>),
    /// Sets the VMs that send from ports of their own only.
    Bind(Vec<VmRef>),
    /// Replaces the tenants by a mediator that knows the new ones, and the port's description.
    Tenants(Mediator<P>, PortSpec),
    /// Requests the reason why the mediator detached a tenant's channel, which has this number.
    Explain(usize, u32),
}

/// An event that a lane reports to the control thread.
enum LaneEvent<P> {
    /// The mediator detached a tenant's channel.
    Fault(ChannelLoss),
    /// The lane uses a new mediator, with these counters.
    Adopted(Arc<Counters>),
    /// A mediator that holds no packets any more, for the control thread to free.
    Retired(Box<Mediator<P>>),
}

/// Reason why a mediator detached a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelLoss {
    /// The tenant's index.
    pub(crate) tenant: usize,
    /// The channel's number. The tenant may have another channel by now.
    pub(crate) number: u32,
    pub(crate) fault: P4VmFault,
}

/// A lane. The thread that polls the queue uses it; it may be another thread at each poll.
///
/// The caller passes the time as `now`: nanoseconds of a monotonic clock.
pub struct Lane<P> {
    id: LaneId,
    mediator: Mediator<P>,
    spec: PortSpec,
    mailbox: Mailbox<LaneCommand<P>>,
    events: mpsc::Sender<LaneEvent<P>>,
    /// Mediators of previous tenants, as long as they hold packets. Oldest first.
    leaving: Vec<Mediator<P>>,
    /// Number of tenants that the mediator knows.
    tenants: usize,
    now: u64,
    thread: PollingThread,
    owner: Weak<dyn LaneOwner>,
}

impl<P: Packet + Send + 'static> Lane<P> {
    /// Creates a lane and the control thread's access to it.
    ///
    /// # Panics
    /// The mediator refuses `config`.
    pub(crate) fn new(
        id: LaneId,
        config: &Config,
        spec: PortSpec,
        owner: Weak<dyn LaneOwner>,
    ) -> (Self, Box<dyn LaneControl>) {
        let mediator = checked(Mediator::new(config));
        let (poster, mailbox) = mailbox();
        let (events, received) = mpsc::channel();
        let thread = PollingThread::default();
        let counters = mediator.counters();
        let remote = LaneHandle { poster, events: received, counters, thread: thread.reader() };
        let tenants = config.tenants.len();
        let leaving = Vec::new();
        let lane = Self { id, mediator, spec, mailbox, events, leaving, tenants, now: 0, thread, owner };
        (lane, Box::new(remote))
    }

    /// Returns its number.
    #[must_use]
    pub const fn id(&self) -> LaneId {
        self.id
    }

    /// Returns whether the port belongs to one VM.
    #[must_use]
    #[inline]
    pub const fn is_vms(&self) -> bool {
        matches!(self.spec.source, AllowedSources::Only(_))
    }

    /// Returns whether programs may judge the port's packets.
    #[must_use]
    #[inline]
    pub const fn judges(&self) -> bool {
        !matches!(self.spec.stages, Stages::None)
    }

    /// Sets the attachment's own check of rewritten packets; see [`Mediator::set_rewrite_check`].
    pub fn check_rewrites(&mut self, check: RewriteCheck) {
        self.mediator.set_rewrite_check(Some(check));
    }

    /// Submits a packet that the queue received; see [`Mediator::submit`]. The caller forwards or
    /// frees the packet that this returns; all others are released by [`Self::poll`].
    #[inline]
    pub fn submit(&mut self, now: u64, packet: P) -> Option<ReleasedPacket<P>> {
        self.mediator.submit(now, &self.spec, packet)
    }

    /// Submits packets that the queue received, in order; see [`Mediator::submit_burst`]. Applies
    /// changes first, because a queue's first poll may have packets. Packets that are released at
    /// once go to `sink`, all others are released by [`Self::poll`].
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

    /// Submits packets whose addresses belong to this network, as [`Self::submit_burst`] does.
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

    /// Applies changes: one load if there are none. [`Self::poll`] and [`Self::submit_burst`] do so,
    /// too.
    #[inline]
    pub fn check(&mut self, now: u64) {
        self.now = now;
        self.thread.note(now);
        if self.mailbox.has_messages() || process::is_forked() {
            self.apply();
        }
    }

    /// Releases decided packets, at most `max` of those that pass; see [`Mediator::poll`]. The caller
    /// polls continuously. Applies changes first.
    #[inline]
    pub fn poll(&mut self, now: u64, max: usize, mut sink: impl FnMut(ReleasedPacket<P>)) -> usize {
        self.check(now);
        let mut room = max;
        if !self.leaving.is_empty() {
            room -= self.poll_leaving(room, &mut sink);
        }
        max - room + self.mediator.poll(now, room, sink)
    }

    /// Notes that packets from [`Self::poll`] were sent; see [`Mediator::notify_sent`].
    #[inline]
    pub fn sent(&mut self) {
        self.mediator.notify_sent();
    }

    /// Publishes the submitted packets. [`Self::poll`] does so, too.
    #[inline]
    pub fn flush(&mut self, now: u64) {
        self.mediator.flush(now);
    }

    /// Returns the number of held packets.
    #[must_use]
    #[inline]
    pub fn held(&self) -> usize {
        self.mediator.held() + self.leaving.iter().map(Mediator::held).sum::<usize>()
    }

    /// Returns the time of the next necessary [`Self::poll`] if no packet arrives; see
    /// [`Mediator::next_deadline`]. Changes do not count: a caller that sleeps longer applies them
    /// later.
    #[must_use]
    pub fn next_deadline(&self, now: u64) -> Option<u64> {
        self.leaving.first().map(|_| now).or_else(|| self.mediator.next_deadline(now))
    }

    /// Returns the doorbells of P4 VMs that owe answers, for a caller that sleeps after an
    /// announcement. Callers that never sleep do not need them.
    pub fn doorbells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.mediator.awaited_doorbells().map(|(_, bell)| bell)
    }

    /// Silences the [`Self::doorbells`], of which one rang. Detaches a P4 VM that closed its end.
    pub fn silence(&mut self) {
        self.mediator.drain_doorbells();
    }

    /// Detaches all channels and releases all held packets by their tenants' policies. For the end of
    /// a lane.
    pub fn drain(&mut self, mut sink: impl FnMut(ReleasedPacket<P>)) {
        self.detach_all();
        self.poll_leaving(usize::MAX, &mut sink);
        // Once more, for packets that moved from their sender's queue to their receiver's.
        while self.mediator.held() > 0 {
            self.mediator.poll(self.now, usize::MAX, &mut sink);
        }
    }

    /// Applies the changes in the mailbox.
    #[cold]
    fn apply(&mut self) {
        while let Some(change) = self.mailbox.take() {
            match change {
                // The control thread checked the tenant.
                LaneCommand::Channel(tenant, link) => {
                    drop(self.mediator.replace_channel(self.now, tenant, link))
                }
                LaneCommand::Inline(tenant, engine) => drop(self.mediator.attach_inline(tenant, engine)),
                LaneCommand::Port(spec) => self.spec = spec,
                LaneCommand::DeferIngress(vms) => self.mediator.defer_ingress(&vms),
                LaneCommand::Bind(vms) => self.mediator.bind(&vms),
                LaneCommand::Tenants(mediator, spec) => self.change_tenants(mediator, spec),
                LaneCommand::Explain(tenant, number) => {
                    if let Some(fault) = self.mediator.fault(tenant) {
                        // An error means that the session ended.
                        let _ = self.events.send(LaneEvent::Fault(ChannelLoss { tenant, number, fault }));
                    }
                }
            }
        }
        if process::is_forked() {
            self.detach_all();
        }
    }

    /// Tenants that the new mediator knows, too, keep their channels and held packets.
    fn change_tenants(&mut self, mut mediator: Mediator<P>, spec: PortSpec) {
        mediator.inherit(&mut self.mediator);
        // No program rewrites a packet of a mediator without channels.
        self.detach_all();
        self.spec = spec;
        let counters = mediator.counters();
        self.tenants = counters.tenants.len();
        let old = std::mem::replace(&mut self.mediator, mediator);
        self.leaving.push(old);
        // An error means that the session ended.
        let _ = self.events.send(LaneEvent::Adopted(counters));
    }

    /// Detaches all tenants' channels.
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

/// The caller announces after [`Lane::check`]. Later changes do not wake it; it applies them when it
/// wakes for another reason.
impl<P: Packet + Send + 'static> Sleeper for Lane<P> {
    fn announce(&mut self) -> bool {
        self.leaving.iter().all(|m| m.held() == 0) && self.mediator.announce()
    }

    fn retract(&mut self) {
        self.mediator.retract();
    }
}

/// Returns the mediator for a checked configuration.
fn checked<P>(mediator: Result<Mediator<P>, ConfigError>) -> Mediator<P> {
    mediator.expect("whether a mediator is refused was asked before lanes were made")
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

/// The owner of lanes: the session.
pub(crate) trait LaneOwner: Send + Sync {
    /// Removes a lane that ended.
    fn lane_down(&self, lane: LaneId);
}

/// The control thread's access to a lane, for any type of packets.
pub(crate) trait LaneControl: Send {
    /// Replaces or detaches a tenant's channel.
    fn channel(&self, tenant: usize, link: Option<P4VmChannel>);
    /// Attaches a tenant's programs in this process, in place of a channel.
    fn attach_inline(&self, tenant: usize, engine: Box<dyn InlineEngine>);
    /// Sets the port's description.
    fn port(&self, spec: PortSpec);
    /// Sets the VMs whose ingress other lanes judge.
    fn defer_ingress(&self, vms: &[VmRef]);
    /// Sets the VMs that send from ports of their own only.
    fn bind(&self, vms: &[VmRef]);
    /// Replaces the tenants, which were those of `before`, and the port's description. Tenants that are gone
    /// lose their channels.
    fn tenants(&self, before: &Config, config: &Config, spec: PortSpec);
    /// Requests the reason why the mediator detached the tenant's channel of this number;
    /// [`Self::faults`] returns it later.
    fn explain(&self, tenant: usize, number: u32);
    /// Returns the faults reported since the last call. [`Self::counters`] are those of the present
    /// mediator from then on.
    fn faults(&mut self) -> Vec<ChannelLoss>;
    /// Returns the packet counters.
    fn counters(&self) -> &Counters;
    /// Returns the number of the thread that polls the lane, once one has.
    fn polling_thread(&self) -> Option<i32>;
}

struct LaneHandle<P> {
    poster: Poster<LaneCommand<P>>,
    events: mpsc::Receiver<LaneEvent<P>>,
    counters: Arc<Counters>,
    thread: PollingThreadReader,
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

    fn bind(&self, vms: &[VmRef]) {
        self.poster.post(LaneCommand::Bind(vms.to_vec()));
    }

    fn tenants(&self, before: &Config, config: &Config, spec: PortSpec) {
        self.poster.post(LaneCommand::Tenants(checked(Mediator::successor(config, before)), spec));
    }

    fn explain(&self, tenant: usize, number: u32) {
        self.poster.post(LaneCommand::Explain(tenant, number));
    }

    fn faults(&mut self) -> Vec<ChannelLoss> {
        let fault = |said| match said {
            LaneEvent::Fault(loss) => Some(loss),
            LaneEvent::Adopted(counters) => {
                self.counters = counters;
                None
            }
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

    fn polling_thread(&self) -> Option<i32> {
        self.thread.get()
    }
}
