//! The metrics of a switch, from its status. docs/reference/switch-metrics.md documents the names and labels,
//! which are stable.

use crate::api::{PortState, PortStatus, Status, Traffic};
use crate::desk::Desk;
use p4shield_scrape::{Family, Kind, Labels, text};
use p4shield_tables::MarkedCounters;

/// The most rows of counters that the program marks with `@metric`.
const MARKED_ROWS: usize = 2048;

/// Renders the metrics: none while the packet thread does not answer.
pub(crate) fn render(desk: &Desk) -> String {
    let Ok(status) = desk.status() else { return String::new() };
    let mut marked = MarkedCounters::default();
    // The program may be replaced meanwhile; the next scrape has the counters of the new one.
    let program = desk.program();
    let _ = marked.read(&mut desk.reader(&program), &program.described, MARKED_ROWS);
    drop(program);
    text(&families(&status, &marked))
}

fn marked_families(marked: &MarkedCounters) -> [Family; 3] {
    let mut packets = Family::new(
        "p4switch_counter_packets",
        Kind::Counter,
        "Packets in a counter that the program marks with @metric",
    );
    let mut bytes = Family::new(
        "p4switch_counter_bytes",
        Kind::Counter,
        "Bytes in a counter that the program marks with @metric",
    );
    let mut cut = Family::new(
        "p4switch_counter_rows_cut",
        Kind::Gauge,
        "Rows of a marked counter that are left out, because there are too many",
    );
    for ((counter, index), counts) in &marked.rows {
        let labels = vec![("counter", counter.clone()), ("index", index.to_string())];
        counts.packets.iter().for_each(|n| packets.set(labels.clone(), *n));
        counts.bytes.iter().for_each(|n| bytes.set(labels.clone(), *n));
    }
    marked.cut.iter().for_each(|(counter, n)| cut.set(vec![("counter", counter.clone())], *n));
    [packets, bytes, cut]
}

fn families(status: &Status, marked: &MarkedCounters) -> Vec<Family> {
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
    let [counted_packets, counted_bytes, cut] = marked_families(marked);
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
        counted_packets,
        counted_bytes,
        cut,
    ]
}

fn labels(port: &PortStatus) -> Labels {
    vec![("port", port.number.to_string()), ("interface", port.interface.clone())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Dropped;
    use p4shield_tables::{MarkedCounts, MarkedIndex};

    #[test]
    fn every_metric_is_documented() {
        let port = PortStatus { number: 1, interface: "veth1".into(), ..PortStatus::default() };
        let traffic = Traffic { received: 7, ..Traffic::default() };
        let down = PortStatus { number: 2, state: PortState::Down, ..port.clone() };
        let ports = vec![PortStatus { traffic, ..port }, down];
        let dropped = Dropped { reason: "program".into(), packets: 2 };
        let status = Status { ports, dropped: vec![dropped], ..Status::default() };
        let mut marked = MarkedCounters::default();
        let counts = MarkedCounts { packets: Some(5), bytes: Some(300) };
        marked.rows.insert(("seen".into(), MarkedIndex::Number(3)), counts);
        marked.cut.insert("seen".into(), 9);
        let text = text(&families(&status, &marked));
        for row in [
            "p4shield_p4switch_received_packets_total{port=\"1\",interface=\"veth1\"} 7\n",
            "p4shield_p4switch_port_up{port=\"1\",interface=\"veth1\"} 1\n",
            "p4shield_p4switch_port_up{port=\"2\",interface=\"veth1\"} 0\n",
            "p4shield_p4switch_received_packets_total{port=\"deleted\",interface=\"\"} 0\n",
            "p4shield_p4switch_dropped_packets_total{reason=\"program\"} 2\n",
            "p4shield_p4switch_counter_bytes_total{counter=\"seen\",index=\"3\"} 300\n",
            "p4shield_p4switch_counter_rows_cut{counter=\"seen\"} 9\n",
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
