//! Changes of the switch, and what outlives which.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, query};
use macaddr::MacAddr6;
use p4shield_nicswitch::{Changes, NicError, NicSwitch as _, Reason, Software};
use p4shield_testbed::{NetNs, wait_until};
use p4shield_topology::{Port, Role};
use p4shield_xdp::{Interface, InterfaceMonitor, XdpMode, XdpProgram};

use crate::bed::*;
use crate::frames::*;
use crate::raw::Raw;

/// Returns the number of the program that a port's link attaches, if there is a link.
fn linked(bed: &Bed, name: &str) -> Option<u32> {
    let path = bed.folder.join("links").join(name);
    path.exists().then(|| Link::open(path).unwrap().info().unwrap().prog_id)
}

/// Returns the kernel's description of an interface with its programs.
fn programs(bed: &Bed, name: &str) -> String {
    let link = bed.host.ip(&format!("-d -o link show dev {name}")).unwrap();
    let in_driver = link.split("prog/").nth(1).unwrap_or_default();
    let linked = linked(bed, name).map(|id| format!(" nic_ program {id} ")).unwrap_or_default();
    let program = in_driver.to_owned() + &linked;
    let filters = ["ingress", "egress"].map(|way| {
        let words = ["filter", "show", "dev", name, way];
        String::from_utf8(bed.host.command("tc").args(words).output().unwrap().stdout).unwrap()
    });
    [&program, &filters[0], &filters[1]].map(String::as_str).concat()
}

/// Returns the ports without those of tenant b.
fn without_b() -> Vec<Port> {
    ports().into_iter().filter(|port| port.tenant.as_deref() != Some("b")).collect()
}

/// Changes a word of what the switch says of itself: the format of its maps at 0, the version of its programs
/// at 4.
fn change_identity(bed: &Bed, at: usize) {
    let identity = MapHandle::from_pinned_path(bed.folder.join("nic_identity")).unwrap();
    let mut value = identity.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
    value[at] ^= 0x40;
    identity.update(&[0; 4], &value, MapFlags::ANY).unwrap();
}

#[test]
fn a_switch_with_maps_of_another_version_is_made_anew() {
    let Some(bed) = Bed::build() else { return };
    change_identity(&bed, 0);
    assert!(bed.counters().is_empty(), "nothing says what those maps mean");
    let changes = bed.apply(&without_b()).unwrap();
    assert_eq!(changes.added.len(), without_b().len(), "{changes:?}");
    for to in ["a1", "ga", "ia", "wan"] {
        let (from, frame) = allowed_to(to);
        bed.sockets[from].send(&frame);
        wait_until("an arrival", 10, || bed.sockets[to].receive().as_ref() == Some(&frame)).unwrap();
    }
    assert!(!programs(&bed, "b1").contains("nic_"), "it is no port any more");
    change_identity(&bed, 0);
    bed.host.inside(|| bed.nic().delete()).unwrap();
    assert!(!bed.folder.exists() && !programs(&bed, "a1").contains("nic_"));
}

#[test]
fn an_end_that_is_no_port_any_more_is_down_when_it_is_opened() {
    let Some(bed) = Bed::build() else { return };
    let is_up = |name: &str| bed.host.ip(&format!("link show dev {name}")).unwrap().contains(",UP");
    let mut switch = Software::open(hook(), &bed.folder).unwrap().with_ends(["gb".to_owned()].into());
    bed.host.inside(|| switch.apply(&without_b()).unwrap());
    assert!(!programs(&bed, "gb").contains("nic_") && !programs(&bed, "b1").contains("nic_"));
    assert_eq!([is_up("gb"), is_up("b1")], [false, true], "others are the host's own");
}

#[test]
fn programs_of_another_version_are_replaced_in_place() {
    let Some(bed) = Bed::build() else { return };
    let programs = || NAMES.map(|name| linked(&bed, name).unwrap());
    let (before, counters) = (programs(), bed.counters());
    change_identity(&bed, 4);
    let changes = bed.apply(&ports()).unwrap();
    let mut names = NAMES;
    names.sort_unstable();
    assert_eq!(changes, Changes { changed: names.map(str::to_owned).into(), ..Changes::default() });
    assert!(before.iter().zip(programs()).all(|(before, now)| *before != now), "{before:?}");
    assert_eq!(bed.counters(), counters, "the ports stay");
    for to in NAMES {
        let (from, frame) = allowed_to(to);
        assert_eq!(bed.try_frame(from, &frame), delivered(to), "{from} to {to}");
    }
    let renewed = programs();
    assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
    assert_eq!(programs(), renewed);
}

fn interface(bed: &Bed, name: &str) -> Option<Interface> {
    let all = bed.host.inside(|| InterfaceMonitor::open().unwrap().list().unwrap());
    all.into_iter().find(|found| found.name == name)
}

#[test]
fn the_same_ports_again_change_nothing() {
    let Some(bed) = Bed::build() else { return };
    let before = NAMES.map(|name| programs(&bed, name));
    let counters = bed.counters();
    assert_eq!(bed.apply(&ports()).unwrap(), Changes::default());
    let mut reversed = ports();
    reversed.reverse();
    assert!(bed.apply(&reversed).unwrap().is_empty());
    assert_eq!(NAMES.map(|name| programs(&bed, name)), before);
    assert_eq!(bed.counters(), counters);
    assert!(before.iter().all(|text| text.contains("nic_guard")), "{before:?}");
}

#[test]
fn a_change_names_the_ports_that_it_concerns() {
    let Some(bed) = Bed::build() else { return };
    let changes = bed.apply(&without_b()).unwrap();
    assert_eq!((changes.removed, changes.policy), (vec!["b1".into(), "gb".into(), "ib".into()], true));
    assert_eq!((changes.added, changes.changed, changes.absent), (vec![], vec![], vec![]));
    for name in ["b1", "gb", "ib"] {
        let left = programs(&bed, name);
        assert!(!left.contains("nic_") && !left.contains("xdp"), "{left}");
    }
    let changes = bed.apply(&ports()).unwrap();
    assert_eq!((changes.added, changes.changed), (vec!["b1".into(), "gb".into(), "ib".into()], vec![]));
    let mut moved = ports();
    moved[1].role = Role::Vm { vlan: A, mac: A2, addresses: vec![v4(0x77).into()] };
    assert_eq!(bed.apply(&moved).unwrap().changed, ["a2"]);
    let new = ethernet(GA, A2, IPV4, &udp(v4(0x77).into(), v4(1).into()));
    let old = ethernet(GA, A2, IPV4, &udp(v4(0xa2).into(), v4(1).into()));
    assert_eq!(bed.try_frame("a2", &new), delivered("ga"));
    assert_eq!(bed.try_frame("a2", &old), dropped(Reason::SourceIp));
}

#[test]
fn another_tenants_change_loses_no_packet() {
    let Some(bed) = Bed::build() else { return };
    let is_over = AtomicBool::new(false);
    let before = programs(&bed, "a1");
    let (sent, received) = std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            let (mut sent, mut received) = (0, 0);
            while !is_over.load(Ordering::Relaxed) || received == 0 {
                let (from, frame) = allowed_to("ga");
                bed.sockets[from].send(&frame);
                sent += 1;
                wait_until("the frame's arrival", 10, || bed.sockets["ga"].receive() == Some(frame.clone()))
                    .unwrap();
                received += 1;
            }
            (sent, received)
        });
        for _ in 0..p4shield_need::extent(10, 200) {
            assert!(!bed.apply(&without_b()).unwrap().is_empty());
            assert!(!bed.apply(&ports()).unwrap().is_empty());
        }
        is_over.store(true, Ordering::Relaxed);
        stream.join().unwrap()
    });
    assert_eq!(sent, received);
    assert_eq!(programs(&bed, "a1"), before);
    assert_eq!(bed.counters()["a1"].dropped_in_all(), 0);
}

#[test]
fn an_interface_made_again_is_served_anew() {
    let Some(mut bed) = Bed::build() else { return };
    let (from, frame) = allowed_to("a1");
    assert_eq!(bed.try_frame(from, &frame), delivered("a1"));
    bed.host.ip("link del a1").unwrap();
    let before = bed.counters();
    assert!(!before.contains_key("a1"), "it has no interface");
    bed.sockets[from].send(&frame);
    let drops = || bed.counters()[from].dropped(Reason::NoPort) - before[from].dropped(Reason::NoPort);
    wait_until("the drop", 10, || drops() == 1).unwrap();
    let changes = bed.apply(&ports()).unwrap();
    assert_eq!((changes.absent, changes.policy), (vec!["a1".into()], true));
    bed.sockets[from].send(&frame);
    wait_until("another drop", 10, || drops() == 2).unwrap();
    assert!(bed.apply(&ports()).unwrap().is_empty(), "absence is no change");

    bed.make("a1");
    let changes = bed.apply(&ports()).unwrap();
    assert_eq!((changes.added, changes.absent), (vec!["a1".into()], vec![]));
    assert_eq!(bed.try_frame(from, &frame), delivered("a1"));
    assert_eq!(bed.try_frame("a1", &allowed_to("ga").1), delivered("ga"));
}

#[test]
fn an_interface_made_again_between_is_served_anew() {
    let Some(mut bed) = Bed::build() else { return };
    bed.host.ip("link del a1").unwrap();
    bed.make("a1");
    assert_eq!(bed.apply(&ports()).unwrap().added, ["a1"]);
    assert_eq!(bed.try_frame("a1", &allowed_to("ga").1), delivered("ga"));
}

#[test]
fn interfaces_that_swap_their_names_swap_their_policies() {
    let Some(bed) = Bed::build() else { return };
    for name in ["a1", "b1"] {
        bed.host.ip(&format!("link set {name} down")).unwrap();
    }
    for (from, to) in [("a1", "other"), ("b1", "a1"), ("other", "b1")] {
        bed.host.ip(&format!("link set {from} name {to}")).unwrap();
        bed.host.ip(&format!("link set {to} up")).unwrap();
        bed.host.ip(&format!("link set {to} down")).unwrap();
    }
    for name in ["a1", "b1"] {
        bed.host.ip(&format!("link set {name} up")).unwrap();
    }
    assert_eq!(bed.apply(&ports()).unwrap().added, ["a1", "b1"]);
    let (_, frame) = allowed_to("ga");
    bed.sockets["b1"].send(&frame);
    wait_until("arrival", 10, || bed.sockets["ga"].receive() == Some(frame.clone())).unwrap();
}

#[test]
fn another_owners_xdp_program_keeps_its_interface() {
    let Some(bed) = Bed::without_switch() else { return };
    let its = interface(&bed, "b1").unwrap();
    let other = bed.host.inside(|| XdpProgram::attach(&its, XdpMode::Auto, 1792)).unwrap();
    if !is_in_xdp() {
        // The owner's program is before traffic control, and takes the port's frames.
        assert_eq!(bed.apply(&ports()).unwrap().added.len(), NAMES.len());
        let (hidden, seen) = (allowed_to("gb").1, allowed_to("ga").1);
        bed.sockets["b1"].send(&hidden);
        bed.sockets["a1"].send(&seen);
        wait_until("other tenants' arrival", 10, || bed.sockets["ga"].receive().as_ref() == Some(&seen))
            .unwrap();
        assert_eq!(bed.counters()["b1"].received_packets, 0);
        drop(other);
        assert_eq!(bed.try_frame("b1", &allowed_to("gb").1), delivered("gb"));
        return;
    }
    let error = bed.apply(&ports()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("b1") && text.contains("another XDP program"), "{text}");
    assert!(!programs(&bed, "b1").contains("nic_guard"), "the owner's interface stays as it was");
    let (from, frame) = allowed_to("ga");
    bed.sockets[from].send(&frame);
    wait_until("other tenants' arrival", 10, || bed.sockets["ga"].receive() == Some(frame.clone())).unwrap();
    let (from, frame) = allowed_to("b1");
    bed.sockets[from].send(&frame);
    wait_until("the drop", 10, || bed.counters()[from].dropped(Reason::NoPort) == 1).unwrap();
    drop(other);
    assert_eq!(bed.apply(&ports()).unwrap().added, ["b1"]);
    assert_eq!(bed.try_frame(from, &frame), delivered("b1"));
}

#[test]
fn contradictory_ports_change_nothing() {
    let Some(bed) = Bed::build() else { return };
    let mut list = ports();
    list[1].role = list[0].role.clone();
    assert!(matches!(bed.apply(&list), Err(NicError::Ports(_))));
    assert!(bed.apply(&ports()).unwrap().is_empty());
}

#[test]
fn the_hosts_stack_sends_nothing_into_a_port() {
    let Some(bed) = Bed::without_switch() else { return };
    bed.host.ip("addr add 10.9.9.1/24 dev a1").unwrap();
    // The stack asks for the neighbour first, by broadcast.
    let try_to_send = || {
        let ping = ["-c", "1", "-W", "1", "10.9.9.2"];
        bed.host.command("ping").args(ping).output().unwrap();
        std::iter::from_fn(|| bed.sockets["a1"].receive()).filter(|frame| frame[12..14] == [8, 6]).count()
    };
    assert!(try_to_send() > 0, "the twin");
    bed.apply(&ports()).unwrap();
    assert_eq!(bed.try_frame("ga", &allowed_to("a1").1), delivered("a1"));
    assert_eq!(try_to_send(), 0);
}

#[test]
fn the_hosts_stack_answers_no_vm() {
    let Some(bed) = Bed::without_switch() else { return };
    bed.host.ip("addr add 10.9.9.1/24 dev a1").unwrap();
    let asks = || ethernet(MacAddr6::broadcast(), A1, ARP, &arp(1, A1, v4(0xa1), [10, 9, 9, 1].into()));
    let is_answer = |frame: Vec<u8>| frame[12..14] == [8, 6] && frame[21] == 2;
    bed.host.ip("addr add 10.7.0.2/24 dev a1").unwrap();
    bed.sockets["a1"].send(&asks());
    wait_until("the twin's answer", 10, || bed.sockets["a1"].receive().is_some_and(is_answer)).unwrap();
    bed.apply(&ports()).unwrap();
    assert_eq!(bed.try_frame("a1", &asks()), delivered("ga"));
    assert!(!std::iter::from_fn(|| bed.sockets["a1"].receive()).any(is_answer));
}

#[test]
fn deletion_leaves_nothing() {
    let Some(bed) = Bed::build() else { return };
    let program = linked(&bed, "a1").unwrap();
    let is_loaded = |id: u32| query::ProgInfoIter::default().any(|info| info.id == id);
    let names = ["nic_policy", "nic_targets", "nic_counters", "nic_identity"];
    let maps = names.map(|name| {
        let map = MapHandle::from_pinned_path(bed.folder.join(name)).unwrap();
        libbpf_rs::MapInfo::new(map.as_fd()).unwrap().info.id
    });
    assert!(is_loaded(program) && maps.into_iter().all(|id| MapHandle::from_map_id(id).is_ok()));
    bed.host.inside(|| bed.nic().delete().unwrap());
    assert!(!bed.folder.exists());
    for name in NAMES {
        let left = programs(&bed, name);
        assert!(!left.contains("nic_"), "{name}: {left}");
    }
    // The kernel frees them after a grace period.
    let is_free = || !is_loaded(program) && maps.into_iter().all(|id| MapHandle::from_map_id(id).is_err());
    wait_until("the end of programs and maps", 30, is_free).unwrap();
    bed.host.inside(|| bed.nic().delete().unwrap());
    assert!(bed.counters().is_empty());
}

#[test]
fn a_switch_belongs_to_one_network_namespace() {
    let Some(bed) = Bed::build() else { return };
    let other = NetNs::create("other").unwrap();
    let error = other.inside(|| bed.nic().apply(&ports())).unwrap_err().to_string();
    assert!(error.contains("another network namespace"), "{error}");
    assert!(bed.apply(&ports()).unwrap().is_empty());
}

#[test]
fn a_switch_whose_namespace_has_ended_makes_room_for_another() {
    let Some(bed) = Bed::build() else { return };
    let other = NetNs::create("successor").unwrap();
    for port in ports() {
        bed.host.ip(&format!("link del {}", port.interface)).unwrap();
    }
    let changes = other.inside(|| bed.nic().apply(&ports())).unwrap();
    assert_eq!((changes.added.len(), changes.absent.len()), (0, ports().len()), "{changes:?}");
    other.inside(|| bed.nic().delete()).unwrap();
    assert!(!bed.folder.exists());
}

#[test]
fn a_folder_outside_a_bpf_file_system_is_refused() {
    let error = Software::open(hook(), std::env::temp_dir().join("p4shield-nic")).unwrap_err().to_string();
    assert!(error.contains("mount -t bpf"), "{error}");
}

#[test]
fn names_with_dots_are_served() {
    let Some(bed) = Bed::without_switch() else { return };
    let role = Role::Vm { vlan: A, mac: A1, addresses: vec![IpAddr::from(v4(0xa1))] };
    bed.host.ip("link set a1 down").unwrap();
    bed.host.ip("link set a1 name a.1").unwrap();
    let port = Port { interface: "a.1".into(), tenant: None, role, packet_rate: None };
    assert_eq!(bed.apply(std::slice::from_ref(&port)).unwrap().added, ["a.1"]);
    assert!(bed.apply(&[port]).unwrap().is_empty());
    assert!(bed.counters().contains_key("a.1"));
}

#[test]
fn vms_at_taps_are_served() {
    let Some(mut bed) = Bed::without_switch() else { return };
    bed.host.ip("link del a1").unwrap();
    let tap = Raw::tap(&bed.host, "a1");
    bed.sockets.insert("a1", tap);
    bed.apply(&ports()).unwrap();
    for to in ["a1", "ga"] {
        let (from, frame) = allowed_to(to);
        assert_eq!(bed.try_frame(from, &frame), delivered(to), "{from} to {to}");
    }
    let (_, good) = allowed_to("ga");
    assert_eq!(bed.try_frame("a1", &tagged(&good, 0x8100, B)), dropped(Reason::Tag));
    let foreign = ethernet(GA, A1, IPV4, &udp(v4(0xa2).into(), v4(1).into()));
    assert_eq!(bed.try_frame("a1", &foreign), dropped(Reason::SourceIp));
}

#[test]
fn xdp_refuses_an_interface_whose_driver_has_none() {
    let Some(bed) = Bed::without_switch() else { return };
    bed.host.ip("link del a1").unwrap();
    bed.host.ip("link add a1 type bridge").unwrap();
    if !is_in_xdp() {
        assert_eq!(bed.apply(&ports()).unwrap().added.len(), NAMES.len());
        return;
    }
    let error = bed.apply(&ports()).unwrap_err().to_string();
    assert!(error.contains("a1") && error.contains("has no XDP"), "{error}");
    bed.host.ip("link del a1").unwrap();
    assert_eq!(bed.apply(&ports()).unwrap().absent, ["a1"]);
}
