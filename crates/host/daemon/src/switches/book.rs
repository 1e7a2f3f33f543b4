//! What is known of switches: an account that the server's thread writes and everybody reads.

use super::roles::Roles;
use crate::attachment::{LaneKey, Packets, PortStatus, SwitchKey, SwitchStatus};
use crate::config::{Config as FileConfig, Role, Tunnel};
use crate::totals::Totals;
use p4shield_attach::message::Report;
use p4shield_attach::{Count, Facing, Heard, LaneId, Peer, PortId, PortInfo, Remark, UnownedCounts};
use p4shield_channel::PacketMemory;
use p4shield_control::printable;
use p4shield_mediator::Config;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most remarks of a port, and of a switch, that are kept.
const MAX_REMARKS: usize = 64;
/// The most lanes of switches that left whose counts are kept apart, in case that they come again.
const MAX_PARKED: usize = 4096;

/// What one lane counted.
#[derive(Clone, Debug, Default)]
struct Counted {
    counts: HashMap<(u16, u16, u8), Count>,
    unowned: UnownedCounts,
}

impl Counted {
    fn add_to(&self, totals: &mut Totals) {
        self.counts.values().for_each(|c| totals.add(c));
        totals.unowned.add(&self.unowned);
    }
}

struct Lane {
    key: LaneKey,
    port: PortId,
    facing: Facing,
    /// The numbers of its channels, by tenant.
    channels: Vec<Option<u32>>,
    /// The memory that its packets are in, and the tenant whose they all are, as its switch says.
    packets: Option<(Packets, String)>,
    /// The tenant whose P4 VM reads them there.
    zero_copy: Option<usize>,
    counted: Counted,
}

struct Port {
    info: PortInfo,
    /// What the library was told.
    told: Option<Role>,
    remarks: Vec<Remark>,
}

struct Switch {
    key: SwitchKey,
    peer: Arc<Peer>,
    ports: BTreeMap<PortId, Port>,
    lanes: BTreeMap<LaneId, Lane>,
    remarks: Vec<Remark>,
    /// The ends of tunnels that the library was told.
    tunnels: Option<Vec<Tunnel>>,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// There is another port, or switch.
    pub(super) ports: bool,
    /// There is another lane, one less, or a fault.
    pub(super) lanes: bool,
}

pub(super) struct Book {
    switches: Vec<Switch>,
    /// Faults by tenant, of channels that were not replaced since.
    faults: Vec<Option<String>>,
    /// How many VMs each tenant has: others are not counted.
    vms: Vec<usize>,
    /// What lanes counted that will not come again.
    gone: Totals,
    /// What lanes counted whose switch left, by its session: a connection that broke comes again and tells the same.
    parked: HashMap<(u64, LaneId), Counted>,
    next_lane: u64,
    next_switch: u64,
    /// The memory of a lane that is told of next.
    next_packets: Option<(u64, LaneId, OwnedFd)>,
}

impl Book {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            switches: Vec::new(),
            faults: vec![None; config.tenants.len()],
            vms: config.tenants.iter().map(|t| t.vms.len()).collect(),
            gone: Totals::new(config),
            parked: HashMap::new(),
            next_lane: 0,
            next_switch: 0,
            next_packets: None,
        }
    }

    pub(super) fn heard(&mut self, peer: &Arc<Peer>, heard: Heard) -> Change {
        match heard {
            Heard::Came => {
                self.next_switch += 1;
                self.switches.push(Switch {
                    key: SwitchKey(self.next_switch),
                    peer: Arc::clone(peer),
                    ports: BTreeMap::new(),
                    lanes: BTreeMap::new(),
                    remarks: Vec::new(),
                    tunnels: None,
                });
                // It wants to know tunnels, and one that runs programs itself wants them.
                Change { ports: true, lanes: true }
            }
            Heard::Left => {
                self.left(peer);
                Change { lanes: true, ..Change::default() }
            }
            Heard::Said(report) => self.said(peer, report).unwrap_or_default(),
        }
    }

    fn said(&mut self, peer: &Arc<Peer>, report: Report) -> Option<Change> {
        let switch = self.switches.iter_mut().find(|s| Arc::ptr_eq(&s.peer, peer))?;
        let mut change = Change::default();
        match report {
            // Heard elsewhere.
            Report::Hello { .. } | Report::Programs { .. } => {}
            Report::PortUp { port, info } => {
                switch.ports.insert(port, Port { info, told: None, remarks: Vec::new() });
                change.ports = true;
            }
            Report::PortDown { port } => drop(switch.ports.remove(&port)),
            Report::LaneUp { lane, port, facing, packets, .. } => {
                let handed = self.next_packets.take().filter(|n| (n.0, n.1) == (peer.session, lane));
                let packets = packets.zip(handed).map(|(told, (.., memory))| {
                    (Packets { memory: Arc::new(memory), len: told.len }, told.tenant)
                });
                self.next_lane += 1;
                let key = LaneKey(self.next_lane);
                let counted = self.parked.remove(&(peer.session, lane)).unwrap_or_default();
                let channels = vec![None; self.faults.len()];
                switch
                    .lanes
                    .insert(lane, Lane { key, port, facing, channels, packets, zero_copy: None, counted });
                change.lanes = true;
            }
            Report::LaneDown { lane } => {
                switch.lanes.remove(&lane)?.counted.add_to(&mut self.gone);
                self.gone.nothing_is_held();
                change.lanes = true;
            }
            Report::Fault { lane, tenant, channel, why } => {
                // Of a channel that was replaced meanwhile it says nothing.
                let current = switch.lanes.get_mut(&lane)?.channels.get_mut(usize::from(tenant))?;
                if *current == Some(channel) {
                    *current = None;
                    self.faults[usize::from(tenant)] = Some(printable(&why));
                    change.lanes = true;
                }
            }
            Report::Counts { lane, counts, unowned } => {
                let counted = &mut switch.lanes.get_mut(&lane)?.counted;
                counted.unowned = unowned;
                for c in counts {
                    let vms = self.vms.get(usize::from(c.tenant)).copied().unwrap_or(0);
                    if usize::from(c.vm) < vms && c.direction < 2 {
                        counted.counts.insert((c.tenant, c.vm, c.direction), c);
                    }
                }
            }
            Report::Remark { port, remark } => {
                let remarks = match port {
                    None => &mut switch.remarks,
                    Some(port) => &mut switch.ports.get_mut(&port)?.remarks,
                };
                if remarks.len() < MAX_REMARKS && !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
        Some(change)
    }

    fn left(&mut self, peer: &Arc<Peer>) {
        let Some(at) = self.switches.iter().position(|s| Arc::ptr_eq(&s.peer, peer)) else { return };
        let switch = self.switches.remove(at);
        if self.parked.len() + switch.lanes.len() > MAX_PARKED {
            self.parked.drain().for_each(|(_, c)| c.add_to(&mut self.gone));
            self.gone.nothing_is_held();
        }
        let lanes = switch.lanes.into_iter();
        self.parked.extend(lanes.map(|(id, lane)| ((peer.session, id), lane.counted)));
    }

    fn all_lanes(&mut self) -> impl Iterator<Item = (&Arc<Peer>, LaneId, &mut Lane)> {
        self.switches.iter_mut().flat_map(|s| {
            let peer = &s.peer;
            s.lanes.iter_mut().map(move |(id, lane)| (peer, *id, lane))
        })
    }

    pub(super) fn keys(&self) -> Vec<SwitchKey> {
        self.switches.iter().map(|s| s.key).collect()
    }

    pub(super) fn peer(&self, key: SwitchKey) -> Option<Arc<Peer>> {
        self.switches.iter().find(|s| s.key == key).map(|s| Arc::clone(&s.peer))
    }

    pub(super) fn lanes(&self) -> Vec<LaneKey> {
        self.switches.iter().flat_map(|s| s.lanes.values()).map(|l| l.key).collect()
    }

    /// A peer's lane that is told of next has its packets in this memory.
    pub(super) fn packets(&mut self, peer: &Arc<Peer>, lane: LaneId, memory: OwnedFd) {
        self.next_packets = Some((peer.session, lane, memory));
    }

    /// A lane's packet memory, if this tenant's P4 VM may read it: the switch says that all packets there are this
    /// tenant's, the configuration says so too, and nobody who gets it can write it or cut it short.
    pub(super) fn packets_of(&self, key: LaneKey, config: &FileConfig, tenant: usize) -> Option<Packets> {
        let switch = self.switches.iter().find(|s| s.lanes.values().any(|l| l.key == key))?;
        let lane = switch.lanes.values().find(|l| l.key == key)?;
        let (packets, whose) = lane.packets.as_ref()?;
        let port = switch.ports.get(&lane.port)?;
        let owner = config.packet_memory_of(port.info.names())?;
        let agreed = owner.name == *whose && config.tenants.get(tenant)?.name == *whose;
        let len = usize::try_from(packets.len).ok()?;
        (agreed && PacketMemory::check(&packets.memory, len).is_ok()).then(|| packets.clone())
    }

    /// Notes a lane's channel. Whose it is, if it is still there.
    pub(super) fn attached(
        &mut self,
        key: LaneKey,
        tenant: usize,
        (number, zero_copy): (u32, bool),
    ) -> Option<(Arc<Peer>, LaneId)> {
        let (peer, id, lane) = self.all_lanes().find(|(.., lane)| lane.key == key)?;
        *lane.channels.get_mut(tenant)? = Some(number);
        if zero_copy {
            lane.zero_copy = Some(tenant);
        }
        Some((Arc::clone(peer), id))
    }

    /// Forgets a tenant's channels. Which lanes had one.
    pub(super) fn detached(&mut self, tenant: usize) -> Vec<(Arc<Peer>, LaneId)> {
        if let Some(fault) = self.faults.get_mut(tenant) {
            *fault = None;
        }
        let lanes = self.all_lanes().filter_map(|(peer, id, lane)| {
            lane.zero_copy.take_if(|t| *t == tenant);
            lane.channels.get_mut(tenant)?.take().map(|_| (Arc::clone(peer), id))
        });
        lanes.collect()
    }

    pub(super) fn fault(&self, tenant: usize) -> Option<String> {
        self.faults.get(tenant).cloned().flatten()
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.gone.clone();
        self.parked.values().for_each(|c| c.add_to(&mut totals));
        totals.nothing_is_held();
        self.switches.iter().flat_map(|s| s.lanes.values()).for_each(|l| l.counted.add_to(&mut totals));
        totals
    }

    /// Ports whose library does not know yet what they are; taken for told.
    pub(super) fn roles_due(&mut self, roles: &Roles<'_>) -> Vec<(Arc<Peer>, PortId, Role)> {
        let mut due = Vec::new();
        for switch in &mut self.switches {
            for (&id, port) in &mut switch.ports {
                let role = roles.of(&switch.peer.application, &port.info).0;
                if port.told.replace(role) != Some(role) {
                    due.push((Arc::clone(&switch.peer), id, role));
                }
            }
        }
        due
    }

    /// Switches whose library does not know yet where they end tunnels; taken for told.
    pub(super) fn tunnels_due(&mut self, roles: &Roles<'_>) -> Vec<(Arc<Peer>, Vec<Tunnel>)> {
        let due = self.switches.iter_mut().filter_map(|switch| {
            let tunnels = Some(roles.tunnels(&switch.peer.application));
            if switch.tunnels == tunnels {
                return None;
            }
            switch.tunnels = tunnels;
            Some((Arc::clone(&switch.peer), switch.tunnels.clone()?))
        });
        due.collect()
    }

    pub(super) fn status(&self, roles: &Roles<'_>) -> Vec<SwitchStatus> {
        self.switches.iter().map(|s| s.status(roles)).collect()
    }
}

impl Switch {
    fn status(&self, roles: &Roles<'_>) -> SwitchStatus {
        let (mut bypasses, unmediated, mut notes) = sort(&self.remarks);
        bypasses.extend(roles.bypass(&self.peer.application));
        notes.extend(unmediated);
        let port = |(id, port): (&PortId, &Port)| {
            let queues = Facing::ALL
                .map(|facing| self.lanes.values().filter(|l| (l.port, l.facing) == (*id, facing)).count());
            let zero_copy_queues =
                self.lanes.values().filter(|l| l.port == *id && l.zero_copy.is_some()).count();
            PortStatus { zero_copy_queues, ..self.port(port, queues, roles) }
        };
        SwitchStatus {
            kind: self.peer.kind.name().to_owned(),
            application: self.peer.application.clone(),
            pid: self.peer.pid,
            uid: self.peer.uid,
            bypasses,
            notes,
            ports: self.ports.iter().map(port).collect(),
        }
    }

    fn port(&self, port: &Port, [queues, transmit_queues]: [usize; 2], roles: &Roles<'_>) -> PortStatus {
        let (bypasses, mut unmediated, notes) = sort(&port.remarks);
        if queues + transmit_queues == 0 && unmediated.is_empty() {
            unmediated.push("none of its queues is in use".to_owned());
        }
        let (role, interface) = roles.of(&self.peer.application, &port.info);
        let (role, tenant, vm) = roles.names(role);
        PortStatus {
            name: printable(&port.info.name),
            interface: interface.map(str::to_owned),
            number: port.info.number,
            mediated: unmediated.is_empty(),
            why: unmediated.into_iter().next(),
            role: role.to_owned(),
            tenant,
            vm,
            queues,
            transmit_queues,
            zero_copy_queues: 0,
            bypasses,
            notes,
        }
    }
}

/// Bypasses, reasons for not being mediated, and notes, printable.
fn sort(remarks: &[Remark]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut bypasses, mut unmediated, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for remark in remarks {
        let list = match remark {
            Remark::Bypass(_) => &mut bypasses,
            Remark::Unmediated(_) => &mut unmediated,
            Remark::Note(_) => &mut notes,
        };
        list.push(printable(remark.text()));
    }
    (bypasses, unmediated, notes)
}
