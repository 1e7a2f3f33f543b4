//! Changes of the NIC switch under traffic.

use super::levels::{AWAY, Stream};
use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::process::run;
use p4shield_testbed::{NetNs, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

/// Writes the configuration with this NIC switch, or without the key.
pub(super) fn configure(scene: &Scene, kind: Option<&str>) {
    let text = fs::read_to_string(scene.config()).unwrap();
    let others: String = text.split_inclusive('\n').filter(|line| !line.starts_with("nic_switch")).collect();
    let key = kind.map(|kind| format!("nic_switch = \"{kind}\"\n")).unwrap_or_default();
    fs::write(scene.config(), others.replacen("[topology]\n", &format!("[topology]\n{key}"), 1)).unwrap();
}

/// Changes the NIC switch under pings, which are away for a moment at most, and applies it again, which
/// changes nothing.
pub(super) fn change(scene: &Scene, kind: Option<&str>) {
    let web = &scene.vms[0];
    let stream = Stream::start(&scene.outside, web.address);
    configure(scene, kind);
    let applied = scene.topology("apply");
    let gap = stream.longest_gap();
    assert!(gap < AWAY, "to {kind:?}: {gap} pings in a row were lost");
    assert_eq!(pings(&scene.outside, web.address), 10, "{kind:?}: {applied}");
    let again = scene.topology("apply");
    assert!(again.as_object().unwrap().values().all(|v| v.as_array().unwrap().is_empty()), "{again}");
}

#[test]
fn a_change_of_the_hook_keeps_networks() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    assert_eq!(scene.topology("plan")["nic_switch"], "tc", "the default");
    for kind in [Some("xdp"), None, Some("xdp"), Some("tc")] {
        change(&scene, kind);
    }
    scene.topology("delete");
    assert_eq!(scene.leftovers(), Vec::<String>::new());
}

/// Has a device leave checksums and the division of packets to the next one, as devices do by default.
fn offload(ns: &NetNs) {
    run(ns.command("ethtool").args(["-K", "eth0", "tx", "on", "tso", "on", "gso", "on"])).unwrap();
}

/// Sends megabytes by TCP from one namespace to an address of another one, which receives what was sent.
fn transfer(from: &NetNs, to: &NetNs, address: &str) {
    let sent: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 1000) as u8).collect();
    let listener = to.inside(|| TcpListener::bind((address, 0))).unwrap();
    let place = listener.local_addr().unwrap();
    let received = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let connect = || TcpStream::connect_timeout(&place, Duration::from_secs(60));
        from.inside(connect).unwrap().write_all(&sent).unwrap();
        receiver.join().unwrap()
    });
    assert!(received == sent, "{} of {} bytes to {address}", received.len(), sent.len());
}

#[test]
fn vms_keep_the_offloads_of_their_devices() {
    let Some(scene) = two_tenants() else { return };
    let [web, _, bob] = &scene.vms[..] else { unreachable!() };
    [&scene.outside, &web.ns, &bob.ns].into_iter().for_each(offload);
    for level in ["2", "1"] {
        scene.configure(level, &["alice", "bob"]);
        scene.topology("apply");
        transfer(&web.ns, &scene.outside, "10.0.0.1");
        transfer(&scene.outside, &bob.ns, bob.address);
        // The kernel counts a packet that is to be divided as one.
        let text = scene.host.ip("-s -j link show alice-web").unwrap();
        let received = &serde_json::from_str::<Value>(&text).unwrap()[0]["stats64"]["rx"];
        let [packets, bytes] = ["packets", "bytes"].map(|key| received[key].as_u64().unwrap());
        assert!(bytes / packets > 1514, "{received}");
        for interface in ["alice-web", "up0"] {
            let port = scene.port(interface);
            for reason in ["checksum", "too_long"] {
                assert_eq!(port["dropped"][reason].as_u64().unwrap_or_default(), 0, "{port}");
            }
        }
    }
}

#[test]
fn drops_for_a_vms_settings_are_reported_with_a_remedy() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let web = &scene.vms[0];
    scene.host.ip("link set alice-web mtu 9000").unwrap();
    web.ns.ip("link set eth0 mtu 9000").unwrap();
    let send = || UdpSocket::bind("0.0.0.0:0")?.send_to(&[0; 4000], "10.0.0.1:9");
    web.ns.inside(send).unwrap();
    wait_until("the drop", 10, || scene.port("alice-web")["dropped"]["too_long"] == 1).unwrap();
    let mut status = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    let shown = status.args(["topology", "status", "--config"]).arg(scene.config()).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    let remedy = text.split("port alice-web").nth(1).and_then(|rest| rest.lines().nth(1));
    assert!(remedy.is_some_and(|line| line.starts_with("  too_long: ") && line.contains("MTU")), "{text}");
}
