//! Virtual devices of the distribution's DPDK as ports.

use std::path::{Path, PathBuf};
use std::time::Duration;

use p4shield_dpdk_ports::{DpdkConfig, DpdkPorts, Error, FurtherDevices, OpenDevices};
use p4shield_switch::{BATCH, PacketIo, Way};
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};

/// Options of all tests, since EAL starts once in a process.
const OPTIONS: &str = "--no-pci --no-huge --no-shconf --no-telemetry -l 0 -m 256";

/// Returns the library that cargo built for the tests.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libp4shield_ethdev.so")
}

fn config(devices: &[&str]) -> DpdkConfig {
    DpdkConfig {
        devices: devices.iter().map(ToString::to_string).collect(),
        options: Some(OPTIONS.to_owned()),
        library: Some(library()),
    }
}

fn open(devices: &[&str]) -> DpdkPorts {
    DpdkPorts::open(&config(devices)).unwrap_or_else(|e| panic!("{e}: {e:?}"))
}

/// Opens devices for two threads. Returns the ports of this one, and the part of the other.
fn open_for_two(devices: &[&str]) -> (DpdkPorts, FurtherDevices, [Vec<Way>; 2]) {
    let opened = DpdkPorts::open_for(&config(devices), 2).unwrap_or_else(|e| panic!("{e}: {e:?}"));
    let OpenDevices { ports, ways, mut further } = opened;
    let other = further.pop().unwrap();
    assert!(further.is_empty());
    let ways = [ways, other.ways.clone()];
    (ports, other, ways)
}

fn refused(devices: &[&str]) -> Error {
    DpdkPorts::open(&config(devices)).unwrap_err()
}

/// Receives all packets that a port has.
fn drain(ports: &mut DpdkPorts, port: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while ports.receive(port, BATCH, |bytes| packets.push(bytes.to_vec())).unwrap() > 0 {}
    packets
}

/// A packet of so many bytes, which differs from others.
fn packet(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + n * 31) as u8).collect()
}

#[test]
fn a_null_device_gives_and_takes_packets() {
    let mut ports = open(&["net_null0,size=64", "net_null1,size=64"]);
    assert_eq!(ports.ports(), 2);
    for _ in 0..1000 {
        let mut lengths = Vec::new();
        assert_eq!(ports.receive(0, BATCH, |bytes| lengths.push(bytes.len())).unwrap(), BATCH);
        assert_eq!(lengths, [64; BATCH]);
        assert!((0..BATCH).all(|n| ports.send(1, &packet(n, 64))));
        ports.flush().unwrap();
    }
    assert_eq!(ports.receive(0, 5, |_| {}).unwrap(), 5, "no more than asked for");
}

#[test]
fn a_ring_gives_back_what_it_took() {
    let mut ports = open(&["net_ring0"]);
    let sent: Vec<_> = (0..200).map(|n| packet(n, 14 + n * 7)).collect();
    assert!(sent.iter().all(|bytes| ports.send(0, bytes)));
    ports.flush().unwrap();
    assert_eq!(drain(&mut ports, 0), sent);
    for wrong in [0, 13, 1523, 60_000] {
        assert!(!ports.send(0, &packet(0, wrong)), "{wrong} bytes");
    }
}

#[test]
fn every_packet_that_a_full_device_accepts_arrives() {
    let mut ports = open(&["net_ring1"]);
    let accepted: Vec<_> = (0..3000).map(|n| packet(n, 60)).filter(|bytes| ports.send(0, bytes)).collect();
    assert!((1000..3000).contains(&accepted.len()), "{}", accepted.len());
    let mut received = Vec::new();
    for _ in 0..3 {
        ports.flush().unwrap();
        received.extend(drain(&mut ports, 0));
    }
    assert_eq!(received, accepted);
    assert!(ports.send(0, &packet(0, 60)), "there is room again");
}

#[test]
fn a_packet_of_several_segments_is_received_whole() {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    let packets = [packet(1, 60), packet(2, 5000), packet(3, 9000), packet(4, 1514)];
    write(&input, &packets);
    let device = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let mut ports = open(&[&device]);
    assert_eq!(drain(&mut ports, 0), packets);
    assert!(ports.send(0, &packets[3]) && ports.send(0, &packets[0]));
    ports.flush().unwrap();
    drop(ports);
    let file = std::fs::File::open(output).unwrap();
    let mut sent = PcapReader::new(file).unwrap();
    let sent: Vec<_> = std::iter::from_fn(|| Some(sent.next_packet()?.unwrap().data.into_owned())).collect();
    assert_eq!(sent, [packets[3].clone(), packets[0].clone()]);
}

fn write(path: &Path, packets: &[Vec<u8>]) {
    let mut writer = PcapWriter::new(std::fs::File::create(path).unwrap()).unwrap();
    for bytes in packets {
        let one = PcapPacket::new(Duration::ZERO, bytes.len() as u32, bytes);
        writer.write_packet(&one).unwrap();
    }
}

#[test]
fn a_closed_device_can_be_opened_again() {
    for _ in 0..20 {
        let mut ports = open(&["net_null2,size=100"]);
        assert_eq!(ports.receive(0, BATCH, |bytes| assert_eq!(bytes.len(), 100)).unwrap(), BATCH);
        assert!(ports.send(0, &packet(0, 100)));
    }
}

#[test]
fn threads_open_devices_of_their_own() {
    let names = ["net_null3,size=64", "net_null4,size=64"];
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || {
                let mut ports = open(&[name]);
                for _ in 0..1000 {
                    let count = ports.receive(0, BATCH, |_| {}).unwrap();
                    assert!((0..count).all(|n| ports.send(0, &packet(n, 64))));
                    ports.flush().unwrap();
                }
            });
        }
    });
}

/// The way of a thread that sends by a queue of its own, and leaves the port's rate to another one.
const BESIDE: Way = Way { thread: None, has_queue: false };

/// The way of a thread that hands packets to another one.
const fn by(thread: u8) -> Way {
    Way { thread: Some(thread), has_queue: false }
}

#[test]
fn two_threads_receive_and_send_by_queues_of_their_own() {
    // What is sent by a ring's queue is received by the queue of the same number.
    let (mut one, other, ways) = open_for_two(&["net_ring3", "net_null7,size=64", "net_ring4"]);
    assert_eq!(ways, [[Way::OWN, BESIDE, Way::OWN], [BESIDE, Way::OWN, BESIDE]]);
    let work = |ports: &mut DpdkPorts, thread: usize| {
        for round in 0..500 {
            let sent: Vec<_> = (0..BATCH).map(|n| packet(thread * 131 + round + n, 60 + n)).collect();
            for ring in [0, 2] {
                assert!(sent.iter().all(|bytes| ports.send(ring, bytes)));
            }
            ports.flush().unwrap();
            for ring in [0, 2] {
                assert_eq!(drain(ports, ring), sent, "thread {thread}");
            }
            assert_eq!(ports.receive(1, BATCH, |bytes| assert_eq!(bytes.len(), 64)).unwrap(), BATCH);
            assert!(sent.iter().all(|bytes| ports.send(1, bytes)));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(&mut other.into_ports().unwrap().unwrap(), 1));
        work(&mut one, 0);
    });
    work(&mut one, 0);
}

#[test]
fn a_device_with_one_queue_is_served_by_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["in", "out"].map(|name| folder.path().join(name));
    let packets = [packet(1, 60), packet(2, 90)];
    write(&input, &packets);
    let pcap = |n: u32| format!("net_pcap{n},rx_pcap={},tx_pcap={}", input.display(), output.display());
    // Alone, it is the first thread's, and the other has no work with it.
    let (mut one, other, ways) = open_for_two(&[&pcap(1)]);
    assert_eq!(ways, [[Way::OWN], [by(0)]]);
    assert!(other.into_ports().unwrap().is_none());
    assert_eq!(drain(&mut one, 0), packets);
    drop(one);
    // The second device's queue is the second thread's.
    let (mut one, other, ways) = open_for_two(&["net_null8,size=64", &pcap(2)]);
    assert_eq!(ways, [[Way::OWN, by(1)], [BESIDE, Way::OWN]]);
    let elsewhere = std::thread::spawn(move || {
        let mut other = other.into_ports().unwrap().unwrap();
        assert!(other.send(1, &packet(3, 70)));
        other.flush().unwrap();
        drain(&mut other, 1)
    });
    assert_eq!(one.receive(1, BATCH, |_| {}).unwrap(), 0);
    assert!(!one.send(1, &packet(3, 70)), "it has no queue to send by");
    assert_eq!(elsewhere.join().unwrap(), packets);
}

#[test]
fn a_thread_that_only_receives_hands_packets_over() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, output] = ["first", "second", "out"].map(|name| folder.path().join(name));
    write(&first, &[packet(1, 60)]);
    write(&second, &[packet(2, 90)]);
    let input = format!("rx_pcap={},rx_pcap={}", first.display(), second.display());
    let (mut one, other, ways) = open_for_two(&[&format!("net_pcap3,{input},tx_pcap={}", output.display())]);
    assert_eq!(ways, [[Way::OWN], [by(0)]]);
    assert_eq!(drain(&mut one, 0), [packet(1, 60)]);
    let mut other = other.into_ports().unwrap().unwrap();
    assert_eq!(drain(&mut other, 0), [packet(2, 90)]);
    assert!(!other.send(0, &packet(2, 90)) && one.send(0, &packet(2, 90)));
}

#[test]
fn a_thread_that_only_sends_sleeps_until_it_is_woken() {
    let folder = tempfile::tempdir().unwrap();
    let [input, first, second] = ["in", "first", "second"].map(|name| folder.path().join(name));
    write(&input, &[packet(1, 60)]);
    let output = format!("tx_pcap={},tx_pcap={}", first.display(), second.display());
    let (_one, other, ways) = open_for_two(&[&format!("net_pcap4,rx_pcap={},{output}", input.display())]);
    assert_eq!(ways, [[Way::OWN], [BESIDE]]);
    let mut other = other.into_ports().unwrap().unwrap();
    assert_eq!(other.receive(0, BATCH, |_| {}).unwrap(), 0);
    assert!(other.send(0, &packet(2, 90)));
    other.flush().unwrap();
    assert_eq!(other.pause(), Duration::MAX, "no device has a packet for it");
}

#[test]
fn devices_close_after_the_last_thread() {
    // More rounds than there is memory for, if the buffers of a round were not freed.
    for round in 0..90 {
        let (mut one, other, _) = open_for_two(&["net_null10,size=100", "net_null11"]);
        let works = |ports: &mut DpdkPorts| {
            assert_eq!(ports.receive(0, BATCH, |bytes| assert_eq!(bytes.len(), 100)).unwrap(), BATCH);
            assert!(ports.send(0, &packet(0, 100)) && ports.send(1, &packet(1, 100)));
            ports.flush().unwrap();
            assert!(ports.send(1, &packet(2, 100)), "it stays behind");
        };
        works(&mut one);
        let enter = move || works(&mut other.into_ports().unwrap().unwrap());
        match round % 3 {
            0 => drop(enter),
            1 => std::thread::spawn(enter).join().unwrap(),
            _ => {
                drop(one);
                std::thread::spawn(enter).join().unwrap();
                continue;
            }
        }
        works(&mut one);
    }
}

#[test]
fn an_idle_port_lets_its_thread_sleep_for_a_moment() {
    let mut ports = open(&["net_ring2"]);
    let start = std::time::Instant::now();
    for _ in 0..2000 {
        assert_eq!(ports.receive(0, BATCH, |_| {}).unwrap(), 0);
        ports.wait(Duration::from_secs(60), None).unwrap();
    }
    let elapsed = start.elapsed();
    assert!(elapsed > Duration::from_millis(40), "{elapsed:?}: it never sleeps");
    assert!(elapsed < Duration::from_secs(20), "{elapsed:?}: it sleeps for too long");
}

#[test]
fn wrong_devices_and_options_are_refused() {
    for name in
        ["net_nil0", "net_null9,nonsense=1", "eth0", "0000:99:00.0", "", ",", "a\0b", &"x".repeat(300)]
    {
        let error = refused(&[name]);
        assert!(matches!(error, Error::Unknown { .. }), "{name}: {error:?}");
    }
    let twice = refused(&["net_null5", "net_null5"]);
    assert!(matches!(&twice, Error::Twice { device } if device == "net_null5"), "{twice:?}");
    let other = DpdkConfig { options: Some("-m 64".into()), ..config(&["net_null6"]) };
    assert!(matches!(DpdkPorts::open(&other), Err(Error::Running { .. })));
    // Blanks make no difference.
    let same = DpdkConfig { options: Some(format!("  {OPTIONS} ")), ..config(&["net_null6"]) };
    assert_eq!(DpdkPorts::open(&same).unwrap().ports(), 1);
}
