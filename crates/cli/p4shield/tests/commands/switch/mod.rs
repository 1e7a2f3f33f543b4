//! `p4shield switch`: a router between two namespaces, whose entries are written while it runs.

mod array;
mod batches;
mod completion;
mod devices;
mod digest;
mod ends;
mod files;
mod functions;
mod learning;
mod load;
mod machine;
mod metrics;
mod mirror;
mod packet;
mod placement;
mod port;
mod queue;
mod replace;
mod selector;
mod stress;
mod threads;
mod trace;
mod vhost;
mod watch;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use p4shield_testbed::process::run;
use p4shield_testbed::{Guarded, NetNs, wait_until};
use tempfile::TempDir;

use crate::common::{code, example, p4shield, stderr, stdout};

/// Two hosts with a veth each, whose other ends `p0` and `p1` are the ports of a switch:
///
/// ```text
///   left 10.9.1.1: eth0 ──veth── p0 = port 1 │ router.p4 │ port 2 = p1 ──veth── eth0 :right 10.9.2.1
/// ```
struct Scene {
    left: NetNs,
    right: NetNs,
    host: NetNs,
    folder: TempDir,
}

impl Scene {
    /// Returns `None`, and reports the reason, where tests with network namespaces cannot run.
    fn new() -> Option<Self> {
        p4shield_testbed::usable().map_err(|why| p4shield_need::skip("machine", why)).ok()?;
        let [host, left, right] = ["swh", "swl", "swr"].map(|n| NetNs::create(n).unwrap());
        for (port, ns, own, other) in [("p0", &left, 1, 2), ("p1", &right, 2, 1)] {
            ns.disable_ipv6().unwrap();
            host.ip(&format!("link add {port} type veth peer name eth0 netns {}", ns.name())).unwrap();
            host.ip(&format!("link set {port} up")).unwrap();
            for words in [
                format!("link set eth0 address 02:00:00:00:00:0{own}"),
                "link set eth0 up".to_owned(),
                format!("addr add 10.9.{own}.1/24 dev eth0"),
                format!("neigh replace 10.9.{own}.254 lladdr 02:00:00:00:00:fe dev eth0"),
                format!("route add 10.9.{other}.0/24 via 10.9.{own}.254"),
            ] {
                ns.ip(&words).unwrap();
            }
        }
        Some(Self { left, right, host, folder: tempfile::tempdir().unwrap() })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("switch.sock")
    }

    /// Starts the switch with the example, and waits until it answers.
    fn start(&self) -> Guarded {
        self.start_program(&example("programs/router.p4"))
    }

    fn start_program(&self, program: &str) -> Guarded {
        self.start_command(&mut self.program_command(program))
    }

    fn program_command(&self, program: &str) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.args(["switch", "run", program, "--port", "1=p0", "--port", "2=p1"]);
        command.arg("--socket").arg(self.socket());
        command
    }

    /// Returns the command that runs the example, with these options.
    fn run_command(&self, options: &[&str]) -> Command {
        let mut command = self.program_command(&example("programs/router.p4"));
        command.args(options);
        command
    }

    fn start_command(&self, command: &mut Command) -> Guarded {
        let switch = Guarded::spawn(command).unwrap();
        wait_until("the switch's answer", 60, || code(&self.ask(&["status"])) == 0).unwrap();
        switch
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Runs a command of `p4shield switch` on the switch.
    fn ask(&self, words: &[&str]) -> Output {
        let socket = self.socket().display().to_string();

        p4shield(&[&["switch"], words, &["--socket", &socket]].concat())
    }

    /// Runs a command that has to succeed, and returns its output.
    fn asks(&self, words: &[&str]) -> String {
        let answer = self.ask(words);
        assert_eq!(code(&answer), 0, "{words:?}: {}", stderr(&answer));
        stdout(&answer)
    }

    /// Checks that a command is refused for a reason.
    fn refuses(&self, words: &[&str], why: &str) {
        let answer = self.ask(words);
        assert_eq!(code(&answer), 3, "{words:?}: {}", stderr(&answer));
        assert!(stderr(&answer).contains(why), "{words:?}: {}", stderr(&answer));
    }

    /// Makes the hosts neighbours, as without a router between them.
    fn neighbours(&self) {
        for (ns, other) in [(&self.left, 2), (&self.right, 1)] {
            ns.ip(&format!("route replace 10.9.{other}.0/24 dev eth0")).unwrap();
        }
    }

    fn pings(&self) -> bool {
        run(self.left.command("ping").args(["-c1", "-W1", "10.9.2.1"])).is_ok()
    }

    /// Returns whether a ping is answered, now or once the switch has a core again.
    fn answers(&self) -> bool {
        wait_until("a ping", 20, || self.pings()).is_ok()
    }

    /// Pings while a command of `p4shield switch` runs, and returns its output.
    fn asks_while_pinging(&self, words: &[&str]) -> String {
        let mut ping = self.left.command("ping");
        ping.args(["-i0.2", "-w60", "10.9.2.1"]).stdout(std::process::Stdio::null());
        let _ping = Guarded::spawn(&mut ping).unwrap();
        self.asks(words)
    }

    fn add_routes(&self) {
        for (n, address) in [("1", "02:00:00:00:00:01"), ("2", "02:00:00:00:00:02")] {
            let (to, next_hop) = (format!("10.9.{n}.0/24"), format!("next_hop={address}"));
            let port = format!("port={n}");
            self.asks(&["table", "add", "routes", &to, "--action", "forward", &next_hop, &port]);
        }
    }
}

#[test]
fn a_switch_routes_by_entries_set_while_it_runs() {
    let Some(scene) = Scene::new() else { return };
    let mut switch = scene.start();
    assert!(!scene.pings(), "no entry routes");
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();

    let shown = scene.asks(&["table", "list", "routes"]);
    assert!(shown.contains("table RouterIngress.routes, 2 of 1024 entries"), "{shown}");
    let entry =
        "hdr.ipv4.destination=0x0a090200/24  -> RouterIngress.forward(next_hop=0x020000000002, port=0x002)";
    assert!(shown.contains(entry), "{shown}");
    assert!(shown.contains("default"), "{shown}");
    let json = scene.asks(&["table", "list", "routes", "--json"]);
    let view: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(view["objects"][0]["rows"].as_array().unwrap().len(), 2, "{json}");

    scene.asks(&["table", "set", "routes", "10.9.2.0/24", "--action", "drop"]);
    assert!(!scene.pings(), "the entry drops");
    scene.asks(&["table", "delete", "routes", "10.9.2.0/24"]);
    let default = ["--action", "forward", "port=2", "next_hop=02:00:00:00:00:02"];
    scene.asks(&[&["table", "default", "routes"], &default[..]].concat());
    wait_until("a ping by the default action", 20, || scene.pings()).unwrap();

    let status = scene.asks(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert!(status["ports"][1]["sent"].as_u64().unwrap() >= 2, "{status}");
    assert!(status["dropped"][0]["packets"].as_u64().unwrap() >= 1, "{status}");

    rustix::process::kill_process(switch.pid(), rustix::process::Signal::TERM).unwrap();
    wait_until("the end of the switch", 20, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(0));
    assert!(!scene.socket().exists());
    let link = scene.host.ip("link show p0").unwrap();
    assert!(!link.contains("xdp"), "the program is still attached: {link}");
}

#[test]
fn wrong_entries_are_refused_and_change_nothing() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    let before = scene.asks(&["table", "list"]);
    let forward = &["--action", "forward", "02:00:00:00:00:02", "2"][..];
    let add = |words: &[&'static str]| [&["table", "add"], words].concat();
    for (words, why) in [
        (add(&["routs", "10.9.3.0/24", "--action", "drop"]), "unknown table `routs`; known: "),
        (add(&["routes", "10.9.3.0/24", "--action", "dorp"]), "unknown action `dorp`"),
        (add(&["routes", "10.9.3.0/24", "--action", "forward", "2"]), "needs a value of port"),
        (add(&["routes", "10.9.3.0/33", "--action", "drop"]), "more than the 32 bits"),
        (add(&["routes", "10.9.3", "--action", "drop"]), "`10.9.3` is no value"),
        (add(&["routes", "fd00::/64", "--action", "drop"]), "128 bits, but hdr.ipv4.destination has 32"),
        (add(&["routes", "10.9.3.0/24", "10.9.4.0/24", "--action", "drop"]), "takes 1 values"),
        (add(&["routes", "10.9.3.0/24", "--action", "forward", "1", "512"]), "port does not fit 9 bits"),
        (add(&["routes", "10.9.3.0/24", "--priority", "3", "--action", "drop"]), "has no priorities"),
        (
            [&["table", "add", "routes", "10.9.2.0/24"], forward].concat(),
            "`set`, or `load --replace`, replaces it",
        ),
        (vec!["table", "delete", "routes", "10.9.3.0/24"], "has no such entry"),
        (vec!["table", "list", "routs"], "the program has no routs"),
    ] {
        scene.refuses(&words, why);
    }
    assert_eq!(scene.asks(&["table", "list"]), before);
}

#[test]
fn a_switch_that_cannot_start_says_why() {
    let Some(scene) = Scene::new() else { return };
    let router = example("programs/router.p4");
    let start = |socket: &Path, words: &[&str]| {
        let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.args(["switch", "run"]).args(words).arg("--socket").arg(socket);
        command.output().unwrap()
    };
    let other = scene.folder.path().join("other.sock");
    let refused = start(&other, &[&router, "--port", "1=nowhere"]);
    assert!(code(&refused) == 1 && stderr(&refused).contains("nowhere"), "{}", stderr(&refused));
    let refused = start(&other, &[&router, "--port", "1=p0", "--port", "1=p1"]);
    assert!(code(&refused) == 3 && stderr(&refused).contains("two ports"), "{}", stderr(&refused));
    let refused = start(&other, &[&router]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("--port"), "{}", stderr(&refused));

    let _switch = scene.start();
    let second = start(&scene.socket(), &[&router, "--port", "1=p0"]);
    assert!(code(&second) == 1 && stderr(&second).contains("another switch answers"), "{}", stderr(&second));
    let second = start(&other, &[&router, "--port", "1=p0"]);
    assert!(code(&second) == 1 && stderr(&second).contains("p0"), "{}", stderr(&second));
    scene.add_routes();
    wait_until("a ping through the first switch", 20, || scene.pings()).unwrap();

    let gone = p4shield(&["switch", "status", "--socket", &other.display().to_string()]);
    assert!(code(&gone) == 1 && stderr(&gone).contains("p4shield switch run"), "{}", stderr(&gone));
}

/// Sends every packet to group 1, whose copies leave by all ports but the packet's own.
const HUB: &str = r"
#include <v1model.p4>
header all_t { bit<112> ethernet; }
struct headers_t { all_t all; }
struct metadata_t { }
parser prs(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.all); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t m) { apply { } }
control ing(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    apply { s.mcast_grp = 1; }
}
control eg(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    apply { if (s.egress_port == s.ingress_port) { mark_to_drop(s); } }
}
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.all); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
";

#[test]
fn a_hub_sends_copies_to_the_ports_of_its_group() {
    let Some(scene) = Scene::new() else { return };
    scene.neighbours();
    let program = scene.folder.path().join("hub.p4");
    std::fs::write(&program, HUB).unwrap();
    let _switch = scene.start_program(&program.display().to_string());
    assert!(!scene.pings(), "there is no group");
    scene.asks(&["group", "set", "1", "1", "2:7"]);
    wait_until("a ping through the hub", 20, || scene.pings()).unwrap();
    assert_eq!(scene.asks(&["group", "list"]), "  group  copies (port:number)\n  1      1:0 2:7\n");
    let status: serde_json::Value = serde_json::from_str(&scene.asks(&["status", "--json"])).unwrap();
    let count = |of: &str| status[of].as_u64().unwrap();
    assert!(count("replicated") > 1 && count("copies") == 2 * count("replicated"), "{status}");
    scene.refuses(&["group", "set", "1", "3"], "the switch has no port 3; it has 1, 2");
    scene.refuses(&["group", "set", "0", "1"], "0 means that a packet goes to no group");
    scene.refuses(&["group", "delete", "2"], "there is no such group");
    assert!(scene.answers(), "the group is as before");
    scene.asks(&["group", "delete", "1"]);
    assert!(!scene.pings(), "there is no group any more");
}

#[test]
fn a_lost_port_is_a_problem_and_commands_go_on() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    scene.host.ip("link del p1").unwrap();
    wait_until("the problem", 20, || code(&scene.ask(&["status"])) == 1).unwrap();
    let status = stdout(&scene.ask(&["status"]));
    assert!(status.contains("problem: port 2: p1 is gone"), "{status}");
    scene.asks(&["table", "delete", "routes", "10.9.2.0/24"]);
    // Rubbish at the socket is answered, and costs nothing else.
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(scene.socket()).unwrap();
    stream.write_all(b"{\"command\":\"stop\"}\n\xff\xfe\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("the request cannot be parsed").count(), 2, "{answers}");
    assert!(scene.asks(&["table", "list"]).contains("1 of 1024 entries"));
}
