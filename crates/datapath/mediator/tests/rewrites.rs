//! Rewrites: what a program may turn its packet into.

mod common;
use common::*;
use p4shield_mediator::{AllowedSources, Disposition, PortSpec, Reason, Stages};

/// Rewrites one packet of tenant 0; returns its disposition.
fn rewritten(
    port: &PortSpec,
    original: TestPacket,
    change: impl Fn(&mut Vec<u8>),
    longer: i32,
) -> Disposition {
    let mut m = mediator(&tenants(2));
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
    assert_eq!(rewritten(&SHARED, packet(1, 99, 1), to(2), 0), PASS, "its own other VM");
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
