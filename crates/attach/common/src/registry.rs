//! The registry: a session's tenants, ports, lanes and notices, and the messages that the daemon has
//! yet to receive.
//!
//! No function here waits or does I/O. The switch's threads change the registry; the control thread
//! reads it and applies the daemon's messages. Both hold its lock only for a few moves of memory.
//! Only new tenants make the control thread hold it longer, while it creates the lanes' new
//! mediators.

mod adoption;
mod judging;
#[cfg(test)]
mod tests;

use crate::inline::LoadedEngine;
use crate::lane::{ChannelLoss, LaneControl};
use crate::message::{
    Count, HeldChannel, LaneId, LibraryMessage, MAX_CORES, MAX_COUNTS, MAX_HELD, Notice, PacketMemory,
    PortId, PortInfo, QueueSide, UnownedCounts, cut,
};
use crate::setup::{Setup, SetupError};
use crate::sides::Rule;
use p4shield_config::{Attachment, Role};
use p4shield_control::Reply;
use p4shield_mediator::{self as mediator, AllowedSources, P4VmChannel, PortSpec, Stages, VmRef};
use p4shield_text::chain;
use rustix::fd::OwnedFd;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The most notices of a port, and of a switch: a switch may repeat a notice in changing words.
const MAX_NOTICES: usize = 32;

/// A counter that another part maintains.
pub(crate) type Counted = Box<dyn Fn() -> u64 + Send>;

/// A lane's entry.
struct LaneEntry {
    port: PortId,
    queue: u32,
    facing: QueueSide,
    /// The packets' memory, if a tenant's P4 VM may read it.
    packets: Option<Packets>,
    control: Box<dyn LaneControl>,
    /// Channels by tenant.
    channels: Vec<Channel>,
    /// The counter of packets that the lane never got, and its value before the lane was made.
    refused: Option<(Counted, u64)>,
}

impl LaneEntry {
    /// Returns the message that reports the lane.
    fn up(&self, lane: LaneId) -> LibraryMessage {
        let memory = |p: &Packets| PacketMemory { tenant: cut(&p.tenant), len: p.addresses.len() as u64 };
        let &Self { port, queue, facing, .. } = self;
        // Indexes of tenants are below 65536, see `lane_due`.
        let held = self.channels.iter().zip(0..).filter_map(|(c, tenant)| {
            Some(HeldChannel { tenant, channel: c.number?, zero_copy: c.zero_copy })
        });
        let (held, packets) = (held.take(MAX_HELD).collect(), self.packets.as_ref().map(memory));
        LibraryMessage::LaneUp { lane, port, queue, facing, packets, held }
    }
}

/// Packet memory that a tenant's P4 VM may read, because only that tenant's packets are in it.
#[derive(Clone, Debug)]
pub struct Packets {
    /// The tenant's name.
    pub tenant: String,
    /// The memory, sealed as [`p4shield_channel::PacketMemory::check`] requires.
    pub memory: Arc<OwnedFd>,
    /// The address range of its mapping in this process, which lives as long as the lane.
    pub addresses: Range<usize>,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// The daemon's number of the attached channel.
    number: Option<u32>,
    /// Whether the P4 VM reads headers from the lane's packet memory.
    zero_copy: bool,
    /// The mediator's end of the doorbell, which hangs up when the P4 VM ends.
    doorbell: Option<Arc<OwnedFd>>,
    /// The mediator's count of faults at the last request for a reason.
    faults: u64,
}

struct Port {
    info: PortInfo,
    role: Role,
    /// Whether a program may judge what its transmit side sends.
    transmit: bool,
    notices: Vec<Notice>,
}

pub(crate) struct Registry {
    attachment: Attachment,
    setup: Setup,
    rule: Rule,
    mediator: Arc<mediator::Config>,
    ports: BTreeMap<PortId, Port>,
    lanes: BTreeMap<LaneId, LaneEntry>,
    notices: Vec<Notice>,
    /// VMs whose ingress lanes of transmit sides judge, as the receive lanes know.
    elsewhere: Vec<VmRef>,
    /// VMs that send from ports of their own only, as the receive lanes know.
    bound: Vec<VmRef>,
    /// Whether receive lanes of ports that are no VM's pass all packets, as they know.
    resting: bool,
    next: u32,
    /// Engines of tenants by index, for placement `inline`.
    engines: BTreeMap<u16, LoadedEngine>,
    /// The cores that the daemon knows threads to poll on.
    polling: BTreeSet<u32>,
    /// Messages to send, while the daemon is connected.
    outbox: Option<VecDeque<LibraryMessage>>,
}

impl Registry {
    pub(crate) fn new(setup: Setup, attachment: Attachment) -> Result<Self, SetupError> {
        let mediator = Arc::new(setup.mediator()?);
        let rule = Rule::of(&setup, attachment);
        Ok(Self {
            attachment,
            setup,
            rule,
            mediator,
            ports: BTreeMap::new(),
            lanes: BTreeMap::new(),
            notices: Vec::new(),
            elsewhere: Vec::new(),
            bound: Vec::new(),
            resting: false,
            next: 0,
            engines: BTreeMap::new(),
            polling: BTreeSet::new(),
            outbox: None,
        })
    }

    fn number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn send(&mut self, report: LibraryMessage) {
        if let Some(outbox) = &mut self.outbox {
            outbox.push_back(report);
        }
    }

    pub(crate) fn port_up(&mut self, mut info: PortInfo) -> PortId {
        let port = PortId(self.number());
        info.name = cut(&info.name);
        info.aliases.truncate(crate::message::MAX_ALIASES);
        info.aliases.iter_mut().for_each(|a| *a = cut(a));
        let role = self.setup.role(&info);
        let transmit = self.setup.may_judge_at_transmit(&info);
        self.send(LibraryMessage::PortUp { port, info: info.clone() });
        self.ports.insert(port, Port { info, role, transmit, notices: Vec::new() });
        port
    }

    pub(crate) fn port_down(&mut self, port: PortId) {
        if self.ports.remove(&port).is_some() {
            self.send(LibraryMessage::PortDown { port });
        }
    }

    pub(crate) fn notice(&mut self, port: Option<PortId>, notice: Notice) {
        let notice = match notice {
            Notice::Bypass(text) => Notice::Bypass(cut(&text)),
            Notice::Unmediated(text) => Notice::Unmediated(cut(&text)),
            Notice::Note(text) => Notice::Note(cut(&text)),
        };
        let notices = match port {
            None => Some(&mut self.notices),
            Some(port) => self.ports.get_mut(&port).map(|p| &mut p.notices),
        };
        let Some(notices) = notices.filter(|r| r.len() < MAX_NOTICES && !r.contains(&notice)) else { return };
        notices.push(notice.clone());
        self.send(LibraryMessage::Notice { port, notice });
    }

    /// Returns whether a port's transmit side gets lanes.
    pub(crate) fn wants_transmit(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|p| p.transmit)
    }

    /// Returns the number of a new lane, the tenants, and the description of its port.
    pub(crate) fn lane_due(
        &mut self,
        port: PortId,
        facing: QueueSide,
    ) -> (LaneId, Arc<mediator::Config>, PortSpec) {
        let spec = self.spec(port, facing);
        (LaneId(self.number()), Arc::clone(&self.mediator), spec)
    }

    fn spec(&self, port: PortId, facing: QueueSide) -> PortSpec {
        let (role, number) = self.ports.get(&port).map(|p| (p.role, p.info.number)).unwrap_or_default();
        let elsewhere = |vm: &VmRef| self.elsewhere.contains(vm);
        let spec = self.rule.spec(&self.mediator, facing, (role, number), elsewhere);
        if self.resting && facing == QueueSide::Receive && !matches!(role, Role::Vm(_)) {
            return PortSpec { stages: Stages::None, source: AllowedSources::Any, ..spec };
        }
        spec
    }

    /// Adds a lane that was made for the tenants of [`Self::lane_due`].
    pub(crate) fn lane_up(
        &mut self,
        lane: LaneId,
        (port, queue, facing): (PortId, u32, QueueSide),
        packets: Option<Packets>,
        made_for: &Arc<mediator::Config>,
        control: Box<dyn LaneControl>,
    ) {
        // Applies changes since the lane was made.
        let spec = self.spec(port, facing);
        if Arc::ptr_eq(made_for, &self.mediator) {
            control.port(spec);
        } else {
            control.tenants(made_for, &self.mediator, spec);
        }
        if facing == QueueSide::Receive {
            control.defer_ingress(&self.elsewhere);
            control.bind(&self.bound);
        }
        for (tenant, engine) in &self.engines {
            if let Some(engine) = engine.another() {
                control.attach_inline(usize::from(*tenant), Box::new(engine));
            }
        }
        let channels = vec![Channel::default(); self.mediator.tenants.len()];
        let entry = LaneEntry { port, queue, facing, packets, control, channels, refused: None };
        if self.ports.contains_key(&port) {
            self.send(entry.up(lane));
        }
        self.lanes.insert(lane, entry);
        self.defer_ingress_elsewhere(self.asked_at_transmit());
        self.bind();
    }

    /// Adds a counter of refused packets to a lane's counts, from its present value on.
    pub(crate) fn count_refused(&mut self, lane: LaneId, refused: Counted) {
        if let Some(entry) = self.lanes.get_mut(&lane) {
            let before = refused();
            entry.refused = Some((refused, before));
        }
    }

    /// Returns the setup.
    pub(crate) const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Returns the tenants.
    pub(crate) fn tenants(&self) -> Arc<mediator::Config> {
        Arc::clone(&self.mediator)
    }

    pub(crate) fn lane_down(&mut self, lane: LaneId) {
        let Some(mut entry) = self.lanes.remove(&lane) else { return };
        // The newest counters.
        entry.control.faults();
        // Sends last counts, so that the totals are exact.
        for report in counts(lane, &entry) {
            self.send(report);
        }
        if self.ports.contains_key(&entry.port) {
            self.send(LibraryMessage::LaneDown { lane });
        }
        self.defer_ingress_elsewhere(self.asked_at_transmit());
        self.bind();
    }

    /// Queues everything for a daemon that connected.
    pub(crate) fn connected(&mut self, hello: LibraryMessage) {
        let mut outbox = VecDeque::from([hello]);
        outbox.extend(self.notices.iter().map(|r| LibraryMessage::Notice { port: None, notice: r.clone() }));
        for (&port, p) in &self.ports {
            outbox.push_back(LibraryMessage::PortUp { port, info: p.info.clone() });
            outbox.extend(
                p.notices.iter().map(|r| LibraryMessage::Notice { port: Some(port), notice: r.clone() }),
            );
        }
        let lanes = self.lanes.iter().filter(|(_, entry)| self.ports.contains_key(&entry.port));
        outbox.extend(lanes.map(|(&lane, entry)| entry.up(lane)));
        self.outbox = Some(outbox);
        self.polling.clear();
    }

    /// Keeps all channels: the daemon disconnected, and its P4 VMs may go on. A mediator detaches the channel
    /// of one that has ended.
    pub(crate) fn lost(&mut self) {
        self.outbox = None;
    }

    /// Takes the next message to send.
    pub(crate) fn outbox(&mut self) -> Option<LibraryMessage> {
        self.outbox.as_mut()?.pop_front()
    }

    /// Returns the descriptor that a message carries.
    pub(crate) fn descriptor(&self, report: &LibraryMessage) -> Option<Arc<OwnedFd>> {
        let LibraryMessage::LaneUp { lane, packets: Some(_), .. } = report else { return None };
        Some(Arc::clone(&self.lanes.get(lane)?.packets.as_ref()?.memory))
    }

    /// Puts back a message that could not be sent.
    pub(crate) fn unsent(&mut self, report: LibraryMessage) {
        if let Some(outbox) = &mut self.outbox {
            outbox.push_front(report);
        }
    }

    pub(crate) fn has_messages(&self) -> bool {
        self.outbox.as_ref().is_some_and(|n| !n.is_empty())
    }

    /// Sets a port's role. Returns false if the port, tenant or VM never existed.
    pub(crate) fn role(&mut self, port: PortId, role: Role) -> bool {
        if let Role::Vm(vm) = role {
            let tenant = self.mediator.tenants.get(usize::from(vm.tenant));
            if tenant.is_none_or(|t| usize::from(vm.vm) >= t.vms.len()) {
                return false;
            }
        }
        // The port may have disappeared since.
        if let Some(p) = self.ports.get_mut(&port) {
            p.role = role;
            let after = self.asked_at_transmit();
            self.defer_ingress_elsewhere(
                self.elsewhere.iter().copied().filter(|vm| after.contains(vm)).collect(),
            );
            let lanes = self.lanes.values().filter(|s| s.port == port);
            lanes.for_each(|s| s.control.port(self.spec(port, s.facing)));
            self.defer_ingress_elsewhere(after);
            self.bind();
        }
        port.0 <= self.next
    }

    /// Replaces or detaches a lane's channel. Returns false if the lane or tenant never existed.
    pub(crate) fn channel(
        &mut self,
        lane: LaneId,
        tenant: u16,
        number: Option<u32>,
        (link, zero_copy): (Option<P4VmChannel>, bool),
    ) -> bool {
        let Some(entry) = self.lanes.get_mut(&lane) else { return lane.0 <= self.next };
        let Some(channel) = entry.channels.get_mut(usize::from(tenant)) else { return false };
        let name = self.mediator.tenants.get(usize::from(tenant)).map(|t| t.name.as_str());
        let packets = entry.packets.as_ref().filter(|p| Some(p.tenant.as_str()) == name);
        if zero_copy && packets.is_none() {
            return false;
        }
        (channel.number, channel.zero_copy) = (number, zero_copy);
        let doorbell = link.as_ref().and_then(|link| link.doorbell.fd().try_clone_to_owned().ok());
        channel.doorbell = doorbell.map(Arc::new);
        let link = match (link, packets.filter(|_| zero_copy)) {
            (Some(P4VmChannel { requester, doorbell }), Some(packets)) => Some(P4VmChannel {
                requester: requester.with_packet_memory(packets.addresses.clone()),
                doorbell,
            }),
            (link, _) => link,
        };
        entry.control.channel(tenant.into(), link);
        true
    }

    /// Queues the reply to a request about a tenant's programs in this process.
    pub(crate) fn answer(&mut self, id: u32, reply: Reply) {
        self.send(LibraryMessage::Programs { id, reply: Box::new(reply) });
    }

    /// Attaches a tenant's programs to all lanes. Returns false if there is no such tenant.
    pub(crate) fn judge(&mut self, tenant: u16, engine: LoadedEngine) -> bool {
        if usize::from(tenant) >= self.mediator.tenants.len() {
            return false;
        }
        for entry in self.lanes.values() {
            let Some(another) = engine.another() else { return false };
            entry.control.attach_inline(tenant.into(), Box::new(another));
        }
        self.engines.insert(tenant, engine);
        true
    }

    /// Reports channels that mediators detached.
    pub(crate) fn check_faults(&mut self) {
        let mut reports = Vec::new();
        for (&lane, entry) in &mut self.lanes {
            for ChannelLoss { tenant, number, fault } in entry.control.faults() {
                // The daemon may have replaced the channel since.
                let channel = entry.channels.get_mut(tenant).filter(|c| c.number == Some(number));
                let Some(channel) = channel else { continue };
                (channel.number, channel.doorbell) = (None, None);
                let why = cut(&chain(&fault));
                // `lane_due` numbers tenants below 65536.
                reports.push(LibraryMessage::Fault { lane, tenant: tenant as u16, channel: number, why });
            }
            let counters = entry.control.counters();
            let mut ask = Vec::new();
            for (tenant, (channel, counted)) in entry.channels.iter_mut().zip(&counters.tenants).enumerate() {
                let faults = counted.faults.get();
                if faults != channel.faults {
                    channel.faults = faults;
                    ask.extend(channel.number.map(|number| (tenant, number)));
                }
            }
            ask.into_iter().for_each(|(tenant, number)| entry.control.explain(tenant, number));
        }
        reports.into_iter().for_each(|r| self.send(r));
    }

    /// Returns the numbers of the threads that poll lanes.
    pub(crate) fn polling_threads(&self) -> BTreeSet<i32> {
        self.lanes.values().filter_map(|entry| entry.control.polling_thread()).collect()
    }

    /// Queues the cores that threads poll on, if they changed.
    pub(crate) fn polling(&mut self, cores: BTreeSet<u32>) {
        if self.polling != cores {
            self.send(LibraryMessage::Polling { cores: cores.iter().copied().take(MAX_CORES).collect() });
            self.polling = cores;
        }
    }

    /// Queues all lanes' counts, unless earlier messages still wait.
    pub(crate) fn count(&mut self) {
        if self.has_messages() {
            return;
        }
        let reports: Vec<_> = self.lanes.iter().flat_map(|(&lane, entry)| counts(lane, entry)).collect();
        reports.into_iter().for_each(|r| self.send(r));
    }
}

/// Returns a lane's counts, in as many messages as necessary.
fn counts(lane: LaneId, entry: &LaneEntry) -> Vec<LibraryMessage> {
    let counters = entry.control.counters();
    let refused = entry.refused.as_ref().map_or(0, |(count, before)| count().wrapping_sub(*before));
    let unowned = UnownedCounts { refused, ..UnownedCounts::from(&counters.unowned) };
    let all: Vec<_> = Count::of(counters).collect();
    let report = |counts: &[Count]| LibraryMessage::Counts { lane, counts: counts.to_vec(), unowned };
    if all.is_empty() {
        return vec![report(&[])];
    }
    all.chunks(MAX_COUNTS).map(report).collect()
}
