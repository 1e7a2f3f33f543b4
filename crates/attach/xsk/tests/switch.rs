//! Debian's Open vSwitch with AF_XDP ports, unmodified, with the library preloaded.

mod common;

use std::ffi::OsStr;

use common::daemon::{Cloud, Daemon};
use common::library;
use common::scene::Scene;
use p4shield_testbed::{Closed, OpenVswitch, wait_until};

/// Bytes of each connection's message, from one to more than all rings hold.
const SIZES: [usize; 5] = [1, 100, 1_448, 65_536, 500_000];

fn usable() -> bool {
    OpenVswitch::usable().map_err(|why| p4shield_need::skip("openvswitch", why)).is_ok()
}

/// Starts a switch between the two VMs.
fn switch(scene: &Scene, environment: &[(&str, &OsStr)]) -> OpenVswitch {
    let library = library();
    let environment = [&[("LD_PRELOAD", library.as_os_str())], environment].concat();
    let switch = OpenVswitch::for_afxdp(&scene.host, &environment, "0x1").unwrap();
    for port in ["s0", "s1"] {
        switch.add_afxdp(port).unwrap();
    }
    switch
}

/// Removes the ports and checks the library's account of their frames: each has one owner, and no
/// transition was refused.
fn close(mut switch: OpenVswitch) {
    for port in ["s0", "s1"] {
        switch.remove(port).unwrap();
    }
    let closed = || Closed::all(&switch.said()).len();
    wait_until("both sockets to be closed", 30, || closed() >= 2).unwrap();
    let said = switch.said();
    for socket in Closed::all(&said) {
        let account = (socket.total(), socket.refused());
        assert_eq!(account, (16_384, Some(0)), "all frames of Open vSwitch, each with one owner: {said}");
    }
    assert!(switch.ended().is_none(), "Open vSwitch ended\n{said}\n{}", switch.log());
    assert!(!switch.log().contains("EMER"), "{}", switch.log());
}

#[test]
fn open_vswitch_forwards_through_replaced_rings() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let switch = switch(&scene, &[("P4SHIELD_XSK", OsStr::new("relay"))]);
    scene.wait_ping();
    scene.echo(&SIZES);
    // A port that is removed and added again finds its queue free.
    switch.remove("s1").unwrap();
    switch.add_afxdp("s1").unwrap();
    scene.wait_ping();
    close(switch);
}

#[test]
fn connections_survive_random_drops_and_a_p4_vm_restart() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "50ms");
    let config = cloud.config();
    let switch = switch(&scene, &[("P4SHIELD_CONFIG", config.as_os_str())]);
    assert!(!scene.ping(), "without a P4 VM the tenant's packets are dropped");
    // Drops one packet in 256, in no pattern; each packet is judged twice on its way.
    let mut daemon = Some(cloud.daemon(|_, n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56 != 0));
    daemon.as_ref().unwrap().wait_lanes(2);
    scene.wait_ping();
    scene.echo(&SIZES);
    // Half a megabyte there and back, at most 1448 bytes in a packet, each judged twice.
    assert!(daemon.as_ref().unwrap().judged() > 1_400, "not every packet was judged");
    std::thread::scope(|s| {
        s.spawn(|| scene.echo(&SIZES));
        // The P4 VM and the daemon end during connections, and others start.
        drop(daemon.take());
        daemon.insert(cloud.daemon(|_, _| true)).wait_lanes(2);
    });
    let faults = daemon.as_ref().map(Daemon::faults);
    assert_eq!(faults, Some(Vec::new()), "the new P4 VM kept to the protocol");
    close(switch);
}

#[test]
fn only_the_dropped_flow_is_affected() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let cloud = Cloud::new("drop", "50ms");
    let config = cloud.config();
    let switch = switch(&scene, &[("P4SHIELD_CONFIG", config.as_os_str())]);
    // Drops ICMP: the protocol is byte 9 of an IPv4 header.
    let daemon = cloud.daemon(|front, _| front.get(23) != Some(&1));
    daemon.wait_lanes(2);
    scene.echo(&[100_000]);
    assert!(!scene.ping(), "a ping passed a program that drops it");
    close(switch);
}

#[test]
fn without_a_configuration_no_socket_is_created() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let library = library();
    let switch = OpenVswitch::for_afxdp(&scene.host, &[("LD_PRELOAD", library.as_os_str())], "0x1").unwrap();
    let error = switch.add_afxdp("s0").unwrap_err().to_string();
    assert!(switch.said().contains("P4SHIELD_CONFIG is not set"), "{error}");
}
