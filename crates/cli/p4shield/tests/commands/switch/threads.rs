//! `p4shield switch run --threads`: the packets of port 1 are one thread's, those of port 2 the other's.

use super::*;

/// A wire between two ports that counts packets by port, and in the entries of a table by Ethernet type.
const WIRE: &str = r"
#include <v1model.p4>
header ethernet_t { bit<96> addresses; bit<16> kind; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { }
parser prs(packet_in p, out headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.ethernet); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t m) { apply { } }
control ing(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) {
    counter(4, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets) by_kind;
    REGISTER
    action pass() { s.egress_spec = 3 - s.ingress_port; }
    action drop() { mark_to_drop(s); }
    table kinds {
        key = { hdr.ethernet.kind: exact; }
        actions = { pass; drop; }
        default_action = drop();
        counters = by_kind;
        size = 4;
    }
    apply { seen.count(0); STATE kinds.apply(); }
}
control eg(inout headers_t hdr, inout metadata_t m, inout standard_metadata_t s) { apply { } }
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr.ethernet); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
";

/// The wire, with a register that packets write if `stateful`.
fn wire(stateful: bool) -> String {
    let [register, state] =
        if stateful { ["register<bit<32>>(1) last;", "last.write(0, s.packet_length);"] } else { ["", ""] };
    WIRE.replace("REGISTER", register).replace("STATE", state)
}

impl Scene {
    /// Returns the reason why the threads share the program; null if they do not.
    fn shared_for(&self) -> serde_json::Value {
        let status = self.ask(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&stdout(&status)).unwrap();
        assert_eq!(status["threads"], 2, "{status}");
        status["shared_for"].clone()
    }

    /// Pings this often: two packets each time, one for each thread.
    fn ping(&self, count: u64) {
        let (before, pings) = (self.counted().0, count.to_string());
        run(self.left.command("ping").args(["-q", "-i0.01", "-W20", "-c", &pings, "10.9.2.1"])).unwrap();
        // Ping does not wait for the last answers.
        wait_until("all packets", 20, || self.counted().0 >= before + 2 * count).unwrap();
    }

    /// Returns the packets that were counted: all, and those of IPv4.
    fn counted(&self) -> (u64, u64) {
        let row = |name| {
            let view = self.asks(&["counter", "list", name, "--json"]);
            let view: serde_json::Value = serde_json::from_str(&view).unwrap();
            view["objects"][0]["rows"][0]["packets"].as_u64().unwrap_or_default()
        };
        (row("seen"), row("by_kind"))
    }

    fn start_threads(&self, program: &str) -> Guarded {
        self.neighbours();
        for (ns, own) in [(&self.left, 1), (&self.right, 2)] {
            let other = 3 - own;
            ns.ip(&format!("neigh replace 10.9.{other}.1 lladdr 02:00:00:00:00:0{other} dev eth0")).unwrap();
        }
        // Else the host's own stack sends, too.
        self.host.disable_ipv6().unwrap();
        let mut command = self.program_command(program);
        let entries = self.file("entries.txt", "table_add kinds pass 0x0800 =>\n");
        self.start_command(command.args(["--threads", "2", "--entries", &entries]))
    }
}

#[test]
fn threads_have_a_program_that_only_counts_for_themselves() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_threads(&scene.file("wire.p4", &wire(false)));
    assert_eq!(scene.shared_for(), serde_json::Value::Null);
    scene.ping(20);
    assert_eq!(scene.counted(), (40, 40), "counters are the sums of both threads'");
    // Writes reach both threads, or none.
    scene.asks(&["counter", "set", "seen", "0", "--packets", "100"]);
    scene.asks(&["counter", "entry", "by_kind", "0x0800", "--packets", "7"]);
    scene.ping(5);
    assert_eq!(scene.counted(), (110, 17));
    let full = "counter_write seen 0 9 9\ntable_add kinds drop 1 =>\ntable_add kinds drop 1 =>\n";
    scene.refuses(&["table", "load", &scene.file("full.txt", full)], "full.txt:3");
    assert_eq!(scene.counted(), (110, 17), "what was undone has its counters again");
    scene.ping(5);
    scene.asks(&["table", "set", "kinds", "0x0800", "--action", "drop"]);
    assert!(!scene.pings());
    scene.asks(&["table", "set", "kinds", "0x0800", "--action", "pass"]);
    let before = scene.counted();
    scene.ping(5);
    assert_eq!(scene.counted(), (before.0 + 10, before.1 + 10));
}

#[test]
fn a_program_with_a_register_is_shared_and_keeps_counts() {
    let Some(scene) = Scene::new() else { return };
    let (plain, stateful) = (scene.file("plain.p4", &wire(false)), scene.file("register.p4", &wire(true)));
    let _switch = scene.start_threads(&plain);
    scene.ping(10);
    scene.asks(&["load", &stateful]);
    assert_eq!((scene.shared_for(), scene.counted()), ("register ing.last".into(), (20, 20)));
    scene.ping(10);
    assert_eq!(scene.counted(), (40, 40));
    let shown = scene.asks(&["status"]);
    assert!(shown.contains("2 threads in turn (register ing.last)"), "{shown}");
    scene.asks(&["load", &plain]);
    assert_eq!((scene.shared_for(), scene.counted()), (serde_json::Value::Null, (40, 40)));
    scene.asks(&["queue", "set", "2", "--packets", "1000"]);
    assert_eq!(scene.shared_for(), "a port has a queue");
    scene.asks(&["queue", "delete", "2"]);
    scene.asks(&["load", &plain]);
    scene.ping(10);
    assert_eq!(scene.counted(), (60, 60));
}

#[test]
fn a_capture_has_the_packets_of_all_threads() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_threads(&scene.file("wire.p4", &wire(false)));
    let socket = scene.socket().display().to_string();
    std::thread::scope(|threads| {
        let trace = ["switch", "trace", "--count", "4", "--for", "20", "--socket", &socket];
        let traced = threads.spawn(move || stdout(&p4shield(&trace)));
        wait_until("the recording", 10, || scene.shared_for() == "packets are recorded").unwrap();
        scene.ping(2);
        let traced = traced.join().unwrap();
        let arrived = |port| traced.matches(&format!("port {port}")).count();
        assert!(arrived(1) >= 2 && arrived(2) >= 2, "{traced}");
    });
    let own = || scene.shared_for() == serde_json::Value::Null;
    wait_until("the program to be spread again", 10, own).unwrap();
    scene.ping(3);
    assert_eq!(scene.counted(), (10, 10));
}

#[test]
fn groups_and_clone_sessions_are_those_of_all_threads() {
    let Some(scene) = Scene::new() else { return };
    let cloning = "if (s.ingress_port == 2) { clone(CloneType.I2E, 5); } seen.count(0);";
    let text = wire(false).replace("seen.count(0);", cloning);
    let _switch = scene.start_threads(&scene.file("clone.p4", &text));
    assert_eq!(scene.shared_for(), serde_json::Value::Null);
    scene.ping(5);
    let of = |name: &str| {
        let status: serde_json::Value = serde_json::from_str(&scene.asks(&["status", "--json"])).unwrap();
        status[name].clone()
    };
    let dropped = of("dropped").as_array().unwrap().iter().find(|d| d["reason"] == "no_session").cloned();
    assert_eq!(dropped.unwrap()["packets"], 5, "the second thread knows no session yet");
    scene.asks(&["mirror", "set", "5", "--port", "1"]);
    scene.ping(5);
    assert_eq!((of("copies"), of("ports")[0]["sent"].clone()), (10.into(), 15.into()));
}
