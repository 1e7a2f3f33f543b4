//! Tenants behind switches of a level, and the ways of packets through them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, ensure};
use p4shield_topology::{Compartment, PRIORITIES, Plan, Tenant};

use super::{Cores, P4, Place, Scenario, packet};
use crate::fixture::cloud::{Cloud, OUTSIDE, ROUTER, Vm, mac_text};
use crate::fixture::daemon::Daemon;
use crate::fixture::headers::Headers;
use crate::fixture::tenants_programs::{PASS, compile_pass};
use crate::name;

/// The resources of all switches since their start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) at: Instant,
    pub(crate) core_seconds: f64,
    /// Bytes now.
    pub(crate) memory: u64,
}

/// The tenants and their switches.
pub(crate) struct World {
    /// With programs. It ends first: the cloud then removes the switches.
    _daemon: Option<Daemon>,
    pub(crate) cloud: Cloud,
    plan: Plan,
    /// VMs of each tenant.
    each: usize,
}

impl World {
    /// Makes the switches of a level for tenants with so many VMs each, and with P4 a program for each VM.
    pub(crate) fn start(place: Place, cores: Cores, each: usize) -> anyhow::Result<Self> {
        let Place { level, p4, tenants, .. } = place;
        let of_tenant = |t| ["vm", "last"][..each].iter().map(move |vm| [format!("t{t}"), (*vm).to_owned()]);
        let cloud = Cloud::make(&(1..=tenants).flat_map(of_tenant).collect::<Vec<_>>())?;
        if level.has_offloads() {
            cloud.keep_offloads()?;
        }
        let has_p4_switches = level.has_p4_switches();
        let (level, keys) = level.keys();
        cloud.configure_with(level, &format!("{keys}cores = \"{}\"\n", name(cores)))?;
        let daemon = match p4 {
            P4::Without => cloud.topology("apply").map(|_| None)?,
            P4::With => {
                compile_pass(cloud.folder())?;
                let programs: Vec<_> = cloud.vms.iter().map(|vm| (vm, &PASS[..])).collect();
                Some(Daemon::start(&cloud, &programs)?)
            }
        };
        let plan = cloud.plan()?;
        let world = Self { _daemon: daemon, cloud, plan, each };
        for vm in &world.cloud.vms {
            world.cloud.await_ping(&vm.ns, OUTSIDE)?;
        }
        if !has_p4_switches {
            world.tenants().try_for_each(|vms| world.send_back(&vms[0]))?;
        }
        Ok(world)
    }

    /// Returns the VMs of each tenant.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &[Vm]> {
        self.cloud.vms.chunks_exact(self.each)
    }

    /// Returns the number of switches.
    pub(crate) fn switches(&self) -> usize {
        self.plan.compartments.len()
    }

    /// Returns the number of cores that the switches have.
    pub(crate) fn cores(&self) -> usize {
        self.plan.compartments.iter().map(|c| c.core).collect::<BTreeSet<_>>().len()
    }

    /// Adds the rule of p2p to a tenant's switch, for packets to an address of the tenant.
    fn send_back(&self, vm: &Vm) -> anyhow::Result<()> {
        let switch = self.cloud.switch(&self.plan, &vm.tenant)?;
        let (priority, own, router) =
            (PRIORITIES[1] + 1, mac_text(switch.planned.mac.into_array()), mac_text(ROUTER));
        switch.add_rule(&format!(
            "priority={priority},udp,in_port={},nw_dst={address},tp_dst={},actions=set_field:{own}->eth_src,\
             set_field:{router}->eth_dst,set_field:{address}->ip_src,set_field:{OUTSIDE}->ip_dst,in_port",
            Compartment::OUTSIDE,
            packet::TO_PORT,
            address = vm.address,
        ))
    }

    /// Returns the headers of what the outside sends, by tenant.
    pub(super) fn of_outside(&self, scenario: Scenario) -> anyhow::Result<Vec<Headers>> {
        let to = if scenario == Scenario::P2p { packet::TO_PORT } else { packet::TO_VM };
        let headers = |vms: &[Vm]| {
            let switch = self.cloud.switch(&self.plan, &vms[0].tenant)?;
            let addresses = [bits(OUTSIDE)?, bits(&vms[0].address)?];
            let macs = [switch.planned.mac.into_array(), ROUTER];
            Ok(Headers { macs, addresses, ports: [packet::FROM, to] })
        };
        self.tenants().map(headers).collect()
    }

    /// Returns the headers of what each VM sends on, in the order of the VMs. In v2v the first one of a
    /// tenant sends to the second one.
    pub(super) fn of_vms(&self, scenario: Scenario) -> anyhow::Result<Vec<Headers>> {
        let headers = |(vms, n): (&[Vm], usize)| {
            let next = vms.get(n + 1).filter(|_| scenario == Scenario::V2v);
            let next = next.map_or(OUTSIDE, |vm| &vm.address);
            let macs = [self.tenant(&vms[n].tenant)?.mac.into_array(), vms[n].mac];
            let addresses = [bits(&vms[n].address)?, bits(next)?];
            Ok(Headers { macs, addresses, ports: [packet::FROM, packet::TO_VM] })
        };
        self.tenants().flat_map(|vms| (0..vms.len()).map(move |n| (vms, n))).map(headers).collect()
    }

    fn tenant(&self, name: &str) -> anyhow::Result<&Tenant> {
        let mut tenants = self.plan.compartments.iter().flat_map(|c| &c.tenants);
        tenants.find(|t| t.name == name).with_context(|| format!("the plan has no tenant {name}"))
    }

    /// Returns what `p4shield topology usage` says of all switches.
    pub(crate) fn used(&self) -> anyhow::Result<Used> {
        let tenants = self.cloud.topology("usage")?;
        let tenants = tenants.as_array().context("p4shield topology usage prints no list")?;
        let mut used = Used { at: Instant::now(), core_seconds: 0.0, memory: 0 };
        for tenant in tenants {
            used.core_seconds += tenant["core_seconds"].as_f64().context("no core_seconds")?;
            used.memory += tenant["memory_bytes"].as_u64().context("no memory_bytes")?;
        }
        ensure!(used.memory > 0, "p4shield topology usage knows no memory of the switches");
        Ok(used)
    }
}

fn bits(address: &str) -> anyhow::Result<u32> {
    Ok(address.parse::<Ipv4Addr>()?.to_bits())
}
