//! Which side of a port judges packets: Open vSwitch between two VMs and the host itself, whose packets
//! enter at a port that is not an AF_XDP socket.

mod common;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::daemon::Cloud;
use common::library;
use common::scene::{ONE, Scene, TWO};
use p4shield_testbed::process::run;
use p4shield_testbed::{OpenVswitch, wait_until};

/// The two VMs' own ports.
const BOTH: &str = "[[port]]\nname = \"s0\"\ntenant = \"alice\"\nvm = \"one\"\n\
                    [[port]]\nname = \"s1\"\ntenant = \"alice\"\nvm = \"two\"\n";
const HOST: &str = "10.9.3.9";

fn usable() -> bool {
    OpenVswitch::usable().map_err(|why| p4shield_need::skip("openvswitch", why)).is_ok()
}

fn switch(scene: &Scene, cloud: &Cloud) -> OpenVswitch {
    let (library, config) = (library(), cloud.config());
    let environment = [("LD_PRELOAD", library.as_os_str()), ("P4SHIELD_CONFIG", config.as_os_str())];
    let switch = OpenVswitch::for_afxdp(&scene.host, &environment, "0x1").unwrap();
    for port in ["s0", "s1"] {
        switch.add_afxdp(port).unwrap();
    }
    switch
}

/// Gives the host an address behind the switch.
fn host_joins(scene: &Scene) {
    scene.host.ip(&format!("addr add {HOST}/24 dev {}", OpenVswitch::BRIDGE)).unwrap();
    scene.host.ip(&format!("link set {} up", OpenVswitch::BRIDGE)).unwrap();
}

fn host_pings(scene: &Scene, vm: &str) -> bool {
    run(scene.host.command("ping").args(["-c1", "-W2", vm])).is_ok()
}

/// Returns whether this is an IPv4 packet of a protocol.
fn is(front: &[u8], protocol: u8) -> bool {
    front.get(12..14) == Some(&[8, 0]) && front.get(23) == Some(&protocol)
}

fn is_to(front: &[u8], last: u8) -> bool {
    front.get(30..34) == Some(&[10, 9, 3, last])
}

#[test]
fn host_packets_are_judged_at_the_vms_transmit_side() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "10s").with(BOTH);
    let _switch = switch(&scene, &cloud);
    // Packets to the first VM are dropped, and none that it sends.
    let daemon = cloud.daemon(|front, _| !is_to(front, 1));
    daemon.wait_lanes(4);
    host_joins(&scene);
    wait_until("a ping to the other VM", 60, || host_pings(&scene, TWO)).unwrap();
    assert!(!host_pings(&scene, ONE), "the packet was not judged");
}

#[test]
fn receive_side_ports_have_one_lane() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let cloud =
        Cloud::new("drop", "10s").with(&BOTH.replace("vm = \"one\"", "vm = \"one\"\nsides = \"receive\""));
    let _switch = switch(&scene, &cloud);
    let daemon = cloud.daemon(|front, _| !is_to(front, 1));
    daemon.wait_lanes(3);
    host_joins(&scene);
    wait_until("a ping from the host", 60, || host_pings(&scene, ONE)).unwrap();
    assert!(!scene.ping(), "the other VM's packets are judged where they enter");
}

/// The number of verdicts for each ping, by kind, number and sequence.
static PINGS: Mutex<BTreeMap<[u8; 5], u32>> = Mutex::new(BTreeMap::new());

fn count_ping(front: &[u8], _: u64) -> bool {
    if let (true, Some(&[kind, _, _, _, id, id2, n, n2])) =
        (is(front, 1), front.get(34..).and_then(<[u8]>::first_chunk))
    {
        *PINGS.lock().unwrap().entry([kind, id, id2, n, n2]).or_default() += 1;
    }
    true
}

#[test]
fn no_packet_is_judged_twice_by_one_program() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "10s").with(BOTH);
    let _switch = switch(&scene, &cloud);
    let daemon = cloud.daemon(count_ping);
    daemon.wait_lanes(4);
    scene.wait_ping();
    run(scene.one.command("ping").args(["-c5", "-W20", "-i0.2", TWO])).unwrap();
    // One VM's egress and the other's ingress program judge each request and reply.
    let twice = || PINGS.lock().unwrap().values().filter(|verdicts| **verdicts == 2).count();
    wait_until("pings that both ends judged", 30, || twice() >= 10).unwrap();
    let pings = PINGS.lock().unwrap().clone();
    assert!(pings.values().all(|verdicts| *verdicts <= 2), "{pings:?}");
}

#[test]
fn dropped_packets_never_cost_the_switch_frames() {
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "10s").with(BOTH);
    let mut switch = switch(&scene, &cloud);
    // The host's datagrams are judged at the VM's transmit side only.
    let daemon = cloud.daemon(|front, _| {
        let dropped = is(front, 17) && is_to(front, 2);
        DROPPED.fetch_add(dropped.into(), Relaxed);
        !dropped
    });
    daemon.wait_lanes(4);
    host_joins(&scene);
    wait_until("a ping from the host", 60, || host_pings(&scene, TWO)).unwrap();
    let socket = scene.host.inside(|| UdpSocket::bind((HOST, 0)).unwrap());
    // More than Open vSwitch has frames for a port.
    wait_until("enough datagrams", 120, || {
        for _ in 0..256 {
            // A full device does not fail the test.
            let _ = socket.send_to(&[0; 64], (TWO, 9));
        }
        DROPPED.load(Relaxed) > 20_000
    })
    .unwrap();
    scene.echo(&[1, 100_000]);
    for port in ["s0", "s1"] {
        switch.remove(port).unwrap();
    }
    let closed = || switch.said().matches("is being closed").count();
    wait_until("both sockets to be closed", 30, || closed() >= 2).unwrap();
    let said = switch.said();
    for line in said.lines().filter(|l| l.contains("is being closed")) {
        assert!(line.contains("refused=\"none\""), "{line}");
    }
    assert!(switch.ended().is_none(), "{said}\n{}", switch.log());
}
