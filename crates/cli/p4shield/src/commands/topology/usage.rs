//! `p4shield topology usage`: the resources of each tenant.

use super::Source;
use p4shield_console::{Exit, output};
use p4shield_tenantswitch::{PortStatus, Status, SwitchStatus};
use serde::Serialize;
use std::collections::BTreeMap;

/// Print what each tenant uses of this host's network
///
/// Core seconds are those since the tenant's switch compartment started, memory is that of now, packets and
/// bytes are those of the tenant's VMs at their ports since the ports were made. Tenants that share a
/// compartment have its core seconds and memory in equal parts.
///
/// Examples:
///
///   p4shield topology usage
///   p4shield topology usage --json | jq -r '.[] | [.tenant, .core_seconds, .received_bytes] | @csv'
///
/// Exit code 1 if no topology was applied.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Usage {
    #[command(flatten)]
    source: Source,
}

/// The use of a tenant. Packets are those of its VMs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Used {
    tenant: String,
    switch: String,
    core_seconds: f64,
    memory_bytes: u64,
    received_packets: u64,
    received_bytes: u64,
    delivered_packets: u64,
    delivered_bytes: u64,
    dropped_packets: u64,
}

impl Usage {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let Some(found) = self.source.read()?.host.status()? else {
            anyhow::bail!("no topology was applied: run p4shield topology apply");
        };
        let all = of(&found);
        if self.source.json {
            output::json(&all)?;
        } else {
            all.iter().for_each(show);
        }
        Ok(Exit::Done)
    }
}

fn of(found: &Status) -> Vec<Used> {
    let vms = found.plan.compartments.iter().flat_map(|c| &c.tenants).flat_map(|t| &t.vms);
    let interfaces: Vec<_> = vms.map(|vm| &vm.interface).collect();
    let mut all: BTreeMap<&str, Used> = BTreeMap::new();
    for switch in &found.switches {
        let SwitchStatus { name, tenants, cpu_us, memory, .. } = switch;
        let parts = tenants.len().max(1) as u64;
        for tenant in tenants {
            let used = all.entry(tenant).or_default();
            (used.tenant, used.switch) = (tenant.clone(), name.clone());
            used.core_seconds = (cpu_us / parts) as f64 / 1e6;
            used.memory_bytes = memory / parts;
        }
    }
    for port in found.ports.iter().filter(|port| interfaces.contains(&&port.interface)) {
        let PortStatus { tenant: Some(tenant), dropped, .. } = port else { continue };
        let used = all.entry(tenant).or_default();
        used.received_packets += port.received_packets;
        used.received_bytes += port.received_bytes;
        used.delivered_packets += port.delivered_packets;
        used.delivered_bytes += port.delivered_bytes;
        used.dropped_packets += dropped.values().sum::<u64>();
    }
    all.into_values().collect()
}

fn show(used: &Used) {
    let mebibytes = used.memory_bytes as f64 / f64::from(1 << 20);
    output::line(format_args!(
        "tenant {} (switch {}): {:.2} core seconds, {mebibytes:.1} MiB; from its VMs {} packets ({} bytes), \
         dropped {} of them; to its VMs {} packets ({} bytes)",
        used.tenant,
        used.switch,
        used.core_seconds,
        used.received_packets,
        used.received_bytes,
        used.dropped_packets,
        used.delivered_packets,
        used.delivered_bytes
    ));
}
