//! Threads that share the queues of the ports.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts};
use p4shield_switch::{BATCH, PacketIo, Way};
use p4shield_testbed::wait_until;

use crate::common::{RIGHT, Scene, usable};

/// Senders, each with a flow of its own.
const FLOWS: u16 = 40;

/// Sends what arrives at one port by the other, with a thread's own queues.
fn forward(ports: &mut AfxdpPorts, received: &AtomicU64) {
    for port in 0..2 {
        let mut batch: Vec<Vec<u8>> = Vec::new();
        ports.receive(port, BATCH, |packet| batch.push(packet.to_vec())).unwrap();
        let udp = batch.iter().filter(|packet| packet.get(23) == Some(&17)).count();
        received.fetch_add(udp as u64, Ordering::Relaxed);
        for packet in &batch {
            ports.send(1 - port, packet);
        }
    }
    ports.flush().unwrap();
    ports.wait(Duration::from_millis(1), None).unwrap();
}

#[test]
fn two_threads_receive_and_send_by_queues_of_their_own() {
    if !usable() {
        return;
    }
    let scene = Scene::with_queues(2);
    let open = || AfxdpPorts::open_for(&AfxdpConfig::new(["p0", "p1"]), 2).unwrap();
    let parts = scene.host.inside(open);
    let ways: Vec<_> = parts.iter().map(|(_, ways)| ways.clone()).collect();
    let second = Way { thread: None, has_queue: false };
    assert_eq!(ways, [[Way::OWN, second], [second, Way::OWN]], "the first queues are with both threads");
    let (stop, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|threads| {
        for ((mut ports, _), received) in parts.into_iter().zip(&counts) {
            let stop = &stop;
            threads.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    forward(&mut ports, received);
                }
            });
        }
        let done = std::panic::catch_unwind(|| {
            scene.wait_forwarding();
            let right = scene.right.inside(|| UdpSocket::bind((RIGHT, 7000)).unwrap());
            right.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let socket = |_| scene.left.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
            let flows: Vec<_> = (0..FLOWS).map(socket).collect();
            for flow in &flows {
                flow.send_to(&[1], (RIGHT, 7000)).unwrap();
            }
            for _ in 0..FLOWS {
                right.recv_from(&mut [0; 8]).unwrap();
            }
            let all = || counts.iter().map(|n| n.load(Ordering::Relaxed)).sum::<u64>() >= FLOWS.into();
            wait_until("the counts", 5, all).unwrap();
        });
        stop.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    assert!(counts.iter().all(|n| n.load(Ordering::Relaxed) > 0), "{counts:?}");
    assert!(!scene.host("-d link show p0").contains("xdp"), "nothing stays behind");
}

#[test]
fn a_queue_of_one_is_with_one_thread_and_ports_take_turns() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    let open = || AfxdpPorts::open_for(&AfxdpConfig::new(["p0", "p1"]), 3).unwrap();
    let parts = scene.host.inside(open);
    let has = |place| parts.iter().map(|(ports, _)| ports.index(place).is_some()).collect::<Vec<_>>();
    assert_eq!((has(0), has(1)), (vec![true, false, false], vec![false, true, false]));
    let thread = |place: usize| parts.iter().map(|(_, ways)| ways[place].thread).collect::<Vec<_>>();
    assert_eq!((thread(0), thread(1)), (vec![None, Some(0), Some(0)], vec![Some(1), None, Some(1)]));
    drop(parts);
    assert!(!scene.host("-d link show p0").contains("xdp"), "nothing stays behind");
}
