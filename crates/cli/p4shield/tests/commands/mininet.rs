//! The Mininet class: networks of P4 switches, from a script and from a topology.json of the P4 tutorials.

mod tutorials;

use std::path::{Path, PathBuf};
use std::process::Output;

use p4shield_testbed::NetNs;

use crate::common::{code, example, stderr, stdout};

/// Two switches in a row, each with a host:
///
/// ```text
///   h1 ── p1 s1 p2 ── p2 s2 p1 ── h2
/// ```
const TOPOLOGY: &str = r#"{
  "hosts": {
    "h1": { "ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": [
      "route add default gw 10.0.1.10 dev eth0", "arp -i eth0 -s 10.0.1.10 08:00:00:00:01:00" ] },
    "h2": { "ip": "10.0.2.2/24", "mac": "08:00:00:00:02:22", "commands": [
      "route add default gw 10.0.2.20 dev eth0", "arp -i eth0 -s 10.0.2.20 08:00:00:00:02:00" ] }
  },
  "switches": { "s1": { "runtime_json": "s1-runtime.json" }, "s2": { "cli_input": "s2-commands.txt" } },
  "links": [ ["h1", "s1-p1"], ["s1-p2", "s2-p2", "0", 100], ["h2", "s2-p1"] ]
}"#;

const S1: &str = r#"{ "target": "bmv2", "table_entries": [
  { "table": "RouterIngress.routes", "match": { "hdr.ipv4.destination": ["10.0.1.1", 32] },
    "action_name": "RouterIngress.forward", "action_params": { "next_hop": "08:00:00:00:01:11", "port": 1 } },
  { "table": "RouterIngress.routes", "match": { "hdr.ipv4.destination": ["10.0.2.2", 32] },
    "action_name": "RouterIngress.forward", "action_params": { "next_hop": "08:00:00:00:02:00", "port": 2 } }
] }"#;

const S2: &str = "table_add routes forward 10.0.2.2/32 => 08:00:00:00:02:22 1\n\
                  table_add routes forward 10.0.1.1/32 => 08:00:00:00:01:00 2\n";

/// A script as people have it, whose one changed line names the class of the switch.
const SCRIPT: &str = r#"
import sys
sys.path.insert(0, CLASS)
from mininet.net import Mininet
from p4shield_mininet import P4ShieldError, P4ShieldHost, P4ShieldSwitch

net = Mininet(controller=None, host=P4ShieldHost)
s1 = net.addSwitch("s1", cls=P4ShieldSwitch, binary=BINARY, program=ROUTER, folder=".")
h1, h2 = net.addHost("h1", ip="10.0.1.1/24"), net.addHost("h2", ip="10.0.2.2/24")
for host in (h1, h2):
    net.addLink(host, s1)
net.start()
try:
    for number, (host, other) in enumerate(((h1, h2), (h2, h1)), 1):
        host.cmd("ip route add default dev eth0; arp -i eth0 -s", other.IP(), "02:00:00:00:00:fe")
        s1.p4shield("table", "add", "routes", host.IP(), "--action", "forward", host.MAC(), str(number))
    print(h1.cmd("ping -c1 -W20", h2.IP()))
    try:
        s1.p4shield("table", "add", "nowhere", "1", "--action", "drop")
    except P4ShieldError as error:
        print("refused:", error)
finally:
    net.stop()
"#;

/// The folder of the class.
fn class() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/mininet")
}

/// A namespace for a network, if Mininet is installed.
fn namespace() -> Option<NetNs> {
    p4shield_testbed::usable().map_err(|why| p4shield_need::skip("machine", why)).ok()?;
    if !Path::new("/usr/bin/mnexec").exists() {
        p4shield_need::skip("mininet", "install Debian's mininet");
        return None;
    }
    let namespace = NetNs::create("mn").unwrap();
    namespace.ip("link set lo up").unwrap();
    Some(namespace)
}

/// Runs the class as a program, in a folder with the files that a topology names.
fn runs(namespace: &NetNs, folder: &Path, words: &[&str], logs: &Path) -> Output {
    let mut python = namespace.command("/usr/bin/python3");
    python.arg(class().join("p4shield_mininet.py")).args(words).current_dir(folder);
    python.args(["--binary", env!("CARGO_BIN_EXE_p4shield"), "--folder"]).arg(logs);
    python.output().unwrap()
}

#[test]
fn a_topology_of_the_p4_tutorials_forwards() {
    let Some(namespace) = namespace() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("topology.json", TOPOLOGY), ("s1-runtime.json", S1), ("s2-commands.txt", S2)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let router = example("programs/router.p4");
    let words = ["topology.json", "--program", &router, "--run", "h1 ping -c1 -W20 h2"];
    let ran = runs(&namespace, folder.path(), &words, folder.path());
    assert!(code(&ran) == 0 && stdout(&ran).contains(" 0% packet loss"), "{} {}", stdout(&ran), stderr(&ran));
    // What fails is reported with the switch's own words, and nothing is left.
    std::fs::write(folder.path().join("s2-commands.txt"), "table_add nowhere drop 1 =>\n").unwrap();
    let ran = runs(&namespace, folder.path(), &words, folder.path());
    let why = "s2 did not start:\np4shield: s2-commands.txt:1: unknown table `nowhere`";
    assert!(code(&ran) == 1 && stderr(&ran).contains(why), "{}", stderr(&ran));
    assert_eq!(namespace.ip("-o link show type veth").unwrap(), "");
}

#[test]
fn one_line_puts_a_p4_switch_into_a_mininet_script() {
    let Some(namespace) = namespace() else { return };
    let folder = tempfile::tempdir().unwrap();
    let place = |text: &str, name: &str, path: String| text.replace(name, &format!("{path:?}"));
    let class = class().display().to_string();
    let script = place(&place(SCRIPT, "CLASS", class), "ROUTER", example("programs/router.p4"));
    let script = place(&script, "BINARY", env!("CARGO_BIN_EXE_p4shield").to_owned());
    std::fs::write(folder.path().join("net.py"), script).unwrap();
    let mut python = namespace.command("/usr/bin/python3");
    let ran = python.arg("net.py").current_dir(folder.path()).output().unwrap();
    let out = stdout(&ran);
    assert!(code(&ran) == 0 && out.contains(" 0% packet loss"), "{out} {}", stderr(&ran));
    assert!(out.contains("refused: s1: p4shield: unknown table `nowhere`"), "{out}");
}
