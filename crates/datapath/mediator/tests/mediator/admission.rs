//! Admission: which program judges a packet, and what happens to packets that none judges.

use crate::common::*;
use p4shield_abi::Direction;
use p4shield_mediator::{
    AllowedSources, ConfigError, Mediator, Network, PortSpec, Reason, Stages, UnownedPolicy,
};

#[test]
fn both_tenants_judge_a_packet_between_them() {
    let mut m = mediator(&tenants(2));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(released(m.submit(5, &SHARED, packet(1, 2, 11))), None);
    assert_eq!(poll(&mut m, 6), []);
    assert_eq!(b.pass_all(), 0, "the receiver's turn comes later");
    let sent = a.answer(32, &mut |request, header| {
        assert_eq!((request.vm, request.direction, request.input_port), (1, 1, 1));
        assert_eq!((request.packet_len, request.timestamp_ns), (60, 5));
        let mut new = header.to_vec();
        new[22] = 63;
        Action::Rewrite(new, 0)
    });
    assert_eq!(sent, 1);
    assert_eq!(poll(&mut m, 7), [], "it moves on to the receiver");
    let received = b.answer(32, &mut |request, header| {
        assert_eq!((request.vm, request.direction, header[22]), (0, 0, 63));
        Action::Pass
    });
    assert_eq!(received, 1);
    let mut out = Vec::new();
    assert_eq!(m.poll(8, 32, |r| out.push(r)), 1);
    assert_eq!((out[0].disposition, out[0].packet.bytes[22]), (PASS, 63));
    assert_eq!(m.held(), 0);
    assert_eq!(counts(&m, 0, 1, Direction::Egress).rewritten, 1);
    assert_eq!(counts(&m, 1, 0, Direction::Ingress).passed, 1);
}

#[test]
fn one_stage_ports_use_one_program() {
    let mut m = mediator(&tenants(2));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    for (stages, direction) in [(Stages::EgressOnly(vm_ref(0, 1)), 1), (Stages::IngressOnly(vm_ref(0, 1)), 0)]
    {
        // Any addresses: on a wire every packet is the VM's.
        assert_eq!(released(m.submit(0, &port(stages), packet(1, 99, 98))), None);
        poll(&mut m, 0);
        let answered = a.answer(32, &mut |request, _| {
            assert_eq!((request.vm, request.direction), (1, direction));
            Action::Pass
        });
        assert_eq!(answered, 1);
        assert_eq!(poll(&mut m, 0), [(1, PASS)]);
    }
}

#[test]
fn the_port_policy_decides_unowned_packets() {
    let mut m = mediator(&tenants(1));
    let strict = PortSpec { unowned: UnownedPolicy::Drop, ..SHARED };
    for p in [arp(1), packet(1, 98, 99), raw(vec![0; 9])] {
        assert_eq!(released(m.submit(0, &SHARED, p.clone())), Some((1, PASS)));
        assert_eq!(released(m.submit(0, &strict, p)), Some((1, dropped(Reason::Unowned))));
    }
    let unconfigured = port(Stages::EgressOnly(vm_ref(7, 0)));
    assert_eq!(
        released(m.submit(0, &unconfigured, packet(1, 1, 2))),
        Some((1, PASS)),
        "a VM that is not configured"
    );
    let counters = m.counters();
    assert_eq!((counters.unowned.passed.get(), counters.unowned.dropped.get()), (4, 3));
}

/// A packet of these bytes.
fn raw(bytes: Vec<u8>) -> TestPacket {
    TestPacket { serial: 1, bytes, segment: WHOLE }
}

/// The ports of tenant 0's first VM alone: both sides of a wire, and a switch's port.
fn own_ports() -> [PortSpec; 3] {
    let vm = vm_ref(0, 0);
    let bound = PortSpec { source: AllowedSources::Only(vm), ..SHARED };
    [port(Stages::EgressOnly(vm)), port(Stages::IngressOnly(vm)), bound]
}

/// An advertisement of a neighbour to this address, from 2001:db8::1 about itself, with bytes behind it.
fn advertisement(destination: &str, more: usize) -> Vec<u8> {
    let vm = 0x2001_0db8_u128 << 96 | 1;
    let destination: std::net::Ipv6Addr = destination.parse().expect("an address");
    let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    bytes.extend((24 + more as u16).to_be_bytes());
    bytes.extend([58, 255]);
    bytes.extend([vm.to_be_bytes(), destination.octets()].concat());
    bytes.extend([136, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(vm.to_be_bytes());
    bytes.resize(bytes.len() + more, 0);
    bytes
}

#[test]
fn all_but_neighbours_messages_is_judged_at_a_vms_own_port() {
    let mut config = tenants(1);
    config.tenants[0].vms[0].addresses.push("2001:db8::1".parse().expect("an address"));
    let mut m = mediator(&config);
    let lldp = [&[2; 12][..], &[0x88, 0xcc], &[1; 40]].concat();
    let long_arp = TestPacket { bytes: [arp(1).bytes, vec![7; 1400]].concat(), ..arp(1) };
    let reply = raw(advertisement("2001:db8::9", 0));
    let tunnel = raw(advertisement("2001:db8::9", 1400));
    let far = raw(advertisement("2001:db8:1::9", 0));
    let mut multicast = packet(1, 1, 99);
    multicast.bytes[30..34].copy_from_slice(&[224, 0, 0, 251]);
    for port in own_ports() {
        for exempt in [arp(1), reply.clone()] {
            assert_eq!(released(m.submit(0, &port, exempt)), Some((1, PASS)), "{port:?}");
        }
        let judged = [raw(lldp.clone()), long_arp.clone(), tunnel.clone(), far.clone(), multicast.clone()];
        for packet in judged {
            let out = released(m.submit(0, &port, packet.clone()));
            assert_eq!(out, Some((1, dropped(Reason::NoChannel))), "{port:?} {packet:x?}");
        }
    }
    assert_eq!(released(m.submit(0, &SHARED, long_arp)), Some((1, PASS)), "no VM's");
}

#[test]
fn neighbours_messages_from_a_vms_port_announce_the_vm() {
    let mut m = mediator(&tenants(1));
    let [.., bound] = own_ports();
    let spoofed = Some((1, dropped(Reason::Spoofed)));
    for (at, what) in [(31, "another address"), (27, "another link-layer address"), (11, "another frame's")] {
        let mut changed = arp(1);
        changed.bytes[at] ^= 1;
        assert_eq!(released(m.submit(0, &bound, changed)), spoofed, "{what}");
    }
    let victims = raw(advertisement("2001:db8::9", 0));
    assert_eq!(released(m.submit(0, &bound, victims)), spoofed, "no address of this VM");
    let with_payload = raw(advertisement("2001:db8:1::9", 1400));
    assert_eq!(released(m.submit(0, &bound, with_payload)), spoofed);
    let counts = counts(&m, 0, 0, Direction::Egress);
    assert_eq!((counts.packets_in, counts.dropped_for(Reason::Spoofed)), (5, 5));
}

#[test]
fn a_neighbour_cannot_send_as_a_vm_with_a_port_of_its_own() {
    let mut m = mediator(&tenants(2));
    m.bind(&[vm_ref(1, 0), vm_ref(0, 0)]);
    for (source, bound) in [(1, true), (2, false), (11, true), (12, false)] {
        let out = released(m.submit(0, &SHARED, packet(1, source, 99)));
        let reason = if bound { Reason::Spoofed } else { Reason::NoChannel };
        assert_eq!(out, Some((1, dropped(reason))), "10.0.0.{source}");
        let own = PortSpec { source: AllowedSources::Only(vm_ref(1, 0)), ..SHARED };
        let own = released(m.submit(0, &own, packet(1, source, 99)));
        let reason = if source == 11 { Reason::NoChannel } else { Reason::Spoofed };
        assert_eq!(own, Some((1, dropped(reason))), "10.0.0.{source} at that VM's port");
        // What the VM receives comes from anyone.
        let transmit = port(Stages::IngressOnly(vm_ref(0, 1)));
        let out = released(m.submit(0, &transmit, packet(1, source, 2)));
        assert_eq!(out, Some((1, dropped(Reason::NoChannel))), "10.0.0.{source} to another VM");
    }
    assert_eq!(counts(&m, 1, 0, Direction::Egress).packets_in, 4, "none of the neighbour's");
    assert_eq!(m.counters().unowned.spoofed.get(), 2);
}

#[test]
fn ip_that_readers_find_at_different_places_is_dropped() {
    let mut m = mediator(&tenants(1));
    let mut version = packet(1, 1, 99);
    version.bytes[14] = 0x65;
    let mut snap = packet(1, 1, 99);
    snap.bytes.splice(12..12, [0, 54, 0xaa, 0xaa, 3, 0, 0, 0]);
    let uplink = PortSpec { source: AllowedSources::Foreign, ..SHARED };
    let ports = [&own_ports()[..], &[SHARED, uplink]].concat();
    for port in &ports {
        for p in [&version, &snap] {
            let out = released(m.submit(0, port, p.clone()));
            assert_eq!(out, Some((1, dropped(Reason::Unowned))), "{port:?}");
        }
    }
    assert_eq!(m.counters().unowned.dropped.get(), 2 * ports.len() as u64);
}

#[test]
fn a_deferred_ingress_is_not_judged_here() {
    let mut m = mediator(&tenants(2));
    m.defer_ingress(&[vm_ref(1, 0)]);
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 99, 11))), Some((1, PASS)));
    assert_eq!(released(m.submit(0, &SHARED, packet(2, 99, 12))), Some((2, dropped(Reason::NoChannel))));
    let own = port(Stages::IngressOnly(vm_ref(1, 0)));
    assert_eq!(released(m.submit(0, &own, packet(3, 99, 11))), Some((3, dropped(Reason::NoChannel))));
    assert_eq!(released(m.submit(0, &port(Stages::None), packet(4, 11, 12))), Some((4, PASS)));
    // An egress packet does not move on to it either, with its original or a rewritten destination.
    let to = |last| move |b: &mut Vec<u8>| b[33] = last;
    for (deferred, out) in [(&[vm_ref(1, 0)][..], PASS), (&[], dropped(Reason::NoChannel))] {
        let mut a = attach(&mut m, 0, 0, GEOMETRY);
        m.defer_ingress(deferred);
        for original in [packet(5, 1, 11), packet(5, 1, 99)] {
            assert_eq!(released(m.submit(0, &SHARED, original)), None);
            poll(&mut m, 0);
            let answered = a.answer(1, &mut |_, header| {
                let mut new = header.to_vec();
                to(11)(&mut new);
                Action::Rewrite(new, 0)
            });
            assert_eq!(answered, 1);
            assert_eq!(poll(&mut m, 0), [(5, out)]);
        }
    }
}

#[test]
fn false_sources_are_dropped_and_counted() {
    let mut m = mediator(&tenants(2));
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 0)), ..SHARED };
    for source in [2, 11, 99] {
        let out = released(m.submit(0, &bound, packet(1, source, 12)));
        assert_eq!(out, Some((1, dropped(Reason::Spoofed))), "10.0.0.{source}");
    }
    let counts = counts(&m, 0, 0, Direction::Egress);
    assert_eq!((counts.packets_in, counts.dropped_for(Reason::Spoofed), counts.held), (3, 3, 0));
    let uplink = PortSpec { source: AllowedSources::Foreign, ..SHARED };
    assert_eq!(released(m.submit(0, &uplink, packet(1, 1, 11))), Some((1, dropped(Reason::Spoofed))));
    assert_eq!(m.counters().unowned.spoofed.get(), 1);
}

#[test]
fn a_vms_port_sends_only_its_vms_packets() {
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 1)), ..SHARED };
    let mut dhcp = packet(1, 0, 0);
    dhcp.bytes[26..34].copy_from_slice(&[0, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(released(m.submit(0, &bound, dhcp)), None, "judged, not passed as unowned");
    poll(&mut m, 0);
    assert_eq!(
        a.answer(1, &mut |r, _| {
            assert_eq!((r.vm, r.direction), (1, 1));
            Action::Drop
        }),
        1
    );
    assert_eq!(poll(&mut m, 0), [(1, dropped(Reason::Program))]);
}

#[test]
fn a_shared_address_is_looked_up_in_the_packets_network() {
    let mut m = mediator(&overlapping());
    let mut p4vms = [0, 1].map(|t| attach(&mut m, 0, t, GEOMETRY));
    let of_network = |network| PortSpec { network, ..SHARED };
    for (number, answered) in [(5, [1, 0]), (6, [0, 1])] {
        let port = of_network(Network::Number(number));
        assert_eq!(released(m.submit(0, &port, packet(1, 99, 9))), None);
        poll(&mut m, 0);
        assert_eq!(p4vms.each_mut().map(P4vm::pass_all), answered, "network {number}");
        assert_eq!(poll(&mut m, 0), [(1, PASS)]);
    }
    assert_eq!(released(m.submit(0, &of_network(Network::Foreign), packet(1, 99, 9))), Some((1, PASS)));
    for (from, to) in [(99, 9), (9, 99)] {
        let out = released(m.submit(0, &SHARED, packet(1, from, to)));
        assert_eq!(out, Some((1, dropped(Reason::Unowned))), "its VM is ambiguous");
    }
    assert_eq!(p4vms.each_mut().map(P4vm::pass_all), [0, 0]);
    assert_eq!(m.counters().unowned.dropped.get(), 2);
}

#[test]
fn invalid_configurations_are_refused() {
    let mut config = tenants(1);
    config.tenants[0].max_held = 0;
    let refused = Mediator::<TestPacket>::new(&config).err();
    assert_eq!(refused, Some(ConfigError::HoldsNothing("t0".into())));
}
