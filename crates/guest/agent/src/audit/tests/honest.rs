//! Honest clouds cause no finding, whatever the traffic.

use p4shield_abi::Direction;
use proptest::prelude::*;

use super::super::finding::{Finding, Notice};
use super::cloud::{Cloud, Treatment};

#[test]
fn an_idle_interface_is_proven() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(3_000, 0);
    assert_eq!(c.conclude(), []);
}

#[test]
fn steady_traffic_is_proven_packet_by_packet() {
    for d in Direction::ALL {
        let mut c = Cloud::new(d, true);
        c.run(5_000, 7);
        assert_eq!(c.conclude(), []);
        assert!(c.verified() > 30_000, "{d:?}: {}", c.verified());
    }
}

#[test]
fn interrupted_traffic_is_proven_without_digests() {
    for d in Direction::ALL {
        let mut c = Cloud::new(d, false);
        for _ in 0..5 {
            c.run(700, 5).run(1_500, 0);
        }
        assert_eq!(c.conclude(), []);
    }
}

#[test]
fn an_audit_that_is_too_short_is_unproven() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(150, 3);
    assert!(c.conclude().contains(&Finding::Unproven { direction: Direction::Ingress }));
}

#[test]
fn packets_in_flight_at_the_start_are_not_invented() {
    for d in Direction::ALL {
        let mut c = Cloud::new(d, true);
        c.delay = 150;
        let unseen = if d == Direction::Egress { Treatment::Judged } else { Treatment::Bypass };
        (0..3).for_each(|content| c.packet(content, unseen));
        c.run(2_000, 0);
        assert_eq!(c.conclude(), [], "{d:?}");
    }
}

#[test]
fn reordering_within_the_window_is_no_swap() {
    for d in Direction::ALL {
        let mut c = Cloud::new(d, true);
        c.jitter = 3;
        c.run(10_000, 2);
        assert_eq!(c.conclude(), [], "{d:?}");
        assert!(c.verified() > 0);
    }
}

#[test]
fn identical_packets_cause_no_finding() {
    let mut c = Cloud::new(Direction::Ingress, true);
    for _ in 0..3_000 {
        c.step(0, Treatment::Honest);
        c.packet(77, Treatment::Honest);
    }
    c.run(2_000, 0);
    assert_eq!(c.conclude(), []);
}

/// Nearly all packets are equal, the audit begins while they flow, and it ends while they flow.
#[test]
fn equal_packets_accuse_no_cloud() {
    for seed in 1..=25 {
        for direction in Direction::ALL {
            let mut c = Cloud::new(direction, true);
            (0..seed).for_each(|_| _ = c.random());
            c.delay = c.random() % 20;
            let (every, rare) = (1 + c.random() % 4, 1 << (c.random() % 12));
            let begin = 1 + c.random() % 2_000;
            let end = begin + 1 + c.random() % 20_000;
            for ms in 0..end {
                if ms == begin {
                    c.begin_audit();
                }
                c.step(0, Treatment::Honest);
                if ms % every == 0 {
                    let content = if c.random() % rare == 1 { c.random() } else { 77 };
                    c.packet(content, Treatment::Honest);
                }
            }
            let found = c.conclude();
            // Until the comparison finds where a record ends, packets are compared by their number.
            let accuses = |f: &Finding| !matches!(f, Finding::Unproven { .. } | Finding::Uncompared { .. });
            assert!(!found.iter().any(accuses), "{direction:?}, seed {seed}: {found:?}");
        }
    }
}

#[test]
fn packets_without_a_digest_are_a_share() {
    let mut c = Cloud::new(Direction::Egress, true);
    c.run(2_000, 3);
    c.not_whole = true;
    c.run(2_000, 3);
    c.not_whole = false;
    let before = c.verified();
    c.run(4_000, 3);
    assert!(c.verified() > before + 6_000, "the audit compares digests again");
    let off = |n: &Notice| matches!(n, Notice::SwapDetectionOff { direction: Direction::Egress, .. });
    assert_eq!(c.seen.notices.iter().filter(|n| off(n)).count(), 1, "reported once");
    let found = c.conclude();
    let [Finding::Uncompared { direction: Direction::Egress, share }] = found[..] else {
        panic!("{found:?}")
    };
    assert!(share.of > 20_000 && (16_000..18_500).contains(&share.packets), "{share}");
}

/// A few packets that cannot be digested cost a few packets' comparison.
#[test]
fn one_packet_without_a_digest_hides_no_swap() {
    for swap in [false, true] {
        let mut c = Cloud::new(Direction::Ingress, true);
        c.run(2_000, 3);
        for i in 0..600 {
            c.run(9, 3).run(4, 0);
            c.not_whole = true;
            c.step(1, Treatment::Honest);
            c.run(4, 0);
            c.not_whole = false;
            c.step(1, if swap && i % 10 == 0 { Treatment::Swap } else { Treatment::Honest });
        }
        c.run(1_500, 0);
        let found = c.conclude();
        if swap {
            let accused = |f: &Finding| match f {
                Finding::Swapped { packets, .. } | Finding::Bypassed { packets, .. } => *packets,
                _ => 0,
            };
            assert_eq!(found.iter().map(accused).sum::<u64>(), 60, "{found:?}");
        } else {
            assert_eq!(found, []);
        }
        assert!(c.status().uncompared <= 900, "{:?}", c.status());
    }
}

/// With more of them than a sketch can list, only numbers are compared; these still match.
#[test]
fn many_packets_without_a_digest_accuse_no_cloud() {
    for direction in Direction::ALL {
        let mut c = Cloud::new(direction, true);
        c.run(2_000, 3);
        for _ in 0..600 {
            c.run(9, 3);
            c.not_whole = true;
            c.run(5, 5);
            c.not_whole = false;
        }
        c.run(1_500, 0);
        let found = c.conclude();
        assert!(matches!(found[..], [Finding::Uncompared { .. }]), "{found:?}");
    }
}

/// Seconds of simulated time of each direction.
fn seconds() -> u64 {
    p4shield_need::extent(80, 2_000)
}

/// Losses on both sides of the P4 VM, delays, reordering, packets that the network repeats, and P4 VMs that
/// restart are no accusation.
#[test]
fn lossy_clouds_are_never_accused() {
    for direction in Direction::ALL {
        let mut c = Cloud::new(direction, true);
        c.run(1_000, 2);
        let lost = match direction {
            Direction::Ingress => Treatment::Judged,
            Direction::Egress => Treatment::Bypass,
        };
        for ms in 0..seconds() * 1_000 {
            let (luck, content) = (c.random(), c.random());
            match luck % 1_000 {
                0..4 => c.packet(content, lost),
                4..8 => (0..3).for_each(|_| c.packet(content, Treatment::Honest)),
                8..40 => (c.delay, c.jitter) = (luck >> 32 & 15, luck >> 40 & 3),
                _ => {}
            }
            if ms % 20_000 == 9_999 {
                c.log_stopped = true;
                c.run(150, 1);
                c.restart();
                c.log_stopped = false;
            }
            c.step(luck >> 48 & 3, Treatment::Honest);
        }
        c.run(1_500, 0);
        let found = c.conclude();
        let accuses = |f: &Finding| {
            !matches!(f, Finding::Restarted { .. } | Finding::Unaccounted { .. } | Finding::Unjudged { .. })
        };
        assert!(!found.iter().any(accuses), "{direction:?}: {found:?}");
        let s = c.status();
        let all = s.interface.packets;
        assert!(s.lost > seconds() && s.verified > all * 9 / 10, "{direction:?}: {s:?}");
        // The first two records after a restart are compared, whatever was lost between them.
        let restarts = seconds() / 20;
        assert!(s.uncompared <= 150 * (restarts + 1), "{direction:?}: {s:?}");
    }
}

/// Queries and keep-alives: packets of few kinds, of which some are lost, alone or many at once.
#[test]
fn losses_among_few_kinds_of_packets_accuse_no_cloud() {
    for seed in 1..=p4shield_need::extent(24, 600) {
        let kinds = 10 + seed % 21;
        let direction = Direction::ALL[seed as usize / 2 % 2];
        let lost = if direction == Direction::Ingress { Treatment::Judged } else { Treatment::Bypass };
        let mut c = Cloud::new(direction, true);
        (0..seed).for_each(|_| _ = c.random());
        for ms in 0..8_000 {
            for _ in 0..[1, 3, 10][seed as usize % 3] {
                let (luck, content) = (c.random() % 1_000, c.random() % kinds);
                c.packet(content, if luck < 5 { lost } else { Treatment::Honest });
            }
            if seed % 4 == 0 && ms % 2_000 == 1_500 {
                (0..20).for_each(|content| c.packet(content % kinds, lost));
            }
            c.step(0, Treatment::Honest);
        }
        c.run(1_500, 0);
        let found = c.conclude();
        let accuses = |f: &Finding| match f {
            Finding::Unproven { .. }
            | Finding::Uncompared { .. }
            | Finding::Unjudged { .. }
            | Finding::Withheld { .. } => false,
            // What the VM sends and what is lost before the program look alike: a share.
            Finding::Bypassed { .. } => direction == Direction::Ingress,
            _ => true,
        };
        assert!(!found.iter().any(accuses), "{direction:?}, {kinds} kinds, seed {seed}: {found:?}");
    }
}

/// Counters that include ARP are tolerated at the configured rate, and no faster.
#[test]
fn unmediated_frames_are_tolerated_at_their_rate_only() {
    for (every_ms, accused) in [(1_000, false), (20, true)] {
        let mut c = Cloud::new(Direction::Ingress, false);
        c.allow_unmediated(5);
        for i in 0..20_000 {
            let arp = if i % every_ms == 0 { Treatment::Bypass } else { Treatment::Honest };
            c.step(u64::from(arp == Treatment::Bypass), arp);
        }
        c.run(2_000, 0);
        assert_eq!(!c.conclude().is_empty(), accused, "one frame per {every_ms} ms");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No pattern of honest traffic, delay and reordering causes a finding.
    #[test]
    fn honest_clouds_are_never_accused(
        egress: bool,
        digests: bool,
        delay in 0u64..20,
        bursts in prop::collection::vec((0u64..400, 0u64..12), 1..12),
    ) {
        let mut c = Cloud::new(if egress { Direction::Egress } else { Direction::Ingress }, digests);
        c.delay = delay;
        c.run(600, 0);
        for (ms, packets) in bursts {
            c.run(ms, packets);
        }
        c.run(1_500, 0);
        prop_assert_eq!(c.conclude(), vec![]);
    }
}
