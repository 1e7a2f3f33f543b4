//! Placement `extern`: functions of the program in a compartment.

use super::files::{read, to, write};
use super::placement::is_confined;
use super::{Scene, code, example, p4shield, run, stderr, wait_until};
use crate::handshake::memory_of;
use p4shield_testbed::Guarded;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::process::Stdio;

const DECLARATION: &str = "@compartment extern bit<8> refused(in bit<32> src, in bit<8> protocol);";
const CALL: &str =
    "if (hdr.ipv4.isValid() && refused(hdr.ipv4.src, hdr.ipv4.protocol) != 0) { mark_to_drop(std); }";

/// Forwards between two ports; a function decides about IPv4 packets.
const GUARD: &str = r"
#include <v1model.p4>
@compartment extern bit<8> refused(in bit<32> src, in bit<8> protocol);
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t { bit<64> front; bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst; }
struct headers { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata { }
parser P(packet_in p, out headers hdr, inout metadata m, inout standard_metadata_t std) {
    state start {
        p.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x0800: ipv4; default: accept; }
    }
    state ipv4 { p.extract(hdr.ipv4); transition accept; }
}
control V(inout headers hdr, inout metadata m) { apply { } }
control I(inout headers hdr, inout metadata m, inout standard_metadata_t std) {
    apply {
        std.egress_spec = 3 - std.ingress_port;
        if (hdr.ipv4.isValid() && refused(hdr.ipv4.src, hdr.ipv4.protocol) != 0) { mark_to_drop(std); }
    }
}
control E(inout headers hdr, inout metadata m, inout standard_metadata_t std) { apply { } }
control D(packet_out p, in headers hdr) { apply { p.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

/// Refuses what is no ICMP, and all packets once it has seen this many.
const REFUSED: &str = r#"
#include "p4shield_program.h"
P4_MAP(seen, P4_ARRAY, uint32_t, uint64_t, 1);
uint8_t refused(uint32_t src, uint8_t protocol)
{
    uint32_t slot = 0;
    uint64_t *count = p4_map_lookup(&seen, &slot);
    return !count || ++*count > LIMIT || protocol != 1;
}
"#;

impl Scene {
    /// Starts the guard with this placement.
    fn start_guard(&self, limit: u32, options: &[&str]) -> Guarded {
        self.start_with_function(&REFUSED.replace("LIMIT", &limit.to_string()), options)
    }

    /// Starts the guard with this function and placement.
    pub(super) fn start_with_function(&self, function: &str, options: &[&str]) -> Guarded {
        self.neighbours();
        for (ns, own) in [(&self.left, 1), (&self.right, 2)] {
            let other = 3 - own;
            ns.ip(&format!("neigh replace 10.9.{other}.1 lladdr 02:00:00:00:00:0{other} dev eth0")).unwrap();
        }
        self.host.disable_ipv6().unwrap();
        let program = self.file("guard.p4", GUARD);
        let functions = self.file("refused.c", function);
        let mut command = self.program_command(&program);
        self.start_command(command.args(["--functions", &functions]).args(options))
    }

    fn functions(&self) -> serde_json::Value {
        let status: serde_json::Value = serde_json::from_str(&self.asks(&["status", "--json"])).unwrap();
        assert_eq!(status["placement"], "extern");
        status["functions"].clone()
    }

    fn compartment(&self) -> Option<Pid> {
        Pid::from_raw(self.functions()["pid"].as_i64()? as i32)
    }

    fn unanswered(&self) -> u64 {
        let status: serde_json::Value = serde_json::from_str(&self.ask_status()).unwrap();
        let reasons = status["dropped"].as_array().unwrap();
        reasons.iter().find(|d| d["reason"] == "unanswered").unwrap()["packets"].as_u64().unwrap()
    }

    /// Returns the status, whether or not there is a problem.
    fn ask_status(&self) -> String {
        super::stdout(&self.ask(&["status", "--json"]))
    }
}

/// Returns true without clang, which it reports.
pub(super) fn lacks_clang() -> bool {
    let lacks = std::process::Command::new("clang").arg("--version").output().is_err();
    if lacks {
        p4shield_need::skip("clang", "install clang, which compiles functions in C");
    }
    lacks
}

#[test]
fn functions_in_a_compartment_decide_about_packets() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    // A compartment that gets no core for a while answers all the same.
    let apart = ["--placement", "extern", "--deadline", "5000", "--threads", "2"];
    for options in [&apart[..4], &[], &apart[..]] {
        let _switch = scene.start_guard(6, options);
        // Request and reply pass the function.
        let is_answered = |within| run(scene.left.command("ping").args(["-c1", within, "10.9.2.1"])).is_ok();
        let answered = |pings, within| (0..pings).filter(|_| is_answered(within)).count();
        let answered = (answered(3, "-W20"), answered(2, "-W1"));
        assert_eq!(answered, (3, 0), "{options:?}: {}", scene.asks(&["status"]));
        if !options.is_empty() {
            is_confined(scene.compartment().expect("a compartment"));
        }
    }
}

#[test]
fn a_killed_compartment_is_started_again() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    let _switch = scene.start_guard(1_000_000, &["--placement", "extern"]);
    wait_until("a ping", 20, || scene.pings()).unwrap();
    let first = scene.compartment().unwrap();
    kill_process(first, Signal::KILL).unwrap();
    wait_until("a ping through another compartment", 20, || scene.pings()).unwrap();
    let functions: serde_json::Value = serde_json::from_str(&scene.ask_status()).unwrap();
    let functions = &functions["functions"];
    assert_eq!(functions["restarts"], 1, "{functions}");
    assert_ne!(functions["pid"], first.as_raw_nonzero().get(), "{functions}");
    wait_until("the end of the problem", 20, || code(&scene.ask(&["status"])) == 0).unwrap();
}

#[test]
fn functions_in_a_killed_machine_start_again_in_another() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() || super::machine::lacks_qemu() {
        return;
    }
    let image = p4shield_testbed::guest::p4vm_image().unwrap().display().to_string();
    let machine = ["--compartment", "vm", "--accelerator", "tcg", "--image", &image];
    let options = [&["--placement", "extern", "--deadline", "2000"], &machine[..]].concat();
    let _switch = scene.start_guard(100, &options);
    // Emulated, it boots and verifies for seconds.
    wait_until("a ping through the machine", 60, || scene.pings()).unwrap();
    let first = scene.compartment().unwrap();
    let flood = ["-f", "-q", "-c60", "-w20", "10.9.2.1"];
    let _lost = run(scene.left.command("ping").args(flood));
    assert!(!scene.pings(), "the function has seen its hundred packets");
    kill_process(super::machine::qemu(first), Signal::KILL).unwrap();
    // Another machine's function has seen none.
    wait_until("a ping through another machine", 60, || scene.pings()).unwrap();
    assert_ne!(scene.compartment(), Some(first));
    assert_eq!(scene.functions()["restarts"], 1);
}

#[test]
fn a_stopped_compartment_costs_its_own_packets_only() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    for (fail, answers) in [("drop", false), ("zero", true)] {
        let _switch = scene.start_guard(1_000_000, &["--placement", "extern", "--fail", fail]);
        wait_until("a ping", 20, || scene.pings()).unwrap();
        let compartment = scene.compartment().unwrap();
        kill_process(compartment, Signal::STOP).unwrap();
        // Its threads stop one after the other.
        wait_until("the end of its answers", 20, || scene.pings() == answers).unwrap();
        // ARP passes without a call.
        let probe = ["-c2", "-w3", "-I", "eth0", "10.9.2.1"];
        let arping = run(scene.left.command("arping").args(probe));
        if fail == "drop" {
            assert!(scene.unanswered() >= 1);
        }
        assert!(arping.is_ok() || arping.is_err_and(|e| e.to_string().contains("arping")), "{fail}");
        kill_process(compartment, Signal::CONT).unwrap();
        wait_until("a ping", 20, || scene.pings()).unwrap();
        assert_eq!(scene.compartment(), Some(compartment), "it is the same one");
    }
}

#[test]
fn traces_lose_no_packet_that_waits_for_an_answer() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    let options = ["--placement", "extern", "--threads", "2", "--deadline", "5000"];
    let _switch = scene.start_guard(1_000_000, &options);
    wait_until("a ping", 20, || scene.pings()).unwrap();
    let flood = ["-f", "-q", "-c", "5000", "-w", "60", "10.9.2.1"];
    std::thread::scope(|threads| {
        let pings = threads.spawn(|| run(scene.left.command("ping").args(flood)));
        for _ in 0..4 {
            let shown = scene.asks(&["trace", "--count", "2", "--for", "20"]);
            assert!(shown.contains("port 1") || shown.contains("port 2"), "{shown}");
        }
        pings.join().unwrap().unwrap();
    });
    assert_eq!(scene.unanswered(), 0);
}

#[test]
fn another_program_comes_with_its_functions() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    let _switch = scene.start_guard(1_000_000, &["--placement", "extern", "--deadline", "5000"]);
    let other = scene.file("other.p4", &GUARD.replace("refused", "unwanted"));
    let function = |body: &str| {
        let head = "#include \"p4shield_program.h\"\nuint8_t unwanted(uint32_t src, uint8_t protocol)";
        scene.file("unwanted.c", &format!("{head} {{ {body} }}\n"))
    };
    let flood = ["-f", "-q", "-w60", "10.9.2.1"];
    let _flood = Guarded::spawn(scene.left.command("ping").args(flood).stdout(Stdio::null())).unwrap();
    wait_until("a ping", 20, || scene.pings()).unwrap();
    let [first, second, third] = std::array::from_fn(|round| {
        let plain = GUARD.replace(CALL, "").replace(DECLARATION, "");
        let words: &[&str] = match round {
            0 => &[],
            1 => &[&other, "--functions", &function("return protocol != 1;")],
            _ => &[&scene.file("plain.p4", &plain)],
        };
        let before = scene.compartment();
        if round > 0 {
            scene.asks(&[&["load"], words].concat());
            let ended = || before.is_none_or(|pid| test_kill_process(pid).is_err());
            wait_until("the end of the compartment before", 10, ended).unwrap();
        }
        // Beside a flood, and on a busy machine, one may come too late.
        wait_until("a ping", 20, || scene.pings()).unwrap_or_else(|e| panic!("{round}: {e}"));
        scene.compartment()
    });
    assert!(
        first.is_some() && second.is_some() && first != second && third.is_none(),
        "{first:?} {second:?}"
    );
    assert_eq!(scene.unanswered(), 0, "no packet asks the functions of another program");
    let endless = function("volatile uint32_t n = src; while (n) n = n * 3 + 1; return n;");
    scene.refuses(&["load", &other, "--functions", &endless], "functions");
    assert!(scene.answers() && scene.compartment().is_none());
    scene.asks(&["load", &other, "--functions", &function("return protocol == 1;")]);
    assert!(!scene.pings());
    is_confined(scene.compartment().expect("a compartment"));
}

/// The key of the function, of which its code knows a residue.
const SECRET: u64 = 0x5ec3_e75e_c3e7_d00d;

#[test]
fn only_the_compartment_reads_the_keys_of_functions() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    let keys = |text: &str| scene.file("keys.maps", text);
    let file = keys(&format!("# The key of refused.c.\nkey 0 {SECRET:#x}\n"));
    let function = format!(
        "#include \"p4shield_program.h\"\nP4_MAP(key, P4_ARRAY, uint32_t, uint64_t, 1);\n\
         uint8_t refused(uint32_t src, uint8_t protocol) {{ uint32_t slot = 0;\n\
         uint64_t *k = p4_map_lookup(&key, &slot); return !k || *k % 1000003 != {}; }}\n",
        SECRET % 1_000_003
    );
    let switch = scene.start_with_function(&function, &["--placement", "extern", "--function-maps", &file]);
    wait_until("a ping", 20, || scene.pings()).unwrap();
    let first = scene.compartment().unwrap();
    let has_key = |pid: Pid| {
        memory_of(pid.as_raw_nonzero().get().cast_unsigned())
            .windows(8)
            .any(|word| word == SECRET.to_ne_bytes())
    };
    assert!(has_key(first), "the compartment has the key");
    assert!(!has_key(switch.pid()), "the switch has the key");

    kill_process(first, Signal::KILL).unwrap();
    wait_until("a ping through another compartment", 20, || scene.pings()).unwrap();
    let load = ["load", &scene.file("guard.p4", GUARD), "--functions", &scene.file("refused.c", &function)];
    for wrong in ["key 0", "kay 0 77", "key 9 77", "key 0 hex:77"] {
        keys(wrong);
        scene.refuses(&load, "keys.maps: the P4 VM says: line 1: ");
    }
    assert!(scene.answers(), "the functions that run go on");
    keys("key 0 77");
    scene.asks(&load);
    assert!(!scene.pings(), "another key");

    let path = scene.file("guard.p4", GUARD);
    let inline = ["run", &path, "--port", "1=p0", "--function-maps", &file];
    scene.refuses(&inline, "--placement extern");
}

#[test]
fn packets_of_capture_files_wait_for_their_answers() {
    if lacks_clang() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let sent: Vec<_> = (0..100).map(|n| to(n % 2, if n % 4 == 0 { 17 } else { 1 })).collect();
    write(path("in.pcap").as_ref(), &sent);
    std::fs::write(path("guard.p4"), GUARD).unwrap();
    // Some microseconds for each packet, so that the last ones have no answer when the file ends.
    let slow = "uint32_t n = src; ".to_owned() + &"n ^= n << 13; n ^= n >> 17; n ^= n << 5; ".repeat(400);
    let slow = slow + "return protocol != 1 || n == 0;";
    let head = "#include \"p4shield_program.h\"\nuint8_t refused(uint32_t src, uint8_t protocol)";
    std::fs::write(path("refused.c"), format!("{head} {{ {slow} }}\n")).unwrap();
    let ports = [format!("1=pcap:{},{}", path("in.pcap"), path("b")), format!("2=pcap:,{}", path("out"))];
    let output = p4shield(&[
        "switch",
        "run",
        &path("guard.p4"),
        "--functions",
        &path("refused.c"),
        "--placement",
        "extern",
        "--deadline",
        "5000",
        "--socket",
        &path("sock"),
        "--port",
        &ports[0],
        "--port",
        &ports[1],
    ]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let passed: Vec<_> = sent.into_iter().filter(|packet| packet[23] == 1).collect();
    assert_eq!(read(path("out").as_ref()), passed);
}

#[test]
fn functions_that_cannot_run_apart_are_refused() {
    let Some(scene) = Scene::new() else { return };
    if lacks_clang() {
        return;
    }
    let refused = |program: &str, options: &[&str], why: &str| {
        let mut command = scene.program_command(program);
        let output = command.args(["--placement", "extern"]).args(options).output().unwrap();
        assert!(code(&output) > 0 && stderr(&output).contains(why), "{why}: {}", stderr(&output));
    };
    refused(&example("programs/router.p4"), &[], "calls no function that it marks with @compartment");
    let program = scene.file("guard.p4", GUARD);
    refused(&program, &[], "refused");
    let body = "volatile uint32_t n = src; while (n) n = n * 3 + 1; return n;";
    let function = format!("uint8_t refused(uint32_t src, uint8_t protocol) {{ {body} }}");
    let loops = scene.file("loops.c", &format!("#include \"p4shield_program.h\"\n{function}\n"));
    refused(&program, &["--functions", &loops], "functions");
    let object = scene.folder.path().join("router.o").display().to_string();
    assert_eq!(code(&p4shield(&["compile", &example("programs/router.p4"), "-o", &object])), 0);
    refused(&object, &[], "need the program as P4 source");
}
