//! What is configured and absent: `status`, metrics and log name it, and say when it is back.

use crate::Test;
use crate::fixture::{Fixture, UNSAFE, wait_for};
use crate::switches::{Daemon, Switch, status, text};
use p4shield_attach::PortInfo;
use p4shield_daemon::status::Status;
use p4shield_daemon::{Problem, ProblemKind, api};
use p4shield_testbed::ovsdb::Database;
use p4shield_testbed::{Guarded, NetNs};
use std::fs::File;

pub(crate) const TESTS: &[Test] = &[
    ("an_absent_port_is_in_status_metrics_and_log", absent_port),
    ("an_absent_iface_id_is_a_problem_until_it_is_bound", absent_iface_id),
    ("an_absent_interface_of_a_wire_names_its_vm", absent_interface),
    ("refused_programs_are_errors_in_the_log", refused_programs),
    ("absent_keys_pages_and_agents_are_problems", absent_files),
];

/// A program that reads in-VM information (helper 1000).
const READS_INFO: &str = "static long (*read_vm_info)(void *, unsigned) = (void *)1000;\n\
    __attribute__((section(\"p4\"))) long p4_main(void *c) { return read_vm_info(c, 0) != 7; }";

/// A daemon that logs to a file.
fn logging(fixture: &Fixture) -> Daemon {
    Daemon::logging(fixture, File::create(fixture.at("log")).unwrap())
}

/// Returns the lines of the daemon's log with all of these parts.
fn logged(fixture: &Fixture, parts: &[&str]) -> Vec<String> {
    let log = std::fs::read_to_string(fixture.at("log")).unwrap();
    log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
}

/// Returns the problems of a kind: tenant, VM, port.
fn of_kind(status: &Status, kind: ProblemKind) -> Vec<[String; 3]> {
    let names = |p: &Problem| [&p.tenant, &p.vm, &p.port].map(|name| name.clone().unwrap_or_default());
    status.problems.iter().filter(|p| p.kind == kind).map(names).collect()
}

/// Returns whether the metrics have this row.
fn has_row(fixture: &Fixture, row: &str) -> bool {
    api::metrics(&fixture.at("daemon.sock")).unwrap().lines().any(|line| line == row)
}

fn absent_port() {
    let fixture = Fixture::new("absent-port");
    // The switch calls the port `vhu-web`.
    let typo = "[[port]]\nname = \"vhu-webb\"\ntenant = \"alice\"\nvm = \"web\"\n";
    fixture.config(&format!("{}{typo}", text(&fixture)));
    // It connects as soon as the daemon listens: a later one would be missed, which is a line of the log.
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.session.port_up(PortInfo { name: "vhu-web".into(), number: 4, ..PortInfo::default() });
    let _daemon = logging(&fixture);
    wait_for("both ports", || status(&fixture).switches.first().is_some_and(|s| s.ports.len() == 2));
    let now = status(&fixture);
    let names = |[tenant, vm, port]: [&str; 3]| [tenant, vm, port].map(str::to_owned);
    assert_eq!(of_kind(&now, ProblemKind::PortAbsent), [names(["alice", "web", "vhu-webb"])]);
    assert_eq!(of_kind(&now, ProblemKind::PortUnconfigured), [names(["", "", "vhu-web"])]);
    // bob's packets arrive at a shared port; for alice's VM the absent port explains it.
    assert_eq!(of_kind(&now, ProblemKind::VmWithoutPort), [names(["bob", "db", ""])]);
    for part in [
        "tenant alice, VM web, port vhu-webb: no connected switch has this port",
        "port vhu-web: no entry of the configuration names it",
        "tenant bob, VM db: no port is its own",
    ] {
        assert!(now.advice.iter().any(|line| line.contains(part)), "{part}: {:#?}", now.advice);
    }
    for row in [
        r#"p4shield_port_mediated{switch="",pid="",port="vhu-webb",role="vm",tenant="alice",vm="web"} 0"#,
        r#"p4shield_problem{kind="port_absent",tenant="alice",vm="web",port="vhu-webb"} 1"#,
        r#"p4shield_problem{kind="port_unconfigured",tenant="",vm="",port="vhu-web"} 1"#,
        r#"p4shield_problem{kind="vm_without_port",tenant="bob",vm="db",port=""} 1"#,
    ] {
        assert!(has_row(&fixture, row), "{row}");
    }
    let began = [r#"WARN"#, r#"event="problem_began""#, r#"kind="port_absent""#, "vhu-webb"];
    wait_for("the line about its beginning", || !logged(&fixture, &began).is_empty());
    let since = |status: &Status| {
        let problem = status.problems.iter().find(|p| p.kind == ProblemKind::PortAbsent);
        problem.map(|p| p.since)
    };
    let first = since(&status(&fixture));
    assert!(first.is_some_and(|since| since > 1_500_000_000), "{first:?}");
    // No line is about switches that connect, which they do within the first seconds.
    assert_eq!(logged(&fixture, &["problem_began", "no_switch"]), [""; 0]);

    // Another file is compared with the same switch, before it is in force.
    let preview = |name: &str| {
        let file = fixture.at("preview.toml");
        std::fs::write(&file, format!("{}{typo}", text(&fixture)).replace("vhu-webb", name)).unwrap();
        match api::ask(&fixture.at("daemon.sock"), &api::Command::Preview { file }).unwrap() {
            api::Answer::Reloaded(report) => report,
            other => panic!("{other:?}"),
        }
    };
    let right = preview("vhu-web");
    assert_eq!(right.changes, ["- port vhu-webb", "+ port vhu-web"]);
    assert!(right.dry_run && !right.problems.iter().any(|p| p.contains("no connected switch")), "{right:?}");
    let wrong = preview("vhu-wed");
    assert!(wrong.problems.iter().any(|p| p.contains("port vhu-wed: no connected switch")), "{wrong:?}");
    assert_eq!(of_kind(&status(&fixture), ProblemKind::PortAbsent), [names(["alice", "web", "vhu-webb"])]);

    switch.session.port_up(PortInfo { name: "vhu-webb".into(), number: 5, ..PortInfo::default() });
    wait_for("its port", || since(&status(&fixture)).is_none());
    assert!(!has_row(
        &fixture,
        r#"p4shield_problem{kind="port_absent",tenant="alice",vm="web",port="vhu-webb"} 1"#
    ));
    let ended = [r#"event="problem_ended""#, r#"kind="port_absent""#, r#"tenant="alice""#, r#"vm="web""#];
    wait_for("the line about its end", || !logged(&fixture, &ended).is_empty());
    assert_eq!((logged(&fixture, &began).len(), logged(&fixture, &ended).len()), (1, 1));
}

fn absent_iface_id() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let ns = NetNs::create("host-absent").unwrap();
    let database = match Database::start(&ns) {
        Ok(database) => database,
        Err(e) => {
            p4shield_need::skip("machine", e);
            return;
        }
    };
    let set = |args: &[&str]| drop(database.vsctl(&[&["--no-wait"], args].concat()).unwrap());
    set(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    for port in ["dpdk7", "dpdk8"] {
        set(&["add-port", "br0", port, "--", "set", "interface", port, "type=dpdk"]);
        set(&["set", "interface", port, &format!("options:dpdk-devargs=net_{port}")]);
    }
    let fixture = Fixture::new("absent-iface-id");
    let ovsdb = format!("ovsdb = \"{}\"\nattach_socket", database.socket().display());
    let text = text(&fixture).replacen("attach_socket", &ovsdb, 1).replace("port0", "net_dpdk7");
    fixture.config(&text.replace("name = \"web\"", "name = \"web\"\niface_id = \"8d6b-1\""));
    let _daemon = logging(&fixture);
    let switch = Switch::called("ovs-vswitchd", &fixture.at("p4shield.toml"), "net_dpdk7");
    // The bridge's local port needs no entry.
    switch.session.port_up(PortInfo { name: "br0".into(), number: 9, ..PortInfo::default() });
    let names = ["alice", "web", "8d6b-1"].map(str::to_owned);
    let is = |kind| of_kind(&status(&fixture), kind) == [names.clone()];
    wait_for("the absent iface-id", || is(ProblemKind::IfaceIdAbsent));
    wait_for("both ports", || status(&fixture).switches.first().is_some_and(|s| s.ports.len() == 2));
    let row = r#"p4shield_port_mediated{switch="",pid="",port="8d6b-1",role="vm",tenant="alice",vm="web"} 0"#;
    assert!(has_row(&fixture, row));
    assert_eq!(of_kind(&status(&fixture), ProblemKind::PortUnconfigured), [[""; 3]; 0]);

    // An interface that no connected switch has.
    set(&["set", "interface", "dpdk8", "external_ids:iface-id=8d6b-1"]);
    wait_for("the unbound iface-id", || is(ProblemKind::IfaceIdUnbound));
    assert_eq!(of_kind(&status(&fixture), ProblemKind::IfaceIdAbsent), [[""; 3]; 0]);
    assert!(has_row(&fixture, row));

    switch.session.port_up(PortInfo { name: "net_dpdk8".into(), number: 8, ..PortInfo::default() });
    wait_for("its port", || of_kind(&status(&fixture), ProblemKind::IfaceIdUnbound).is_empty());
    assert!(!has_row(&fixture, row));
}

fn absent_interface() {
    if let Err(why) = p4shield_testbed::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let host = NetNs::create("rt-absent").unwrap();
    host.veth("sw0", &host, "br0p").unwrap();
    let fixture = Fixture::new("absent-wire");
    let wire = "[[wire]]\nvm_interface = \"vm0\"\nswitch_interface = \"sw0\"\ntenant = \"alice\"\nvm = \
                \"web\"\n";
    fixture.config(&format!("{}{wire}", fixture.text("drop")));
    let mut command = host.command("/proc/self/exe");
    command.arg("daemon").arg(fixture.at("p4shield.toml"));
    let _daemon = Guarded::spawn(&mut command).unwrap();
    let now = || api::status(&fixture.at("daemon.sock")).unwrap_or_default();
    let vm0 = ["alice", "web", "vm0"].map(str::to_owned);
    wait_for("the absent interface", || of_kind(&now(), ProblemKind::InterfaceDown) == [vm0.clone()]);
    assert!(now().advice.iter().any(|a| a.contains("interface vm0: it is not attached (there is no")));
    let row = r#"p4shield_problem{kind="interface_down",tenant="alice",vm="web",port="vm0"} 1"#;
    assert!(has_row(&fixture, row));
    assert_eq!(of_kind(&now(), ProblemKind::VmWithoutPort), [["bob", "db", ""]], "bob has no wire");
    host.veth("vm0", &host, "vm0p").unwrap();
    wait_for("its interface", || of_kind(&now(), ProblemKind::InterfaceDown).is_empty());
    host.ip("link del vm0").unwrap();
    wait_for("the vanished interface", || of_kind(&now(), ProblemKind::InterfaceDown) == [vm0.clone()]);
}

fn refused_programs() {
    let fixture = Fixture::new("refusals");
    let text = text(&fixture).replacen("ingress = [\"pass.o\"]", "ingress = [\"unsafe.o\"]", 1);
    fixture.config(&text);
    let _daemon = logging(&fixture);
    let alice = ["ERROR", r#"event="problem_began""#, r#"kind="program_refused""#, r#"tenant="alice""#];
    wait_for("the line about alice's program", || !logged(&fixture, &alice).is_empty());
    let lines = logged(&fixture, &alice);
    for part in [r#"vm="web""#, r#"direction="ingress""#, "fail = \"drop\"", "p4shield verify"] {
        assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {lines:#?}");
    }
    // By command and by reload: the previous program still judges.
    let socket = fixture.at("daemon.sock");
    assert!(api::load(&socket, "bob", "db", "egress", &[fixture.at("unsafe.o")]).is_err());
    let bob = ["ERROR", r#"event="program_refused""#, r#"tenant="bob""#, r#"vm="db""#];
    let lines = logged(&fixture, &bob);
    for part in [r#"direction="egress""#, "reason=", "previous program still judges"] {
        assert!(lines.len() == 1 && lines[0].contains(part), "{part}: {lines:#?}");
    }
    fixture.object("pass", UNSAFE);
    assert!(api::ask(&socket, &api::Command::Reload { dry_run: false }).is_err());
    let ingress = [&bob[..], &[r#"direction="ingress""#]].concat();
    assert_eq!(logged(&fixture, &ingress).len(), 1);
}

fn absent_files() {
    let fixture = Fixture::new("absent-files");
    fixture.object("info", READS_INFO);
    let text = text(&fixture);
    let bobs = text.rfind("ingress = [\"pass.o\"]").unwrap();
    fixture.config(&format!("{}{}", &text[..bobs], text[bobs..].replacen("pass.o", "info.o", 1)));
    let _daemon = logging(&fixture);
    let db = ["bob", "db", ""].map(str::to_owned);
    wait_for("the absent agent", || of_kind(&status(&fixture), ProblemKind::InfoMissing) == [db.clone()]);
    assert_eq!(of_kind(&status(&fixture), ProblemKind::PageAbsent), [[""; 3]; 0]);
    assert_eq!(of_kind(&status(&fixture), ProblemKind::KeyAbsent), [[""; 3]; 0]);
    for file in ["db.info", "bob.key"] {
        std::fs::rename(fixture.at(file), fixture.at("elsewhere")).unwrap();
    }
    let now = status(&fixture);
    assert_eq!(of_kind(&now, ProblemKind::PageAbsent), [db]);
    assert_eq!(of_kind(&now, ProblemKind::KeyAbsent), [["bob", "", ""]]);
    for part in ["db.info is absent", "bob.key is absent", "start `p4shield agent`"] {
        assert!(now.advice.iter().any(|line| line.contains(part)), "{part}: {:#?}", now.advice);
    }
    for row in [
        r#"p4shield_problem{kind="info_missing",tenant="bob",vm="db",port=""} 1"#,
        r#"p4shield_problem{kind="page_absent",tenant="bob",vm="db",port=""} 1"#,
        r#"p4shield_problem{kind="key_absent",tenant="bob",vm="",port=""} 1"#,
    ] {
        assert!(has_row(&fixture, row), "{row}");
    }
}
