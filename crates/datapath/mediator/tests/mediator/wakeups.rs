//! Wake-ups: of a P4 VM with requests, early ones for a deferred ingress, and of a sleeping mediator.

use crate::common::*;
use p4shield_channel::{Response, Sleeper};
use p4shield_mediator::{
    AllowedSources, Disposition, Mediator, P4VmFault, PortSpec, Reason, Stages, UnownedPolicy,
};

const UPLINK: PortSpec = PortSpec { source: AllowedSources::Foreign, ..SHARED };

/// Two tenants; the ingress of the second one's first VM is deferred.
fn setup(skipped: bool) -> (Mediator<TestPacket>, P4vm) {
    let mut config = tenants(2);
    config.tenants[1].vms[0].skipped = [skipped, false];
    let mut m = mediator(&config);
    m.defer_ingress(&[vm_ref(1, 0)]);
    let p4vm = attach(&mut m, 0, 1, GEOMETRY);
    (m, p4vm)
}

fn wakeups(m: &Mediator<TestPacket>) -> [u64; 2] {
    std::array::from_fn(|t| m.counters().tenants[t].wakeups.get())
}

#[test]
fn a_packet_wakes_the_p4vm_of_its_deferred_ingress() {
    let (mut m, mut a) = setup(false);
    let pass = Some((1, Disposition::Pass));
    assert_eq!(released(m.submit(0, &UPLINK, packet(1, 99, 11))), pass);
    assert_eq!(wakeups(&m), [0, 0], "it is awake");
    assert!(a.responder.announce());
    let burst = [packet(1, 99, 11), packet(2, 99, 98), packet(3, 99, 11)];
    for (now, wakes) in [(0, 1), (19_999, 1), (20_000, 2)] {
        let mut out = Vec::new();
        m.submit_burst(1_000_000 + now, &UPLINK, burst.clone(), |r| out.push(r.packet.serial));
        assert_eq!((out, wakeups(&m)), (vec![1, 2, 3], [0, wakes]));
    }
    assert!(a.bell.drain(), "the mediator is there");
    a.responder.retract();
    assert_eq!(released(m.submit(0, &UPLINK, packet(1, 99, 11))), pass);
    assert_eq!((wakeups(&m), m.held(), poll(&mut m, 0)), ([0, 2], 0, vec![]));
}

#[test]
fn only_packets_to_judge_wake_a_p4vm() {
    for (skipped, port, destination, out) in [
        (true, UPLINK, 11, Disposition::Pass),
        (false, UPLINK, 99, Disposition::Pass),
        (false, PortSpec { unowned: UnownedPolicy::Drop, ..UPLINK }, 11, Disposition::Drop(Reason::Unowned)),
        (false, port(Stages::EgressOnly(vm_ref(7, 0))), 11, Disposition::Pass),
        (false, port(Stages::None), 11, Disposition::Pass),
    ] {
        let (mut m, mut a) = setup(skipped);
        assert!(a.responder.announce());
        assert_eq!(released(m.submit(0, &port, packet(1, 99, destination))), Some((1, out)), "{port:?}");
        assert_eq!(wakeups(&m), [0, 0], "{port:?}");
    }
}

#[test]
fn early_wake_ups_are_limited() {
    let (mut m, mut a) = setup(false);
    assert!(a.responder.announce());
    for now in 1_000_000..1_040_000 {
        m.submit(now, &UPLINK, packet(1, 99, 11));
    }
    assert_eq!(wakeups(&m), [0, 2]);
    drop(a);
    m.submit(2_000_000, &UPLINK, packet(1, 99, 11));
    assert!(!m.is_attached(1), "the wake-up detects a closed doorbell");
}

#[test]
fn a_p4vm_is_notified_of_its_own_sent_packets() {
    let mut m = mediator(&tenants(2));
    let mut p4vms = [0, 1].map(|t| attach(&mut m, 0, t, GEOMETRY));
    let notified = |p4vms: &[P4vm; 2]| p4vms.each_ref().map(|p| p.responder.sent_count());
    m.notify_sent();
    assert_eq!(notified(&p4vms), [0, 0], "no packet passed");
    let mut expected = [0; 2];
    for (t, source, action) in
        [(0, 1, Action::Pass), (1, 11, Action::Pass), (1, 11, Action::Drop), (0, 1, Action::Pass)]
    {
        assert_eq!(released(m.submit(0, &SHARED, packet(1, source, 99))), None);
        m.flush(0);
        expected[t] += u32::from(matches!(action, Action::Pass));
        let mut action = Some(action);
        assert_eq!(p4vms[t].answer(1, &mut |_, _| action.take().expect("one packet")), 1);
        assert_eq!(poll(&mut m, 0).len(), 1);
        // The second notification is for packets that no program passed.
        for _ in 0..2 {
            m.notify_sent();
            assert_eq!(notified(&p4vms), expected);
        }
    }
}

#[test]
fn a_false_claim_of_sleep_costs_few_wake_ups() {
    let mut m = mediator(&tenants(1));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    assert!(a.responder.announce());
    let mut now = 1_000_000;
    let submit = |m: &mut Mediator<TestPacket>, now| {
        assert_eq!(released(m.submit(now, &SHARED, packet(1, 1, 9))), None);
        m.flush(now);
        m.counters().tenants[0].wakeups.get()
    };
    // It never retracts its announcement and answers each packet, so that the next one wakes it: at
    // once at first, and then not within the interval of 20 µs.
    for wakeups in 1..=9 {
        assert_eq!(submit(&mut m, now), wakeups);
        a.pass_all();
        poll(&mut m, now);
    }
    assert_eq!(submit(&mut m, now + 1), 9);
    assert_eq!(m.next_deadline(now + 1), Some(now + 20_000), "a wake-up is due");
    now += 20_000;
    poll(&mut m, now);
    assert_eq!(m.counters().tenants[0].wakeups.get(), 10);
    // After a long time the budget is full again, and not larger.
    a.pass_all();
    poll(&mut m, now);
    now += 1_000_000_000;
    for wakeups in 11..=19 {
        assert_eq!(submit(&mut m, now), wakeups);
        a.pass_all();
        poll(&mut m, now);
    }
    assert_eq!(submit(&mut m, now + 1), 19);
}

/// Sixteen P4 VMs of two lanes, which one thread polls, claim to sleep all the time, and answer at once.
#[test]
fn colluding_p4_vms_share_one_bound_of_wake_ups() {
    const TENANTS: u8 = 8;
    const STEP: u64 = 5_000;
    const END: u64 = 10_000_000;
    let mut lanes = [0, 1].map(|_| {
        let mut m = mediator(&tenants(TENANTS));
        let p4vms: Vec<P4vm> = (0..TENANTS).map(|t| attach(&mut m, 0, t.into(), GEOMETRY)).collect();
        (m, p4vms)
    });
    for p4vm in lanes.iter_mut().flat_map(|(_, p4vms)| p4vms) {
        assert!(p4vm.responder.announce());
    }
    for now in (0..END).step_by(STEP as usize) {
        for (m, p4vms) in &mut lanes {
            for (t, p4vm) in p4vms.iter_mut().enumerate() {
                m.submit(now, &SHARED, packet(1, 10 * t as u8 + 1, 99));
                m.flush(now);
                p4vm.pass_all();
            }
            poll(m, now);
        }
    }
    let counts: Vec<u64> = lanes
        .iter()
        .flat_map(|(m, _)| m.counters().tenants.iter().map(|t| t.wakeups.get()).collect::<Vec<_>>())
        .collect();
    let total: u64 = counts.iter().sum();
    // One in 10 µs, beside the advance and what is under way.
    assert!(total <= END / 10_000 + 16 + counts.len() as u64, "{counts:?}");
    let fair = total / counts.len() as u64;
    assert!(counts.iter().all(|n| *n >= fair / 2), "every tenant has its share: {counts:?}");
}

#[test]
fn a_closed_doorbell_detaches_the_p4vm() {
    let mut m = mediator(&tenants(1));
    let a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
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
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    poll(&mut m, 0);
    assert!(m.announce());
    assert_eq!(a.responder.fetch_with(1, |_, _| ()), Ok(1));
    a.responder.respond(Response::Pass).expect("a request is open");
    assert!(a.responder.publish(), "the mediator sleeps");
    m.retract();
    assert!(!m.announce(), "an answer is there");
    assert_eq!(poll(&mut m, 0), [(1, PASS)]);
}
