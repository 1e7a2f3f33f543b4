//! Rewrites: what a program may turn its packet into.

use crate::common::*;
use p4shield_mediator::{AllowedSources, Config, Disposition, PortSpec, Reason, Stages, UnownedPolicy};

/// Rewrites one packet of tenant 0; returns its disposition.
fn rewritten(
    port: &PortSpec,
    original: TestPacket,
    change: impl Fn(&mut Vec<u8>),
    longer: i32,
) -> Disposition {
    rewritten_in(&tenants(2), port, original, change, longer)
}

fn rewritten_in(
    config: &Config,
    port: &PortSpec,
    original: TestPacket,
    change: impl Fn(&mut Vec<u8>),
    longer: i32,
) -> Disposition {
    let mut m = mediator(config);
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(released(m.submit(0, port, original)), None);
    poll(&mut m, 0);
    let answered = a.answer(1, &mut |_, header| {
        let mut new = header.to_vec();
        change(&mut new);
        Action::Rewrite(new, longer)
    });
    assert_eq!(answered, 1);
    let out = poll(&mut m, 0);
    assert_eq!((out.len(), m.held()), (1, 0));
    out[0].1
}

#[test]
fn an_egress_program_cannot_take_another_tenants_address() {
    let from = |last| move |b: &mut Vec<u8>| b[29] = last;
    assert_eq!(rewritten(&SHARED, packet(1, 1, 99), from(2), 0), PASS, "its own other VM's");
    assert_eq!(rewritten(&SHARED, packet(1, 1, 99), from(98), 0), PASS, "no configured VM's address");
    assert_eq!(rewritten(&SHARED, packet(1, 1, 99), from(11), 0), dropped(Reason::Spoofed));
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 0)), ..SHARED };
    assert_eq!(rewritten(&bound, packet(1, 1, 99), from(98), 0), dropped(Reason::Spoofed));
}

#[test]
fn an_ingress_program_cannot_send_its_packet_to_another_tenant() {
    let to = |last| move |b: &mut Vec<u8>| b[33] = last;
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), to(11), 0), dropped(Reason::Strayed));
    assert_eq!(
        rewritten(&SHARED, packet(1, 99, 1), to(98), 0),
        dropped(Reason::Strayed),
        "to no configured VM"
    );
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), |b| b[5] = 11, 0), dropped(Reason::Strayed), "by MAC");
    let tag = |b: &mut Vec<u8>| drop(b.splice(12..12, [0x81, 0, 0, 9]));
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), tag, 4), dropped(Reason::Strayed), "by VLAN");
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), |b| b[13] = 6, 0), dropped(Reason::Strayed), "as ARP");
    let wire = port(Stages::IngressOnly(vm_ref(0, 0)));
    assert_eq!(rewritten(&wire, packet(1, 99, 1), to(98), 0), PASS, "on a wire only its VM receives it");
}

#[test]
fn an_ingress_rewrite_keeps_its_vm_and_the_whole_link_header() {
    let to_own_other_vm = |b: &mut Vec<u8>| b[33] = 2;
    let out = rewritten(&SHARED, packet(1, 99, 1), to_own_other_vm, 0);
    assert_eq!(out, dropped(Reason::Strayed), "that VM's own program would not judge it");
    for byte in 0..14 {
        let out = rewritten(&SHARED, packet(1, 99, 1), |b| b[byte] ^= 1, 0);
        assert_eq!(out, dropped(Reason::Strayed), "byte {byte} of the link header");
    }
    for tag_byte in 12..16 {
        let mut tagged = packet(1, 99, 1);
        tagged.bytes.splice(12..12, [0x81, 0, 0, 9]);
        let out = rewritten(&SHARED, tagged, |b| b[tag_byte] ^= 1, 0);
        assert_eq!(out, dropped(Reason::Strayed), "byte {tag_byte} of the VLAN tag");
    }
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), |b| b[22] = 9, 0), PASS, "all else may change");
    let mut config = tenants(1);
    config.tenants[0].vms[0].addresses.push(ip(7));
    let to_own_other_address = |b: &mut Vec<u8>| b[33] = 7;
    assert_eq!(rewritten_in(&config, &SHARED, packet(1, 99, 1), to_own_other_address, 0), PASS);
}

#[test]
fn an_egress_rewrite_chooses_the_receiver() {
    let mut m = mediator(&tenants(2));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 99))), None);
    poll(&mut m, 0);
    a.answer(1, &mut |_, header| {
        let mut new = header.to_vec();
        new[33] = 12;
        Action::Rewrite(new, 0)
    });
    assert_eq!(poll(&mut m, 0), []);
    assert_eq!(
        b.answer(1, &mut |r, _| {
            assert_eq!(r.vm, 1);
            Action::Drop
        }),
        1,
        "the new receiver judges it"
    );
    assert_eq!(poll(&mut m, 0), [(1, dropped(Reason::Program))]);
}

#[test]
fn a_rewrite_to_a_shared_address_is_dropped() {
    for at in [29, 33] {
        let mut m = mediator(&overlapping());
        let mut a = attach(&mut m, 0, 0, GEOMETRY);
        assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 99))), None);
        poll(&mut m, 0);
        a.answer(1, &mut |_, header| {
            let mut new = header.to_vec();
            new[at] = 9;
            Action::Rewrite(new, 0)
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
    assert_eq!(rewritten(&wire, long, grow, 0), PASS, "truncated it fits");
}

/// Returns what makes a packet the ARP request of this address, at the packet's own link-layer address.
fn to_arp(last: u8) -> impl Fn(&mut Vec<u8>) {
    move |b: &mut Vec<u8>| {
        b[13] = 6;
        b[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        b.copy_within(6..12, 22);
        b[28..42].copy_from_slice(&[10, 0, 0, last, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9]);
    }
}

#[test]
fn an_egress_program_announces_its_vms_addresses_only() {
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 0)), ..SHARED };
    for port in [SHARED, bound] {
        assert_eq!(rewritten(&port, packet(1, 1, 99), to_arp(1), 0), PASS, "its own");
        for (last, whose) in [(2, "its tenant's other VM"), (11, "another tenant's VM"), (99, "the gateway")]
        {
            let out = rewritten(&port, packet(1, 1, 99), to_arp(last), 0);
            assert_eq!(out, dropped(Reason::Spoofed), "{whose}");
        }
        let elsewhere = |b: &mut Vec<u8>| (to_arp(1)(b), b[27] ^= 1).0;
        let out = rewritten(&port, packet(1, 1, 99), elsewhere, 0);
        assert_eq!(out, dropped(Reason::Spoofed), "at another link-layer address");
    }
    let strict = PortSpec { unowned: UnownedPolicy::Drop, ..SHARED };
    assert_eq!(rewritten(&strict, packet(1, 1, 99), to_arp(1), 0), dropped(Reason::Strayed));
}

#[test]
fn a_rewrite_to_what_readers_find_elsewhere_is_dropped() {
    let version = |b: &mut Vec<u8>| b[14] = 0x65;
    let snap = |b: &mut Vec<u8>| {
        b[12..22].copy_from_slice(&[0, 40, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    };
    for port in [SHARED, port(Stages::EgressOnly(vm_ref(0, 0)))] {
        assert_eq!(rewritten(&port, packet(1, 1, 99), version, 0), dropped(Reason::Strayed));
        assert_eq!(rewritten(&port, packet(1, 1, 99), snap, 0), dropped(Reason::Strayed));
    }
}

#[test]
fn a_rewrite_hides_no_header_in_another_segment() {
    let bound = PortSpec { source: AllowedSources::Only(vm_ref(0, 0)), ..SHARED };
    let mut m = mediator(&tenants(2));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    let mut segmented = packet(1, 1, 99);
    segmented.bytes.resize(200, 0);
    segmented.segment = 64;
    assert_eq!(released(m.submit(0, &bound, segmented)), None);
    poll(&mut m, 0);
    // The source address would be another segment's first bytes.
    let answered = a.answer(1, &mut |_, header| Action::Rewrite(header[..14].to_vec(), 14 - 64));
    assert_eq!(answered, 1);
    assert_eq!(poll(&mut m, 0), [(1, dropped(Reason::Rewrite))]);
}

#[test]
fn an_attachment_looks_at_what_egress_programs_make() {
    for (stages, port_number) in [(Stages::Both, 1), (Stages::EgressOnly(vm_ref(0, 0)), 7)] {
        for (allowed, out) in [(true, PASS), (false, dropped(Reason::Strayed))] {
            let mut m = mediator(&tenants(1));
            let check = move |port: &PortSpec, frame: &[u8]| {
                assert_eq!((port.number, frame.len(), frame[22]), (port_number, 60, 9), "as it is now");
                allowed
            };
            assert!(m.set_rewrite_check(Some(Box::new(check))).is_none());
            let mut a = attach(&mut m, 0, 0, GEOMETRY);
            let port = PortSpec { number: port_number, stages, ..SHARED };
            for change in [true, false] {
                assert_eq!(released(m.submit(0, &port, packet(1, 1, 99))), None);
                poll(&mut m, 0);
                let answered = a.answer(1, &mut |_, header| {
                    let mut new = header.to_vec();
                    new[22] = 9;
                    if change { Action::Rewrite(new, 0) } else { Action::Pass }
                });
                assert_eq!(answered, 1);
                let expected = if change { out } else { PASS };
                assert_eq!(poll(&mut m, 0), [(1, expected)], "only a rewritten packet is looked at");
            }
        }
    }
}
