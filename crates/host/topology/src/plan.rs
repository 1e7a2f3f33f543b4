//! From a configuration to its plan.

use super::entries::MAX_PORT;
use super::mac;
use super::model::{Compartment, Controllers, Link, Machine, Numbers, Plan, Tenant, VERSION, Vm};
use p4shield_config::{self as config, Config, Cores, Datapath, Level, NicSwitchKind, SwitchKind, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// The name of a compartment for all tenants.
const ALL: &str = "all";
/// Highest number of a VM, which leads to a port's number below OpenFlow's reserved ones (`OFPP_MAX`,
/// 0xff00).
const MAX_VM: u16 = 65_000;

/// A reason why a configuration has no plan.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PlanError {
    /// The tenants' switches are not configured.
    #[error(
        "the configuration has no table [topology]: write it with uplink and gateway_mac, and give each VM \
         an interface and a mac"
    )]
    NoTopology,
    /// A VM lacks what a port needs.
    #[error("VM {tenant}/{vm} has no interface or no mac: write both in its [[tenant.vm]]")]
    Vm {
        /// The tenant.
        tenant: String,
        /// The VM.
        vm: String,
    },
    /// There are fewer cores than compartments.
    #[error(
        "cores = \"isolated\" needs {needed} cores, one for each switch compartment, and this host has \
         {available} that are no P4 VM's (cpu): write cores = \"shared\", or put tenants into zones"
    )]
    Cores {
        /// The number of compartments.
        needed: usize,
        /// The number of cores without those of P4 VMs.
        available: usize,
    },
    /// There are more names than numbers.
    #[error("there are more than {most} {what} on this host: move some to another")]
    Numbers {
        /// The names' kind, in the plural.
        what: &'static str,
        /// How many numbers there are.
        most: u16,
    },
    /// A P4 switch has not so many ports.
    #[error(
        "the switch {0} needs a port with the number {1}, and a P4 switch numbers them to {MAX_PORT}: write \
         switch = \"ovs\" in [topology], or move tenants to another host"
    )]
    Port(String, u16),
}

/// Plans the tenants' switches of a configuration for a host with this number of cores. What has a name that
/// `previous` knows keeps its number, and with it VLAN, addresses, interfaces and core: a change of one
/// tenant changes nothing of another.
///
/// # Errors
/// There is none; see [`PlanError`].
pub fn plan(config: &Config, previous: &Numbers, cores: u32) -> Result<Plan, PlanError> {
    let topology = config.topology.as_ref().ok_or(PlanError::NoTopology)?;
    let nic_switch = topology.nic_switch.unwrap_or_else(|| fastest_nic_switch(topology.datapath));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (_, tenant) in config.numbered_tenants() {
        let name = compartment_of(config.level, tenant);
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.tenants.push(tenant),
            None => groups.push(Group { name, tenants: vec![tenant] }),
        }
    }
    let names = || groups.iter().map(|group| group.name);
    let tenants = config.numbered_tenants().map(|(_, tenant)| &*tenant.name);
    let numbers = Numbers {
        compartments: SWITCHES.assign(names(), &previous.compartments)?,
        // VLANs number them.
        tenants: Kind { what: "tenants", most: topology.last_vlan() + 1 - topology.first_vlan }
            .assign(tenants, &previous.tenants)?,
        vms: assign_vms(config, &previous.vms)?,
        cores: match topology.cores {
            Cores::Shared => names().map(|name| (name.to_owned(), cores.saturating_sub(1))).collect(),
            Cores::Isolated => assign_cores(names(), &previous.cores, &free_cores(config, cores))?,
        },
        functions: BTreeMap::new(),
    };
    let planner = Planner { level: config.level, topology, wires: &config.wires, numbers };
    let mut compartments =
        groups.iter().map(|group| planner.compartment(group)).collect::<Result<Vec<_>, _>>()?;
    compartments.sort_by_key(|c| c.number);
    if topology.switch == SwitchKind::P4 {
        compartments.iter().try_for_each(|c| check_ports(c, &topology.uplink))?;
    }
    Ok(Plan {
        version: VERSION,
        level: config.level,
        uplink: topology.uplink.clone(),
        gateway_mac: topology.gateway_mac,
        cores: topology.cores,
        switch: topology.switch,
        datapath: topology.datapath,
        nic_switch,
        outside_vlan: topology.outside_vlan,
        functions: assign_functions(nic_switch, &compartments, &previous.functions)?,
        machine: topology.machine.clone().map(|machine| {
            let config::SwitchMachine { image, qemu, accelerator } = machine;
            Machine { image, qemu, accelerator: accelerator.map(str::to_owned) }
        }),
        run: topology.run.clone(),
        compartments,
    })
}

/// Returns the NIC switch that costs least in front of switches that receive in this way. AF_XDP sockets take
/// the frames of XDP as they are, and packets of traffic control as copies.
const fn fastest_nic_switch(datapath: Datapath) -> NicSwitchKind {
    match datapath {
        Datapath::Sockets | Datapath::Dpdk => NicSwitchKind::Tc,
        Datapath::Afxdp => NicSwitchKind::Xdp,
    }
}

/// Checks that a P4 switch has numbers for its ports.
fn check_ports(c: &Compartment, uplink: &str) -> Result<(), PlanError> {
    let last = c.switch_ports(uplink).into_iter().map(|port| port.number).max();
    let above = last.filter(|number| *number > MAX_PORT);
    above.map_or(Ok(()), |number| Err(PlanError::Port(c.name.clone(), number)))
}

/// The tenants of a compartment.
struct Group<'c> {
    name: &'c str,
    tenants: Vec<&'c config::Tenant>,
}

/// Returns the name of a tenant's switch compartment.
fn compartment_of(level: Level, tenant: &config::Tenant) -> &str {
    match level {
        Level::Baseline => Compartment::ON_HOST,
        Level::One => ALL,
        Level::Two | Level::Three => tenant.zone.as_deref().unwrap_or(&tenant.name),
    }
}

/// A kind of names that have numbers.
struct Kind {
    /// In the plural.
    what: &'static str,
    /// The highest number.
    most: u16,
}

/// The numbers of compartments are in their addresses.
const SWITCHES: Kind = Kind { what: "switch compartments", most: mac::MAX_NUMBER };
/// The most that a PCI device can have is 65,535.
const FUNCTIONS: Kind = Kind { what: "virtual functions", most: MAX_VM };
const VMS: Kind = Kind { what: "VMs", most: MAX_VM };

impl Kind {
    /// Gives names that have none the smallest free numbers, in the order of the file: first those that
    /// the previous plan did not give, since what has them runs until its successor does.
    fn assign<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
        previous: &BTreeMap<String, u16>,
    ) -> Result<BTreeMap<String, u16>, PlanError> {
        let Self { what, most } = *self;
        let names: Vec<_> = names.collect();
        let mut taken = BTreeSet::new();
        let mut numbers = BTreeMap::new();
        for name in &names {
            // The state of an older plan comes from a file: a number that two names have is the first one's.
            if let Some(&number) = previous.get(*name).filter(|n| (1..=most).contains(*n))
                && taken.insert(number)
            {
                numbers.insert((*name).to_owned(), number);
            }
        }
        let given = &previous.values().copied().collect::<BTreeSet<_>>();
        let free = |was_given: bool| (1..=most).filter(move |n| given.contains(n) == was_given);
        let mut free = free(false).chain(free(true)).filter(|n| !taken.contains(n));
        for name in names {
            if !numbers.contains_key(name) {
                let number = free.next().ok_or(PlanError::Numbers { what, most })?;
                numbers.insert(name.to_owned(), number);
            }
        }
        Ok(numbers)
    }
}

fn assign_vms(config: &Config, previous: &BTreeMap<String, u16>) -> Result<BTreeMap<String, u16>, PlanError> {
    let names = |t: &config::Tenant| {
        t.numbered_vms().map(|(_, vm)| name_of_vm(&t.name, &vm.name)).collect::<Vec<_>>()
    };
    let names: Vec<_> = config.numbered_tenants().flat_map(|(_, t)| names(t)).collect();
    VMS.assign(names.iter().map(|name| &**name), previous)
}

/// Gives each port the lowest free virtual function: a card has few, and a port that goes has closed its own
/// before.
fn assign_functions(
    kind: NicSwitchKind,
    compartments: &[Compartment],
    previous: &BTreeMap<String, u16>,
) -> Result<BTreeMap<String, u16>, PlanError> {
    if kind != NicSwitchKind::Sriov {
        return Ok(BTreeMap::new());
    }
    let ports: Vec<_> = compartments.iter().flat_map(Compartment::ports).map(|port| port.interface).collect();
    // Kinds count from 1.
    let staying = previous.iter().filter(|(name, _)| ports.contains(name));
    let staying = staying.map(|(name, number)| (name.clone(), number.saturating_add(1))).collect();
    let assigned = FUNCTIONS.assign(ports.iter().map(|name| &**name), &staying)?;
    Ok(assigned.into_iter().map(|(name, number)| (name, number - 1)).collect())
}

fn name_of_vm(tenant: &str, vm: &str) -> String {
    format!("{tenant}/{vm}")
}

/// Returns the cores that no P4 VM has to itself, from the last one downwards: the host's own work tends to
/// the first.
fn free_cores(config: &Config, cores: u32) -> Vec<u32> {
    let of_p4_vms: BTreeSet<u32> = config.numbered_tenants().filter_map(|(_, tenant)| tenant.cpu).collect();
    (0..cores).rev().filter(|core| !of_p4_vms.contains(core)).collect()
}

/// Gives each compartment a core of its own out of these.
fn assign_cores<'n>(
    names: impl ExactSizeIterator<Item = &'n str>,
    previous: &BTreeMap<String, u32>,
    available: &[u32],
) -> Result<BTreeMap<String, u32>, PlanError> {
    let needed = names.len();
    let too_few = || PlanError::Cores { needed, available: available.len() };
    if available.len() < needed {
        return Err(too_few());
    }
    let names: Vec<_> = names.collect();
    let mut taken = BTreeSet::new();
    let mut cores = BTreeMap::new();
    for name in &names {
        if let Some(&core) = previous.get(*name).filter(|core| available.contains(core))
            && taken.insert(core)
        {
            cores.insert((*name).to_owned(), core);
        }
    }
    let mut free = available.iter().filter(|core| !taken.contains(core));
    for name in names {
        if !cores.contains_key(name) {
            cores.insert(name.to_owned(), *free.next().ok_or_else(too_few)?);
        }
    }
    Ok(cores)
}

/// The common facts of a plan's parts.
struct Planner<'c> {
    level: Level,
    topology: &'c Topology,
    wires: &'c [config::Wire],
    numbers: Numbers,
}

impl Planner<'_> {
    fn compartment(&self, group: &Group<'_>) -> Result<Compartment, PlanError> {
        let Group { name, tenants } = group;
        let number = self.numbers.compartments[*name];
        let controllers = self.controllers(tenants);
        let link = Link { outer: format!("p4s{number}io"), inner: "inout".to_owned() };
        let mut tenants = tenants.iter().map(|t| self.tenant(t, number)).collect::<Result<Vec<_>, _>>()?;
        tenants.sort_by_key(|t| t.number);
        Ok(Compartment {
            name: (*name).to_owned(),
            number,
            mac: mac::of_switch(self.topology.host, number),
            memory: self.topology.memory,
            huge_pages: self.topology.huge_pages,
            core: self.numbers.cores[*name],
            in_out: self.has_nic_switch().then_some(link),
            tenants,
            controllers,
        })
    }

    /// Plans where controllers reach the switch of these tenants. It has one configuration, so one that
    /// serves several is none of a tenant's.
    fn controllers(&self, tenants: &[&config::Tenant]) -> Option<Controllers> {
        let [tenant] = tenants else { return None };
        let found = tenant.controllers.clone().filter(|_| self.has_nic_switch())?;
        let config::Controllers { ovsdb, openflow, private_key, certificate, ca_certificate } = found;
        Some(Controllers { ovsdb, openflow, private_key, certificate, ca_certificate })
    }

    /// Plans a tenant of the switch with this number.
    fn tenant(&self, tenant: &config::Tenant, switch: u16) -> Result<Tenant, PlanError> {
        let number = self.numbers.tenants[&tenant.name];
        let vlan = self.topology.first_vlan + number - 1;
        // Two switches of a tenant have one at the same time while the level changes.
        let link = Link { outer: format!("p4s{switch}gw{number}"), inner: format!("gw-{number}") };
        let vms = tenant.numbered_vms().map(|(_, vm)| self.vm(&tenant.name, vm));
        let mut vms = vms.collect::<Result<Vec<_>, _>>()?;
        vms.sort_by_key(|vm| vm.number);
        Ok(Tenant {
            name: tenant.name.clone(),
            number,
            vlan,
            mac: mac::of_gateway(number),
            gateway: self.has_nic_switch().then_some(link),
            vms,
        })
    }

    fn vm(&self, tenant: &str, vm: &config::Vm) -> Result<Vm, PlanError> {
        let (Some(interface), Some(mac)) = (vm.interface.clone(), vm.mac) else {
            return Err(PlanError::Vm { tenant: tenant.to_owned(), vm: vm.name.clone() });
        };
        let number = self.numbers.vms[&name_of_vm(tenant, &vm.name)];
        let (name, addresses, iface_id) = (vm.name.clone(), vm.addresses.clone(), vm.iface_id.clone());
        let wire = self.wires.iter().find(|wire| wire.vm_interface == interface);
        let wire = wire
            .and_then(|wire| Some(Link { outer: wire.port.clone()?, inner: wire.switch_interface.clone() }));
        let packet_rate = vm.packet_rate;
        Ok(Vm { name, number, interface, wire, mac, addresses, packet_rate, iface_id })
    }

    /// Returns whether compartments stand behind a NIC switch.
    fn has_nic_switch(&self) -> bool {
        self.level != Level::Baseline
    }
}

#[cfg(test)]
mod tests;
