//! Changes of the NIC switch under traffic.

use super::levels::{AWAY, Stream};
use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::wait_until;
use std::fs;
use std::net::UdpSocket;

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

#[test]
fn undone_checksums_are_reported_with_a_remedy() {
    let Some(scene) = two_tenants() else { return };
    scene.topology("apply");
    let web = &scene.vms[0];
    let words = ["-K", "eth0", "tx", "on"];
    assert!(web.ns.command("ethtool").args(words).output().unwrap().status.success());
    let send = || UdpSocket::bind("0.0.0.0:0")?.send_to(b"hello", "10.0.0.1:9");
    web.ns.inside(send).unwrap();
    wait_until("the drop", 10, || scene.port("alice-web")["dropped"]["checksum"] == 1).unwrap();
    let mut status = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    let shown = status.args(["topology", "status", "--config"]).arg(scene.config()).output().unwrap();
    let text = String::from_utf8_lossy(&shown.stdout);
    let remedy = text.split("port alice-web").nth(1).and_then(|rest| rest.lines().nth(1));
    assert!(
        remedy.is_some_and(|line| line.starts_with("  checksum: ") && line.contains("ethtool")),
        "{text}"
    );
}
