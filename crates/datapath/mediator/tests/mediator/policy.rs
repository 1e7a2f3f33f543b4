//! Deadlines, limits and faults: when the tenant's policy decides, with an injected clock.

use crate::common::*;
use p4shield_abi::Direction;
use p4shield_abi::channel::{Geometry, VERDICT_HEAD};
use p4shield_channel::Memory;
use p4shield_mediator::{ConfigError, FailPolicy, P4VmFault, Reason};
use std::sync::atomic::Ordering;

#[test]
fn the_policy_applies_at_the_deadline() {
    for (fail, disposition) in [(FailPolicy::Drop, dropped(Reason::Deadline)), (FailPolicy::Pass, PASS)] {
        let mut config = tenants(1);
        config.tenants[0].fail = fail;
        let mut m = mediator(&config);
        let mut a = attach(&mut m, 0, 0, GEOMETRY);
        assert_eq!(released(m.submit(100, &SHARED, packet(1, 1, 9))), None);
        assert_eq!(poll(&mut m, 100 + DEADLINE - 1), []);
        assert_eq!(m.next_deadline(100), Some(100 + DEADLINE));
        assert_eq!(poll(&mut m, 100 + DEADLINE), [(1, disposition)]);
        assert_eq!(a.answer(32, &mut |_, _| Action::Rewrite(vec![7; 60], 0)), 1);
        assert_eq!(released(m.submit(100 + DEADLINE, &SHARED, packet(2, 1, 9))), None);
        assert_eq!(poll(&mut m, 101 + DEADLINE), []);
        assert_eq!((m.counters().tenants[0].late.get(), m.held()), (1, 1));
        a.pass_all();
        assert_eq!(poll(&mut m, 102 + DEADLINE), [(2, PASS)], "the channel stays attached");
        let counts = counts(&m, 0, 0, Direction::Egress);
        assert_eq!((counts.packets_in, counts.left(), counts.held), (2, 2, 0));
    }
}

#[test]
fn a_late_verdict_does_not_change_the_policy() {
    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(m.poll(DEADLINE, 0, |_| panic!("there is no room")), 0);
    assert_eq!(a.answer(1, &mut |_, _| Action::Drop), 1);
    assert_eq!(poll(&mut m, DEADLINE), [(1, PASS)]);
    assert_eq!(m.counters().tenants[0].late.get(), 1);
    assert_eq!(counts(&m, 0, 0, Direction::Egress).let_through_for(Reason::Deadline), 1);
}

#[test]
fn a_timely_answer_counts_despite_a_late_poll() {
    let geometry = Geometry { slots: 256, ..GEOMETRY };
    let mut config = tenants(1);
    config.tenants[0].max_held = 256;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, geometry);
    for serial in 0..200 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
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
    let mut a = attach(&mut m, 0, 0, Geometry { slots: 128, ..GEOMETRY });
    for serial in 0..70 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    assert_eq!(
        (a.pass_all(), a.pass_all(), a.pass_all()),
        (32, 32, 0),
        "the rest waits for the end of the burst"
    );
    m.flush(0);
    assert_eq!(a.pass_all(), 6);
}

#[test]
fn the_policy_decides_when_the_channel_is_full() {
    let geometry = Geometry { slots: 2, ..GEOMETRY };
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, geometry);
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(released(m.submit(0, &SHARED, packet(2, 1, 9))), None);
    assert_eq!(released(m.submit(0, &SHARED, packet(3, 1, 9))), Some((3, dropped(Reason::Full))));
    poll(&mut m, 0);
    a.pass_all();
    assert_eq!(poll(&mut m, 0), [(1, PASS), (2, PASS)]);

    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let mut a = attach(&mut m, 0, 0, geometry);
    for serial in 1..=3 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None, "3 waits behind 1 and 2");
    }
    assert_eq!(poll(&mut m, 0), []);
    a.pass_all();
    assert_eq!(poll(&mut m, 0), [(1, PASS), (2, PASS), (3, PASS)]);
    assert_eq!(counts(&m, 0, 0, Direction::Egress).let_through_for(Reason::Full), 1);
}

#[test]
fn a_tenant_holds_no_more_than_max_held() {
    let mut m = mediator(&tenants(1));
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    for serial in 0..8 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    assert_eq!(released(m.submit(0, &SHARED, packet(8, 1, 9))), Some((8, dropped(Reason::Full))));
    assert_eq!(m.held(), 8);

    let mut config = tenants(1);
    config.tenants[0].fail = FailPolicy::Pass;
    let mut m = mediator(&config);
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    for serial in 0..8 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    for serial in 8..30 {
        let oldest = released(m.submit(0, &SHARED, packet(serial, 1, 9)));
        assert_eq!(oldest, Some((serial - 8, PASS)), "evicting the oldest keeps the order");
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
        assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 11))), Some((1, disposition)));
        assert_eq!(m.held(), 0);
    }
}

#[test]
fn a_faulty_p4vm_is_detached_until_it_is_replaced() {
    let mut m = mediator(&tenants(2));
    let (a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(released(m.submit(0, &SHARED, packet(2, 11, 9))), None);
    a.memory.store_u32(VERDICT_HEAD, 77, Ordering::Relaxed);
    assert_eq!(poll(&mut m, 1), [(1, dropped(Reason::Fault))], "at once, not at the deadline");
    assert!(matches!(m.fault(0), Some(P4VmFault::Protocol(_))));
    assert!(!m.is_attached(0) && m.is_attached(1));
    assert_eq!(released(m.submit(1, &SHARED, packet(3, 1, 9))), Some((3, dropped(Reason::Fault))));
    b.pass_all();
    assert_eq!(poll(&mut m, 1), [(2, PASS)], "the other tenant is unaffected");
    let mut a = attach(&mut m, 2, 0, GEOMETRY);
    assert_eq!(m.fault(0), None);
    assert_eq!(released(m.submit(2, &SHARED, packet(4, 1, 9))), None);
    poll(&mut m, 2);
    assert_eq!(a.pass_all(), 1);
    assert_eq!(poll(&mut m, 2), [(4, PASS)]);
    assert_eq!(m.counters().tenants[0].faults.get(), 1);
}

#[test]
fn a_stalled_p4vm_is_detached_after_its_packets_left() {
    let mut m = mediator(&tenants(1));
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
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
fn a_stall_is_measured_from_the_first_packet_after_a_pause() {
    const PAUSE: u64 = 100_000_000_000;
    const STALL: u64 = 5_000_000_000;
    let mut m = mediator(&tenants(1));
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(released(m.submit(PAUSE, &SHARED, packet(1, 1, 9))), None);
    assert_eq!(released(m.submit(PAUSE + STALL / 2, &SHARED, packet(2, 1, 9))), None);
    poll(&mut m, PAUSE + STALL - 1);
    assert!(m.is_attached(0), "the pause counts for nothing");
    poll(&mut m, PAUSE + STALL);
    assert_eq!(m.fault(0), Some(P4VmFault::Stalled), "the second packet delays nothing");
}

#[test]
fn a_new_channel_takes_over_waiting_packets() {
    let mut m = mediator(&tenants(1));
    let _old = attach(&mut m, 0, 0, GEOMETRY);
    for serial in 0..4 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    poll(&mut m, 0);
    let two = Geometry { slots: 2, ..GEOMETRY };
    let mut new = attach(&mut m, 1, 0, two);
    assert_eq!(new.pass_all(), 2);
    let full = dropped(Reason::Full);
    assert_eq!(poll(&mut m, 1), [(0, PASS), (1, PASS), (2, full), (3, full)]);
    assert_eq!(released(m.submit(1, &SHARED, packet(9, 1, 9))), None);
    m.replace_channel(1, 0, None).expect("the tenant exists");
    assert_eq!(poll(&mut m, 1), [(9, dropped(Reason::NoChannel))]);
    assert_eq!(m.replace_channel(1, 7, None), Err(ConfigError::NoTenant(7)));
}

#[test]
fn a_poll_passes_no_more_than_the_caller_has_room_for() {
    let mut m = mediator(&tenants(2));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    for serial in 0..6 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
        assert_eq!(released(m.submit(0, &SHARED, packet(10 + serial, 11, 9))), None);
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
