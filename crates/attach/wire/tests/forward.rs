//! Sockets through the wire, in both directions, with the senders' offloads on.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use common::{CLIENT4, CLIENT6, Cloud, VM, VM4, VM6, usable};
use p4shield_attach_wire::{WireConfig, WireSide};
use p4shield_mediator::FailPolicy;
use p4shield_testbed::{NetNs, Switch};

/// Sends `bytes` over TCP from one namespace to another, which echoes them.
fn tcp_echo(from: &NetNs, to: &NetNs, address: &str, bytes: usize) {
    let listener = to.inside(|| TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 0)).unwrap());
    let target = listener.local_addr().unwrap();
    let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
    // Connected before it is accepted, so that a failure ends the test instead of blocking it.
    let limit = Duration::from_secs(30);
    let mut stream = from.inside(|| TcpStream::connect_timeout(&target, limit).unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    for end in [&stream, &peer] {
        end.set_read_timeout(Some(limit)).unwrap();
        end.set_write_timeout(Some(limit)).unwrap();
    }
    std::thread::scope(|s| {
        s.spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                match peer.read(&mut buffer).unwrap() {
                    0 => break,
                    n => peer.write_all(&buffer[..n]).unwrap(),
                }
            }
        });
        let mut reader = stream.try_clone().unwrap();
        let copy = data.clone();
        s.spawn(move || {
            stream.write_all(&copy).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).unwrap();
        assert_eq!(back.len(), data.len());
        assert!(back == data, "TCP delivered other bytes than were sent");
    });
}

/// Sends datagrams of many sizes there and back. UDP drops those with a wrong checksum, so all must
/// arrive.
fn udp_echo(from: &NetNs, to: &NetNs, here: &str, there: &str) {
    let bind = |ns: &NetNs, a: &str| {
        let socket = ns.inside(|| UdpSocket::bind(SocketAddr::new(a.parse().unwrap(), 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    let (a, b) = (bind(from, here), bind(to, there));
    let mut buffer = [0; 2048];
    for len in [0, 1, 2, 3, 17, 18, 63, 64, 65, 511, 1023, 1400, 1452] {
        let data: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        a.send_to(&data, b.local_addr().unwrap()).unwrap();
        let (n, peer) = b.recv_from(&mut buffer).unwrap_or_else(|e| panic!("datagram of {len} bytes: {e}"));
        assert_eq!(&buffer[..n], &data[..]);
        b.send_to(&data, peer).unwrap();
        let (n, _) = a.recv_from(&mut buffer).unwrap_or_else(|e| panic!("answer of {len} bytes: {e}"));
        assert_eq!(&buffer[..n], &data[..]);
    }
}

#[test]
fn tcp_and_udp_pass_both_ways() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    // The sides are attached one after the other: packets that the VM sends in between are dropped.
    let before = cloud.counters();
    for (client, vm) in [(CLIENT4, VM4), (CLIENT6, VM6)] {
        udp_echo(&cloud.client, &cloud.vm, client, vm);
        udp_echo(&cloud.vm, &cloud.client, vm, client);
        tcp_echo(&cloud.client, &cloud.vm, vm, 3_000_000);
        tcp_echo(&cloud.vm, &cloud.client, client, 3_000_000);
    }
    let sides = cloud.counters();
    for side in WireSide::ALL {
        let c = sides[side as usize];
        assert!(c.checksums_completed > 1000, "{side:?}: the senders' offloads are on: {c:?}");
        assert_eq!(c.dropped_no_interface, before[side as usize].dropped_no_interface, "{side:?}");
    }
    let status = cloud.status();
    for side in &status.sides {
        let a = side.attached.unwrap();
        assert!(a.native && a.restores_tags, "{side:?}");
        assert_eq!(a.kernel.xdp.oversize, 0, "merged packets arrived");
    }
    cloud.check_frames();
}

/// Open vSwitch's userspace datapath reads packet sockets, which, like the wire, lose packet metadata.
#[test]
fn any_switch_works() {
    if !usable() {
        return;
    }
    let wire = WireConfig::new("vm0", "sw0", VM);
    let cloud = Cloud::with(common::loop_config(FailPolicy::Pass), wire, Switch::start);
    println!("through {}", cloud.switch.name());
    // Open vSwitch's userspace datapath drops packets longer than a frame; the wire handles the VM's own
    // offloads.
    cloud.client.send_whole_packets("eth0").unwrap();
    cloud.wait_forwarding();
    udp_echo(&cloud.client, &cloud.vm, CLIENT4, VM4);
    tcp_echo(&cloud.client, &cloud.vm, VM4, 300_000);
    tcp_echo(&cloud.vm, &cloud.client, CLIENT6, 300_000);
    cloud.check_frames();
}

#[test]
fn an_idle_loop_sleeps() {
    if !usable() {
        return;
    }
    let cloud = Cloud::new(FailPolicy::Pass);
    cloud.wait_forwarding();
    let rounds = || cloud.wire.snapshot().unwrap().rounds;
    // Awake, it does some hundred thousand rounds meanwhile; a snapshot itself causes a few hundred.
    let sleeps = || {
        let before = rounds();
        std::thread::sleep(Duration::from_millis(200));
        rounds() - before < 2000
    };
    p4shield_testbed::wait_until("the loop to sleep", 10, sleeps).unwrap();
    assert!(cloud.answers(VM4), "it wakes");
}
