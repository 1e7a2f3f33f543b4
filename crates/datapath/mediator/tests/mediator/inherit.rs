//! A mediator of a new configuration inherits from the old one while packets are held.

use crate::common::*;
use p4shield_abi::Direction;
use p4shield_abi::channel::Geometry;
use p4shield_mediator::{Config, Disposition, FailPolicy, Mediator, Reason, VmConfig};
use proptest::prelude::*;

/// Replaces a mediator by one for `config`. Returns the old one, without channels.
fn change(m: &mut Mediator<TestPacket>, now: u64, before: &Config, config: &Config) -> Mediator<TestPacket> {
    let mut new = Mediator::successor(config, before).expect("a valid configuration");
    new.inherit(m);
    let mut old = std::mem::replace(m, new);
    for t in 0..old.counters().tenants.len() {
        old.replace_channel(now, t, None).expect("the tenant exists");
    }
    old
}

/// Polls both mediators once.
fn poll_both(
    new: &mut Mediator<TestPacket>,
    old: &mut Mediator<TestPacket>,
    now: u64,
) -> Vec<(u32, Disposition)> {
    let mut out = poll(old, now);
    out.extend(poll(new, now));
    out
}

/// Empties an entry of a configuration.
fn vacate_vm(config: &mut Config, tenant: usize, vm: usize) {
    config.tenants[tenant].vms[vm] = VmConfig::new("", Vec::new());
}

#[test]
fn held_packets_of_kept_tenants_get_their_verdicts() {
    let mut config = tenants(2);
    let (before, mut m) = (config.clone(), mediator(&config));
    let (mut a, mut b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    for serial in 0..3 {
        assert_eq!(released(m.submit(0, &SHARED, packet(serial, 1, 9))), None);
    }
    assert_eq!(released(m.submit(0, &SHARED, packet(10, 11, 9))), None);
    m.flush(0);
    a.pass_all();
    assert_eq!(m.poll(1, 1, |_| ()), 1, "one packet has left, two have a verdict or wait");
    config.tenants[0].vms.push(vm("new", 3));
    let mut old = change(&mut m, 1, &before, &config);
    assert_eq!((old.held(), m.held()), (0, 3));
    b.pass_all();
    assert_eq!(poll_both(&mut m, &mut old, 2), [(1, PASS), (2, PASS), (10, PASS)]);
    assert_eq!(released(m.submit(2, &SHARED, packet(20, 3, 9))), None, "the new VM's packets are judged");
    m.flush(2);
    a.pass_all();
    assert_eq!(poll(&mut m, 3), [(20, PASS)]);
    let counts = counts(&m, 0, 0, Direction::Egress);
    assert_eq!((counts.packets_in, counts.passed, counts.held), (3, 3, 0), "the counters go on");
}

#[test]
fn a_removed_tenants_packets_get_its_old_policy() {
    for (fail, disposition) in [(FailPolicy::Drop, dropped(Reason::NoChannel)), (FailPolicy::Pass, PASS)] {
        let mut config = tenants(2);
        config.tenants[1].fail = fail;
        let (before, mut m) = (config.clone(), mediator(&config));
        let (mut a, _b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
        assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
        assert_eq!(released(m.submit(0, &SHARED, packet(2, 11, 9))), None);
        config.tenants[1].name = "another".to_owned();
        let mut old = change(&mut m, 1, &before, &config);
        assert_eq!(poll(&mut old, 1), [(2, disposition)]);
        assert!(m.is_attached(0) && !m.is_attached(1), "a tenant of another name has no channel");
        assert_eq!(counts(&m, 1, 0, Direction::Egress).packets_in, 0);
        m.flush(1);
        a.pass_all();
        assert_eq!(poll(&mut m, 2), [(1, PASS)]);
    }
}

#[test]
fn a_removed_tenants_packet_to_a_kept_vm_is_dropped() {
    let mut config = tenants(2);
    config.tenants.iter_mut().for_each(|t| t.fail = FailPolicy::Pass);
    let (before, mut m) = (config.clone(), mediator(&config));
    let (_a, _b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 11, 1))), None);
    config.tenants[1].name = String::new();
    config.tenants[1].vms.clear();
    let mut old = change(&mut m, 1, &before, &config);
    assert_eq!(poll(&mut old, 1), [(1, dropped(Reason::NoChannel))], "its ingress program has not judged it");
}

#[test]
fn a_packet_to_a_removed_vm_goes_on_without_its_program() {
    let mut config = tenants(2);
    let (before, mut m) = (config.clone(), mediator(&config));
    let (mut a, _b) = (attach(&mut m, 0, 0, GEOMETRY), attach(&mut m, 0, 1, GEOMETRY));
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 12))), None);
    vacate_vm(&mut config, 1, 1);
    let mut old = change(&mut m, 1, &before, &config);
    m.flush(1);
    a.pass_all();
    assert_eq!(poll_both(&mut m, &mut old, 2), [(1, PASS)]);
    assert!(m.submit(3, &SHARED, packet(2, 9, 12)).is_some(), "the address is no VM's");
}

#[test]
fn settings_change_for_new_packets() {
    let mut config = tenants(1);
    let (before, mut m) = (config.clone(), mediator(&config));
    let _a = attach(&mut m, 0, 0, GEOMETRY);
    assert_eq!(released(m.submit(0, &SHARED, packet(1, 1, 9))), None);
    config.tenants[0].deadline *= 3;
    config.tenants[0].fail = FailPolicy::Pass;
    drop(change(&mut m, 1, &before, &config));
    assert_eq!(released(m.submit(1, &SHARED, packet(2, 1, 9))), None);
    assert_eq!(poll(&mut m, DEADLINE), [(1, PASS)], "the old deadline, the new policy");
    assert_eq!(poll(&mut m, 3 * DEADLINE), []);
    assert_eq!(poll(&mut m, 3 * DEADLINE + 1), [(2, PASS)]);
}

#[test]
fn deferred_and_bound_vms_stay_so_if_they_are_kept() {
    let mut config = tenants(2);
    let (before, mut m) = (config.clone(), mediator(&config));
    let mut a = attach(&mut m, 0, 0, GEOMETRY);
    m.defer_ingress(&[vm_ref(0, 0), vm_ref(1, 0)]);
    m.bind(&[vm_ref(0, 0), vm_ref(1, 0)]);
    vacate_vm(&mut config, 1, 0);
    config.tenants[1].vms.push(vm("x", 11));
    drop(change(&mut m, 0, &before, &config));
    assert_eq!(released(m.submit(1, &SHARED, packet(1, 9, 1))), Some((1, PASS)), "judged at its port");
    let spoofed = Some((2, dropped(Reason::Spoofed)));
    assert_eq!(released(m.submit(1, &SHARED, packet(2, 1, 9))), spoofed, "it sends from its own port");
    assert_eq!(released(m.submit(1, &SHARED, packet(3, 9, 11))), Some((3, dropped(Reason::NoChannel))));
    assert_eq!(a.pass_all(), 0);
}

/// A step of the property test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Tenant 0's VM sends.
    Send,
    /// Its P4 VM judges up to this number of packets.
    Judge(usize),
    /// The mediator releases up to this number of packets.
    Poll(usize),
    /// Another `max_held`.
    Change(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Send),
        2 => (1_usize..9).prop_map(Step::Judge),
        2 => (0_usize..9).prop_map(Step::Poll),
        1 => (1_usize..40).prop_map(Step::Change),
    ]
}

proptest! {
    /// Whatever is held while `max_held` grows and shrinks leaves once, in order, with its verdict.
    #[test]
    fn no_packet_is_lost_or_reordered_by_changes(steps in proptest::collection::vec(step(), 1..200)) {
        let mut config = tenants(2);
        let mut m = mediator(&config);
        let mut a = attach(&mut m, 0, 0, Geometry { slots: 64, ..GEOMETRY });
        let (mut sent, mut out) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Send => match m.submit(0, &SHARED, packet(sent, 1, 9)) {
                    None => sent += 1,
                    Some(refused) => {
                        prop_assert_eq!(refused.disposition, dropped(Reason::Full));
                    }
                },
                Step::Judge(most) => {
                    m.flush(0);
                    a.answer(most, &mut |_, _| Action::Pass);
                }
                Step::Poll(most) => {
                    m.poll(0, most, |r| out.push((r.packet.serial, r.disposition)));
                }
                Step::Change(max_held) => {
                    let before = config.clone();
                    config.tenants[0].max_held = max_held;
                    let old = change(&mut m, 0, &before, &config);
                    prop_assert_eq!(old.held(), 0);
                }
            }
        }
        for _ in 0..20 {
            m.flush(0);
            a.pass_all();
            out.extend(poll(&mut m, 0));
        }
        let expected: Vec<_> = (0..sent).map(|serial| (serial, PASS)).collect();
        let left: Vec<_> = out.into_iter().filter(|(_, d)| *d != dropped(Reason::Full)).collect();
        prop_assert_eq!(left, expected);
        prop_assert_eq!(m.held(), 0);
    }
}
