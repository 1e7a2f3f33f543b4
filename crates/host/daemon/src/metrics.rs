//! Prometheus metrics from the status. docs/reference/metrics.md documents the names and labels, which are
//! stable.

use crate::status::{DirectionStatus, State, Status};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;

/// Registers families of metrics, in order.
struct MetricsRegistry(Registry);

impl MetricsRegistry {
    fn counters(&mut self, name: &str, help: &str) -> Counters {
        let family = Counters::default();
        self.0.register(name, help, family.clone());
        family
    }

    fn gauges(&mut self, name: &str, help: &str) -> Gauges {
        let family = Gauges::default();
        self.0.register(name, help, family.clone());
        family
    }
}

fn add(family: &Counters, labels: &Labels, n: u64) {
    family.get_or_create(labels).inc_by(n);
}

fn set(family: &Gauges, labels: &Labels, n: u64) {
    family.get_or_create(labels).set(i64::try_from(n).unwrap_or(i64::MAX));
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned()));
    labels
}

/// Returns the metrics in the OpenMetrics text format.
pub(crate) fn render(status: &Status) -> String {
    let mut registry = MetricsRegistry(Registry::with_prefix("p4shield"));
    let build = registry.gauges("build_info", "Version of the daemon, always 1");
    set(&build, &vec![("version", status.version.clone())], 1);
    tenants(&mut registry, status);
    packets(&mut registry, status);
    information(&mut registry, status);
    wires(&mut registry, status);
    switches(&mut registry, status);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, &registry.0);
    text
}

fn tenants(registry: &mut MetricsRegistry, status: &Status) {
    let up = registry.gauges("p4vm_up", "Whether the tenant's P4 VM runs");
    let restarts = registry.counters("p4vm_restarts", "Restarts of the tenant's P4 VM");
    let missing = registry.gauges("p4vm_sandbox_missing", "Sandbox measures that the kernel lacks");
    for t in &status.tenants {
        let labels = vec![("tenant", t.name.clone())];
        set(&up, &labels, u64::from(t.state == State::Running));
        add(&restarts, &labels, t.restarts);
        set(&missing, &labels, t.missing.len() as u64);
    }
}

/// Returns each direction of each VM, with its labels.
fn directions(status: &Status) -> impl Iterator<Item = (Labels, &DirectionStatus)> {
    status.tenants.iter().flat_map(|t| {
        t.vms.iter().flat_map(move |v| {
            [("ingress", &v.ingress), ("egress", &v.egress)].map(|(word, d)| {
                let labels =
                    vec![("tenant", t.name.clone()), ("vm", v.name.clone()), ("direction", word.to_owned())];
                (labels, d)
            })
        })
    })
}

fn packets(registry: &mut MetricsRegistry, status: &Status) {
    let packets = registry.counters("packets", "Packets that the mediator received");
    let bytes = registry.counters("bytes", "Bytes of packets that the mediator received");
    let passed = registry.counters("packets_passed", "Packets that the program passed");
    let rewritten = registry.counters("packets_rewritten", "Packets that the program passed with a rewrite");
    let dropped = registry.counters("packets_dropped", "Packets dropped, by reason");
    let let_through = registry.counters("packets_let_through", "Packets passed without a verdict, by reason");
    let held = registry.gauges("packets_held", "Packets held until their verdict arrives");
    let judged =
        registry.counters("program_judged", "Packets that the program judged since the P4 VM started");
    let undecided = registry.counters(
        "program_undecided",
        "Packets dropped because the program did not check whether its information was known",
    );
    let failed =
        registry.counters("program_failed", "Packets dropped because the program was aborted or missing");
    let info = registry.gauges("program_info", "Digest of the running program, always 1");
    for (labels, d) in directions(status) {
        add(&packets, &labels, d.packets);
        add(&bytes, &labels, d.bytes);
        add(&passed, &labels, d.passed);
        add(&rewritten, &labels, d.rewritten);
        d.dropped.iter().for_each(|(reason, n)| add(&dropped, &with(&labels, "reason", reason), *n));
        d.let_through.iter().for_each(|(reason, n)| add(&let_through, &with(&labels, "reason", reason), *n));
        set(&held, &labels, d.held);
        add(&judged, &labels, d.judged);
        add(&undecided, &labels, d.undecided);
        add(&failed, &labels, d.failed);
        if let Some(digest) = &d.program {
            set(&info, &with(&labels, "digest", digest), 1);
        }
    }
    let unowned = registry.counters("packets_unowned", "Packets that no program judges, by fate");
    let fates = [
        ("passed", status.unowned.passed),
        ("dropped", status.unowned.dropped),
        ("spoofed", status.unowned.spoofed),
        ("refused", status.unowned.refused),
    ];
    fates.iter().for_each(|(fate, n)| add(&unowned, &vec![("fate", (*fate).to_owned())], *n));
}

fn information(registry: &mut MetricsRegistry, status: &Status) {
    let snapshots = registry.counters("info_snapshots", "Snapshots on the info page, by the P4 VM's result");
    let known = registry.gauges("info_known", "Whether programs have fresh, authentic information");
    let records = registry.counters("log_records", "Records that the P4 VM published on its log page");
    for t in &status.tenants {
        for v in &t.vms {
            let labels = vec![("tenant", t.name.clone()), ("vm", v.name.clone())];
            let i = &v.info;
            let results = [
                ("accepted", i.accepted),
                ("forged", i.forged),
                ("replayed", i.replayed),
                ("stale", i.stale),
            ];
            results.iter().for_each(|(result, n)| add(&snapshots, &with(&labels, "result", result), *n));
            set(&known, &labels, u64::from(i.status == "known"));
            add(&records, &labels, v.log_records);
        }
    }
}

fn wires(registry: &mut MetricsRegistry, status: &Status) {
    let up = registry.gauges("wire_up", "Whether an interface of a wire is attached");
    let received = registry.counters("wire_received_packets", "Frames received on an interface of a wire");
    let sent = registry.counters("wire_sent_packets", "Frames sent on an interface of a wire");
    let lost =
        registry.counters("wire_dropped_packets", "Frames dropped on transmission on an interface of a wire");
    for w in &status.wires {
        for (word, side) in [("vm", &w.vm), ("switch", &w.switch)] {
            let labels = vec![
                ("wire", w.name.clone()),
                ("side", word.to_owned()),
                ("interface", side.interface.clone()),
            ];
            set(&up, &labels, u64::from(side.up));
            add(&received, &labels, side.rx_packets);
            add(&sent, &labels, side.tx_packets);
            add(&lost, &labels, side.tx_dropped);
        }
    }
}

fn switches(registry: &mut MetricsRegistry, status: &Status) {
    let up = registry.gauges("switch_info", "A switch with a preloaded library, always 1");
    let mediated = registry.gauges("port_mediated", "Whether the packets of a port are mediated");
    let queues = registry.gauges("port_queues", "Queues of a port that are mediated");
    let zero_copy = registry.gauges(
        "port_zero_copy_queues",
        "Queues of a port, of both directions, whose packets a P4 VM reads in the switch's memory",
    );
    let bypasses = registry.gauges("bypasses", "Known ways for packets of a switch to bypass the programs");
    for s in &status.switches {
        let labels = vec![("switch", s.application.clone()), ("pid", s.pid.to_string())];
        set(&up, &with(&labels, "kind", &s.kind), 1);
        let ways = s.bypasses.len() + s.ports.iter().map(|p| p.bypasses.len()).sum::<usize>();
        set(&bypasses, &labels, ways as u64);
        for p in &s.ports {
            let mut labels = with(&labels, "port", p.interface.as_ref().unwrap_or(&p.name));
            set(&queues, &labels, p.queues as u64);
            set(&zero_copy, &labels, p.zero_copy_queues as u64);
            labels.push(("role", p.role.clone()));
            labels.push(("tenant", p.tenant.clone().unwrap_or_default()));
            labels.push(("vm", p.vm.clone().unwrap_or_default()));
            set(&mediated, &labels, u64::from(p.mediated));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{PortStatus, SwitchStatus};
    use crate::status::{TenantStatus, VmStatus};

    fn status() -> Status {
        let ingress = DirectionStatus {
            packets: 5,
            passed: 3,
            dropped: vec![("deadline".into(), 2)],
            program: Some("ab".into()),
            ..DirectionStatus::default()
        };
        let vm = VmStatus { name: "web".into(), ingress, ..VmStatus::default() };
        let tenant = TenantStatus { name: "al\"ice".into(), vms: vec![vm], ..TenantStatus::default() };
        let port =
            PortStatus { name: "p0".into(), role: "uplink".into(), mediated: true, ..PortStatus::default() };
        let switch =
            SwitchStatus { application: "ovs".into(), pid: 7, ports: vec![port], ..SwitchStatus::default() };
        Status { version: "1".into(), tenants: vec![tenant], switches: vec![switch], ..Status::default() }
    }

    #[test]
    fn figures_have_names_and_labels() {
        let text = render(&status());
        for line in [
            r#"p4shield_packets_total{tenant="al\"ice",vm="web",direction="ingress"} 5"#,
            concat!(
                r#"p4shield_packets_dropped_total{tenant="al\"ice",vm="web","#,
                r#"direction="ingress",reason="deadline"} 2"#
            ),
            r#"p4shield_p4vm_up{tenant="al\"ice"} 0"#,
            r#"p4shield_program_info{tenant="al\"ice",vm="web",direction="ingress",digest="ab"} 1"#,
            r#"p4shield_port_mediated{switch="ovs",pid="7",port="p0",role="uplink",tenant="",vm=""} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn every_metric_is_documented() {
        let document = include_str!("../../../../docs/reference/metrics.md");
        for line in render(&status()).lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
            let mut words = line.split(' ');
            let (name, kind) = (words.next().unwrap(), words.next().unwrap());
            let name = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
            assert!(
                document.contains(&format!("`{name}`")),
                "docs/reference/metrics.md does not explain {name}"
            );
        }
    }
}
