//! Each attack of a malicious cloud, and its finding.

use p4shield_abi::Direction;
use p4shield_seal::LogRefusal;
use proptest::prelude::*;

use super::super::expect::{Expectations, ExpectedProgram};
use super::super::finding::{Digest, Finding, Notice, Share, exit_code, exit_code_of};
use super::cloud::{Cloud, Treatment};

/// Runs an honest cloud, one attack, and honest traffic again; returns the findings.
fn after(direction: Direction, digests: bool, traffic: u64, attack: impl FnOnce(&mut Cloud)) -> Vec<Finding> {
    let mut c = Cloud::new(direction, digests);
    c.run(1_500, 0).run(1_500, traffic);
    assert_eq!(c.findings(), [], "honest so far");
    attack(&mut c);
    c.run(2_500, traffic).run(1_500, 0);
    c.conclude()
}

fn many(n: u64, treatment: Treatment) -> impl FnOnce(&mut Cloud) {
    move |c| {
        for _ in 0..n {
            c.step(1, treatment);
        }
    }
}

#[test]
fn a_bypass_is_counted_exactly() {
    let direction = Direction::Ingress;
    for traffic in [0, 1, 9] {
        for n in [1, 3, 50] {
            let found = after(direction, true, traffic, many(n, Treatment::Bypass));
            let want = Finding::Bypassed { direction, packets: n, exact: true };
            assert_eq!(found, [want], "{traffic} packets per millisecond, {n} bypassed");
            assert_eq!(exit_code_of(&found), exit_code::BYPASSED);
        }
    }
}

/// From inside the VM, a packet that was lost before the program looks like one that bypassed it.
#[test]
fn packets_from_the_vm_without_a_verdict_are_never_proven() {
    let direction = Direction::Egress;
    for (traffic, n) in [(0, 1), (9, 1), (9, 50)] {
        let found = after(direction, true, traffic, many(n, Treatment::Bypass));
        let [Finding::Unjudged { share }] = found[..] else { panic!("{found:?}") };
        assert_eq!(share.packets, n, "{traffic} packets per millisecond");
        assert_eq!(exit_code_of(&found), exit_code::UNPROVEN);
    }
    for traffic in [0, 1] {
        let found = after(direction, true, traffic, many(300, Treatment::Bypass));
        let want = Finding::Bypassed { direction, packets: 300, exact: true };
        assert_eq!(found.first(), Some(&want), "more than accepted");
    }
}

#[test]
fn packets_without_a_digest_do_not_bypass_unnoticed() {
    for traffic in [0, 3] {
        let found = after(Direction::Ingress, true, traffic, |c| {
            c.run(10, 0);
            c.not_whole = true;
            many(5, Treatment::Bypass)(c);
            c.run(10, 0);
            c.not_whole = false;
        });
        let bypassed = Finding::Bypassed { direction: Direction::Ingress, packets: 5, exact: false };
        assert_eq!(found.first(), Some(&bypassed), "{found:?}");
    }
}

#[test]
fn counters_alone_detect_a_bypass_in_quiet_moments() {
    let found = after(Direction::Ingress, false, 0, many(4, Treatment::Bypass));
    assert_eq!(found, [Finding::Bypassed { direction: Direction::Ingress, packets: 4, exact: true }]);
    let found = after(Direction::Egress, false, 0, many(4, Treatment::Bypass));
    assert_eq!(found, [Finding::Unjudged { share: Share { packets: 4, of: 4 } }]);
}

#[test]
fn withheld_packets_are_counted_and_limited() {
    for (traffic, n, accused) in [(0, 4, false), (6, 5, false), (6, 2_000, true)] {
        let mut c = Cloud::new(Direction::Ingress, true);
        c.run(1_500, 0).run(1_500, traffic);
        many(n, Treatment::Judged)(&mut c);
        c.run(2_500, traffic).run(1_500, 0);
        let found = c.conclude();
        assert_eq!(c.status().lost, n);
        assert_eq!(!found.is_empty(), accused, "{found:?}");
        assert!(found.iter().all(|f| matches!(f, Finding::Withheld { .. })), "{found:?}");
    }
}

#[test]
fn judged_packets_that_the_vm_never_sent_are_counted() {
    let found = after(Direction::Egress, true, 6, many(2, Treatment::Judged));
    assert_eq!(found, [Finding::Invented { packets: 2, exact: true }]);
    assert_eq!(exit_code_of(&found), exit_code::INVENTED);
}

/// Packet A bypasses the program, which judges B twice: the counters match, but not the digests.
#[test]
fn skipping_a_and_judging_b_twice_is_a_swap() {
    for direction in Direction::ALL {
        for traffic in [0, 4] {
            let found = after(direction, true, traffic, |c| {
                c.packet(0xb, Treatment::Honest);
                c.packet(0xa, Treatment::Bypass);
                c.packet(0xb, Treatment::Judged);
            });
            assert_eq!(
                found,
                [Finding::Swapped { direction, packets: 1 }],
                "{traffic} packets per millisecond"
            );
            assert_eq!(exit_code_of(&found), exit_code::SWAPPED);
        }
    }
}

#[test]
fn only_digests_detect_changed_packets() {
    let swap = || many(1, Treatment::Swap);
    assert_eq!(
        after(Direction::Ingress, true, 3, swap()),
        [Finding::Swapped { direction: Direction::Ingress, packets: 1 }]
    );
    assert_eq!(after(Direction::Ingress, false, 0, swap()), [], "counters alone miss the change");
}

#[test]
fn endless_swaps_are_found_without_a_quiet_moment() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 2);
    for _ in 0..60 {
        c.run(99, 2).step(2, Treatment::Honest);
        c.packet(1, Treatment::Swap);
    }
    assert!(matches!(c.findings(), [Finding::Swapped { .. }, ..]), "{:?}", c.findings());
    for i in 0..6_000 {
        c.step(2, Treatment::Honest);
        c.packet(i, Treatment::Swap);
    }
    // There are too many to list, but not to notice.
    let found = c.conclude();
    assert!(found.iter().any(|f| matches!(f, Finding::Uncompared { .. })), "{found:?}");
    assert!(
        (1..8).contains(&c.findings().len()),
        "a long incident is reported once, not per record: {:?}",
        c.findings()
    );
}

#[test]
fn a_packet_kept_for_a_minute_bypasses_its_program() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(3_000, 2);
    c.packet(7, Treatment::Judged);
    c.run(60_000, 2);
    c.packet(7, Treatment::Bypass);
    c.run(3_000, 2);
    assert!(
        c.conclude().contains(&Finding::Bypassed { direction: Direction::Ingress, packets: 1, exact: true }),
        "{:?}",
        c.findings()
    );
}

/// Only what was in flight when the audit began is not part of it.
#[test]
fn a_bypass_at_the_start_is_no_part_of_the_start() {
    for direction in Direction::ALL {
        let mut c = Cloud::new(direction, true);
        let bypass = if direction == Direction::Ingress { Treatment::Bypass } else { Treatment::Judged };
        for _ in 0..2_900 {
            c.step(3, bypass);
            let content = c.random();
            c.packet(content, Treatment::Honest);
        }
        c.run(6_000, 4);
        let found = c.conclude();
        assert!(!found.is_empty(), "{direction:?}: {:?}", c.status());
    }
}

#[test]
fn a_full_bypass_is_found_without_a_quiet_moment() {
    for digests in [true, false] {
        let mut c = Cloud::new(Direction::Ingress, digests);
        c.run(1_500, 0).run(1_500, 5);
        for _ in 0..6_000 {
            c.step(5, Treatment::Bypass);
        }
        c.run(1_500, 0);
        let mut sum = 0;
        for f in c.conclude() {
            let Finding::Bypassed { direction: Direction::Ingress, packets, .. } = f else { panic!("{f:?}") };
            sum += packets;
        }
        assert_eq!(sum, 30_000, "digests: {digests}; each packet is reported once");
    }
}

#[test]
fn an_incident_is_reported_once() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(3_000, 3);
    c.step(1, Treatment::Bypass);
    c.run(10_000, 3);
    assert_eq!(c.findings().len(), 1, "{:?}", c.findings());
    c.step(1, Treatment::Bypass);
    c.run(3_000, 3);
    assert_eq!(c.findings().len(), 2, "the next incident is reported, too");
}

#[test]
fn a_stopped_log_is_found_and_its_return_noticed() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 1);
    c.log_stopped = true;
    c.run(3_000, 1);
    assert!(matches!(c.findings(), [Finding::LogStopped { silent_ms: 1000.. }]), "{:?}", c.findings());
    assert!(
        !c.audit.status(Direction::Ingress).expect("audited").aligned,
        "without records no packet is proven"
    );
    c.log_stopped = false;
    c.run(2_000, 1);
    assert_eq!(c.conclude().len(), 1, "the totals include packets judged meanwhile");
}

/// The cloud stops the log for good before it bypasses the program.
#[test]
fn packets_after_the_log_stopped_are_reported() {
    for direction in Direction::ALL {
        let mut c = Cloud::new(direction, true);
        c.run(2_000, 1);
        c.log_stopped = true;
        c.run(3_000, 1);
        let found = c.conclude();
        assert_eq!(exit_code_of(&found), exit_code::LOG_STOPPED);
        let packets = found.iter().find_map(|f| match f {
            Finding::Unrecorded { direction: d, packets } if *d == direction => Some(*packets),
            _ => None,
        });
        assert!(packets.is_some_and(|n| n >= 2_000), "{found:?}");
    }
}

/// The cloud stops the log so shortly before the end that it does not count as stopped yet.
#[test]
fn packets_that_the_last_record_should_contain_are_reported() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 1);
    c.log_stopped = true;
    many(5, Treatment::Bypass)(&mut c);
    c.run(990, 0);
    let found = c.conclude();
    assert!(
        matches!(found[..], [Finding::Unrecorded { direction: Direction::Ingress, packets: 5.. }]),
        "{found:?}"
    );
}

#[test]
fn a_log_without_records_is_a_stopped_log() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.log_stopped = true;
    c.run(3_000, 1);
    assert!(matches!(c.findings(), [Finding::LogStopped { .. }]));
}

#[test]
fn forged_and_replayed_records_are_reported_once() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 1);
    for _ in 0..5 {
        c.refuse(LogRefusal::Forged);
        c.refuse(LogRefusal::Replayed);
        c.refuse(LogRefusal::Replayed);
    }
    c.run(2_000, 1);
    let found = c.conclude();
    assert_eq!(found, [Finding::LogForged { records: 5 }, Finding::LogReplayed { records: 10 }]);
    assert_eq!(exit_code_of(&found), exit_code::LOG_FORGED);
}

#[test]
fn a_broken_chain_restarts_the_comparison() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 1);
    c.refuse(LogRefusal::ChainBroken);
    c.run(3_000, 1);
    let before = c.verified();
    c.run(2_000, 1);
    assert!(c.verified() > before);
    assert_eq!(c.conclude(), [Finding::LogChainBroken { records: 1 }]);
}

#[test]
fn a_delayed_log_is_found() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(5_000, 1);
    c.publish_late(4_000);
    c.run(2_000, 1);
    let found = c.conclude();
    assert_eq!(found, [Finding::LogDelayed { by_ms: 4_000 }]);
    assert_eq!(exit_code_of(&found), exit_code::LOG_STOPPED);
}

/// The log reports the cloud's attacks on the info page.
#[test]
fn the_log_reports_refused_information() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.info(100, 100, 100);
    c.run(2_000, 1);
    assert_eq!(c.findings(), [], "refused before the audit");
    c.info(2, 3, 1);
    c.run(3_000, 1);
    assert_eq!(c.seen.notices.iter().filter(|n| **n == Notice::InfoStale { times: 1 }).count(), 1);
    let found = c.conclude();
    assert_eq!(found, [Finding::InfoRefused { forged: 2, replayed: 3 }]);
    assert_eq!(exit_code_of(&found), exit_code::INFO_REFUSED);
}

#[test]
fn a_log_that_stays_late_is_reported_once() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(5_000, 1);
    c.log_stopped = true;
    for _ in 0..20 {
        c.run(100, 1);
        c.publish_late(4_000);
    }
    c.run(1_000, 1);
    let late = |f: &&Finding| matches!(f, Finding::LogDelayed { .. });
    assert_eq!(c.findings().iter().filter(late).count(), 1, "{:?}", c.findings());
}

/// The worst finding determines the exit code; an unproven direction ranks last.
#[test]
fn exit_codes_rank_findings() {
    let d = Direction::Ingress;
    let unproven = Finding::Unproven { direction: d };
    let info = Finding::InfoRefused { forged: 1, replayed: 0 };
    let bypass = Finding::Bypassed { direction: d, packets: 1, exact: true };
    assert_eq!(exit_code_of([]), exit_code::OK);
    assert_eq!(exit_code_of([&unproven]), exit_code::UNPROVEN);
    assert_eq!(exit_code_of([&unproven, &info]), exit_code::INFO_REFUSED);
    assert_eq!(exit_code_of([&info, &unproven, &bypass]), exit_code::BYPASSED);
}

/// A restart of the P4 VM does not hide packets that bypassed it.
#[test]
fn packets_around_a_restart_are_unaccounted() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 2);
    c.log_stopped = true;
    c.run(100, 0);
    for _ in 0..40 {
        c.step(1, Treatment::Bypass);
    }
    c.run(100, 0);
    c.restart();
    c.log_stopped = false;
    c.run(3_000, 2);
    assert_eq!(
        c.conclude(),
        [
            Finding::Restarted { epoch: 2 },
            Finding::Unaccounted { direction: Direction::Ingress, packets: 40 }
        ]
    );
}

const A: [u8; 32] = [0xa; 32];
const B: [u8; 32] = [0xb; 32];

/// Runs a cloud whose tenant expects program A on ingress; returns the findings.
fn expecting(attack: impl FnOnce(&mut Cloud)) -> Vec<Finding> {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.record.programs[0] = A;
    let programs = [ExpectedProgram::OneOf(vec![Digest(A)]), ExpectedProgram::None];
    c.expect(Expectations { programs, ..Expectations::default() });
    c.run(1_500, 2);
    assert_eq!(c.findings(), [], "honest so far");
    attack(&mut c);
    c.run(2_500, 2).run(1_500, 0);
    c.conclude()
}

#[test]
fn another_program_is_a_finding() {
    let direction = Direction::Ingress;
    assert_eq!(expecting(|_| {}), []);
    let found = expecting(|c| {
        c.record.programs[0] = B;
        c.run(500, 2);
        c.record.programs[0] = A;
    });
    assert_eq!(found, [Finding::OtherProgram { direction, digest: Digest(B) }]);
    assert_eq!(exit_code_of(&found), exit_code::OTHER_PROGRAM);
    let found = expecting(|c| c.record.programs[1] = B);
    let direction = Direction::Egress;
    assert_eq!(found, [Finding::OtherProgram { direction, digest: Digest(B) }], "no program is expected");
}

#[test]
fn packets_judged_without_a_program_are_a_finding() {
    let direction = Direction::Ingress;
    let found = expecting(|c| {
        // Between two records.
        c.run(20, 2);
        c.record.totals[0].without_program += 40;
    });
    assert_eq!(found, [Finding::NoProgram { direction, packets: 40 }]);
    assert_eq!(exit_code_of(&found), exit_code::NO_PROGRAM);
    let found = expecting(|c| c.record.programs[0] = [0; 32]);
    assert_eq!(found, [Finding::NoProgram { direction, packets: 0 }], "it stays away");
    let found = expecting(|c| {
        c.record.programs[0] = [0; 32];
        c.run(500, 0);
        c.record.programs[0] = A;
    });
    assert_eq!(found, [], "a P4 VM that starts has no program for a moment");
}

/// A program that is loaded and replaced between two records is in neither of them.
#[test]
fn a_replacement_that_was_not_announced_is_a_finding() {
    let found = expecting(|c| c.record.replacements += 2);
    assert_eq!(found, [Finding::Replaced { replacements: 2 }]);
    assert_eq!(exit_code_of(&found), exit_code::REPLACED);
    let mut c = Cloud::new(Direction::Ingress, true);
    c.record.replacements = 7;
    c.expect(Expectations { replacements: 1, ..Expectations::default() });
    c.run(500, 1);
    c.record.replacements += 1;
    c.run(500, 1);
    assert_eq!(c.findings(), [], "announced");
    c.record.replacements += 1;
    c.run(500, 1);
    assert_eq!(c.findings(), [Finding::Replaced { replacements: 1 }]);
    // A new P4 VM counts from 0 again.
    c.restart();
    c.record.replacements = 1;
    c.run(3_000, 1);
    let replaced = c.findings().iter().filter(|f| matches!(f, Finding::Replaced { .. })).count();
    assert_eq!(replaced, 2, "{:?}", c.findings());
}

#[test]
fn a_shorter_header_copy_is_a_finding() {
    let found = expecting(|c| c.record.header_bytes = 34);
    assert_eq!(found, [Finding::ShortHeaders { header_bytes: 34, expected: 128 }]);
    assert_eq!(exit_code_of(&found), exit_code::SHORT_HEADERS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// An audit with digests that counted honest traffic before and a quiet moment after detects any mix of
    /// attacks and traffic. Withheld packets are losses; all others are findings.
    #[test]
    fn no_attack_ends_without_a_finding(
        egress: bool,
        traffic in 0u64..6,
        attack in prop::collection::vec((0u64..120, prop_oneof![
            Just(Treatment::Bypass), Just(Treatment::Judged), Just(Treatment::Swap)
        ]), 1..6),
    ) {
        let direction = if egress { Direction::Egress } else { Direction::Ingress };
        let mut c = Cloud::new(direction, true);
        c.run(1_500, 0).run(1_500, traffic);
        for (gap, treatment) in &attack {
            c.run(*gap, traffic);
            c.step(1, *treatment);
        }
        c.run(2_500, traffic).run(1_500, 0);
        let found = c.conclude();
        let is_loss = !egress && attack.iter().all(|(_, t)| *t == Treatment::Judged);
        prop_assert_eq!(found.is_empty(), is_loss, "{:?}", found);
        let lost = attack.len() as u64;
        prop_assert!(!is_loss || c.status().lost == lost, "{:?}", c.status());
    }
}
