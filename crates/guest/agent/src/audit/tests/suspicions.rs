//! No event discards a suspicion: attacks that swap packets and then move the audit's place.

use p4shield_abi::Direction;

use super::super::finding::{Finding, Notice, exit_code, exit_code_of};
use super::cloud::{Cloud, Treatment};

/// Returns how many packets the findings accuse the cloud of.
fn accused(found: &[Finding]) -> u64 {
    let of = |f: &Finding| match f {
        Finding::Swapped { packets, .. }
        | Finding::Bypassed { packets, .. }
        | Finding::Unaccounted { packets, .. } => *packets,
        _ => 0,
    };
    found.iter().map(of).sum()
}

/// Swaps two packets, waits two records, lets `event` happen, and goes on; 20 times.
fn swaps_before(direction: Direction, mut event: impl FnMut(&mut Cloud)) -> Cloud {
    let mut c = Cloud::new(direction, true);
    c.run(2_000, 9);
    for i in 0..40 {
        c.step(1, Treatment::Swap);
        if i % 2 == 1 {
            c.run(210, 9);
            event(&mut c);
            c.run(1_000, 9);
        }
    }
    c.run(1_500, 0);
    c
}

#[test]
fn detached_channels_launder_no_swap() {
    for direction in Direction::ALL {
        let mut c = swaps_before(direction, |c| {
            c.record.header_bytes = 0;
            c.run(150, 0);
            c.record.header_bytes = 128;
        });
        let found = c.conclude();
        assert_eq!(accused(&found), 40, "{found:?}");
        assert_eq!(exit_code_of(&found), exit_code::SWAPPED);
        assert_eq!(c.status().uncompared, 0);
    }
}

#[test]
fn longer_header_copies_launder_no_swap() {
    let mut c = swaps_before(Direction::Ingress, |c| c.record.header_bytes = 384 - c.record.header_bytes);
    let found = c.conclude();
    assert_eq!((accused(&found), c.status().uncompared), (40, 0), "{found:?}");
}

#[test]
fn a_change_of_the_covered_bytes_is_noticed() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(1_000, 2);
    c.record.header_bytes = 64;
    c.run(1_000, 2);
    let changed = Notice::CoverChanged { from: 128, to: 64 };
    assert!(c.seen.notices.contains(&changed), "{:?}", c.seen.notices);
}

/// With more losses than a sketch can list, what differed before is compared by number, and says so.
#[test]
fn losses_and_restarts_launder_no_swap() {
    let burst = |c: &mut Cloud| c.step(200, Treatment::Judged);
    let restart = |c: &mut Cloud| {
        c.log_stopped = true;
        c.run(150, 1);
        c.restart();
        c.log_stopped = false;
    };
    for event in [&burst as &dyn Fn(&mut Cloud), &restart] {
        let mut c = swaps_before(Direction::Ingress, event);
        let found = c.conclude();
        let s = c.status();
        let known = s.verified + s.uncompared + s.unaudited + accused(&found);
        assert!(known >= s.interface.packets, "{found:?} {s:?}");
        assert!(accused(&found) + s.uncompared >= 40, "{found:?} {s:?}");
    }
}

/// Packets that were judged before the losses and never arrive are still waited for, and counted.
#[test]
fn packets_missing_before_a_burst_of_losses_are_counted() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 9);
    for _ in 0..10 {
        c.step(1, Treatment::Judged);
    }
    c.run(110, 9).step(200, Treatment::Judged);
    c.run(3_000, 9).run(1_500, 0);
    let found = c.conclude();
    assert!(found.iter().all(|f| matches!(f, Finding::Withheld { .. })), "{found:?}");
    assert_eq!(c.status().lost, 210);
}

/// Copies of one packet are listed, however many are lost.
#[test]
fn many_equal_losses_hide_no_swap() {
    let mut c = Cloud::new(Direction::Ingress, true);
    c.run(2_000, 9);
    for _ in 0..9 {
        (0..40).for_each(|_| c.packet(7, Treatment::Judged));
        c.step(4, Treatment::Swap);
        c.run(3_000, 9);
    }
    c.run(1_500, 0);
    let found = c.conclude();
    assert_eq!((accused(&found), c.status().uncompared), (36, 0), "{found:?}");
}

#[test]
fn packets_delivered_late_are_a_share_with_a_limit() {
    for (late, is_finding) in [(3, false), (600, true)] {
        let mut c = Cloud::new(Direction::Ingress, true);
        c.run(3_000, 4);
        for n in 0..late + 30 {
            c.run(50, 1);
            if n < late {
                c.packet(n, Treatment::Judged);
            }
            if n >= 30 {
                c.packet(n - 30, Treatment::Bypass);
            }
        }
        c.run(4_000, 4).run(1_500, 0);
        let found = c.conclude();
        if is_finding {
            assert!(matches!(found[..], [Finding::Withheld { .. }]), "{found:?}");
        } else {
            assert_eq!((found, c.status().late, c.status().lost), (vec![], late, 0));
        }
    }
}
