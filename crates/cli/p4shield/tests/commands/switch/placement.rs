//! Placement `pipeline`: the switch in a compartment.

use super::{Scene, code, example, stderr, wait_until};
use p4shield_testbed::Guarded;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

impl Scene {
    /// Starts the example in a compartment.
    fn start_confined(&self, options: &[&str]) -> Guarded {
        self.start_command(self.run_command(options).args(["--placement", "pipeline"]))
    }

    fn is_attached(&self) -> bool {
        ["p0", "p1"].iter().any(|port| self.host.ip(&format!("link show {port}")).unwrap().contains("xdp"))
    }
}

/// Returns the process of a switch's compartment.
fn compartment(switch: &Guarded) -> Pid {
    let pid = switch.pid().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let [child] = children.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("one child: {children}")
    };
    Pid::from_raw(child.parse().unwrap()).unwrap()
}

fn status(path: &str) -> HashMap<String, String> {
    facts_of(&fs::read_to_string(path).unwrap())
}

fn facts_of(text: &str) -> HashMap<String, String> {
    let line =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    text.lines().filter_map(line).collect()
}

/// Checks what the kernel says of a compartment.
pub(super) fn is_confined(pid: Pid) {
    let of = format!("/proc/{}", pid.as_raw_nonzero());
    let facts = status(&format!("{of}/status"));
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(facts[set].chars().all(|digit| digit == '0'), "{set}: {}", facts[set]);
    }
    assert_eq!((facts["NoNewPrivs"].as_str(), facts["Seccomp"].as_str()), ("1", "2"));
    assert!(facts["Uid"].split_whitespace().all(|uid| uid != "0"), "{}", facts["Uid"]);
    assert_eq!(facts["NSpid"].split_whitespace().last(), Some("1"), "it sees no process beside its own");
    for namespace in ["user", "mnt", "net", "pid", "ipc", "uts"] {
        let [theirs, ours] = [format!("{of}/ns/{namespace}"), format!("/proc/self/ns/{namespace}")]
            .map(|path| fs::read_link(path).unwrap());
        assert_ne!(theirs, ours);
    }
    assert_eq!(fs::read_dir(format!("{of}/root/")).unwrap().count(), 0, "its root is empty");
    let links = fs::read_to_string(format!("{of}/net/dev")).unwrap();
    assert!(!links.contains("p0") && !links.contains("p1"), "{links}");
    for descriptor in fs::read_dir(format!("{of}/fd")).unwrap() {
        let target = fs::read_link(descriptor.unwrap().path()).unwrap().display().to_string();
        let kinds = ["socket:", "pipe:", "anon_inode:", "/memfd:"];
        assert!(kinds.iter().any(|kind| target.starts_with(kind)), "{target} is a file");
    }
}

/// Checks that packet threads may do less than the desk.
fn has_two_lists(pid: Pid) {
    let of = format!("/proc/{}", pid.as_raw_nonzero());
    let filters = |thread: &str| -> usize {
        let all = fs::read_dir(format!("{of}/task")).unwrap();
        // A thread that answers a client may end meanwhile.
        let all = all.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
        let all = all.map(|text| facts_of(&text));
        all.filter(|facts| facts["Name"] == thread)
            .map(|f| f["Seccomp_filters"].parse().unwrap())
            .max()
            .unwrap()
    };
    assert!(filters("p4shield") > filters("api"), "packet threads may do less");
}

#[test]
fn a_switch_in_a_compartment_is_confined_and_forwards() {
    let Some(scene) = Scene::new() else { return };
    scene.host.ip("link set lo up").unwrap();
    let mut switch = scene.start_confined(&["--metrics", "127.0.0.1:9465", "--threads", "2"]);
    is_confined(compartment(&switch));
    has_two_lists(compartment(&switch));
    assert!(!scene.pings(), "no entry routes");
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    assert_eq!(scene.status()["placement"], "pipeline");
    assert!(scene.asks(&["status"]).contains(", placement pipeline"));

    let router = example("programs/router.p4");
    assert_eq!(scene.asks(&["load", &router]), "keeps its state: RouterIngress.routes\n");
    let unsafe_program = scene.file("wrong.o", "no object");
    assert_eq!(code(&scene.ask(&["load", &unsafe_program])), 3);
    scene.asks(&["queue", "set", "--packets", "10000", "2"]);
    wait_until("a ping through the new program", 20, || scene.pings()).unwrap();
    let scraped =
        scene.host.command("curl").args(["-sSf", "http://127.0.0.1:9465/metrics"]).output().unwrap();
    assert!(String::from_utf8_lossy(&scraped.stdout).contains("interface=\"p0\""), "{}", stderr(&scraped));
    is_confined(compartment(&switch));

    kill_process(switch.pid(), Signal::TERM).unwrap();
    wait_until("the end of the switch", 20, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(0));
    assert!(!scene.is_attached() && !scene.socket().exists());
}

#[test]
fn ports_of_a_compartment_go_and_come_back() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_confined(&[]);
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    scene.host.ip("link set p1 down").unwrap();
    scene.wait_state(1, "down");
    scene.host.ip("link set p1 up").unwrap();
    scene.wait_state(1, "up");
    wait_until("a ping through the port", 20, || scene.pings()).unwrap();
    for _ in 0..2 {
        scene.host.ip("link del p1").unwrap();
        scene.wait_state(1, "gone");
        scene.connect_right();
        scene.wait_state(1, "up");
        wait_until("a ping through the port that is back", 20, || scene.pings()).unwrap();
    }
    scene.asks(&["port", "delete", "2"]);
    wait_until("the release of the port", 20, || !scene.host.ip("link show p1").unwrap().contains("xdp"))
        .unwrap();
    scene.asks(&["port", "add", "2=p1"]);
    wait_until("a ping through the port that was added", 20, || scene.pings()).unwrap();
    scene.host.ip("link add q0 type veth peer name q1").unwrap();
    scene.host.ip("link set q0 up").unwrap();
    scene.refuses(&["port", "add", "3=nowhere"], "no interface nowhere");
    scene.asks(&["port", "add", "3=q0"]);
    scene.refuses(&["port", "add", "4=q0"], "q0 is port 3 already");
    assert!(scene.answers(), "a further port costs no other");
}

/// A client that tells the switch alone, as the switch itself could.
#[test]
fn a_compartment_opens_only_what_an_operator_named() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_confined(&[]);
    scene.host.ip("link add q0 type veth peer name q1").unwrap();
    scene.host.ip("link set q0 up").unwrap();
    let add = r#"{"command":"add_port","number":3,"interface":"q0"}"#;
    let mut stream = std::os::unix::net::UnixStream::connect(scene.socket()).unwrap();
    std::io::Write::write_all(&mut stream, format!("{add}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stream), &mut answer).unwrap();
    assert!(answer.contains("no operator has given this interface to the switch"), "{answer}");
    assert!(!scene.host.ip("link show q0").unwrap().contains("xdp"));
    scene.asks(&["port", "add", "3=q0"]);
    // An interface whose carrier changes at that moment is opened again.
    wait_until("the port", 20, || scene.host.ip("link show q0").unwrap().contains("xdp")).unwrap();
}

#[test]
fn the_end_of_either_process_releases_the_ports() {
    let Some(scene) = Scene::new() else { return };
    let mut command = scene.run_command(&["--placement", "pipeline"]);
    command.stderr(std::process::Stdio::piped());
    let mut switch = scene.start_command(&mut command);
    kill_process(compartment(&switch), Signal::KILL).unwrap();
    wait_until("the end of the switch", 20, || switch.ended().is_some()).unwrap();
    assert_eq!(switch.ended().unwrap().code(), Some(1));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut switch.child().stderr.take().unwrap(), &mut said).unwrap();
    assert!(said.contains("it was killed (SIGKILL); its ports are released"), "{said}");
    assert!(!scene.is_attached() && !scene.socket().exists());

    let switch = scene.start_confined(&[]);
    let inside = compartment(&switch);
    kill_process(switch.pid(), Signal::KILL).unwrap();
    let ends = || fs::metadata(format!("/proc/{}", inside.as_raw_nonzero())).map_or(0, |m| m.ino()) == 0;
    wait_until("the end of the compartment", 20, ends).unwrap();
    assert!(!scene.is_attached());
    let _another = scene.start_confined(&[]);
    scene.add_routes();
    wait_until("a ping through another switch", 20, || scene.pings()).unwrap();
}

#[test]
fn what_a_compartment_cannot_have_is_refused_by_name() {
    let Some(scene) = Scene::new() else { return };
    let refused = |words: &[&str], why: &str| {
        let mut command = scene.run_command(&["--placement", "pipeline"]);
        let answer = command.args(words).output().unwrap();
        assert!(code(&answer) == 3 && stderr(&answer).contains(why), "{words:?}: {}", stderr(&answer));
    };
    refused(&["--port", "3=pcap:in.pcap"], "port 3 is pcap:in.pcap, which needs files to read and write");
    refused(&["--port", "3=dpdk:net_null0"], "port 3 is dpdk:net_null0, which needs files of devices");
    refused(&["--cpu-port", "1"], "two ports have number 1");
    let entries = scene.file("wrong.txt", "table_add nowhere x 1 =>\n");
    refused(&["--entries", &entries], "wrong.txt:1: ");
    let answer = scene.run_command(&["--placement", "pipeline", "--port", "3=nowhere"]).output().unwrap();
    assert!(code(&answer) == 1 && stderr(&answer).contains("no interface nowhere"), "{}", stderr(&answer));
    let answer = scene.run_command(&["--allow-missing", "landlock"]).output().unwrap();
    assert!(code(&answer) == 3 && stderr(&answer).contains("--placement pipeline"), "{}", stderr(&answer));
    assert!(!scene.is_attached());
}
