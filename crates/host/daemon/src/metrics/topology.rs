//! Metrics of the tenants' own switches.

use super::{counter, gauge};
use crate::status::Status;
use p4shield_scrape::{Family, with};

/// Returns what a provider bills, and whether it works.
pub(super) fn families(status: &Status) -> Vec<Family> {
    let mut up = gauge("tenant_switch_up", "Whether a switch of tenants works");
    let mut restarts = counter("tenant_switch_restarts", "Programs of the switch that were started again");
    let mut cpu = counter("tenant_switch_cpu_microseconds", "Processor time since the compartment started");
    let mut memory = gauge("tenant_switch_memory_bytes", "Memory of the switch's compartment");
    let mut packets = counter("nic_port_packets", "Packets of a port of the NIC switch");
    let mut bytes = counter("nic_port_bytes", "Bytes of packets of a port of the NIC switch");
    let mut dropped = counter("nic_port_packets_dropped", "Packets from a port that were dropped, by reason");
    let mut controllers = gauge("controller_connections", "Connections of controllers to a tenant's switch");
    let mut refused =
        counter("controller_connections_refused", "Connections of controllers that were closed at once");
    let Some(topology) = &status.topology else { return Vec::new() };
    for switch in &topology.switches {
        let labels = vec![("switch", switch.name.clone())];
        up.set(labels.clone(), u64::from(switch.problem.is_none()));
        restarts.add(labels.clone(), switch.restarts);
        cpu.add(labels.clone(), switch.cpu_us);
        memory.set(labels, switch.memory);
    }
    for port in &topology.ports {
        let labels =
            vec![("interface", port.interface.clone()), ("tenant", port.tenant.clone().unwrap_or_default())];
        let from = with(&labels, "direction", "received");
        let to = with(&labels, "direction", "delivered");
        packets.add(from.clone(), port.received_packets);
        packets.add(to.clone(), port.delivered_packets);
        bytes.add(from, port.received_bytes);
        bytes.add(to, port.delivered_bytes);
        port.dropped.iter().for_each(|(reason, n)| dropped.add(with(&labels, "reason", reason), *n));
    }
    for point in &topology.end_points {
        let labels = vec![("switch", point.compartment.clone()), ("protocol", point.protocol.clone())];
        controllers.set(labels.clone(), point.connections as u64);
        refused.add(labels, point.refused);
    }
    vec![up, restarts, cpu, memory, packets, bytes, dropped, controllers, refused]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::TopologyStatus;
    use p4shield_scrape::text;
    use p4shield_tenantswitch::{EndPointStatus, PortStatus, SwitchStatus};

    #[test]
    fn tenants_switches_and_ports_have_figures() {
        let switch = SwitchStatus {
            name: "alice".into(),
            tenants: vec!["alice".into()],
            problem: Some("it does not run".into()),
            processes: 0,
            restarts: 2,
            cpu_us: 1_500,
            memory: 4096,
            sockets: "/run/x".into(),
        };
        let port = PortStatus {
            interface: "tap0".into(),
            tenant: Some("alice".into()),
            serves: true,
            received_packets: 5,
            received_bytes: 500,
            delivered_packets: 4,
            delivered_bytes: 400,
            dropped: [("source_mac".to_owned(), 1)].into(),
            function: None,
        };
        let point = EndPointStatus {
            compartment: "alice".into(),
            tenant: "alice".into(),
            protocol: "ovsdb".into(),
            address: ([192, 0, 2, 1], 6640).into(),
            problem: None,
            connections: 3,
            refused: 7,
        };
        let topology = Some(TopologyStatus {
            switches: vec![switch],
            ports: vec![port],
            end_points: vec![point],
            ..TopologyStatus::default()
        });
        let text = text(&families(&Status { topology, ..Status::default() }));
        for line in [
            r#"p4shield_tenant_switch_up{switch="alice"} 0"#,
            r#"p4shield_tenant_switch_cpu_microseconds_total{switch="alice"} 1500"#,
            r#"p4shield_nic_port_packets_total{interface="tap0",tenant="alice",direction="delivered"} 4"#,
            r#"p4shield_controller_connections{switch="alice",protocol="ovsdb"} 3"#,
            r#"p4shield_controller_connections_refused_total{switch="alice",protocol="ovsdb"} 7"#,
            concat!(
                r#"p4shield_nic_port_packets_dropped_total{interface="tap0","#,
                r#"tenant="alice",reason="source_mac"} 1"#
            ),
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
