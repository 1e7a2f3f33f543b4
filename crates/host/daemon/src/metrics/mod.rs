//! Prometheus metrics from the status. docs/reference/metrics.md documents the names and labels, which are
//! stable.

#[cfg(test)]
mod dashboard;
mod topology;

use crate::error::DaemonError;
use crate::lifecycle::state::DaemonState;
use crate::status::{DirectionStatus, PortStatus, State, Status};
use p4shield_scrape::{Family, Kind, Labels, Server, text, with};
use std::net::SocketAddr;
use std::sync::Arc;

fn counter(name: &str, help: &'static str) -> Family {
    Family::new(name, Kind::Counter, help)
}

fn gauge(name: &str, help: &'static str) -> Family {
    Family::new(name, Kind::Gauge, help)
}

/// Serves the metrics of a daemon over HTTP.
///
/// # Errors
/// [`DaemonError::Listen`].
pub(crate) fn serve(address: SocketAddr, state: &Arc<DaemonState>) -> Result<Server, DaemonError> {
    let failed = |source| DaemonError::Listen { address: address.to_string(), source };
    Server::start(address, renderer(state)).map_err(failed)
}

/// Returns what renders the metrics of a daemon, which may end before.
fn renderer(state: &Arc<DaemonState>) -> impl Fn() -> String + Send + 'static {
    let state = Arc::downgrade(state);
    move || state.upgrade().map_or_else(String::new, |state| of(&state))
}

/// Returns the metrics of the daemon and of what it runs, in Prometheus's text format.
pub(crate) fn of(state: &DaemonState) -> String {
    let mut families = families(&state.status());
    families.extend(state.program_counters().families());
    text(&families)
}

fn families(status: &Status) -> Vec<Family> {
    let mut build = gauge("build_info", "Version of the daemon, always 1");
    build.set(vec![("version", status.version.clone())], 1);
    let parts = [tenants, problems, packets, information, wires, switches, topology::families];
    std::iter::once(build).chain(parts.into_iter().flat_map(|part| part(status))).collect()
}

fn tenants(status: &Status) -> Vec<Family> {
    let mut up = gauge("p4vm_up", "Whether the tenant's P4 VM runs");
    let mut restarts = counter("p4vm_restarts", "Restarts of the tenant's P4 VM");
    let mut missing = gauge("p4vm_sandbox_missing", "Sandbox measures that the kernel lacks");
    let mut ran = counter("p4vm_core_microseconds", "Time of the P4 VM's threads on cores");
    let mut waited =
        counter("p4vm_core_wait_microseconds", "Time in which they could run, and others had the core");
    for t in &status.tenants {
        let labels = vec![("tenant", t.name.clone())];
        if let Some(time) = t.core_time {
            ran.add(labels.clone(), time.ran_us);
            waited.add(labels.clone(), time.waited_us);
        }
        up.set(labels.clone(), u64::from(t.state == State::Running));
        restarts.add(labels.clone(), t.restarts);
        missing.set(labels.clone(), t.missing.len() as u64);
    }
    vec![up, restarts, ran, waited, missing]
}

fn problems(status: &Status) -> Vec<Family> {
    let mut problem = gauge("problem", "A problem that p4shield status lists, always 1");
    for p in &status.problems {
        let label = |value: &Option<String>| value.clone().unwrap_or_default();
        let labels = vec![
            ("kind", p.kind.name().to_owned()),
            ("tenant", label(&p.tenant)),
            ("vm", label(&p.vm)),
            ("port", label(&p.port)),
        ];
        problem.set(labels, 1);
    }
    vec![problem]
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

fn packets(status: &Status) -> Vec<Family> {
    let mut packets = counter("packets", "Packets that the mediator received");
    let mut bytes = counter("bytes", "Bytes of packets that the mediator received");
    let mut passed = counter("packets_passed", "Packets that the program passed");
    let mut rewritten = counter("packets_rewritten", "Packets that the program passed with a rewrite");
    let mut dropped = counter("packets_dropped", "Packets dropped, by reason");
    let mut let_through = counter("packets_let_through", "Packets passed without a verdict, by reason");
    let mut held = gauge("packets_held", "Packets held until their verdict arrives");
    let mut judged = counter("program_judged", "Packets that the program judged since the P4 VM started");
    let mut undecided = counter(
        "program_undecided",
        "Packets dropped because the program did not check whether its information was known",
    );
    let mut failed = counter("program_failed", "Packets dropped because the program was aborted or missing");
    let mut limited = counter("program_limited", "Packets dropped because they met a limit of the program");
    let mut info = gauge("program_info", "Digest of the running program, always 1");
    for (labels, d) in directions(status) {
        packets.add(labels.clone(), d.packets);
        bytes.add(labels.clone(), d.bytes);
        passed.add(labels.clone(), d.passed);
        rewritten.add(labels.clone(), d.rewritten);
        d.dropped.iter().for_each(|(reason, n)| dropped.add(with(&labels, "reason", reason), *n));
        d.let_through.iter().for_each(|(reason, n)| let_through.add(with(&labels, "reason", reason), *n));
        held.set(labels.clone(), d.held);
        judged.add(labels.clone(), d.judged);
        undecided.add(labels.clone(), d.undecided);
        failed.add(labels.clone(), d.failed);
        d.limited.iter().for_each(|(limit, n)| limited.add(with(&labels, "limit", limit), *n));
        if let Some(digest) = &d.program {
            info.set(with(&labels, "digest", digest), 1);
        }
    }
    // A spoofed packet of a VM's port is counted for the VM; one of another port belongs to no VM.
    let no_vm = ["tenant", "vm", "direction"].map(|label| (label, String::new())).to_vec();
    dropped.add(with(&no_vm, "reason", "spoofed"), status.unowned.spoofed);
    let mut unowned = counter("packets_unowned", "Packets of no VM and of skipped directions, by fate");
    let fates = [
        ("passed", status.unowned.passed),
        ("dropped", status.unowned.dropped),
        ("refused", status.unowned.refused),
    ];
    fates.iter().for_each(|(fate, n)| unowned.add(vec![("fate", (*fate).to_owned())], *n));
    vec![
        packets,
        bytes,
        passed,
        rewritten,
        dropped,
        let_through,
        held,
        judged,
        undecided,
        failed,
        limited,
        info,
        unowned,
    ]
}

fn information(status: &Status) -> Vec<Family> {
    let mut snapshots = counter("info_snapshots", "Snapshots on the info page, by the P4 VM's result");
    let mut known = gauge("info_known", "Whether programs have fresh, authentic information");
    let mut window = gauge("key_window_end", "End of a running rotation's window, in seconds since 1970");
    let mut follows = gauge("key_agent_follows", "Whether the VM's agent has used the current key");
    let mut handshakes = counter("handshakes", "Handshakes of the VM's agent with the P4 VM, by result");
    let mut session = gauge(
        "session_attested",
        "1: the session's P4 VM presented evidence; 0: it did not; no row: no session",
    );
    let mut records = counter("log_records", "Records that the P4 VM published on its log page");
    for t in &status.tenants {
        for v in &t.vms {
            let labels = vec![("tenant", t.name.clone()), ("vm", v.name.clone())];
            if let Some(keys) = &v.keys {
                keys.window_until.into_iter().for_each(|until| window.set(labels.clone(), until));
                follows.set(labels.clone(), u64::from(keys.agent_follows));
            }
            if let Some(h) = &v.handshake {
                let results = [("agreed", h.agreed), ("failed", h.failed)];
                results.iter().for_each(|(result, n)| handshakes.add(with(&labels, "result", result), *n));
                let attested = h.session.as_ref().map(|s| u64::from(s.is_attested));
                attested.into_iter().for_each(|attested| session.set(labels.clone(), attested));
            }
            let i = &v.info;
            let results = [
                ("accepted", i.accepted),
                ("forged", i.forged),
                ("replayed", i.replayed),
                ("stale", i.stale),
            ];
            results.iter().for_each(|(result, n)| snapshots.add(with(&labels, "result", result), *n));
            known.set(labels.clone(), u64::from(i.status == "known"));
            records.add(labels.clone(), v.log_records);
        }
    }
    vec![snapshots, known, window, follows, handshakes, session, records]
}

fn wires(status: &Status) -> Vec<Family> {
    let mut up = gauge("wire_up", "Whether an interface of a wire is attached");
    let mut received = counter("wire_received_packets", "Frames received on an interface of a wire");
    let mut sent = counter("wire_sent_packets", "Frames sent on an interface of a wire");
    let mut lost =
        counter("wire_dropped_packets", "Frames dropped on transmission on an interface of a wire");
    for w in &status.wires {
        for (word, side) in [("vm", &w.vm), ("switch", &w.switch)] {
            let labels = vec![
                ("wire", w.name.clone()),
                ("side", word.to_owned()),
                ("interface", side.interface.clone()),
            ];
            up.set(labels.clone(), u64::from(side.up));
            received.add(labels.clone(), side.rx_packets);
            sent.add(labels.clone(), side.tx_packets);
            lost.add(labels.clone(), side.tx_dropped);
        }
    }
    vec![up, received, sent, lost]
}

fn switches(status: &Status) -> Vec<Family> {
    let mut up = gauge("switch_info", "A switch with a preloaded library, always 1");
    let mut mediated =
        gauge("port_mediated", "Whether the packets of a port are mediated; 0 if no switch has the port");
    let mut queues = gauge("port_queues", "Queues of a port that are mediated");
    let mut zero_copy = gauge(
        "port_zero_copy_queues",
        "Queues of a port, of both directions, whose packets a P4 VM reads in the switch's memory",
    );
    let mut bypasses = gauge("bypasses", "Known ways for packets of a switch to bypass the programs");
    for s in &status.switches {
        let labels = vec![("switch", s.application.clone()), ("pid", s.pid.to_string())];
        up.set(with(&labels, "kind", &s.kind), 1);
        let ways = s.bypasses.len() + s.ports.iter().map(|p| p.bypasses.len()).sum::<usize>();
        bypasses.set(labels.clone(), ways as u64);
        for p in &s.ports {
            let at_port = with(&labels, "port", p.interface.as_ref().unwrap_or(&p.name));
            queues.set(at_port.clone(), p.queues as u64);
            zero_copy.set(at_port.clone(), p.zero_copy_queues as u64);
            mediated.set(with_owner(at_port, p), u64::from(p.mediated));
        }
    }
    for p in &status.absent_ports {
        let labels = vec![("switch", String::new()), ("pid", String::new()), ("port", p.name.clone())];
        mediated.set(with_owner(labels, p), 0);
    }
    vec![up, mediated, queues, zero_copy, bypasses]
}

/// Returns the labels of a port with its role and owner.
fn with_owner(mut labels: Labels, port: &PortStatus) -> Labels {
    labels.push(("role", port.role.clone()));
    labels.push(("tenant", port.tenant.clone().unwrap_or_default()));
    labels.push(("vm", port.vm.clone().unwrap_or_default()));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(status: &Status) -> String {
        text(&families(status))
    }
    use crate::status::problem::{Problem, ProblemKind};
    use crate::status::{SideStatus, SwitchStatus, TenantStatus, Unowned, VmStatus, WireStatus};
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn status() -> Status {
        let ingress = DirectionStatus {
            packets: 5,
            passed: 3,
            dropped: vec![("deadline".into(), 2), ("spoofed".into(), 1)],
            limited: vec![("loop".into(), 6)],
            program: Some("ab".into()),
            ..DirectionStatus::default()
        };
        let vm = |name: &str| VmStatus { name: name.into(), ingress: ingress.clone(), ..VmStatus::default() };
        let vms = vec![vm("web"), vm("db"), vm("cache")];
        let tenant = TenantStatus { name: "al\"ice".into(), vms, ..TenantStatus::default() };
        let port =
            PortStatus { name: "p0".into(), role: "uplink".into(), mediated: true, ..PortStatus::default() };
        let vm_of = |name: &str| PortStatus {
            name: name.into(),
            role: "vm".into(),
            tenant: Some("bob".into()),
            vm: Some("db".into()),
            ..PortStatus::default()
        };
        let switch =
            SwitchStatus { application: "ovs".into(), pid: 7, ports: vec![port], ..SwitchStatus::default() };
        let side = |name: &str| SideStatus { interface: name.into(), ..SideStatus::default() };
        let wire = WireStatus { name: "w".into(), vm: side("a"), switch: side("b") };
        Status {
            version: "1".into(),
            tenants: vec![tenant],
            switches: vec![switch],
            wires: vec![wire],
            unowned: Unowned { spoofed: 4, ..Unowned::default() },
            absent_ports: vec![vm_of("vhu9")],
            problems: vec![Problem::of_vm(ProblemKind::PortAbsent, ("bob", "db"), "why").at("port", "vhu9")],
            ..Status::default()
        }
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
            concat!(
                r#"p4shield_program_limited_total{tenant="al\"ice",vm="web","#,
                r#"direction="ingress",limit="loop"} 6"#
            ),
            r#"p4shield_p4vm_up{tenant="al\"ice"} 0"#,
            r#"p4shield_program_info{tenant="al\"ice",vm="web",direction="ingress",digest="ab"} 1"#,
            r#"p4shield_port_mediated{switch="ovs",pid="7",port="p0",role="uplink",tenant="",vm=""} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn an_absent_port_is_an_unmediated_port_and_a_problem() {
        let text = render(&status());
        for line in [
            r#"p4shield_port_mediated{switch="",pid="",port="vhu9",role="vm",tenant="bob",vm="db"} 0"#,
            r#"p4shield_problem{kind="port_absent",tenant="bob",vm="db",port="vhu9"} 1"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn spoofed_packets_are_in_one_metric() {
        let text = render(&status());
        let spoofed: Vec<_> = text.lines().filter(|line| line.contains("spoofed")).collect();
        assert_eq!(spoofed.len(), 4, "{spoofed:?}");
        assert!(
            spoofed.iter().all(|line| line.starts_with("p4shield_packets_dropped_total{")),
            "{spoofed:?}"
        );
        let of_no_vm = r#"p4shield_packets_dropped_total{tenant="",vm="",direction="",reason="spoofed"} 4"#;
        assert!(spoofed.contains(&of_no_vm), "{spoofed:?}");
    }

    #[test]
    fn two_scrapes_have_the_same_order() {
        let first = render(&status());
        for _ in 0..20 {
            assert_eq!(render(&status()), first);
        }
    }

    #[test]
    fn every_row_has_help_and_type() {
        let text = render(&status());
        let mut described = ("", "");
        for line in text.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some("#"), Some("HELP")) => described = (words.next().unwrap(), ""),
                (Some("#"), Some("TYPE")) => {
                    let (name, kind) = (words.next().unwrap(), words.next().unwrap());
                    assert_eq!(name, described.0, "{line}");
                    assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                    described = (name, kind);
                }
                _ => {
                    assert_eq!(line.split(['{', ' ']).next(), Some(described.0), "{line}");
                    assert!(!described.1.is_empty(), "{line}");
                }
            }
        }
    }

    #[test]
    fn promtool_accepts_all_metrics() {
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut check = match promtool.stderr(Stdio::piped()).spawn() {
            Ok(check) => check,
            Err(why) => return p4shield_need::skip("promtool", why),
        };
        check.stdin.take().unwrap().write_all(render(&status()).as_bytes()).unwrap();
        let output = check.wait_with_output().unwrap();
        let complaints = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    }

    #[test]
    fn promtool_accepts_the_alerts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/prometheus");
        let mut promtool = Command::new("promtool");
        match promtool.args(["test", "rules", "p4shield.test.yml"]).current_dir(folder).output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(why) => p4shield_need::skip("promtool", why),
        }
    }

    #[test]
    fn alerts_use_documented_metrics_only() {
        let document = include_str!("../../../../../docs/reference/metrics.md");
        let rules = include_str!("../../../../../packaging/prometheus/p4shield.rules.yml");
        let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
        let words = expressions.flat_map(|e| e.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        let metrics: Vec<_> = words.filter(|word| word.starts_with("p4shield_")).collect();
        assert!(metrics.len() >= 8, "{metrics:?}");
        for metric in metrics {
            assert!(document.contains(&format!("`{metric}`")), "{metric} is not documented");
        }
    }

    #[test]
    fn labels_are_the_documented_ones() {
        let document = include_str!("../../../../../docs/reference/metrics.md");
        let mut checked = 0;
        for line in render(&status()).lines().filter(|line| line.starts_with("p4shield_")) {
            let (name, labels) = line.split_once('{').unwrap();
            let labels: Vec<_> =
                labels.split("=\"").map(|part| part.rsplit(['{', ',', '"']).next().unwrap()).collect();
            let row = format!("| `{name}` | {} |", labels[..labels.len() - 1].join(", "));
            assert!(document.contains(&row), "docs/reference/metrics.md has no row {row}");
            checked += 1;
        }
        assert!(checked > 20, "{checked}");
    }

    #[test]
    fn every_metric_is_documented() {
        let document = include_str!("../../../../../docs/reference/metrics.md");
        for line in render(&status()).lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
            let name = line.split(' ').next().unwrap();
            assert!(
                document.contains(&format!("`{name}`")),
                "docs/reference/metrics.md does not explain {name}"
            );
        }
    }
}
