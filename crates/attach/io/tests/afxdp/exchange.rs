//! Ports whose interface goes, comes back, or is another one.

use std::time::{Duration, Instant};

use p4shield_io::afxdp::{AfxdpConfig, AfxdpPorts, InterfacePort, Watch};
use p4shield_switch::{BATCH, ExchangePorts, PacketIo, Unsent};
use p4shield_testbed::process::run;
use p4shield_testbed::wait_until;

use crate::common::{Scene, usable};

fn open(ports: &[&str]) -> AfxdpPorts {
    AfxdpPorts::open(&AfxdpConfig::new(ports.to_vec())).unwrap()
}

fn open_port(interface: &str) -> Option<InterfacePort> {
    Some(InterfacePort::open(&AfxdpConfig::new([interface]), interface).unwrap())
}

#[test]
fn a_deleted_interface_costs_its_port_only() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut ports = open(&["p0", "p1"]);
        let begun = Instant::now();
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                run(scene.host.command("ip").args(["link", "del", "p0"])).unwrap();
            });
            while ports.lost(0).is_none() {
                ports.wait(Duration::from_secs(60), None).unwrap();
                while ports.receive(1, BATCH, |_| ()).unwrap() > 0 {}
            }
        });
        assert!(ports.lost(0).unwrap().contains("deleted or moved"));
        assert!(begun.elapsed() < Duration::from_secs(50), "it does not wait for packets");
        assert_eq!(ports.receive(0, BATCH, |_| ()).unwrap(), 0);
        assert!(!ports.send(0, &[0; 60]) && !ports.is_up(0));
        assert!(ports.send(1, &[0xff; 60]) && ports.lost(1).is_none());
        ports.flush().unwrap();
        ports.wait(Duration::from_millis(1), None).unwrap();
    });
}

#[test]
fn a_busy_switch_notices_a_deleted_interface() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut ports = open(&["p0", "p1"]);
        scene.host("link del p1");
        (0..5000).for_each(|_| ports.flush().unwrap());
        assert!(ports.lost(1).is_some() && ports.lost(0).is_none());
    });
}

#[test]
fn an_interface_that_is_back_takes_its_place_again() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut ports = open(&["p0", "p1"]);
        let frames = ports.frames().total();
        for _ in 0..3 {
            scene.host("link del p1");
            wait_until("the loss", 5, || {
                ports.wait(Duration::from_millis(10), None).unwrap();
                ports.lost(1).is_some()
            })
            .unwrap();
            let mut gone = None;
            ports.exchange(1, &mut gone).unwrap();
            assert!(gone.is_some_and(|port| port.name() == "p1"));
            assert!(ports.frames().total() == frames / 2 && ports.lost(1).is_none());
            let veth = format!("link add p1 type veth peer name eth0 netns {}", scene.right.name());
            scene.host(&veth);
            scene.host("link set p1 up");
            scene.right.ip("link set eth0 up").unwrap();
            let mut back = open_port("p1");
            ports.exchange(1, &mut back).unwrap();
            assert!(back.is_none());
            assert!(ports.send(1, &[0xff; 60]));
            ports.flush().unwrap();
            assert_eq!(ports.unsent(1), Unsent::default());
        }
        assert_eq!(ports.frames().total(), frames);
    });
}

#[test]
fn packets_for_a_port_that_is_down_wait_or_are_refused() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut ports = open(&["p0", "p1"]);
        scene.host("link set p0 down");
        assert!(ports.send(0, &[0xff; 60]) && ports.send(0, &[0xff; 100]));
        ports.flush().unwrap();
        assert_eq!(ports.unsent(0), Unsent { packets: 2, bytes: 160 });
        ports.set_up(0, false);
        assert!(!ports.send(0, &[0xff; 60]) && !ports.is_up(0));
        scene.host("link set p0 up");
        ports.set_up(0, true);
        ports.flush().unwrap();
        assert!(ports.unsent(0) == Unsent::default() && ports.send(0, &[0xff; 60]));
    });
}

#[test]
fn places_beyond_the_highest_port_are_refused() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut ports = open(&["p0"]);
        let mut port = open_port("p1");
        assert!(ports.exchange(512, &mut port).is_err() && port.is_some());
        ports.exchange(1, &mut port).unwrap();
        assert!(port.is_none() && ports.ports() == 2 && ports.send(1, &[0xff; 60]));
    });
}

#[test]
fn a_watch_finds_interfaces_with_their_state() {
    if !usable() {
        return;
    }
    let scene = Scene::new();
    scene.host.inside(|| {
        let mut watch = Watch::open().unwrap();
        let mut state = |words: &str| {
            scene.host(words);
            watch.look().unwrap();
            watch.find("p0").map(|i| (i.up, i.carrier))
        };
        assert_eq!(state("link show p0"), Some((true, true)));
        scene.left.ip("link set eth0 down").unwrap();
        assert_eq!(state("link show p0"), Some((true, false)));
        assert_eq!(state("link set p0 down"), Some((false, false)));
        assert_eq!(state("link del p0"), None);
    });
}
