//! Admission: which program judges a packet, and what happens to packets that none judges.

mod common;
use common::*;
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
        // Any addresses: on a wire every IP packet is the VM's.
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
    for p in [arp(1), packet(1, 98, 99), TestPacket { serial: 1, bytes: vec![0; 9] }] {
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
