//! How the switches of the applied plan are.

use crate::TopologyError;
use crate::apply::Host;
use crate::compartment::Place;
use crate::processes::{self, Processes};
use crate::usage;
use p4shield_config::SwitchKind;
use p4shield_nicswitch::{PortCounters, Reason};
use p4shield_text::chain;
use p4shield_topology::{Compartment, Plan, Port, Role};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// How the switches are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The plan that was applied.
    pub plan: Plan,
    /// Its switches, in the plan's order.
    pub switches: Vec<SwitchStatus>,
    /// The ports of the NIC switch, in the plan's order.
    pub ports: Vec<PortStatus>,
}

/// How a port of the NIC switch is. Counters are since the port was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its interface.
    pub interface: String,
    /// The tenant whose packets it carries; `None`: those of several, or of the outside.
    pub tenant: Option<String>,
    /// False if its interface does not exist or is not the NIC switch's.
    pub serves: bool,
    /// Packets that came from it.
    pub received_packets: u64,
    /// Their bytes, with Ethernet header.
    pub received_bytes: u64,
    /// Packets that went to it.
    pub delivered_packets: u64,
    /// Their bytes, with Ethernet header.
    pub delivered_bytes: u64,
    /// Packets from it that were dropped, by reason; reasons without a packet are left out. A network card
    /// gives no reasons: `unexplained`.
    pub dropped: BTreeMap<String, u64>,
    /// Its virtual function, if a network card is the NIC switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionStatus>,
}

/// A virtual function of a network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// Its number, as in `ip link show` of the card.
    pub number: u16,
    /// Its PCI address, which a VM's definition needs; `None`: the card does not have it.
    pub device: Option<String>,
}

impl PortStatus {
    fn of(port: &Port, counters: Option<&PortCounters>, function: Option<FunctionStatus>) -> Self {
        let Port { interface, tenant, .. } = port.clone();
        let serves = counters.is_some();
        let counters = counters.cloned().unwrap_or_default();
        let dropped = Reason::ALL.map(|reason| (reason.name().to_owned(), counters.dropped(reason)));
        let unexplained = ("unexplained".to_owned(), counters.unexplained_drops);
        let dropped = dropped.into_iter().chain([unexplained]).filter(|(_, n)| *n > 0).collect();
        let PortCounters { received_packets, received_bytes, delivered_packets, delivered_bytes, .. } =
            counters;
        Self {
            interface,
            tenant,
            serves,
            received_packets,
            received_bytes,
            delivered_packets,
            delivered_bytes,
            dropped,
            function,
        }
    }

    /// Returns the reasons of drops for which something can be done at the sender, each with that.
    pub fn remedies(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let found = Reason::ALL.into_iter().filter(|reason| self.dropped.contains_key(reason.name()));
        found.filter_map(|reason| Some((reason.name(), reason.remedy()?)))
    }
}

/// How a switch is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    /// The compartment's name.
    pub name: String,
    /// The tenants that it serves.
    pub tenants: Vec<String>,
    /// The problem; `None`: it works.
    pub problem: Option<String>,
    /// Processes that it has.
    pub processes: usize,
    /// How often one of its programs ended and was started again.
    pub restarts: u64,
    /// Processor time since its compartment started, in microseconds.
    #[serde(default)]
    pub cpu_us: u64,
    /// Its memory in bytes.
    #[serde(default)]
    pub memory: u64,
    /// The folder of Open vSwitch's sockets, or a P4 switch's socket.
    pub sockets: PathBuf,
}

impl Host {
    /// Returns how the switches of the applied plan are; `None`: none was applied.
    ///
    /// # Errors
    /// The state or `/proc` cannot be read.
    pub fn status(&self) -> Result<Option<Status>, TopologyError> {
        let Some(plan) = self.applied()? else { return Ok(None) };
        let (switches, ports) = (self.switches(&plan)?, self.ports(&plan)?);
        Ok(Some(Status { plan, switches, ports }))
    }

    /// Returns how a plan's switches are. Each is asked.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn switches(&self, plan: &Plan) -> Result<Vec<SwitchStatus>, TopologyError> {
        let found = processes::of_users(&self.users)?;
        let of = |planned: &Compartment| {
            let place = self.place(plan, planned);
            SwitchStatus::of(&place, &found.get(&place.uid).cloned().unwrap_or_default())
        };
        Ok(plan.compartments.iter().map(of).collect())
    }

    /// Returns descriptors of the first processes of these compartments, by name, without those that have
    /// none.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn first_processes<'p>(
        &self,
        compartments: impl Iterator<Item = &'p Compartment>,
    ) -> Result<BTreeMap<String, OwnedFd>, TopologyError> {
        let users: Vec<_> = compartments.map(|c| (c.name.clone(), self.user_of(c))).collect();
        if users.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut found = processes::first_of_users(&self.users)?;
        let process = |(name, user)| Some((name, found.remove(&user)?.1));
        Ok(users.into_iter().filter_map(process).collect())
    }

    /// Returns how a plan's ports of the NIC switch are. A network card has no counters of its wire, the
    /// uplink.
    ///
    /// # Errors
    /// The NIC switch's counters cannot be read.
    pub fn ports(&self, plan: &Plan) -> Result<Vec<PortStatus>, TopologyError> {
        let counters = self.nic_switch(plan)?.counters()?;
        let card = self.card(plan);
        let mut ports = plan.ports();
        ports.retain(|port| card.is_none() || port.role != Role::Uplink);
        let function = |port: &Port| {
            let device = card.as_ref()?.device_of(&port.interface).ok();
            Some(FunctionStatus { number: *plan.functions.get(&port.interface)?, device })
        };
        let of = |port: &Port| counters.iter().find(|c| c.interface == port.interface);
        Ok(ports.iter().map(|port| PortStatus::of(port, of(port), function(port))).collect())
    }
}

impl SwitchStatus {
    fn of(place: &Place<'_>, found: &Processes) -> Self {
        let used = usage::of(&place.planned.name, found);
        let processes = found.all.len();
        let (problem, restarts) = match place.report() {
            // The switch's own words, made printable.
            Ok(answer) => (answer.error.map(|e| p4shield_text::printable(&e)), answer.restarts),
            Err(_) if processes == 0 => (Some("it does not run; apply the topology again".into()), 0),
            Err(e) => (Some(format!("it does not answer: {}", chain(&e))), 0),
        };
        Self {
            name: place.planned.name.clone(),
            tenants: place.planned.tenants.iter().map(|t| t.name.clone()).collect(),
            problem,
            processes,
            restarts,
            cpu_us: u64::try_from(used.cpu.as_micros()).unwrap_or(u64::MAX),
            memory: used.memory,
            sockets: match place.switch {
                SwitchKind::Ovs => place.switch_folder(),
                SwitchKind::P4 => place.p4_socket(),
            },
        }
    }
}
