//! The registry of connected switches: the server's thread updates it; supervisors and `status` read it.

use super::roles::PortRoles;
use crate::attachment::{LaneKey, PacketMemoryFile, SwitchKey};
use crate::config::{Config as FileConfig, Role, Tunnel};
use crate::status::totals::Totals;
use crate::status::{PortStatus, SwitchStatus};
use p4shield_attach::message::{HeldChannel, LibraryMessage};
use p4shield_attach::{Count, LaneId, Notice, Peer, PortId, PortInfo, QueueSide, SwitchEvent, UnownedCounts};
use p4shield_channel::PacketMemory;
use p4shield_mediator::{Config, VmRef};
use p4shield_text::printable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most notices kept for a port, and for a switch.
const MAX_REMARKS: usize = 64;
/// Most lanes of disconnected switches whose counters are kept apart, in case the switch reconnects.
const MAX_PARKED: usize = 4096;

/// The counters of one lane.
#[derive(Clone, Debug, Default)]
struct LaneCounts {
    counts: HashMap<(u16, u16, u8), Count>,
    unowned: UnownedCounts,
}

impl LaneCounts {
    fn add_to(&self, totals: &mut Totals) {
        self.counts.values().for_each(|c| totals.add(c));
        totals.unowned.add(&self.unowned);
    }
}

struct LaneRecord {
    key: LaneKey,
    port: PortId,
    facing: QueueSide,
    /// By tenant: the number of its channel.
    channels: Vec<Option<u32>>,
    /// Channels that it had when the switch connected and that are neither kept nor replaced yet.
    held: Vec<HeldChannel>,
    /// The memory that its packets are in, and the tenant that owns all of them, as the switch reports.
    memory: Option<(PacketMemoryFile, String)>,
    /// The tenant whose P4 VM reads packets there.
    zero_copy: Option<usize>,
    counted: LaneCounts,
}

struct PortRecord {
    info: PortInfo,
    /// The role that was last sent to the library.
    sent_role: Option<Role>,
    remarks: Vec<Notice>,
}

struct SwitchRecord {
    key: SwitchKey,
    peer: Arc<Peer>,
    ports: BTreeMap<PortId, PortRecord>,
    lanes: BTreeMap<LaneId, LaneRecord>,
    remarks: Vec<Notice>,
    /// The cores to which its polling threads are bound.
    polling: BTreeSet<u32>,
    /// The endpoints of tunnels that were last sent to the library.
    sent_tunnels: Option<Vec<Tunnel>>,
}

/// What a message changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RegistryChange {
    /// A port or a switch was added.
    pub(super) ports: bool,
    /// A lane was added or removed, a fault occurred, or threads poll on other cores.
    pub(super) lanes: bool,
}

pub(super) struct SwitchRegistry {
    switches: Vec<SwitchRecord>,
    /// By tenant: the fault of a channel that has not been replaced since.
    faults: Vec<Option<String>>,
    /// The tenants; counters of others are ignored.
    tenants: Config,
    /// The counters of lanes that have ended.
    retired: Totals,
    /// The counters of lanes whose switch has disconnected, by session: it may reconnect and report the same
    /// counters.
    parked: HashMap<(u64, LaneId), LaneCounts>,
    next_lane: u64,
    next_switch: u64,
    /// The memory of the lane that the next message announces.
    announced_memory: Option<(u64, LaneId, OwnedFd)>,
}

impl SwitchRegistry {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            switches: Vec::new(),
            faults: vec![None; config.tenants.len()],
            tenants: config.clone(),
            retired: Totals::new(config),
            parked: HashMap::new(),
            next_lane: 0,
            next_switch: 0,
            announced_memory: None,
        }
    }

    /// Changes the tenants. Those that are gone leave no counts, faults or channels at their numbers.
    pub(super) fn set_tenants(&mut self, config: &Config) {
        let before = std::mem::replace(&mut self.tenants, config.clone());
        let keeps = |tenant: u16, vm: u16| config.keeps_vm(&before, VmRef { tenant, vm });
        let lanes = self.switches.iter_mut().flat_map(|s| s.lanes.values_mut());
        for lane in lanes {
            lane.counted.counts.retain(|&(tenant, vm, _), _| keeps(tenant, vm));
            lane.channels.resize(config.tenants.len(), None);
            lane.held.clear();
        }
        for counted in self.parked.values_mut() {
            counted.counts.retain(|&(tenant, vm, _), _| keeps(tenant, vm));
        }
        self.retired.set_tenants(&before, config);
        self.faults.resize(config.tenants.len(), None);
    }

    pub(super) fn apply(&mut self, peer: &Arc<Peer>, heard: SwitchEvent) -> RegistryChange {
        match heard {
            SwitchEvent::Connected => {
                self.next_switch += 1;
                self.switches.push(SwitchRecord {
                    key: SwitchKey(self.next_switch),
                    peer: Arc::clone(peer),
                    ports: BTreeMap::new(),
                    lanes: BTreeMap::new(),
                    remarks: Vec::new(),
                    polling: BTreeSet::new(),
                    sent_tunnels: None,
                });
                // The switch needs the endpoints of tunnels, and with placement `inline` its programs.
                RegistryChange { ports: true, lanes: true }
            }
            SwitchEvent::Disconnected => {
                self.remove_switch(peer);
                RegistryChange { lanes: true, ..RegistryChange::default() }
            }
            SwitchEvent::Message(report) => self.apply_message(peer, report).unwrap_or_default(),
        }
    }

    fn apply_message(&mut self, peer: &Arc<Peer>, report: LibraryMessage) -> Option<RegistryChange> {
        let switch = self.switches.iter_mut().find(|s| Arc::ptr_eq(&s.peer, peer))?;
        let mut change = RegistryChange::default();
        match report {
            // Handled elsewhere.
            LibraryMessage::Hello { .. } | LibraryMessage::Programs { .. } => {}
            LibraryMessage::Polling { cores } => {
                switch.polling = cores.into_iter().collect();
                change.lanes = true;
            }
            LibraryMessage::PortUp { port, info } => {
                switch.ports.insert(port, PortRecord { info, sent_role: None, remarks: Vec::new() });
                change.ports = true;
            }
            LibraryMessage::PortDown { port } => drop(switch.ports.remove(&port)),
            LibraryMessage::LaneUp { lane, port, facing, packets, held, .. } => {
                let announced = self.announced_memory.take().filter(|n| (n.0, n.1) == (peer.session, lane));
                let memory = packets.zip(announced).map(|(told, (.., memory))| {
                    (PacketMemoryFile { memory: Arc::new(memory), len: told.len }, told.tenant)
                });
                self.next_lane += 1;
                let key = LaneKey(self.next_lane);
                let counted = self.parked.remove(&(peer.session, lane)).unwrap_or_default();
                let channels = vec![None; self.faults.len()];
                switch.lanes.insert(
                    lane,
                    LaneRecord { key, port, facing, channels, held, memory, zero_copy: None, counted },
                );
                change.lanes = true;
            }
            LibraryMessage::LaneDown { lane } => {
                switch.lanes.remove(&lane)?.counted.add_to(&mut self.retired);
                self.retired.clear_held();
                change.lanes = true;
            }
            LibraryMessage::Fault { lane, tenant, channel, why } => {
                // A fault of a channel that was replaced meanwhile is ignored.
                let current = switch.lanes.get_mut(&lane)?.channels.get_mut(usize::from(tenant))?;
                if *current == Some(channel) {
                    *current = None;
                    self.faults[usize::from(tenant)] = Some(printable(&why));
                    change.lanes = true;
                }
            }
            LibraryMessage::Counts { lane, counts, unowned } => {
                let counted = &mut switch.lanes.get_mut(&lane)?.counted;
                counted.unowned = unowned;
                for c in counts {
                    let tenant = self.tenants.tenants.get(usize::from(c.tenant));
                    let vm = tenant.and_then(|t| t.vms.get(usize::from(c.vm)));
                    if vm.is_some_and(|vm| !vm.name.is_empty()) && c.direction < 2 {
                        counted.counts.insert((c.tenant, c.vm, c.direction), c);
                    }
                }
            }
            LibraryMessage::Notice { port, notice } => {
                let remarks = match port {
                    None => &mut switch.remarks,
                    Some(port) => &mut switch.ports.get_mut(&port)?.remarks,
                };
                if remarks.len() < MAX_REMARKS && !remarks.contains(&notice) {
                    remarks.push(notice);
                }
            }
        }
        Some(change)
    }

    fn remove_switch(&mut self, peer: &Arc<Peer>) {
        let Some(at) = self.switches.iter().position(|s| Arc::ptr_eq(&s.peer, peer)) else { return };
        let switch = self.switches.remove(at);
        if self.parked.len() + switch.lanes.len() > MAX_PARKED {
            self.parked.drain().for_each(|(_, c)| c.add_to(&mut self.retired));
            self.retired.clear_held();
        }
        let lanes = switch.lanes.into_iter();
        self.parked.extend(lanes.map(|(id, lane)| ((peer.session, id), lane.counted)));
    }

    fn all_lanes(&mut self) -> impl Iterator<Item = (&Arc<Peer>, LaneId, &mut LaneRecord)> {
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

    /// Records the memory of the lane that the peer's next message announces.
    pub(super) fn announce_memory(&mut self, peer: &Arc<Peer>, lane: LaneId, memory: OwnedFd) {
        self.announced_memory = Some((peer.session, lane, memory));
    }

    /// Returns a lane's packet memory, if this tenant's P4 VM may read it: switch and configuration agree
    /// that all packets in it belong to this tenant, and its receiver can neither write nor truncate it.
    pub(super) fn shared_memory(
        &self,
        key: LaneKey,
        config: &FileConfig,
        tenant: usize,
    ) -> Option<PacketMemoryFile> {
        let switch = self.switches.iter().find(|s| s.lanes.values().any(|l| l.key == key))?;
        let lane = switch.lanes.values().find(|l| l.key == key)?;
        let (packets, claimed) = lane.memory.as_ref()?;
        let port = switch.ports.get(&lane.port)?;
        let owner = config.packet_memory_of(port.info.names())?;
        let agreed = owner.name == *claimed && config.tenants.get(tenant)?.name == *claimed;
        let len = usize::try_from(packets.len).ok()?;
        (agreed && PacketMemory::check(&packets.memory, len).is_ok()).then(|| packets.clone())
    }

    /// Records a lane's channel. Returns the lane's switch, if the lane still exists.
    pub(super) fn note_attached(
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

    /// Keeps the channel that a lane has to a tenant's P4 VM since before it connected, if `serves` says of
    /// its number that the P4 VM serves it. Returns the number.
    pub(super) fn keep_channel(
        &mut self,
        key: LaneKey,
        tenant: usize,
        serves: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let (.., lane) = self.all_lanes().find(|(.., lane)| lane.key == key)?;
        let at = lane.held.iter().position(|held| usize::from(held.tenant) == tenant)?;
        let held = lane.held.swap_remove(at);
        if !serves(held.channel) {
            return None;
        }
        *lane.channels.get_mut(tenant)? = Some(held.channel);
        if held.zero_copy {
            lane.zero_copy = Some(tenant);
        }
        Some(held.channel)
    }

    /// Forgets a tenant's channels. Returns the lanes that had one.
    pub(super) fn note_detached(&mut self, tenant: usize) -> Vec<(Arc<Peer>, LaneId)> {
        if let Some(fault) = self.faults.get_mut(tenant) {
            *fault = None;
        }
        let lanes = self.all_lanes().filter_map(|(peer, id, lane)| {
            lane.zero_copy.take_if(|t| *t == tenant);
            let held = lane.held.iter().position(|held| usize::from(held.tenant) == tenant);
            let held = held.map(|at| lane.held.swap_remove(at).channel);
            lane.channels.get_mut(tenant)?.take().or(held).map(|_| (Arc::clone(peer), id))
        });
        lanes.collect()
    }

    pub(super) fn fault(&self, tenant: usize) -> Option<String> {
        self.faults.get(tenant).cloned().flatten()
    }

    pub(super) fn polling_cores(&self) -> BTreeSet<u32> {
        self.switches.iter().flat_map(|s| &s.polling).copied().collect()
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.retired.clone();
        self.parked.values().for_each(|c| c.add_to(&mut totals));
        totals.clear_held();
        self.switches.iter().flat_map(|s| s.lanes.values()).for_each(|l| l.counted.add_to(&mut totals));
        totals
    }

    /// Returns the ports whose role has changed since it was last sent, and marks it as sent. Until the
    /// database is known to be `read`, a port that seems to be shared may be a VM's, as the library may know
    /// from the daemon before.
    pub(super) fn take_changed_roles(
        &mut self,
        roles: &PortRoles,
        read: bool,
    ) -> Vec<(Arc<Peer>, PortId, Role)> {
        let mut changed = Vec::new();
        for switch in &mut self.switches {
            for (&id, port) in &mut switch.ports {
                let role = roles.of(&switch.peer.application, &port.info).0;
                if !read && role == Role::Shared {
                    continue;
                }
                if port.sent_role.replace(role) != Some(role) {
                    changed.push((Arc::clone(&switch.peer), id, role));
                }
            }
        }
        changed
    }

    /// Returns the switches whose endpoints of tunnels have changed since they were last sent, and marks them
    /// as sent.
    pub(super) fn take_changed_tunnels(&mut self, roles: &PortRoles) -> Vec<(Arc<Peer>, Vec<Tunnel>)> {
        let changed = self.switches.iter_mut().filter_map(|switch| {
            let tunnels = Some(roles.tunnels(&switch.peer.application));
            if switch.sent_tunnels == tunnels {
                return None;
            }
            switch.sent_tunnels = tunnels;
            Some((Arc::clone(&switch.peer), switch.sent_tunnels.clone()?))
        });
        changed.collect()
    }

    /// Returns the ports of all switches, each with its application's name.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&str, &PortInfo)> {
        self.switches.iter().flat_map(|s| s.ports.values().map(|p| (s.peer.application.as_str(), &p.info)))
    }

    pub(super) fn status(&self, roles: &PortRoles) -> Vec<SwitchStatus> {
        self.switches.iter().map(|s| s.status(roles)).collect()
    }
}

impl SwitchRecord {
    fn status(&self, roles: &PortRoles) -> SwitchStatus {
        let (mut bypasses, unmediated, mut notes) = by_kind(&self.remarks);
        // What a library does not mediate of no port that it knows passes the programs by.
        bypasses.extend(unmediated);
        bypasses.extend(roles.bypass(&self.peer.application));
        notes.extend(other_release(&self.peer.release));
        // By port: lanes of each side, and lanes that are zero-copy.
        let mut lanes: HashMap<PortId, ([usize; 2], usize)> = HashMap::new();
        for lane in self.lanes.values() {
            let (queues, zero_copy) = lanes.entry(lane.port).or_default();
            queues[lane.facing as usize] += 1;
            *zero_copy += usize::from(lane.zero_copy.is_some());
        }
        let port = |(id, port): (&PortId, &PortRecord)| {
            let (queues, zero_copy_queues) = lanes.get(id).copied().unwrap_or_default();
            PortStatus { zero_copy_queues, ..self.port(port, queues, roles) }
        };
        SwitchStatus {
            kind: self.peer.kind.name().to_owned(),
            application: self.peer.application.clone(),
            pid: self.peer.pid,
            uid: self.peer.uid,
            release: self.peer.release.clone(),
            bypasses,
            notes,
            ports: self.ports.iter().map(port).collect(),
        }
    }

    fn port(
        &self,
        port: &PortRecord,
        [queues, transmit_queues]: [usize; 2],
        roles: &PortRoles,
    ) -> PortStatus {
        let (bypasses, mut unmediated, notes) = by_kind(&port.remarks);
        if queues + transmit_queues == 0 && unmediated.is_empty() {
            unmediated.push(
                "the switch uses none of its queues; start the port in the switch, or remove it there"
                    .to_owned(),
            );
        }
        let (role, interface) = roles.of(&self.peer.application, &port.info);
        let (role, tenant, vm) = roles.names(role);
        PortStatus {
            name: printable(&port.info.name),
            interface: interface.map(str::to_owned),
            number: port.info.number,
            unconfigured: roles.is_unconfigured(&self.peer.application, &port.info),
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

/// Returns a note about a library of another release, whose messages have the same version.
fn other_release(release: &str) -> Option<String> {
    let ours = env!("CARGO_PKG_VERSION");
    (release != ours).then(|| {
        format!(
            "its library is release {release:?} and the daemon {ours:?}; both work together, and the switch \
             loads the new library when it restarts"
        )
    })
}

/// Sorts notices into bypasses, reasons for not being mediated, and notes; makes them printable.
fn by_kind(remarks: &[Notice]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut bypasses, mut unmediated, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for remark in remarks {
        let list = match remark {
            Notice::Bypass(_) => &mut bypasses,
            Notice::Unmediated(_) => &mut unmediated,
            Notice::Note(_) => &mut notes,
        };
        list.push(printable(remark.text()));
    }
    (bypasses, unmediated, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_release_is_named_once() {
        assert_eq!(other_release(env!("CARGO_PKG_VERSION")), None);
        let note = other_release("0.0.1").unwrap_or_default();
        assert!(note.contains("\"0.0.1\"") && note.contains("restarts"), "{note}");
    }
}
