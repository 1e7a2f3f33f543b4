//! Two tenants behind switches of a level, with an access list for the attacker's traffic in his switch.

use std::net::Ipv4Addr;

use anyhow::Context;
use p4shield_topology::{PRIORITIES, Plan, Tenant, Vm};

use super::Attack;
use super::sweep::sweep;
use super::traffic::{Stream, Victim};
use crate::fixture::cloud::{Cloud, OUTSIDE, ROUTER, mac_text};
use crate::fixture::headers::Headers;

const VICTIM: &str = "alice";
const ATTACKER: &str = "bob";
/// The VMs: the victim's traffic is between the first two.
const VMS: [[&str; 2]; 3] = [[VICTIM, "web"], [VICTIM, "db"], [ATTACKER, "web"]];

/// The attacker's access list allows packets with this address, or source port, or destination port.
const PEER: Ipv4Addr = Ipv4Addr::new(10, 200, 7, 9);
const PORTS: [u16; 2] = [40_000, 8080];

/// The tenants and their switches.
pub(super) struct World {
    cloud: Cloud,
    plan: Plan,
}

impl World {
    /// Makes the switches of a level, and adds the attacker's access list.
    pub(super) fn start(level: &str) -> anyhow::Result<Self> {
        let cloud = Cloud::make(&VMS.map(|vm| vm.map(str::to_owned)))?;
        cloud.configure(level)?;
        cloud.topology("apply")?;
        let plan = cloud.plan()?;
        let world = Self { cloud, plan };
        for vm in &world.cloud.vms {
            world.cloud.await_ping(&vm.ns, OUTSIDE)?;
        }
        world.cloud.await_ping(&world.cloud.vms[0].ns, &world.cloud.vms[1].address)?;
        world.filter()?;
        Ok(world)
    }

    /// Adds the access list to the attacker's switch, one for each direction: what it does not allow is
    /// dropped before the plan's rules see it.
    fn filter(&self) -> anyhow::Result<()> {
        let switch = self.cloud.switch(&self.plan, ATTACKER)?;
        let (tenant, vm) = self.attacker()?;
        let [inside, outside] = [port(tenant, vm), p4shield_topology::Compartment::OUTSIDE];
        let address = vm.addresses.first().context("the attacker has no address")?;
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

    /// Returns the attacker and his VM.
    fn attacker(&self) -> anyhow::Result<(&Tenant, &Vm)> {
        let mut tenants = self.plan.compartments.iter().flat_map(|c| &c.tenants);
        let tenant = tenants.find(|t| t.name == ATTACKER).context("the plan has no attacker")?;
        Ok((tenant, tenant.vms.first().context("the attacker has no VM")?))
    }

    /// Returns the victim's VMs.
    pub(super) fn victim(&self) -> anyhow::Result<Victim<'_>> {
        let [from, to, _] = &self.cloud.vms[..] else { anyhow::bail!("the cloud has other VMs") };
        Ok(Victim { from: &from.ns, to: &to.ns, address: to.address.parse()? })
    }

    /// Returns an attack's packets and where they are sent; `None` without an attack.
    pub(super) fn attack(&self, attack: Attack) -> anyhow::Result<Option<Stream<'_>>> {
        let (tenant, vm) = self.attacker()?;
        let Some(std::net::IpAddr::V4(address)) = vm.addresses.first() else {
            anyhow::bail!("the attacker has no IPv4 address")
        };
        let [own, peer] = [address, &PEER].map(|address| address.to_bits());
        let outer = self.cloud.switch(&self.plan, ATTACKER)?.planned.mac;
        let (ns, macs, addresses) = match attack {
            Attack::None => return Ok(None),
            Attack::Tenant => (&self.cloud.vms[2].ns, [tenant.mac, vm.mac], [own, peer]),
            Attack::Outside => (&self.cloud.outside, [outer, ROUTER.into()], [peer, own]),
        };
        let allowed = Headers { macs: macs.map(macaddr::MacAddr6::into_array), addresses, ports: PORTS };
        let headers = sweep(&allowed, attack == Attack::Outside);
        Ok(Some(Stream { ns, frames: headers.iter().map(|h| h.frame(&[])).collect() }))
    }

    /// Begins to count in the attacker's switch.
    pub(super) fn clear_lookups(&self) -> anyhow::Result<()> {
        self.cloud.switch(&self.plan, ATTACKER)?.control("dpif-netdev/pmd-stats-clear").map(drop)
    }

    /// Returns how many masks the attacker's switch searched for a packet, on average.
    pub(super) fn lookups(&self) -> anyhow::Result<f64> {
        let statistics = self.cloud.switch(&self.plan, ATTACKER)?.control("dpif-netdev/pmd-stats-show")?;
        lookups(&statistics).with_context(|| format!("the switch's statistics are others: {statistics}"))
    }
}

/// Returns the number in OpenFlow of the port behind which a tenant's VM is.
fn port(tenant: &Tenant, vm: &Vm) -> u16 {
    if tenant.gateway.is_some() { tenant.port() } else { vm.port() }
}

/// Returns the actions that deliver a packet as the plan's rules do.
fn actions(from: &[u8; 6], to: &[u8; 6], port: u16) -> String {
    let [from, to] = [from, to].map(|mac| mac_text(*mac));
    format!("set_field:{from}->eth_src,set_field:{to}->eth_dst,output:{port}")
}

/// Reads the answer of `dpif-netdev/pmd-stats-show`: the figure of the busiest thread, which is the only one
/// that has ports.
fn lookups(statistics: &str) -> Option<f64> {
    let figure =
        |line: &str| line.trim().strip_prefix("avg. subtable lookups per megaflow hit:")?.trim().parse().ok();
    statistics.lines().filter_map(figure).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lookups_of_the_busiest_thread_are_read() {
        let text = "pmd thread numa_id 0 core_id 0:\n  avg. subtable lookups per megaflow hit: 1.00\n\
                    main thread:\n  packets received: 8\n  avg. subtable lookups per megaflow hit: 3012.50\n";
        assert_eq!(lookups(text), Some(3012.5));
        assert_eq!(lookups("main thread:\n  packets received: 0\n"), None);
    }
}
