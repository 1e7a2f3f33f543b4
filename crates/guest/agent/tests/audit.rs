//! The auditor on real interfaces, with an honest and then a dishonest cloud.

mod common;

use std::time::Duration;

use common::middle::{LogMode, Order};
use common::usable;
use common::world::World;
use p4shield_abi::Direction;
use p4shield_agent::audit::finding::{Digest, Finding, Share, exit_code, exit_code_of};
use p4shield_agent::tap::Hook;
use p4shield_agent::{Event, Summary};

/// Returns the findings and their exit code without late records, which a loaded machine causes.
fn apart_from_lateness(summary: Summary) -> (Vec<Finding>, u8) {
    let mut findings = summary.findings;
    findings.retain(|f| f.exit_code() != exit_code::LOG_STOPPED);
    let code = exit_code_of(&findings);
    (findings, code)
}

/// Returns the findings of an audit of honest traffic, `attack`, and honest traffic.
fn found(attack: impl FnOnce(&World)) -> (Vec<Finding>, u8) {
    let world = World::new(|_| {});
    let (summary, _) = world.audit(|| {
        world.traffic(100);
        attack(&world);
        world.traffic(200);
    });
    apart_from_lateness(summary)
}

#[test]
fn honest_traffic_is_proven_at_xdp_and_at_tc() {
    if !usable() {
        return;
    }
    for (hook, place) in [(Hook::Auto, "ingress at xdp"), (Hook::Tc, "ingress at tc")] {
        let world = World::new(|c| c.hook = hook);
        let (summary, events) = world.audit(|| world.traffic(500));
        let standing = summary.standing;
        assert_eq!(apart_from_lateness(summary), (vec![], exit_code::OK), "{hook:?}");
        for s in [standing.ingress, standing.egress].map(|s| s.expect("audited")) {
            assert_eq!((s.interface.packets, s.interface.not_whole), (500, 0));
            assert_eq!(s.verified, 500, "each packet was compared by count and digest");
            assert!(s.interface.others > 0, "ARP is counted separately: {s:?}");
        }
        let Event::Started { place: at, blind } = &events[0] else { panic!("{:?}", events[0]) };
        assert!(at.contains(place) && blind.is_empty(), "{at} {blind}");
    }
}

#[test]
fn packets_that_bypass_the_program_are_counted() {
    if !usable() {
        return;
    }
    let direction = Direction::Ingress;
    let (findings, code) = found(|w| w.middle.order(direction, Order::Bypass, 7));
    assert_eq!(findings, [Finding::Bypassed { direction, packets: 7, exact: true }]);
    assert_eq!(code, exit_code::BYPASSED);
    // What the VM sends may have been lost before the program. A large share of it is no loss.
    let (findings, code) = found(|w| w.middle.order(Direction::Egress, Order::Bypass, 7));
    assert_eq!(findings, [Finding::Unjudged { share: Share { packets: 7, of: 300 } }]);
    assert_eq!(code, exit_code::UNPROVEN);
    let (findings, code) = found(|w| w.middle.order(Direction::Egress, Order::Bypass, 60));
    assert_eq!(findings, [Finding::Bypassed { direction: Direction::Egress, packets: 60, exact: true }]);
    assert_eq!(code, exit_code::BYPASSED);
}

#[test]
fn another_program_on_the_page_is_found() {
    if !usable() {
        return;
    }
    let other = [0xb; 32];
    let (findings, code) = found(|w| w.middle.orders.lock().unwrap().program = Some(other));
    let direction = Direction::Ingress;
    assert_eq!(findings, [Finding::OtherProgram { direction, digest: Digest(other) }]);
    assert_eq!(code, exit_code::OTHER_PROGRAM);
}

/// Packets of a direction that bypasses the P4 VM by configuration are in no log and cause no finding.
#[test]
fn a_direction_that_is_not_audited_has_no_findings() {
    if !usable() {
        return;
    }
    let world = World::new(|c| c.egress = false);
    let (summary, _) = world.audit(|| {
        world.traffic(100);
        world.middle.order(Direction::Egress, Order::Bypass, 7);
        world.middle.order(Direction::Ingress, Order::Bypass, 3);
        world.traffic(200);
    });
    assert_eq!(summary.standing.egress, None);
    let bypassed = Finding::Bypassed { direction: Direction::Ingress, packets: 3, exact: true };
    assert_eq!(apart_from_lateness(summary), (vec![bypassed], exit_code::BYPASSED));
}

#[test]
fn skipped_and_repeated_packets_are_a_swap() {
    if !usable() {
        return;
    }
    for direction in Direction::ALL {
        for order in [Order::JudgePreviousAgain, Order::Corrupt] {
            let (findings, code) = found(|w| w.middle.order(direction, order, 1));
            assert_eq!(findings, [Finding::Swapped { direction, packets: 1 }], "{order:?}");
            assert_eq!(code, exit_code::SWAPPED);
        }
    }
}

#[test]
fn judged_packets_that_never_arrive_are_counted() {
    if !usable() {
        return;
    }
    for (withheld, expected) in [(4, exit_code::OK), (60, exit_code::WITHHELD)] {
        let world = World::new(|_| {});
        let (summary, _) = world.audit(|| {
            world.traffic(100);
            world.middle.order(Direction::Ingress, Order::Withhold, withheld);
            world.traffic(200);
        });
        let lost = summary.standing.ingress.map(|s| s.lost);
        let (findings, code) = apart_from_lateness(summary);
        assert_eq!((lost, code), (Some(withheld as u64), expected), "{findings:?}");
    }
}

#[test]
fn judged_packets_that_the_vm_never_sent_are_counted() {
    if !usable() {
        return;
    }
    let (findings, code) = found(|w| w.middle.order(Direction::Egress, Order::JudgeTwice, 3));
    assert_eq!(findings, [Finding::Invented { packets: 3, exact: true }]);
    assert_eq!(code, exit_code::INVENTED);
}

#[test]
fn a_stopped_replayed_or_forged_log_is_found() {
    if !usable() {
        return;
    }
    for mode in [LogMode::Stopped, LogMode::Replayed, LogMode::Forged] {
        let world = World::new(|_| {});
        let (summary, _) = world.audit(|| {
            world.middle.orders.lock().unwrap().log = mode;
            world.traffic(100);
            std::thread::sleep(Duration::from_millis(2_500));
        });
        let stopped = |f: &Finding| matches!(f, Finding::LogStopped { .. });
        assert!(summary.findings.iter().any(stopped), "{mode:?}: no genuine record arrived: {summary:?}");
        let cause = |f: &Finding| match mode {
            LogMode::Forged => matches!(f, Finding::LogForged { records: 10.. }),
            LogMode::Replayed => matches!(f, Finding::LogReplayed { records: 10.. }),
            _ => stopped(f),
        };
        assert!(summary.findings.iter().any(cause), "{mode:?}: {summary:?}");
        let code = if mode == LogMode::Stopped { exit_code::LOG_STOPPED } else { exit_code::LOG_FORGED };
        assert_eq!(summary.exit_code, code);
    }
}

#[test]
fn the_audit_continues_after_a_restarted_p4_vm() {
    if !usable() {
        return;
    }
    let (findings, code) = found(|w| {
        std::thread::sleep(Duration::from_millis(300));
        w.middle.orders.lock().unwrap().restart = true;
        let is_restart = |event: &Event| matches!(event, Event::Found(Finding::Restarted { .. }));
        w.wait_event("the restart is found", 0, is_restart);
        w.traffic(50);
        // The counts are aligned again, so the audit detects this bypass.
        std::thread::sleep(Duration::from_secs(3));
        w.middle.order(Direction::Ingress, Order::Bypass, 2);
    });
    assert!(matches!(
        findings[..],
        [
            Finding::Restarted { .. },
            Finding::Bypassed { direction: Direction::Ingress, packets: 2, exact: true }
        ]
    ));
    assert_eq!(code, exit_code::BYPASSED, "the worst finding applies");
}

/// A restarted host daemon re-creates its pages and has new P4 VMs.
#[test]
fn a_recreated_log_page_is_reopened() {
    if !usable() {
        return;
    }
    let (findings, _) = found(|w| {
        std::thread::sleep(Duration::from_millis(300));
        {
            let mut orders = w.middle.orders.lock().unwrap();
            (orders.restart, orders.page) = (true, true);
        }
        std::thread::sleep(Duration::from_millis(2_500));
    });
    assert!(matches!(findings[..], [Finding::Restarted { .. }]), "{findings:?}");
}

#[test]
fn shorter_headers_have_shorter_digests() {
    if !usable() {
        return;
    }
    let (findings, _) = found(|w| {
        w.middle.orders.lock().unwrap().header_bytes = Some(60);
        std::thread::sleep(Duration::from_millis(300));
        w.traffic(300);
        std::thread::sleep(Duration::from_millis(1_000));
        w.middle.order(Direction::Egress, Order::Corrupt, 1);
    });
    let direction = Direction::Egress;
    let swapped = Finding::Swapped { direction, packets: 1 };
    let short = Finding::ShortHeaders { header_bytes: 60, expected: 128 };
    assert!(findings.contains(&short) && findings.contains(&swapped), "{findings:?}");
}

#[test]
fn counters_alone_find_a_bypass_and_state_their_limits() {
    if !usable() {
        return;
    }
    let world = World::new(|c| c.counters_only = true);
    let (summary, events) = world.audit(|| {
        world.traffic(100);
        world.middle.order(Direction::Ingress, Order::Bypass, 150);
        world.traffic(200);
        std::thread::sleep(Duration::from_millis(1_500));
    });
    let Event::Started { blind, .. } = &events[0] else { panic!("{:?}", events[0]) };
    assert!(blind.contains("swapped packets are not detected"), "{blind}");
    let (findings, _) = apart_from_lateness(summary);
    assert!(
        matches!(findings[..], [Finding::Bypassed { direction: Direction::Ingress, packets: 140..=200, .. }]),
        "{findings:?}"
    );
}

/// The cloud unplugs the VM's interface and plugs another one. What bypassed the program before, after and
/// in between is reported.
#[test]
fn a_new_interface_launders_no_bypass() {
    if !usable() {
        return;
    }
    let world = World::new(|_| {});
    let (summary, _) = world.audit(|| {
        world.traffic(50);
        world.middle.order(Direction::Ingress, Order::Bypass, 3);
        world.traffic(20);
        for _ in 0..3 {
            world.replug();
            world.traffic(20);
        }
        world.middle.order(Direction::Ingress, Order::Bypass, 4);
        world.traffic(50);
    });
    assert_eq!(summary.findings.iter().map(treated_otherwise).sum::<u64>(), 7, "{summary:#?}");
    let replugged = summary.findings.iter().filter(|f| **f == Finding::Replugged).count();
    assert_eq!(replugged, 3, "{summary:#?}");
    let ingress = summary.standing.ingress.expect("audited");
    assert!(ingress.interface.packets >= 7 + 100, "the counts continue: {summary:#?}");
    assert_eq!(summary.exit_code, exit_code::BYPASSED);
}

/// The cloud unplugs the VM's interface right behind packets that bypassed the program, and plugs no other.
#[test]
fn an_unplugged_interface_hides_no_bypass() {
    if !usable() {
        return;
    }
    let world = World::new(|_| {});
    let (summary, _) = world.audit(|| {
        world.traffic(50);
        world.middle.order(Direction::Ingress, Order::Bypass, 3);
        world.traffic(20);
        world.vm.ip("link del eth0").unwrap();
        std::thread::sleep(Duration::from_secs(1));
    });
    assert_eq!(summary.findings.iter().map(treated_otherwise).sum::<u64>(), 3, "{summary:#?}");
    assert_eq!(summary.exit_code, exit_code::BYPASSED);
}

/// Returns the number of packets to the VM that a finding states as bypassed or swapped.
fn treated_otherwise(finding: &Finding) -> u64 {
    match finding {
        Finding::Bypassed { direction: Direction::Ingress, packets, .. }
        | Finding::Swapped { direction: Direction::Ingress, packets } => *packets,
        _ => 0,
    }
}

/// Frames that a new interface received before it has a tap are in its own counters.
#[test]
fn frames_before_the_tap_are_unseen() {
    if !usable() {
        return;
    }
    let world = World::new(|_| {});
    let (summary, _) = world.audit(|| {
        // The frames arrive while the interface has another name.
        world.replug_after(|| world.middle.and_wait(|o| o.inject = 40, |o| o.inject == 0));
        world.traffic(50);
    });
    let unseen = |f: &Finding| matches!(f, Finding::Unseen { direction: Direction::Ingress, frames: 40.. });
    assert!(summary.findings.iter().any(unseen), "{summary:#?}");
    assert!(summary.exit_code != exit_code::OK);
}
