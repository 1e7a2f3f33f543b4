//! Ports that are DPDK devices: virtual ones of the distribution's DPDK.

use std::path::PathBuf;
use std::process::Command;

use p4shield_testbed::{Guarded, process::run, wait_until};

use super::Scene;
use crate::common::{code, example, p4shield, stderr};

/// EAL's options of the tests: no device of the machine, and nothing that two processes share.
const OPTIONS: &str = "--no-pci --no-huge --no-shconf --no-telemetry -l 0 -m 256";

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

    fn routes_over(&self, ports: [&str; 2]) {
        let mut switch = self.start_devices(ports);
        assert!(!self.pings(), "no entry routes");
        self.add_routes();
        wait_until("a ping through the switch", 20, || self.pings()).unwrap();
        // A whole file arrives, too: TCP with packets of all lengths.
        run(self.left.command("ping").args(["-c3", "-i0.2", "-s1400", "-W2", "10.9.2.1"])).unwrap();
        let status: serde_json::Value = serde_json::from_str(&self.asks(&["status", "--json"])).unwrap();
        for port in 0..2 {
            assert!(status["ports"][port]["sent"].as_u64().unwrap() >= 4, "{status}");
        }
        assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
        rustix::process::kill_process(switch.pid(), rustix::process::Signal::TERM).unwrap();
        wait_until("the end of the switch", 20, || switch.ended().is_some()).unwrap();
        assert_eq!(switch.ended().unwrap().code(), Some(0));
    }
}

#[test]
fn a_switch_routes_between_dpdk_devices() {
    let Some(scene) = Scene::new() else { return };
    scene.routes_over(["dpdk:net_af_packet0,iface=p0", "dpdk:net_af_packet1,iface=p1"]);
}

#[test]
fn a_dpdk_device_and_an_interface_are_ports_of_one_switch() {
    let Some(scene) = Scene::new() else { return };
    scene.routes_over(["p0", "dpdk:net_af_packet0,iface=p1"]);
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
