//! The auditor on real interfaces while the VM's key rotates.

mod common;

use std::time::Duration;

use common::middle::Order;
use common::usable;
use common::world::World;
use p4shield_abi::Direction;
use p4shield_agent::audit::finding::{Finding, Notice, exit_code, exit_code_of};
use p4shield_agent::tap::Hook;
use p4shield_agent::{Event, Summary};
use p4shield_seal::TenantKey;

/// Puts a new key into the auditor's file, waits until the auditor has it, and returns it.
fn replace_key(world: &World) -> [u8; 32] {
    let is_new_key = |event: &Event| matches!(event, Event::Noticed(Notice::NewKey));
    let before = world.count(is_new_key);
    let path = &world.config.vm.key;
    let new = TenantKey::random(path).unwrap();
    new.replace(path).unwrap();
    world.wait_event("the auditor's new key", before, is_new_key);
    *new.expose()
}

fn rotate(world: &World) {
    let new = replace_key(world);
    world.middle.and_wait(|o| o.rotate = Some(new), |o| o.rotate.is_none());
}

/// Returns the findings and their exit code without late records, which a loaded machine causes.
fn apart_from_lateness(summary: &Summary) -> (Vec<Finding>, u8) {
    let mut findings = summary.findings.clone();
    findings.retain(|f| f.exit_code() != exit_code::LOG_STOPPED);
    let code = exit_code_of(&findings);
    (findings, code)
}

fn noticed(events: &[Event], notice: &Notice) -> usize {
    events.iter().filter(|e| matches!(e, Event::Noticed(n) if n == notice)).count()
}

#[test]
fn every_packet_is_compared_while_keys_rotate() {
    if !usable() {
        return;
    }
    for hook in [Hook::Auto, Hook::Tc] {
        let world = World::new(|c| c.hook = hook);
        let (summary, events) = world.audit(|| {
            std::thread::scope(|s| {
                let traffic = s.spawn(|| world.traffic(2_500));
                std::thread::sleep(Duration::from_millis(300));
                rotate(&world);
                std::thread::sleep(Duration::from_millis(700));
                rotate(&world);
                traffic.join().unwrap();
            });
        });
        assert_eq!(apart_from_lateness(&summary), (vec![], exit_code::OK), "{hook:?}");
        for s in [summary.standing.ingress, summary.standing.egress].map(|s| s.expect("audited")) {
            assert_eq!((s.interface.packets, s.interface.not_whole), (2_500, 0));
            assert_eq!((s.verified, s.uncompared), (2_500, 0), "each packet, by its digest");
        }
        assert_eq!((noticed(&events, &Notice::NewKey), noticed(&events, &Notice::KeyRotated)), (2, 2));
    }
}

#[test]
fn a_replugged_interface_is_compared_while_a_key_rotates() {
    if !usable() {
        return;
    }
    let world = World::new(|_| {});
    let (summary, _) = world.audit(|| {
        world.traffic(200);
        let new = replace_key(&world);
        world.replug();
        world.traffic(200);
        world.middle.and_wait(|o| o.rotate = Some(new), |o| o.rotate.is_none());
        world.traffic(400);
    });
    let (findings, _) = apart_from_lateness(&summary);
    let expected = |f: &Finding| matches!(f, Finding::Replugged | Finding::Unseen { .. });
    assert!(findings.iter().all(expected), "{findings:?}");
    let ingress = summary.standing.ingress.unwrap();
    assert_eq!((ingress.interface.packets, ingress.verified, ingress.uncompared), (800, 800, 0));
}

#[test]
fn a_swap_while_a_key_rotates_is_found() {
    if !usable() {
        return;
    }
    for direction in Direction::ALL {
        let world = World::new(|_| {});
        let (summary, _) = world.audit(|| {
            world.traffic(100);
            rotate(&world);
            world.middle.order(direction, Order::JudgePreviousAgain, 1);
            world.traffic(200);
        });
        let (findings, code) = apart_from_lateness(&summary);
        assert_eq!(findings, [Finding::Swapped { direction, packets: 1 }]);
        assert_eq!(code, exit_code::SWAPPED);
    }
}

#[test]
fn a_log_that_keeps_its_key_beyond_the_window_is_a_finding() {
    if !usable() {
        return;
    }
    let world = World::new(|c| c.key_window_ms = 500);
    let (summary, _) = world.audit(|| {
        replace_key(&world);
        std::thread::sleep(Duration::from_secs(3));
    });
    let found = summary.findings.iter().any(|f| matches!(f, Finding::LogOldKey { records } if *records > 1));
    assert!(found, "{:?}", summary.findings);
    assert_eq!(exit_code_of(&summary.findings), exit_code::LOG_FORGED);
}

#[test]
fn a_key_file_that_is_refused_leaves_the_audit_its_key() {
    if !usable() {
        return;
    }
    let world = World::new(|_| {});
    let (summary, events) = world.audit(|| {
        std::fs::write(&world.config.vm.key, b"short").unwrap();
        world.traffic(300);
        std::fs::remove_file(&world.config.vm.key).unwrap();
        world.traffic(300);
    });
    assert_eq!(apart_from_lateness(&summary), (vec![], exit_code::OK));
    assert_eq!(noticed(&events, &Notice::NewKey), 0);
}
