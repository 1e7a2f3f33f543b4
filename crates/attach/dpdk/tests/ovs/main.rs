//! The distribution's Open vSwitch over DPDK with the library in it: kernel interfaces and vhost-user ports.

#[path = "../common/mod.rs"]
mod common;
mod differential;

use common::daemon::{Cloud, Daemon, Does, text, usable};
use common::frames::{self, frame, serial_of};
use common::switch::{PATIENCE, testpmd, wait_sent};
use p4shield_testbed::OpenVswitch;
use p4shield_testbed::dpdk::{OvsSetup, Testpmd};
use p4shield_testbed::process::run;
use p4shield_testbed::{NetNs, wait_until};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn ovs(cloud: &Cloud) -> OvsSetup {
    let environment = cloud.environment().into_iter();
    environment.fold(OpenVswitch::over_dpdk(), |setup, (name, value)| setup.env(name, value))
}

/// Pings from one namespace to another address once.
fn ping(from: &NetNs, address: &str) -> bool {
    run(from.command("ping").args(["-c1", "-W1", address])).is_ok()
}

static REFUSES_PINGS: AtomicBool = AtomicBool::new(false);

/// Lets echo requests through or not.
fn echo_guard(front: &[u8]) -> Does {
    match (front.get(23), front.get(34)) {
        (Some(1), Some(8)) if REFUSES_PINGS.load(Ordering::Relaxed) => Does::Drop,
        _ => Does::Pass,
    }
}

#[test]
fn pings_through_open_vswitch_are_judged() {
    if !usable(OpenVswitch::usable()) {
        return;
    }
    let cloud = Cloud::new("1s", "");
    let daemon = cloud.daemon(echo_guard);
    let [host, vm, world] = ["host", "vm", "world"].map(|n| NetNs::create(n).unwrap());
    for (ns, port, address) in [(&vm, "s0", "10.0.1.1/16"), (&world, "s1", "10.0.9.1/16")] {
        host.veth(port, ns, "eth0").unwrap();
        ns.ip(&format!("addr add {address} dev eth0")).unwrap();
    }
    let mut switch = ovs(&cloud).start(&host).unwrap();
    switch.add_dpdk("left", "net_af_packet_left,iface=s0,qpairs=2").unwrap();
    switch.vsctl(&["set", "Interface", "left", "options:n_rxq=2"]).unwrap();
    switch.add_interface("right", "s1").unwrap();
    daemon.wait_lanes(3);
    assert!(daemon.ports().contains("net_af_packet_left"), "{:?}", daemon.ports());

    let judged = |daemon: &Daemon| daemon.p4vm(0).judged();
    wait_until("a ping", PATIENCE, || ping(&world, "10.0.1.1")).unwrap();
    let before = judged(&daemon);
    wait_until("a ping", PATIENCE, || ping(&world, "10.0.1.1")).unwrap();
    assert!(judged(&daemon) >= before + 2, "request and reply");
    REFUSES_PINGS.store(true, Ordering::Relaxed);
    assert!(!ping(&world, "10.0.1.1"), "the program refuses");
    REFUSES_PINGS.store(false, Ordering::Relaxed);
    wait_until("a ping", PATIENCE, || ping(&world, "10.0.1.1")).unwrap();

    // The switch changes its queues and loses a port with the library in it.
    for (queues, lanes) in [("options:n_rxq=1", 2), ("options:n_rxq=2", 3)] {
        switch.vsctl(&["set", "Interface", "left", queues]).unwrap();
        daemon.wait_lanes(lanes);
    }
    wait_until("a ping", PATIENCE, || ping(&world, "10.0.1.1")).unwrap();
    switch.remove("right").unwrap();
    daemon.wait_lanes(2);
    switch.add_interface("right", "s1").unwrap();
    wait_until("a ping", PATIENCE, || ping(&world, "10.0.1.1")).unwrap();
    let status = switch.stop().unwrap();
    assert!(status.success(), "{status}\n{}", switch.log());
}

/// Drops every fourth.
fn three_of_four(front: &[u8]) -> Does {
    if front.get(12..14) == Some(&[8, 0]) && serial_of(front).is_multiple_of(4) {
        Does::Drop
    } else {
        Does::Pass
    }
}

/// A guest made of testpmd, whose virtio device's other end is a port of the switch.
fn guest(ns: &NetNs, socket: &Path, extra: &str) -> Testpmd {
    let setup = Testpmd::setup()
        .vdev(&format!("net_virtio_user0,path={},server=1,queues=1", text(socket)))
        .vdev(extra)
        .argument("--no-flush-rx")
        .argument("--disable-link-check");
    setup.start(ns).unwrap()
}

/// DPDK's ethdev of a vhost-user port takes packets by the function that we replace, and gives them
/// to callbacks.
#[test]
fn a_vhost_user_port_that_is_an_ethdev_is_judged_once() {
    if !usable(Testpmd::usable()) {
        return;
    }
    const PACKETS: u32 = 200;
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(three_of_four);
    let host = NetNs::create("host").unwrap();
    let (socket, input, output) = (cloud.file("alice.sock"), cloud.file("in.pcap"), cloud.file("out.pcap"));
    let sent: Vec<_> = (0..PACKETS).map(|n| frame(n, 1, 9, (n % 8) as u16, 200)).collect();
    frames::write(&input, &sent);
    let setup = testpmd(&cloud)
        .vdev(&format!("net_vhost0,iface={},client=1,queues=1", text(&socket)))
        .vdev(&format!("net_pcap1,tx_pcap={}", text(&output)));
    let mut switch = setup.start(&host).unwrap();
    daemon.wait_lanes(2);
    let mut sender = guest(&host, &socket, &format!("net_pcap1,rx_pcap={}", text(&input)));
    let up = |testpmd: &mut Testpmd| testpmd.command("show port info 0").unwrap().contains("Link status: up");
    wait_until("both links", PATIENCE, || up(&mut sender) && up(&mut switch)).unwrap();
    switch.command("start").unwrap();
    sender.command("start").unwrap();
    wait_sent(&mut switch, 1, (PACKETS * 3 / 4).into());
    assert_eq!(daemon.p4vm(0).judged(), u64::from(PACKETS));
    assert!(daemon.ports().contains("net_vhost0") && daemon.ports().len() == 2, "{:?}", daemon.ports());
    sender.quit().unwrap();
    assert!(switch.quit().unwrap().success(), "{}", switch.transcript());
}

/// The ports of alice's and bob's VMs, by the names of their sockets.
const PORTS: &str = "[[port]]\nname = \"alice.sock\"\ntenant = \"alice\"\nvm = \"vm\"\n\
                     [[port]]\nname = \"bob.sock\"\ntenant = \"bob\"\nvm = \"vm\"\n";

/// A packet from alice's VM to one of the destinations that no VM has, or to bob's VM.
fn to_anyone(serial: u32) -> Vec<u8> {
    let mut frame = frame(serial, 1, 2, (serial % 8) as u16, 200);
    let multicast = [1, 0, 0x5e, 0, 0, 251];
    let (link, ip) = match serial % 5 {
        0 => ([2, 0, 0, 0, 0, 2], [10, 0, 2, 1]),
        1 => (multicast, [224, 0, 0, 251]),
        2 => ([0xff; 6], [255; 4]),
        3 => ([2, 0, 0, 0, 0, 2], [10, 0, 77, 77]),
        // It is not even IP.
        _ => {
            frame[12..14].copy_from_slice(&[0x88, 0xcc]);
            ([1, 0x80, 0xc2, 0, 0, 0x77], [10, 0, 2, 1])
        }
    };
    frame[..6].copy_from_slice(&link);
    frame[30..34].copy_from_slice(&ip);
    frame
}

/// Drops every fourth, whatever it is.
fn drops_every_fourth(front: &[u8]) -> Does {
    if serial_of(front).is_multiple_of(4) { Does::Drop } else { Does::Pass }
}

#[test]
fn whatever_reaches_a_vhost_user_port_is_judged_there() {
    if !usable(OpenVswitch::usable().and(Testpmd::usable())) {
        return;
    }
    const PACKETS: u32 = 200;
    let cloud = Cloud::new("10s", PORTS);
    let daemon = cloud.daemon(drops_every_fourth);
    let host = NetNs::create("host").unwrap();
    let mut switch = ovs(&cloud).start(&host).unwrap();
    let sockets = ["alice", "bob"].map(|name| cloud.file(&format!("{name}.sock")));
    let (input, output) = (cloud.file("in.pcap"), cloud.file("out.pcap"));
    let sent: Vec<_> = (0..PACKETS).map(to_anyone).collect();
    frames::write(&input, &sent);
    for (name, socket) in ["alice", "bob"].iter().zip(&sockets) {
        switch.add_vhost_client(name, socket).unwrap();
    }
    for round in 1..=2_u64 {
        let mut receiver = guest(&host, &sockets[1], &format!("net_pcap1,tx_pcap={}", text(&output)));
        let mut sender = guest(&host, &sockets[0], &format!("net_pcap1,rx_pcap={}", text(&input)));
        // Both sides of both ports.
        daemon.wait_lanes(4);
        let up =
            |testpmd: &mut Testpmd| testpmd.command("show port info 0").unwrap().contains("Link status: up");
        wait_until("the guests' links", PATIENCE, || up(&mut sender) && up(&mut receiver)).unwrap();
        receiver.command("start").unwrap();
        sender.command("start").unwrap();
        let passed = u64::from(PACKETS) * 3 / 4;
        wait_sent(&mut receiver, 1, passed);
        receiver.command("stop").unwrap();
        sender.command("stop").unwrap();
        assert_eq!(daemon.p4vm(0).judged(), round * u64::from(PACKETS), "what alice's VM sends, once");
        assert_eq!(daemon.p4vm(1).judged(), round * passed, "what reaches bob's VM, once");
        for mut guest in [sender, receiver] {
            guest.quit().unwrap();
        }
        let received = frames::read(&output);
        assert_eq!(received.len() as u64, passed);
        // Open vSwitch itself batches by destination.
        for kind in 0..5 {
            let of_kind = |frames: &[Vec<u8>]| -> Vec<_> {
                frames.iter().filter(|f| serial_of(f) % 5 == kind).cloned().collect()
            };
            let mut want = of_kind(&sent);
            want.retain(|f| !serial_of(f).is_multiple_of(4));
            assert!(of_kind(&received) == want, "kind {kind}: in order, and nothing else");
        }
        let ended = |socket: &Path| {
            let line = format!("'{}' connection has been destroyed", text(socket));
            switch.log().matches(&line).count() as u64 == round
        };
        wait_until("the guests' ends", PATIENCE, || sockets.iter().all(|s| ended(s))).unwrap();
        daemon.wait_lanes(0);
    }
    let status = switch.stop().unwrap();
    assert!(status.success(), "{status}\n{}", switch.log());
}

/// What the library said last of the packets that the switch sent to a guest: sent, delivered, freed, held.
fn last_sent(log: &str, socket: &Path) -> [u64; 4] {
    let mark = format!("event=\"guest_queue_stopped\" port=\"{}\" queue=0 ", text(socket));
    let line = log.lines().rev().find(|l| l.contains(&mark));
    let line = line.unwrap_or_else(|| panic!("nothing was said of {mark}:\n{log}"));
    ["sent=", "delivered=", "freed=", "held="].map(|name| {
        let word = line.split_whitespace().find_map(|w| w.strip_prefix(name));
        word.and_then(|w| w.parse().ok()).expect("a number")
    })
}

#[test]
fn a_guest_that_receives_late_or_never_costs_no_buffer() {
    if !usable(OpenVswitch::usable().and(Testpmd::usable())) {
        return;
    }
    // More than a guest's queue and the library's backlog together.
    const PACKETS: u32 = 1500;
    let cloud = Cloud::new("10s", PORTS);
    let daemon = cloud.daemon(drops_every_fourth);
    let host = NetNs::create("host").unwrap();
    let mut switch = ovs(&cloud).start(&host).unwrap();
    let sockets = ["alice", "bob"].map(|name| cloud.file(&format!("{name}.sock")));
    let (input, output) = (cloud.file("in.pcap"), cloud.file("out.pcap"));
    let sent: Vec<_> = (0..PACKETS).map(|n| frame(n, 1, 2, 7, 200)).collect();
    frames::write(&input, &sent);
    for (name, socket) in ["alice", "bob"].iter().zip(&sockets) {
        switch.add_vhost_client(name, socket).unwrap();
    }
    let passed = u64::from(PACKETS) * 3 / 4;
    for receives in [true, false] {
        let mut receiver = guest(&host, &sockets[1], &format!("net_pcap1,tx_pcap={}", text(&output)));
        let mut sender = guest(&host, &sockets[0], &format!("net_pcap1,rx_pcap={}", text(&input)));
        daemon.wait_lanes(4);
        let up =
            |testpmd: &mut Testpmd| testpmd.command("show port info 0").unwrap().contains("Link status: up");
        wait_until("the guests' links", PATIENCE, || up(&mut sender) && up(&mut receiver)).unwrap();
        let before = daemon.p4vm(1).judged();
        // The sender's own queue is shorter, too.
        sender.command("set fwd io retry").unwrap();
        sender.command("set burst tx delay 100 retry 10000").unwrap();
        sender.command("start").unwrap();
        wait_until("all verdicts", PATIENCE, || daemon.p4vm(1).judged() - before == passed).unwrap();
        if receives {
            receiver.command("start").unwrap();
            wait_sent(&mut receiver, 1, passed);
            receiver.command("stop").unwrap();
        }
        sender.command("stop").unwrap();
        for mut guest in [sender, receiver] {
            guest.quit().unwrap();
        }
        daemon.wait_lanes(0);
        let [sent_ones, delivered, freed, held] = last_sent(&switch.log(), &sockets[1]);
        assert_eq!((sent_ones, held), (delivered + freed, 0), "each is delivered or freed");
        if receives {
            let want: Vec<_> = sent.iter().filter(|f| !serial_of(f).is_multiple_of(4)).cloned().collect();
            assert!(frames::read(&output) == want, "in order, and nothing else");
            assert_eq!((sent_ones, freed), (passed, 0));
        } else {
            // The counts are those of both rounds.
            assert_eq!(sent_ones, 2 * passed);
            assert!(delivered < 2 * passed, "{delivered}: the guest's queue is shorter");
        }
    }
    let status = switch.stop().unwrap();
    assert!(status.success(), "{status}\n{}", switch.log());
}

#[test]
fn packets_from_and_to_vhost_user_ports_are_judged() {
    if !usable(OpenVswitch::usable().and(Testpmd::usable())) {
        return;
    }
    // No more than a guest's queue takes at once.
    const PACKETS: u32 = 200;
    let cloud = Cloud::new("10s", "");
    let daemon = cloud.daemon(three_of_four);
    let host = NetNs::create("host").unwrap();
    let mut switch = ovs(&cloud).start(&host).unwrap();
    let sockets = ["alice", "bob"].map(|name| cloud.file(&format!("{name}.sock")));
    let (input, output) = (cloud.file("in.pcap"), cloud.file("out.pcap"));
    // From alice to bob: both are asked, and both drop every fourth, which is the same one.
    let sent: Vec<_> = (0..PACKETS).map(|n| frame(n, 1, 2, (n % 8) as u16, 200)).collect();
    frames::write(&input, &sent);
    for (name, socket) in ["alice", "bob"].iter().zip(&sockets) {
        switch.add_vhost_client(name, socket).unwrap();
    }
    // The second time the ports are there already, and guests come to them again.
    for round in 1..=2 {
        let mut receiver = guest(&host, &sockets[1], &format!("net_pcap1,tx_pcap={}", text(&output)));
        let mut sender = guest(&host, &sockets[0], &format!("net_pcap1,rx_pcap={}", text(&input)));
        daemon.wait_lanes(2);
        assert!(daemon.ports().contains(&text(&sockets[0])), "{:?}", daemon.ports());
        let up =
            |testpmd: &mut Testpmd| testpmd.command("show port info 0").unwrap().contains("Link status: up");
        wait_until("the guests' links", PATIENCE, || up(&mut sender) && up(&mut receiver)).unwrap();
        let judged = daemon.p4vm(0).judged();
        receiver.command("start").unwrap();
        sender.command("start").unwrap();
        wait_sent(&mut receiver, 1, (PACKETS * 3 / 4).into());
        receiver.command("stop").unwrap();
        sender.command("stop").unwrap();
        assert_eq!(daemon.p4vm(0).judged() - judged, u64::from(PACKETS), "every packet of alice's, once");
        for mut guest in [sender, receiver] {
            guest.quit().unwrap();
        }
        let want: Vec<_> = sent.iter().filter(|f| !serial_of(f).is_multiple_of(4)).cloned().collect();
        assert!(frames::read(&output) == want, "in order, and nothing else");
        // Removing a port while Open vSwitch still hears of its guest's end would make it wait for itself.
        let ended = |socket: &Path| {
            let line = format!("'{}' connection has been destroyed", text(socket));
            switch.log().matches(&line).count() == round
        };
        wait_until("the guests' ends", PATIENCE, || sockets.iter().all(|s| ended(s)))
            .unwrap_or_else(|e| panic!("{e}; the switch's end: {:?}\n{}", switch.ended(), switch.log()));
        daemon.wait_lanes(0);
    }
    for name in ["alice", "bob"] {
        switch.remove(name).unwrap();
    }
    let status = switch.stop().unwrap();
    assert!(status.success(), "{status}\n{}", switch.log());
}
