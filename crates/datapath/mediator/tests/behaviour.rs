//! What the mediator does with packets, case by case, by an injected clock.

mod common;
use common::*;
use p4shield_abi::Direction;
use p4shield_abi::channel::VERDICT_HEAD;
use p4shield_channel::{Memory, Sleeper};
use p4shield_mediator::{
    AllowedSources, Config, ConfigError, DirectionCounts, Disposition, FailPolicy, Network, P4VmFault,
    PortSpec, Reason, Stages, UnownedPolicy,
};
use std::sync::atomic::Ordering;

const PASS: Disposition = Disposition::Pass;
const fn dropped(reason: Reason) -> Disposition {
    Disposition::Drop(reason)
}

fn tally(m: &p4shield_mediator::Mediator<TestPacket>, t: usize, vm: usize, d: Direction) -> DirectionCounts {
    m.counters().tenants[t].vms[vm].direction(d).read()
}

#[test]
fn both_tenants_judge_a_packet_between_them() {
    let mut m = mediator(&tenants(2));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(of(m.submit(5, &SHARED, packet(1, 2, 11))), None);
    assert_eq!(poll(&mut m, 6), []);
    assert_eq!(b.pass_all(), 0, "the receiver is not asked yet");
    let sent = a.judge(32, &mut |request, header| {
        assert_eq!((request.vm, request.direction, request.input_port), (1, 1, 1));
        assert_eq!((request.packet_len, request.timestamp_ns), (60, 5));
        let mut new = header.to_vec();
        new[22] = 63;
        Does::HeaderRewrite(new, 0)
    });
    assert_eq!(sent, 1);
    assert_eq!(poll(&mut m, 7), [], "it goes on to the receiver");
    let received = b.judge(32, &mut |request, header| {
        assert_eq!((request.vm, request.direction, header[22]), (0, 0, 63));
        Does::Pass
    });
    assert_eq!(received, 1);
    let mut out = Vec::new();
    assert_eq!(m.poll(8, 32, |r| out.push(r)), 1);
    assert_eq!((out[0].disposition, out[0].packet.bytes[22]), (PASS, 63));
    assert_eq!(m.held(), 0);
    assert_eq!(tally(&m, 0, 1, Direction::Egress).rewritten, 1);
    assert_eq!(tally(&m, 1, 0, Direction::Ingress).passed, 1);
}

#[test]
fn one_stage_ports_use_one_program() {
    let mut m = mediator(&tenants(2));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    for (stages, direction) in [(Stages::EgressOnly(vm_ref(0, 1)), 1), (Stages::IngressOnly(vm_ref(0, 1)), 0)]
    {
        // Addresses of anybody: on a wire all that is IP is the VM's.
        assert_eq!(of(m.submit(0, &port(stages), packet(1, 99, 98))), None);
        poll(&mut m, 0);
        let asked = a.judge(32, &mut |request, _| {
            assert_eq!((request.vm, request.direction), (1, direction));
            Does::Pass
        });
        assert_eq!(asked, 1);
        assert_eq!(poll(&mut m, 0), [(1, PASS)]);
    }
}

#[test]
fn the_port_policy_decides_unowned_packets() {
    let mut m = mediator(&tenants(1));
    let strict = PortSpec { unowned: UnownedPolicy::Drop, ..SHARED };
    for p in [arp(1), packet(1, 98, 99), TestPacket { serial: 1, bytes: vec![0; 9] }] {
        assert_eq!(of(m.submit(0, &SHARED, p.clone())), Some((1, PASS)));
        assert_eq!(of(m.submit(0, &strict, p)), Some((1, dropped(Reason::Unowned))));
    }
    let nowhere = port(Stages::EgressOnly(vm_ref(7, 0)));
    assert_eq!(of(m.submit(0, &nowhere, packet(1, 1, 2))), Some((1, PASS)), "a VM that is not configured");
    let counters = m.counters();
    assert_eq!((counters.unowned.passed.get(), counters.unowned.dropped.get()), (4, 3));
}

#[test]
fn a_deferred_ingress_is_not_judged_here() {
    let mut m = mediator(&tenants(2));
    m.defer_ingress(&[vm_ref(1, 0)]);
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 99, 11))), Some((1, PASS)));
    assert_eq!(of(m.submit(0, &SHARED, packet(2, 99, 12))), Some((2, dropped(Reason::NoChannel))));
    let own = port(Stages::IngressOnly(vm_ref(1, 0)));
    assert_eq!(of(m.submit(0, &own, packet(3, 99, 11))), Some((3, dropped(Reason::NoChannel))));
    assert_eq!(of(m.submit(0, &port(Stages::None), packet(4, 11, 12))), Some((4, PASS)));
    // Nor does an egress lead on to it, whether the packet was for it or a program has made it so.
    let to = |last| move |b: &mut Vec<u8>| b[33] = last;
    for (elsewhere, out) in [(&[vm_ref(1, 0)][..], PASS), (&[], dropped(Reason::NoChannel))] {
        let mut a = attach(&mut m, 0, 0, GEOMETRY);
        m.defer_ingress(elsewhere);
        for original in [packet(5, 1, 11), packet(5, 1, 99)] {
            assert_eq!(of(m.submit(0, &SHARED, original)), None);
            poll(&mut m, 0);
            let judged = a.judge(1, &mut |_, header| {
                let mut new = header.to_vec();
                to(11)(&mut new);
                Does::HeaderRewrite(new, 0)
            });
            assert_eq!(judged, 1);
            assert_eq!(poll(&mut m, 0), [(5, out)]);
        }
    }
}

#[test]
fn false_sources_are_dropped_and_counted() {
    let mut m = mediator(&tenants(2));
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 0)), ..SHARED };
    for source in [2, 11, 99] {
        let out = of(m.submit(0, &bound, packet(1, source, 12)));
        assert_eq!(out, Some((1, dropped(Reason::Spoofed))), "10.0.0.{source}");
    }
    let counts = tally(&m, 0, 0, Direction::Egress);
    assert_eq!((counts.packets_in, counts.dropped_for(Reason::Spoofed), counts.held), (3, 3, 0));
    let uplink = PortSpec { source: AllowedSources::Foreign, ..SHARED };
    assert_eq!(of(m.submit(0, &uplink, packet(1, 1, 11))), Some((1, dropped(Reason::Spoofed))));
    assert_eq!(m.counters().unowned.spoofed.get(), 1);
}

#[test]
fn a_vms_port_sends_only_its_vms_packets() {
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 1)), ..SHARED };
    let mut dhcp = packet(1, 0, 0);
    dhcp.bytes[26..34].copy_from_slice(&[0, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(of(m.submit(0, &bound, dhcp)), None, "judged, not waved through");
    poll(&mut m, 0);
    assert_eq!(
        a.judge(1, &mut |r, _| {
            assert_eq!((r.vm, r.direction), (1, 1));
            Does::Drop
        }),
        1
    );
    assert_eq!(poll(&mut m, 0), [(1, dropped(Reason::Program))]);
}

/// One packet of tenant 0 is rewritten at `direction`; what comes of it.
fn rewritten(
    port: &PortSpec,
    original: TestPacket,
    change: impl Fn(&mut Vec<u8>),
    longer: i32,
) -> Disposition {
    let mut m = mediator(&tenants(2));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(of(m.submit(0, port, original)), None);
    poll(&mut m, 0);
    let judged = a.judge(1, &mut |_, header| {
        let mut new = header.to_vec();
        change(&mut new);
        Does::HeaderRewrite(new, longer)
    });
    assert_eq!(judged, 1);
    let out = poll(&mut m, 0);
    assert_eq!((out.len(), m.held()), (1, 0));
    out[0].1
}

#[test]
fn an_egress_program_cannot_take_another_tenants_address() {
    let from = |last| move |b: &mut Vec<u8>| b[29] = last;
    assert_eq!(rewritten(&SHARED, packet(1, 1, 99), from(2), 0), PASS, "its own other VM's");
    assert_eq!(rewritten(&SHARED, packet(1, 1, 99), from(98), 0), PASS, "an address of nobody here");
    assert_eq!(rewritten(&SHARED, packet(1, 1, 99), from(11), 0), dropped(Reason::Spoofed));
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 0)), ..SHARED };
    assert_eq!(rewritten(&bound, packet(1, 1, 99), from(98), 0), dropped(Reason::Spoofed));
}

#[test]
fn an_ingress_program_cannot_send_its_packet_to_another_tenant() {
    let to = |last| move |b: &mut Vec<u8>| b[33] = last;
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), to(2), 0), PASS, "its own other VM");
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), to(11), 0), dropped(Reason::Strayed));
    assert_eq!(
        rewritten(&SHARED, packet(1, 99, 1), to(98), 0),
        dropped(Reason::Strayed),
        "nor anywhere else"
    );
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), |b| b[5] = 11, 0), dropped(Reason::Strayed), "by MAC");
    let tag = |b: &mut Vec<u8>| drop(b.splice(12..12, [0x81, 0, 0, 9]));
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), tag, 4), dropped(Reason::Strayed), "by VLAN");
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), |b| b[13] = 6, 0), dropped(Reason::Strayed), "as ARP");
    let wire = port(Stages::IngressOnly(vm_ref(0, 0)));
    assert_eq!(rewritten(&wire, packet(1, 99, 1), to(98), 0), PASS, "on a wire it reaches its VM only");
}

#[test]
fn an_egress_rewrite_chooses_the_receiver() {
    let mut m = mediator(&tenants(2));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 99))), None);
    poll(&mut m, 0);
    a.judge(1, &mut |_, header| {
        let mut new = header.to_vec();
        new[33] = 12;
        Does::HeaderRewrite(new, 0)
    });
    assert_eq!(poll(&mut m, 0), []);
    assert_eq!(
        b.judge(1, &mut |r, _| {
            assert_eq!(r.vm, 1);
            Does::Drop
        }),
        1,
        "the new receiver is asked"
    );
    assert_eq!(poll(&mut m, 0), [(1, dropped(Reason::Program))]);
}

/// Tenants 0 and 1, the second VMs of which have the same address, .9, in networks 5 and 6.
fn overlapping() -> Config {
    let mut config = tenants(2);
    for (tenant, network) in [(0, 5), (1, 6)] {
        let vm = &mut config.tenants[tenant].vms[1];
        (vm.addresses, vm.network) = (vec![ip(9)], Some(network));
    }
    config
}

#[test]
fn a_shared_address_is_looked_up_in_the_packets_network() {
    let mut m = mediator(&overlapping());
    let mut p4vms = [0, 1].map(|t| attach(&mut m, 0, t, GEOMETRY));
    let of_network = |network| PortSpec { network, ..SHARED };
    for (number, asked) in [(5, [1, 0]), (6, [0, 1])] {
        let port = of_network(Network::Number(number));
        assert_eq!(of(m.submit(0, &port, packet(1, 99, 9))), None);
        poll(&mut m, 0);
        assert_eq!(p4vms.each_mut().map(P4vm::pass_all), asked, "network {number}");
        assert_eq!(poll(&mut m, 0), [(1, PASS)]);
    }
    assert_eq!(of(m.submit(0, &of_network(Network::Foreign), packet(1, 99, 9))), Some((1, PASS)));
    for (from, to) in [(99, 9), (9, 99)] {
        let released = of(m.submit(0, &SHARED, packet(1, from, to)));
        assert_eq!(released, Some((1, dropped(Reason::Unowned))), "whose it is cannot be told");
    }
    assert_eq!(p4vms.each_mut().map(P4vm::pass_all), [0, 0]);
    assert_eq!(m.counters().unowned.dropped.get(), 2);
}

#[test]
fn a_rewrite_to_a_shared_address_is_dropped() {
    for at in [29, 33] {
        let mut m = mediator(&overlapping());
        let mut a = attach(&mut m, 0, 0, GEOMETRY);
        assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 99))), None);
        poll(&mut m, 0);
        a.judge(1, &mut |_, header| {
            let mut new = header.to_vec();
            new[at] = 9;
            Does::HeaderRewrite(new, 0)
        });
        assert_eq!(poll(&mut m, 0), [(1, dropped(Reason::Strayed))], "byte {at}");
    }
}

#[test]
fn invalid_rewrites_are_dropped() {
    let wire = port(Stages::EgressOnly(vm_ref(0, 0)));
    assert_eq!(rewritten(&wire, packet(1, 1, 9), |b| b.truncate(13), -47), dropped(Reason::Rewrite));
    assert_eq!(rewritten(&wire, packet(1, 1, 9), |b| b.truncate(14), -46), PASS);
    let mut long = packet(1, 1, 9);
    long.bytes.resize(ROOM, 0);
    let grow = |b: &mut Vec<u8>| b.insert(0, 0);
    assert_eq!(rewritten(&wire, long.clone(), grow, 1), dropped(Reason::Rewrite), "no room");
    assert_eq!(rewritten(&wire, long, grow, 0), PASS, "cut at its end it fits");
}

#[test]
fn the_policy_applies_at_the_deadline() {
    for (fail, disposition) in [(FailPolicy::Drop, dropped(Reason::Deadline)), (FailPolicy::Pass, PASS)] {
        let mut config = tenants(1);
        config.tenants[0].fail = fail;
        let mut m = mediator(&config);
        let mut a = attach(&mut m, 0, 0, GEOMETRY);
        assert_eq!(of(m.submit(100, &SHARED, packet(1, 1, 9))), None);
        assert_eq!(poll(&mut m, 100 + DEADLINE - 1), []);
        assert_eq!(m.next_deadline(100), Some(100 + DEADLINE));
        assert_eq!(poll(&mut m, 100 + DEADLINE), [(1, disposition)]);
        assert_eq!(a.judge(32, &mut |_, _| Does::HeaderRewrite(vec![7; 60], 0)), 1);
        assert_eq!(of(m.submit(100 + DEADLINE, &SHARED, packet(2, 1, 9))), None);
        assert_eq!(poll(&mut m, 101 + DEADLINE), []);
        assert_eq!((m.counters().tenants[0].late.get(), m.held()), (1, 1));
        a.pass_all();
        assert_eq!(poll(&mut m, 102 + DEADLINE), [(2, PASS)], "the channel goes on");
        let counts = tally(&m, 0, 0, Direction::Egress);
        assert_eq!((counts.packets_in, counts.left(), counts.held), (2, 2, 0));
    }
}

#[test]
fn a_late_verdict_does_not_change_the_policy() {
    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(m.poll(DEADLINE, 0, |_| panic!("there is no room")), 0);
    assert_eq!(a.judge(1, &mut |_, _| Does::Drop), 1);
    assert_eq!(poll(&mut m, DEADLINE), [(1, PASS)]);
    assert_eq!(m.counters().tenants[0].late.get(), 1);
    assert_eq!(tally(&m, 0, 0, Direction::Egress).let_through_for(Reason::Deadline), 1);
}

#[test]
fn a_timely_answer_counts_despite_a_late_poll() {
    let geometry = p4shield_abi::channel::Geometry { slots: 256, ..GEOMETRY };
    let mut config = tenants(1);
    config.tenants[0].max_held = 256;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, geometry);
    for serial in 0..200 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    m.flush(0);
    while a.pass_all() != 0 {}
    let mut out = Vec::new();
    for _ in 0..5 {
        out.extend(poll(&mut m, 10 * DEADLINE));
    }
    assert_eq!(out, (0..200).map(|serial| (serial, PASS)).collect::<Vec<_>>());
}

#[test]
fn a_long_burst_is_published_in_batches() {
    let mut config = tenants(1);
    config.tenants[0].max_held = 100;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, p4shield_abi::channel::Geometry { slots: 128, ..GEOMETRY });
    for serial in 0..70 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    assert_eq!((a.pass_all(), a.pass_all(), a.pass_all()), (32, 32, 0), "the rest waits for the burst's end");
    m.flush(0);
    assert_eq!(a.pass_all(), 6);
}

#[test]
fn the_policy_decides_when_the_channel_is_full() {
    let geometry = p4shield_abi::channel::Geometry { slots: 2, ..GEOMETRY };
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, geometry);
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(of(m.submit(0, &SHARED, packet(2, 1, 9))), None);
    assert_eq!(of(m.submit(0, &SHARED, packet(3, 1, 9))), Some((3, dropped(Reason::Full))));
    poll(&mut m, 0);
    a.pass_all();
    assert_eq!(poll(&mut m, 0), [(1, PASS), (2, PASS)]);

    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, geometry);
    for serial in 1..=3 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None, "3 waits behind 1 and 2");
    }
    assert_eq!(poll(&mut m, 0), []);
    a.pass_all();
    assert_eq!(poll(&mut m, 0), [(1, PASS), (2, PASS), (3, PASS)]);
    assert_eq!(tally(&m, 0, 0, Direction::Egress).let_through_for(Reason::Full), 1);
}

#[test]
fn a_tenant_holds_no_more_than_max_held() {
    let mut m = mediator(&tenants(1));
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    for serial in 0..8 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    assert_eq!(of(m.submit(0, &SHARED, packet(8, 1, 9))), Some((8, dropped(Reason::Full))));
    assert_eq!(m.held(), 8);

    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    for serial in 0..8 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    for serial in 8..30 {
        let oldest = of(m.submit(0, &SHARED, packet(serial, 1, 9)));
        assert_eq!(oldest, Some((serial - 8, PASS)), "the oldest goes, so order is kept");
        assert_eq!(m.held(), 8);
    }
}

#[test]
fn without_a_channel_the_policy_applies_at_once() {
    for (fail, disposition) in [(FailPolicy::Drop, dropped(Reason::NoChannel)), (FailPolicy::Pass, PASS)] {
        let mut config = tenants(2);
        config.tenants[0].fail = fail;
        config.tenants[1].fail = fail;
        let mut m = mediator(&config);
        assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 11))), Some((1, disposition)));
        assert_eq!(m.held(), 0);
    }
}

#[test]
fn a_faulty_p4vm_is_detached_until_it_is_replaced() {
    let mut m = mediator(&tenants(2));
    let (a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(of(m.submit(0, &SHARED, packet(2, 11, 9))), None);
    a.memory.store_u32(VERDICT_HEAD, 77, Ordering::Relaxed);
    assert_eq!(poll(&mut m, 1), [(1, dropped(Reason::Fault))], "at once, not at the deadline");
    assert!(matches!(m.fault(0), Some(P4VmFault::Protocol(_))));
    assert!(!m.is_attached(0) && m.is_attached(1));
    assert_eq!(of(m.submit(1, &SHARED, packet(3, 1, 9))), Some((3, dropped(Reason::Fault))));
    b.pass_all();
    assert_eq!(poll(&mut m, 1), [(2, PASS)], "the neighbour notices nothing");
    let mut a = attach(&mut m, 2, 0, GEOMETRY);
    assert_eq!(m.fault(0), None);
    assert_eq!(of(m.submit(2, &SHARED, packet(4, 1, 9))), None);
    poll(&mut m, 2);
    assert_eq!(a.pass_all(), 1);
    assert_eq!(poll(&mut m, 2), [(4, PASS)]);
    assert_eq!(m.counters().tenants[0].faults.get(), 1);
}

#[test]
fn a_stalled_p4vm_is_detached_after_its_packets_left() {
    let mut m = mediator(&tenants(1));
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(poll(&mut m, DEADLINE), [(1, dropped(Reason::Deadline))]);
    let stall = 5_000_000_000;
    assert_eq!(m.next_deadline(DEADLINE), Some(stall));
    poll(&mut m, stall - 1);
    assert!(m.is_attached(0));
    poll(&mut m, stall);
    assert_eq!(m.fault(0), Some(P4VmFault::Stalled));
    assert_eq!(m.next_deadline(stall), None);
}

#[test]
fn a_new_channel_takes_over_waiting_packets() {
    let mut m = mediator(&tenants(1));
    let _old = attach(&mut m, 0, 0, GEOMETRY);
    for serial in 0..4 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    poll(&mut m, 0);
    let two = p4shield_abi::channel::Geometry { slots: 2, ..GEOMETRY };
    let mut new = attach(&mut m, 1, 0, two);
    assert_eq!(new.pass_all(), 2);
    let full = dropped(Reason::Full);
    assert_eq!(poll(&mut m, 1), [(0, PASS), (1, PASS), (2, full), (3, full)]);
    assert_eq!(of(m.submit(1, &SHARED, packet(9, 1, 9))), None);
    m.replace_channel(1, 0, None).expect("there is such a tenant");
    assert_eq!(poll(&mut m, 1), [(9, dropped(Reason::NoChannel))]);
    assert_eq!(m.replace_channel(1, 7, None), Err(ConfigError::NoTenant(7)));
}

#[test]
fn a_poll_passes_no_more_than_the_caller_has_room_for() {
    let mut m = mediator(&tenants(2));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    for serial in 0..6 {
        assert_eq!(of(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
        assert_eq!(of(m.submit(0, &SHARED, packet(10 + serial, 11, 9))), None);
    }
    m.flush(0);
    a.pass_all();
    b.pass_all();
    let mut all = Vec::new();
    for room in [0, 1, 4, 5, 5] {
        let mut out = Vec::new();
        let passed = m.poll(0, room, |r| out.push(r.packet.serial));
        assert_eq!((passed, out.len()), (out.len(), room.min(12 - all.len())));
        all.extend(out);
        assert_eq!(m.next_deadline(7), (all.len() < 12).then_some(7), "there is work at once");
    }
    let of_tenant =
        |low: u32| all.iter().filter(|s| (low..low + 10).contains(s)).copied().collect::<Vec<_>>();
    assert_eq!(of_tenant(0), (0..6).collect::<Vec<_>>());
    assert_eq!(of_tenant(10), (10..16).collect::<Vec<_>>());
}

#[test]
fn a_false_claim_of_sleep_costs_few_wake_ups() {
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert!(a.judge.announce());
    let mut now = 1_000_000;
    let ask = |m: &mut p4shield_mediator::Mediator<TestPacket>, now| {
        assert_eq!(of(m.submit(now, &SHARED, packet(1, 1, 9))), None);
        m.flush(now);
        m.counters().tenants[0].wakeups.get()
    };
    // It never takes its announcement back, and answers so that it is to be woken again: at once for a while, and then not
    // within the interval of 20 µs.
    for rings in 1..=9 {
        assert_eq!(ask(&mut m, now), rings);
        a.pass_all();
        poll(&mut m, now);
    }
    assert_eq!(ask(&mut m, now + 1), 9);
    assert_eq!(m.next_deadline(now + 1), Some(now + 20_000), "a ring is due");
    now += 20_000;
    poll(&mut m, now);
    assert_eq!(m.counters().tenants[0].wakeups.get(), 10);
    // One that was awake for long is woken at once again, so many times and not more.
    a.pass_all();
    poll(&mut m, now);
    now += 1_000_000_000;
    for rings in 11..=19 {
        assert_eq!(ask(&mut m, now), rings);
        a.pass_all();
        poll(&mut m, now);
    }
    assert_eq!(ask(&mut m, now + 1), 19);
}

#[test]
fn a_closed_doorbell_detaches_the_p4vm() {
    let mut m = mediator(&tenants(1));
    let a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(m.doorbells().map(|(t, _)| t).collect::<Vec<_>>(), [0]);
    m.drain_doorbell(0);
    assert!(m.is_attached(0));
    drop(a);
    m.drain_doorbell(0);
    assert_eq!(m.fault(0), Some(P4VmFault::Gone));
    assert_eq!(poll(&mut m, 1), [(1, dropped(Reason::Fault))]);
}

#[test]
fn an_answer_wakes_a_sleeping_mediator() {
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(of(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    poll(&mut m, 0);
    assert!(m.announce());
    assert_eq!(a.judge.fetch_with(1, |_, _| ()), Ok(1));
    a.judge.respond(p4shield_channel::Response::Pass).expect("it was asked");
    assert!(a.judge.publish(), "ring");
    m.retract();
    assert!(!m.announce(), "there is an answer");
    assert_eq!(poll(&mut m, 0), [(1, PASS)]);
}

#[test]
fn invalid_configurations_are_refused() {
    let mut config = tenants(1);
    config.tenants[0].max_held = 0;
    let refused = p4shield_mediator::Mediator::<TestPacket>::new(&config).err();
    assert_eq!(refused, Some(ConfigError::HoldsNothing("t0".into())));
}
