//! Two tenants behind switches of a level, with an access list for the adversary's traffic in its Open
//! vSwitch. A daemon keeps the switches running.

use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;

use anyhow::Context;
use p4shield_testbed::process::product;
use p4shield_topology::{PRIORITIES, Plan, Tenant};

use super::Attack;
use super::deeds::{self, Bomb};
use super::sweep::sweep;
use super::traffic::{Deed, Victim};
use crate::fixture::cloud::{Cloud, OUTSIDE, ROUTER, Vm, mac_text, users};
use crate::fixture::daemon::Daemon;
use crate::fixture::headers::Headers;
use crate::fixture::tenants_programs::{BURN, PASS, compile_burn, compile_pass};
use crate::topology::Level;

const VICTIM: &str = "alice";
const ADVERSARY: &str = "bob";
/// The VMs: the victim's traffic is between the first two.
const VMS: [[&str; 2]; 3] = [[VICTIM, "web"], [VICTIM, "db"], [ADVERSARY, "web"]];

/// The adversary's access list allows packets with this address, or source port, or destination port.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 200, 7, 9);
const PORTS: [u16; 2] = [40_000, 8080];
/// Packets a second of a flood.
const FLOOD: u32 = 300_000;

/// The tenants and their switches.
pub(super) struct World {
    /// It ends first: the cloud then removes the switches.
    daemon: Daemon,
    cloud: Cloud,
    plan: Plan,
    has_p4_switches: bool,
}

impl World {
    /// Makes the switches of a level, and adds the adversary's access list to Open vSwitch. With `p4`, each
    /// VM has a program: the adversary's burns its budget if that is the attack.
    pub(super) fn start(level: Level, p4: bool, attack: Attack) -> anyhow::Result<Self> {
        let cloud = Cloud::make(&VMS.map(|vm| vm.map(str::to_owned)))?;
        if level.has_offloads() {
            cloud.keep_offloads()?;
        }
        let has_p4_switches = level.has_p4_switches();
        let (level, keys) = level.keys();
        cloud.configure_with(level, keys)?;
        let mut programs: Vec<(&Vm, &[&str])> = Vec::new();
        if p4 {
            compile_pass(cloud.folder())?;
            let burns = |vm: &Vm| (&*vm.tenant, attack) == (ADVERSARY, Attack::Burn);
            if attack == Attack::Burn {
                compile_burn(cloud.folder())?;
            }
            programs.extend(cloud.vms.iter().map(|vm| (vm, if burns(vm) { &BURN[..] } else { &PASS })));
        }
        let daemon = Daemon::start(&cloud, &programs)?;
        let plan = cloud.plan()?;
        let world = Self { daemon, cloud, plan, has_p4_switches };
        for vm in &world.cloud.vms {
            world.cloud.await_ping(&vm.ns, OUTSIDE)?;
        }
        world.cloud.await_ping(&world.cloud.vms[0].ns, &world.cloud.vms[1].address)?;
        if !has_p4_switches {
            world.filter()?;
        }
        Ok(world)
    }

    /// Adds the access list to the adversary's switch, one for each direction: what it does not allow is
    /// dropped before the plan's rules see it.
    fn filter(&self) -> anyhow::Result<()> {
        let switch = self.cloud.switch(&self.plan, ADVERSARY)?;
        let (tenant, vm) = self.adversary()?;
        let [inside, outside] = [port(tenant, vm), p4shield_topology::Compartment::OUTSIDE];
        let address = vm.addresses.first().context("the adversary has no address")?;
        let to_outside = actions(&switch.planned.mac.into_array(), &ROUTER, outside);
        let to_vm = actions(&tenant.mac.into_array(), &vm.mac.into_array(), inside);
        let sides = [
            (format!("in_port={inside}"), "nw_dst", to_outside),
            (format!("in_port={outside},nw_dst={address}"), "nw_src", to_vm),
        ];
        for (side, peer, allow) in sides {
            let [source, destination] = PORTS;
            let rules = [
                ("ip".to_owned(), "drop"),
                (format!("udp,tp_dst={destination}"), &allow),
                (format!("udp,tp_src={source}"), &allow),
                (format!("ip,{peer}={PEER}"), &allow),
            ];
            for (priority, (matched, actions)) in (PRIORITIES[1] + 1..).zip(rules) {
                switch.add_rule(&format!("priority={priority},{matched},{side},actions={actions}"))?;
            }
        }
        Ok(())
    }

    /// Returns the adversary and its VM.
    fn adversary(&self) -> anyhow::Result<(&Tenant, &p4shield_topology::Vm)> {
        let mut tenants = self.plan.compartments.iter().flat_map(|c| &c.tenants);
        let tenant = tenants.find(|t| t.name == ADVERSARY).context("the plan has no adversary")?;
        Ok((tenant, tenant.vms.first().context("the adversary has no VM")?))
    }

    /// Returns the victim's VMs.
    pub(super) fn victim(&self) -> anyhow::Result<Victim<'_>> {
        let [from, to, _] = &self.cloud.vms[..] else { anyhow::bail!("the cloud has other VMs") };
        Ok(Victim { from: &from.ns, to: &to.ns, address: to.address.parse()? })
    }

    /// Returns what the adversary does; `None` if nothing.
    pub(super) fn deed(&self, attack: Attack, rate: u32) -> anyhow::Result<Option<Deed<'_>>> {
        let own = |headers: &[Headers], rate| self.stream(false, headers, rate);
        let one = |rate| anyhow::Ok(own(&[self.allowed(false)?], rate));
        let ordinary = || one(rate);
        Ok(Some(match attack {
            Attack::Idle => return Ok(None),
            Attack::Ordinary | Attack::Burn => ordinary()?,
            Attack::Flood => one(FLOOD)?,
            Attack::Tenant => own(&sweep(&self.allowed(false)?, false), rate),
            Attack::Outside => self.stream(true, &sweep(&self.allowed(true)?, true), rate),
            Attack::Stop => deeds::stop(self.p4_vm()?),
            Attack::Ring => deeds::both(deeds::stop(self.p4_vm()?), ordinary()?),
            Attack::Scribble => deeds::both(deeds::scribble(self.p4_vm()?), ordinary()?),
            Attack::Kill => deeds::kill(self.switch_user()?, self.has_p4_switches),
            Attack::Memory => {
                let allowed = self.cloud.switch(&self.plan, ADVERSARY)?.planned.memory;
                deeds::memory(self.bomb(&deeds::memory_script(allowed))?, self.switch_user()?, allowed)
            }
            Attack::Forks => deeds::forks(self.bomb(deeds::FORK_SCRIPT)?, self.switch_user()?),
            Attack::Sessions => deeds::forks(self.bomb(deeds::SESSION_SCRIPT)?, self.switch_user()?),
        }))
    }

    /// Returns the headers that the access list allows, of packets from outside or from the adversary's VM.
    fn allowed(&self, from_outside: bool) -> anyhow::Result<Headers> {
        let (tenant, vm) = self.adversary()?;
        let Some(std::net::IpAddr::V4(address)) = vm.addresses.first() else {
            anyhow::bail!("the adversary has no IPv4 address")
        };
        let [own, peer] = [address, &PEER].map(|address| address.to_bits());
        let outer = self.cloud.switch(&self.plan, ADVERSARY)?.planned.mac;
        let (macs, addresses) = if from_outside {
            ([outer, ROUTER.into()], [peer, own])
        } else {
            ([tenant.mac, vm.mac], [own, peer])
        };
        Ok(Headers { macs: macs.map(macaddr::MacAddr6::into_array), addresses, ports: PORTS })
    }

    fn stream(&self, from_outside: bool, headers: &[Headers], rate: u32) -> Deed<'_> {
        let ns = if from_outside { &self.cloud.outside } else { &self.cloud.vms[2].ns };
        deeds::stream(ns, headers.iter().map(|h| h.frame(&[])).collect(), rate)
    }

    /// Prepares a script in the adversary's compartment, as a switch that was taken over would run it.
    fn bomb(&self, script: &str) -> anyhow::Result<Bomb> {
        let mut command = self.cloud.host.command(product()?);
        command.args(["exec", ADVERSARY, "--config"]).arg(self.cloud.config()).arg("--");
        Bomb::new(command, script, self.cloud.folder())
    }

    /// Returns the user of the adversary's switch.
    fn switch_user(&self) -> anyhow::Result<u32> {
        let number = self.cloud.switch(&self.plan, ADVERSARY)?.planned.number;
        Ok(users().start + u32::from(number))
    }

    /// Returns the user of the adversary's P4 VM.
    fn p4_vm(&self) -> anyhow::Result<u32> {
        let tenant = self.daemon.tenant(ADVERSARY)?;
        let pid = tenant["pid"].as_i64().with_context(|| format!("no P4 VM runs: {tenant}"))?;
        let folder = format!("/proc/{pid}");
        Ok(std::fs::metadata(&folder).with_context(|| folder.clone())?.uid())
    }

    /// Returns what the daemon says of the adversary's P4 VM and its packets, which bears out the deed.
    pub(super) fn p4_outcome(&self) -> anyhow::Result<String> {
        let tenant = self.daemon.tenant(ADVERSARY)?;
        let mut found = vec![format!("P4 VM restarted {} times", tenant["restarts"])];
        for direction in ["ingress", "egress"] {
            let counts = tenant["vms"][0][direction]["dropped"].as_array();
            for count in counts.into_iter().flatten().filter(|count| count[1].as_u64() > Some(0)) {
                let reason = count[0].as_str().map_or_else(|| count[0].to_string(), str::to_owned);
                found.push(format!("{direction}: {} packets dropped ({reason})", count[1]));
            }
        }
        Ok(found.join(", "))
    }

    /// Returns how many decisions the adversary's switch remembers.
    pub(super) fn flows(&self) -> anyhow::Result<u64> {
        let datapath = self.cloud.switch(&self.plan, ADVERSARY)?.control("dpctl/show")?;
        flows(&datapath).with_context(|| format!("the switch describes another datapath: {datapath}"))
    }
}

/// Returns the number in OpenFlow of the port behind which a tenant's VM is.
fn port(tenant: &Tenant, vm: &p4shield_topology::Vm) -> u16 {
    if tenant.gateway.is_some() { tenant.port() } else { vm.port() }
}

/// Returns the actions that deliver a packet as the plan's rules do.
fn actions(from: &[u8; 6], to: &[u8; 6], port: u16) -> String {
    let [from, to] = [from, to].map(|mac| mac_text(*mac));
    format!("set_field:{from}->eth_src,set_field:{to}->eth_dst,output:{port}")
}

/// Reads the answer of `dpctl/show`.
fn flows(datapath: &str) -> Option<u64> {
    datapath.lines().find_map(|line| line.trim().strip_prefix("flows:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remembered_decisions_are_read() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:8 missed:3012 lost:0\n  flows: 3010\n  port 0: up0\n";
        assert_eq!(flows(text), Some(3010));
        assert_eq!(flows("ovs-vswitchd is not running"), None);
    }
}
