//! The metrics of a switch, from its status. docs/reference/switch-metrics.md documents the names and labels,
//! which are stable.

use crate::api::{PortState, PortStatus, Status, Traffic};
use crate::desk::Desk;
use p4shield_scrape::{Family, Kind, Labels, text};

/// Renders the metrics: none while the packet thread does not answer.
pub(crate) fn render(desk: &Desk) -> String {
    desk.status().map_or_else(|_| String::new(), |status| text(&families(&status)))
}

fn families(status: &Status) -> Vec<Family> {
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    let mut info = Family::new("p4switch_info", Kind::Gauge, "Always 1; the program that runs");
    info.set(vec![("program", status.program.clone()), ("digest", status.digest.clone())], 1);
    let mut problems = Family::new("p4switch_problems", Kind::Gauge, "Problems that the status lists");
    problems.set(Labels::new(), status.problems.len() as u64);
    let mut dropped = counter("p4switch_dropped_packets", "Packets and copies that were dropped, by reason");
    status.dropped.iter().for_each(|d| dropped.set(vec![("reason", d.reason.clone())], d.packets));
    let mut replicated =
        counter("p4switch_replicated_packets", "Packets that were replicated for a multicast group");
    replicated.set(Labels::new(), status.replicated);
    let mut copies = counter("p4switch_copies", "Copies of replicated packets, and clones");
    copies.set(Labels::new(), status.copies);
    let mut again = counter("p4switch_again_packets", "Packets that started again, by how");
    for (how, packets) in [("resubmitted", status.resubmitted), ("recirculated", status.recirculated)] {
        again.set(vec![("how", how.to_owned())], packets);
    }
    let mut waiting = Family::new("p4switch_waiting_packets", Kind::Gauge, "Packets that wait in queues");
    waiting.set(Labels::new(), status.waiting);
    let mut up = Family::new("p4switch_port_up", Kind::Gauge, "1 if the port passes packets");
    status.ports.iter().for_each(|p| up.set(labels(p), u64::from(p.state == PortState::Up)));
    let by_port = |name, help, of: fn(&Traffic) -> u64| {
        let mut family = counter(name, help);
        status.ports.iter().for_each(|p| family.set(labels(p), of(&p.traffic)));
        // The sum over all ports never falls, since those that were deleted stay in it.
        family.set(vec![("port", "deleted".to_owned()), ("interface", String::new())], of(&status.deleted));
        family
    };
    vec![
        info,
        problems,
        up,
        by_port("p4switch_received_packets", "Packets received by a port", |p| p.received),
        by_port("p4switch_received_bytes", "Their bytes", |p| p.received_bytes),
        by_port("p4switch_sent_packets", "Packets sent by a port", |p| p.sent),
        by_port("p4switch_sent_bytes", "Their bytes", |p| p.sent_bytes),
        dropped,
        replicated,
        copies,
        again,
        waiting,
    ]
}

fn labels(port: &PortStatus) -> Labels {
    vec![("port", port.number.to_string()), ("interface", port.interface.clone())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Dropped;

    #[test]
    fn every_metric_is_documented() {
        let port = PortStatus { number: 1, interface: "veth1".into(), ..PortStatus::default() };
        let traffic = Traffic { received: 7, ..Traffic::default() };
        let down = PortStatus { number: 2, state: PortState::Down, ..port.clone() };
        let ports = vec![PortStatus { traffic, ..port }, down];
        let dropped = Dropped { reason: "program".into(), packets: 2 };
        let status = Status { ports, dropped: vec![dropped], ..Status::default() };
        let text = text(&families(&status));
        for row in [
            "p4shield_p4switch_received_packets_total{port=\"1\",interface=\"veth1\"} 7\n",
            "p4shield_p4switch_port_up{port=\"1\",interface=\"veth1\"} 1\n",
            "p4shield_p4switch_port_up{port=\"2\",interface=\"veth1\"} 0\n",
            "p4shield_p4switch_received_packets_total{port=\"deleted\",interface=\"\"} 0\n",
            "p4shield_p4switch_dropped_packets_total{reason=\"program\"} 2\n",
        ] {
            assert!(text.contains(row), "{text}");
        }
        let document = include_str!("../../../../docs/reference/switch-metrics.md");
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap();
            assert!(
                document.contains(&format!("| `{name}` |")),
                "docs/reference/switch-metrics.md lacks {name}"
            );
        }
    }
}
