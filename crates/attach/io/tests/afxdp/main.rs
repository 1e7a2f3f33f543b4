//! Ports that are network interfaces, between two namespaces:
//!
//! ```text
//!   left: eth0 ──veth── p0 │ forwarder │ p1 ──veth── eth0 :right
//! ```

mod common;
mod exchange;
mod handed;
mod router;
mod threads;

use std::time::{Duration, Instant};

use common::{Forwarder, Scene, usable};
use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::{BATCH, PacketIo};
use p4shield_testbed::process::run;
use p4shield_testbed::wait_until;
use p4shield_xdp::XdpMode;

#[test]
fn ping_tcp_and_udp_pass_and_nothing_stays_behind() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let offloads = scene.offloads();
    let forwarder = Forwarder::start(&scene, AfxdpConfig::new(["p0", "p1"])).unwrap();
    assert!(scene.host("-d link show p0").contains("xdp"));
    assert!(scene.host("-d link show p1").contains("promiscuity 1"));
    scene.wait_forwarding();
    scene.transfer(&[]);
    scene.transfer(&["--reverse"]);
    scene.transfer(&["--udp", "--bitrate", "50M"]);
    let end = forwarder.stop().unwrap();
    assert_eq!(end.frames.total(), 4 * 512 + 2 * BATCH as u32);
    for status in end.ports {
        assert!(status.native && status.restores_tags, "{status:?}");
        let xdp = status.xdp;
        assert_eq!((xdp.oversize, xdp.no_socket, xdp.tag_unknown, xdp.tag_failed), (0, 0, 0, 0));
    }
    for port in ["p0", "p1"] {
        let link = scene.host(&format!("-d link show {port}"));
        assert!(!link.contains("xdp") && link.contains("promiscuity 0"), "{link}");
    }
    assert_eq!(scene.offloads(), offloads);
    assert!(!scene.pings());
    // The same interfaces can be ports again at once.
    let again = Forwarder::start(&scene, AfxdpConfig::new(["p1", "p0"])).unwrap();
    scene.wait_forwarding();
    again.stop().unwrap();
}

/// Returns the first of the packets that arrive at a host which `wanted` accepts, or `None` after a while.
fn arrival(at: &mut AfxdpPorts, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(5);
    let mut found = None;
    while found.is_none() && Instant::now() < end {
        at.flush().unwrap();
        at.wait(Duration::from_millis(50), None).unwrap();
        let check = |packet: &[u8]| {
            if wanted(packet) {
                found = Some(packet.to_vec());
            }
        };
        at.receive(0, BATCH, check).unwrap();
    }
    found
}

#[test]
fn vlan_tags_in_frames_and_metadata_survive() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let forwarder = Forwarder::start(&scene, AfxdpConfig::new(["p0", "p1"])).unwrap();
    scene.wait_forwarding();
    scene.left.tag_in_metadata("eth0").unwrap();
    let open = || AfxdpPorts::open(&AfxdpConfig::new(["eth0"])).unwrap();
    scene.right.inside(|| {
        let mut right = open();
        // Sent by AF_XDP, a frame has its tags in its bytes.
        for (n, tags) in [&[][..], &[0x81, 0, 0, 7], &[0x88, 0xa8, 0, 7, 0x81, 0, 0xe0, 9]].iter().enumerate()
        {
            let mut packet = p4shield_testbed::packet::udp([10, 7, 0, 77], [10, 7, 0, n as u8]);
            packet[..6].fill(0xff);
            packet.splice(12..12, tags.iter().copied());
            scene.left.inside(|| {
                let mut left = open();
                assert!(left.send(0, &packet));
                left.flush().unwrap();
            });
            assert_eq!(
                arrival(&mut right, |p| p.len() == packet.len() && p[12..] == packet[12..]),
                Some(packet)
            );
        }
        // Sent by the kernel, a packet has it in the metadata: here, an ARP request.
        let ping = || run(scene.left.command("ping").args(["-c1", "-W1", "10.7.0.9"])).is_ok();
        let arp = [0x81, 0, 0x60, 0x64, 8, 6];
        let found = std::thread::scope(|s| {
            s.spawn(ping);
            arrival(&mut right, |p| p.get(12..18) == Some(&arp[..]))
        });
        assert!(found.is_some(), "no tagged request arrived");
    });
    forwarder.stop().unwrap();
}

#[test]
fn all_queues_and_generic_xdp_forward() {
    if !usable() {
        return;
    }
    let scene = Scene::with_queues(2);
    let offloads = scene.offloads();
    let forwarder = Forwarder::start(&scene, AfxdpConfig::new(["p0", "p1"])).unwrap();
    scene.wait_forwarding();
    scene.transfer(&["--parallel", "4"]);
    let end = forwarder.stop().unwrap();
    assert!(end.ports.iter().all(|p| p.sockets.len() == 2 && p.xdp.no_socket == 0), "{end:?}");
    let mut config = AfxdpConfig::new(["p0", "p1"]);
    config.xdp = XdpMode::Generic;
    let forwarder = Forwarder::start(&scene, config).unwrap();
    scene.wait_forwarding();
    let end = forwarder.stop().unwrap();
    assert!(end.ports.iter().all(|p| !p.native), "{end:?}");
    assert_eq!(scene.offloads(), offloads, "what was switched off is on again");
}

#[test]
fn a_full_transmit_ring_refuses_packets() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut config = AfxdpConfig::new(["p0", "p1"]);
        config.ring = 64;
        let mut ports = AfxdpPorts::open(&config).unwrap();
        let packet = [0xff; 1514];
        assert!(!ports.send(0, &packet[..13]), "shorter than an Ethernet header");
        assert!(!ports.send(0, &[0xff; 1537]), "longer than the MTU allows");
        assert!(ports.send(0, &[0xff; 1522]), "two tags");
        // The kernel takes nothing while the interface is down.
        scene.host("link set p0 down");
        let sent = (0..200).filter(|_| ports.send(0, &packet)).count();
        assert!((63..=64).contains(&sent), "{sent}");
        ports.flush().unwrap();
        assert!(!ports.send(0, &packet));
        assert!(ports.send(1, &packet), "another port goes on");
        scene.host("link set p0 up");
        wait_until("the ring to be sent", 5, || {
            ports.flush().unwrap();
            ports.send(0, &packet)
        })
        .unwrap();
    });
}

/// Returns the error with its causes for these interfaces.
fn refusal(scene: &Scene, interfaces: &[&str]) -> String {
    let error = scene.host.inside(|| AfxdpPorts::open(&AfxdpConfig::new(interfaces.to_vec())).unwrap_err());
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn interfaces_that_cannot_be_ports_are_refused_with_a_remedy() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let absent = "there is no interface p9 in this network namespace (`ip link` lists those that exist)";
    assert_eq!(refusal(&scene, &["p0", "p9"]), absent);
    assert_eq!(refusal(&scene, &["p0", "p0"]), "p0 is given for two ports; name each interface once");
    scene.host("link add br0 type bridge");
    scene.host("link set p1 master br0");
    let bridged = "p1 is a port of br0 already; remove it there first: ip link set p1 nomaster";
    assert_eq!(refusal(&scene, &["p0", "p1"]), bridged);
    scene.host("link set p1 nomaster down");
    assert_eq!(refusal(&scene, &["p1"]), "p1 is down; bring it up first: ip link set p1 up");
    scene.host("link set p1 up mtu 9000");
    let longest = "p1: MTU 9000 is too large, a frame holds 3818; ip link set p1 mtu 3818";
    assert_eq!(refusal(&scene, &["p1"]), longest);
    scene.host("link set p1 mtu 1500");
    assert!(!scene.host("-d link show p0").contains("xdp"), "nothing stays behind");
    let forwarder = Forwarder::start(&scene, AfxdpConfig::new(["p0", "p1"])).unwrap();
    let used = refusal(&scene, &["p0"]);
    assert!(
        used.starts_with("cannot attach the XDP program to p0: another XDP program is attached"),
        "{used}"
    );
    assert!(used.contains("end the process that holds it"), "{used}");
    scene.wait_forwarding();
    forwarder.stop().unwrap();
}

#[test]
fn a_queue_with_another_socket_is_refused_with_a_remedy() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let _socket = scene.bind_socket("p0");
    let used = refusal(&scene, &["p0"]);
    let expected = "cannot open an AF_XDP socket on p0: another socket has a queue of it; end the program";
    assert!(used.starts_with(expected), "{used}");
}

/// The network namespace in which [`child_without_privileges`] opens an interface.
const CHILD: &str = "P4SHIELD_TEST_IO_CHILD";

/// Not a test by itself: the process without privileges.
#[test]
fn child_without_privileges() {
    if std::env::var_os(CHILD).is_some() {
        let error = AfxdpPorts::open(&AfxdpConfig::new(["p0"])).unwrap_err();
        println!("refused: {error}");
    }
}

#[test]
fn missing_privileges_are_named() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let test = std::env::current_exe().unwrap();
    let mut child = scene.host.command("setpriv");
    child.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(test);
    let output =
        run(child.args(["--exact", "child_without_privileges", "--nocapture"]).env(CHILD, "1")).unwrap();
    assert!(output.contains("refused: cannot ") && output.contains("p0"), "{output}");
    assert!(output.contains("CAP_NET_ADMIN and CAP_BPF are needed"), "{output}");
}
