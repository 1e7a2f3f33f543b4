//! Ports that are DPDK devices: virtual ones of the distribution's DPDK.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use p4shield_testbed::{Guarded, process::run, wait_until};

use super::Scene;
use crate::common::{code, example, p4shield, stderr};

/// EAL's options of the tests: no device of the machine, and nothing that two processes share.
const OPTIONS: &str = "--no-pci --no-huge --no-shconf --no-telemetry -l 0 -m 256";

/// Threads that the distribution's EAL has numbers for.
const MAX_LCORES: u32 = if cfg!(target_arch = "x86_64") { 128 } else { 256 };

/// Senders, each with a flow of its own.
const FLOWS: usize = 40;

/// Returns the library that cargo built for the tests.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libp4shield_ethdev.so")
}

impl Scene {
    /// Starts the example with these ports, which DPDK opens in the host's namespace, and waits for it.
    fn start_devices(&self, ports: [&str; 2]) -> Guarded {
        self.start_command(&mut self.devices_command(ports))
    }

    fn devices_command(&self, [one, two]: [&str; 2]) -> Command {
        let mut command = self.host.command(env!("CARGO_BIN_EXE_p4shield"));
        command.args(["switch", "run", &example("programs/router.p4"), "--dpdk", OPTIONS]);
        command.args(["--port", &format!("1={one}"), "--port", &format!("2={two}")]);
        command.arg("--dpdk-library").arg(library()).arg("--socket").arg(self.socket());
        command
    }

    fn routes_over(&self, ports: [&str; 2], threads: &str) {
        let mut switch = self.start_command(self.devices_command(ports).args(["--threads", threads]));
        assert!(!self.pings(), "no entry routes");
        self.add_routes();
        wait_until("a ping through the switch", 20, || self.pings()).unwrap();
        // A whole file arrives, too: TCP with packets of all lengths.
        run(self.left.command("ping").args(["-c3", "-i0.2", "-s1400", "-W20", "10.9.2.1"])).unwrap();
        let status = || serde_json::from_str::<serde_json::Value>(&self.asks(&["status", "--json"])).unwrap();
        // Ping does not wait for the last answers.
        let have_sent =
            |status: &serde_json::Value| (0..2).all(|port| status["ports"][port]["sent"].as_u64() >= Some(4));
        wait_until("all answers", 20, || have_sent(&status())).unwrap();
        let status = status();
        assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
        rustix::process::kill_process(switch.pid(), rustix::process::Signal::TERM).unwrap();
        wait_until("the end of the switch", 20, || switch.ended().is_some()).unwrap();
        assert_eq!(switch.ended().unwrap().code(), Some(0));
    }
}

#[test]
fn a_switch_routes_between_dpdk_devices() {
    let Some(scene) = Scene::new() else { return };
    scene.routes_over(["dpdk:net_af_packet0,iface=p0", "dpdk:net_af_packet1,iface=p1"], "1");
}

#[test]
fn a_dpdk_device_and_an_interface_are_ports_of_one_switch() {
    let Some(scene) = Scene::new() else { return };
    scene.routes_over(["p0", "dpdk:net_af_packet0,iface=p1"], "1");
}

#[test]
fn threads_hand_packets_to_the_one_with_a_devices_queue() {
    let Some(scene) = Scene::new() else { return };
    // Each device has one queue, and each thread one device.
    scene.routes_over(["dpdk:net_af_packet0,iface=p0", "dpdk:net_af_packet1,iface=p1"], "2");
    // One thread has the device's queue, and three have none.
    scene.routes_over(["p0", "dpdk:net_af_packet0,iface=p1"], "4");
}

#[test]
fn threads_share_the_queues_of_dpdk_devices() {
    let Some(scene) = Scene::new() else { return };
    let ports = [0, 1].map(|n| format!("dpdk:net_af_packet{n},iface=p{n},qpairs=2"));
    let _switch =
        scene.start_command(scene.devices_command(ports.each_ref().map(|p| &**p)).args(["--threads", "2"]));
    scene.add_routes();
    scene.left.send_whole_packets("eth0").unwrap();
    let to: SocketAddr = "10.9.2.1:7000".parse().unwrap();
    let listener = scene.right.inside(|| UdpSocket::bind(to).unwrap());
    listener.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let flows: Vec<_> =
        scene.left.inside(|| (0..FLOWS).map(|_| UdpSocket::bind("10.9.1.1:0").unwrap()).collect());
    // The kernel spreads them over both queues. Without a thread for one, some would not arrive before its
    // ring of 512 packets is full.
    let mut arrived = BTreeSet::new();
    for _ in 0..10 {
        if arrived.len() < FLOWS {
            flows.iter().for_each(|flow| drop(flow.send_to(&[7; 30], to)));
        }
        while arrived.len() < FLOWS
            && let Ok((_, from)) = listener.recv_from(&mut [0; 64])
        {
            arrived.insert(from.port());
        }
    }
    assert_eq!(arrived.len(), FLOWS, "flows arrive");
    let status: serde_json::Value = serde_json::from_str(&scene.asks(&["status", "--json"])).unwrap();
    assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
}

#[test]
fn a_switch_does_not_start_without_all_its_threads() {
    let library = library().display().to_string();
    // EAL's own threads take all numbers that it has.
    let lcores = format!("{OPTIONS} --lcores (0-{})@0", MAX_LCORES - 1).replace("-l 0 ", "");
    let ports = ["--port", "1=dpdk:net_null0", "--port", "2=dpdk:net_null1"];
    let (code, text) = refused(&[&["--dpdk", &lcores, "--threads", "2"], &ports[..]].concat(), &library);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("DPDK takes no further thread of this process"), "{text}");
    assert!(!text.contains("forwarding between"), "{text}");
}

#[test]
fn only_interfaces_come_and_go_beside_a_dpdk_device() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start_devices(["dpdk:net_af_packet0,iface=p0", "dpdk:net_null0"]);
    scene.add_routes();
    scene.refuses(&["port", "delete", "1"], "a DPDK device is a port until the switch stops");
    scene.refuses(&["port", "add", "3=dpdk:net_null1"], "opened when the switch starts");
    scene.refuses(&["port", "add", "3=dpdk:net_null0"], "dpdk:net_null0 is port 2 already");
    scene.asks(&["port", "add", "3=p1"]);
    scene.asks(&["port", "delete", "3"]);
    scene.asks(&["port", "add", "4=p1"]);
    let listed: serde_json::Value = serde_json::from_str(&scene.asks(&["port", "list", "--json"])).unwrap();
    let listed = serde_json::to_string(&listed).unwrap();
    for port in ["dpdk:net_af_packet0,iface=p0", "dpdk:net_null0", "p1"] {
        assert!(listed.contains(port), "{listed}");
    }
    assert!(!listed.contains("gone"), "{listed}");
}

/// Runs a switch that must not start; returns its exit code and error.
fn refused(options: &[&str], library: &str) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("switch.sock").display().to_string();
    let router = example("programs/router.p4");
    let begin = ["switch", "run", &router, "--socket", &socket, "--dpdk-library", library];
    let output = p4shield(&[&begin, options].concat());
    (code(&output), stderr(&output))
}

#[test]
fn wrong_devices_are_refused_with_what_dpdk_says() {
    let library = library().display().to_string();
    for (device, why) in [
        ("net_nil0", "there is no DPDK device net_nil0"),
        ("net_null0,nonsense=1", "there is no DPDK device net_null0,nonsense=1"),
        ("net_af_packet0,iface=nowhere0", "there is no DPDK device net_af_packet0,iface=nowhere0"),
        ("0000:99:00.0", "or the PCI address of a device that is bound to vfio-pci"),
    ] {
        let (code, text) = refused(&["--dpdk", OPTIONS, "--port", &format!("1=dpdk:{device}")], &library);
        assert_eq!(code, 1, "{device}: {text}");
        assert!(text.contains(why), "{device}: {text}");
    }
    let twice = ["--port", "1=dpdk:net_null0", "--port", "2=dpdk:net_null0"];
    let (code, text) = refused(&[&["--dpdk", OPTIONS], &twice[..]].concat(), &library);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("net_null0 is given for two ports"), "{text}");
}

#[test]
fn wrong_options_of_dpdk_are_refused_with_its_words() {
    let library = library().display().to_string();
    let port = ["--port", "1=dpdk:net_null0"];
    for (options, why) in [
        ("--no-pci --no-such", "unrecognized option '--no-such'"),
        ("--no-pci -l 4711", "does not start with the options `--no-pci -l 4711`"),
        ("--no-pci --no-huge --in-memory", "--legacy-mem is not compatible with --in-memory"),
        ("--no-pci --no-huge --no-shconf -m 64 -l 0 word", "EAL does not take it"),
        ("--help", "DPDK option `--help`"),
        ("-vh", "EAL ended the process"),
        ("-- -h", "DPDK option `--`"),
    ] {
        let (code, text) = refused(&[&["--dpdk", options], &port[..]].concat(), &library);
        assert_eq!(code, 1, "{options}: {text}");
        assert!(text.contains(why), "{options}: {text}");
        assert!(text.lines().count() < 12, "{options}: {text}");
    }
}

#[test]
fn a_missing_library_of_dpdk_is_named() {
    let (code, text) = refused(&["--port", "1=dpdk:net_null0"], "/nowhere/libp4shield_ethdev.so");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("/nowhere/libp4shield_ethdev.so") && text.contains("p4shield-ethdev"), "{text}");
}

#[test]
fn defaults_of_dpdk_suit_a_container() {
    let Some(scene) = Scene::new() else { return };
    let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.args(["switch", "run", &example("programs/router.p4"), "--port", "1=dpdk:net_ring0"]);
    command.arg("--dpdk-library").arg(library()).arg("--socket").arg(scene.socket());
    let _switch = scene.start_command(&mut command);
    assert!(scene.asks(&["status"]).contains("dpdk:net_ring0"));
}
