//! What a P4 VM is told beside its requests: that it will be asked soon, elsewhere, and that what it let pass was sent.

mod common;
use common::*;
use p4shield_channel::Sleeper;
use p4shield_mediator::{AllowedSources, Disposition, Mediator, PortSpec, Reason, Stages, UnownedPolicy};

const UPLINK: PortSpec = PortSpec { source: AllowedSources::Foreign, ..SHARED };

/// Two tenants; the ingress of the second one's first VM is asked elsewhere.
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
    assert_eq!(of(m.submit(0, &UPLINK, packet(1, 99, 11))), pass);
    assert_eq!(wakeups(&m), [0, 0], "it is awake");
    assert!(a.judge.announce());
    let burst = [packet(1, 99, 11), packet(2, 99, 98), packet(3, 99, 11)];
    for (now, wakes) in [(0, 1), (19_999, 1), (20_000, 2)] {
        let mut out = Vec::new();
        m.submit_burst(1_000_000 + now, &UPLINK, burst.clone(), |r| out.push(r.packet.serial));
        assert_eq!((out, wakeups(&m)), (vec![1, 2, 3], [0, wakes]));
    }
    assert!(a.bell.drain(), "somebody is there who rang");
    a.judge.retract();
    assert_eq!(of(m.submit(0, &UPLINK, packet(1, 99, 11))), pass);
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
        assert!(a.judge.announce());
        assert_eq!(of(m.submit(0, &port, packet(1, 99, destination))), Some((1, out)), "{port:?}");
        assert_eq!(wakeups(&m), [0, 0], "{port:?}");
    }
}

#[test]
fn early_wake_ups_are_limited() {
    let (mut m, mut a) = setup(false);
    assert!(a.judge.announce());
    for now in 1_000_000..1_040_000 {
        m.submit(now, &UPLINK, packet(1, 99, 11));
    }
    assert_eq!(wakeups(&m), [0, 2]);
    drop(a);
    m.submit(2_000_000, &UPLINK, packet(1, 99, 11));
    assert!(!m.is_attached(1), "one that is gone is found out");
}

#[test]
fn a_p4vm_is_notified_of_its_own_sent_packets() {
    let mut m = mediator(&tenants(2));
    let mut p4vms = [0, 1].map(|t| attach(&mut m, 0, t, GEOMETRY));
    let told = |p4vms: &[P4vm; 2]| p4vms.each_ref().map(|p| p.judge.sent_count());
    m.notify_sent();
    assert_eq!(told(&p4vms), [0, 0], "nobody's packet");
    let mut expected = [0; 2];
    for (t, source, does) in
        [(0, 1, Does::Pass), (1, 11, Does::Pass), (1, 11, Does::Drop), (0, 1, Does::Pass)]
    {
        assert_eq!(of(m.submit(0, &SHARED, packet(1, source, 99))), None);
        m.flush(0);
        expected[t] += u32::from(matches!(does, Does::Pass));
        let mut does = Some(does);
        assert_eq!(p4vms[t].judge(1, &mut |_, _| does.take().expect("one packet")), 1);
        assert_eq!(poll(&mut m, 0).len(), 1);
        // A packet of nobody's, and one that was dropped, is sent with them.
        for _ in 0..2 {
            m.notify_sent();
            assert_eq!(told(&p4vms), expected);
        }
    }
}
