//! An operator's week in fast motion: the configuration changes in random order, and the daemon is killed
//! and upgraded, while real switches carry pings and TCP. The tenants that a change does not concern lose
//! nothing.
//!
//! `P4SHIELD_EFFORT` sets how often, `P4SHIELD_SEED` the order of changes.

#[path = "../common/mod.rs"]
mod common;

mod cloud;
mod configuration;
mod machines;
mod traces;
mod upgrades;

use cloud::{Cloud, ONE, usable};
use configuration::{Attachment, Configuration};
use p4shield_need::extent;
use p4shield_testbed::OpenVswitch;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

/// What happened during changes: pings that were answered and lost, and drops that no machine's load
/// explains.
#[derive(Debug)]
struct Phase {
    restarts: u64,
    bob: (usize, usize),
    alice: (usize, usize),
    bobs_drops: String,
}

impl Cloud {
    /// Changes the configuration under pings and TCP.
    fn change_often(
        &self,
        configuration: &mut Configuration,
        random: &mut u64,
        (changes, gentle): (u64, bool),
    ) -> Phase {
        let (bob, alice, stream) = (self.pings("10.9.6.3"), self.pings("10.9.6.1"), self.stream());
        std::thread::sleep(Duration::from_millis(200));
        // The first packets may come before the P4 VM has its channels.
        let before = self.drops("bob");
        let mut restarts = 0;
        for _ in 0..changes {
            restarts += u64::from(configuration.change(random, gentle));
            self.reload(configuration);
            std::thread::sleep(Duration::from_millis(100));
        }
        let (bob, alice) = (bob.end(), alice.end());
        drop(stream);
        let bobs_drops = Some(self.drops("bob")).filter(|drops| *drops != before).unwrap_or_default();
        Phase { restarts, bob, alice, bobs_drops }
    }
}

/// Returns the seed of a random order.
fn seed() -> u64 {
    std::env::var("P4SHIELD_SEED").map_or(7, |seed| seed.parse().unwrap())
}

/// Changes the configuration many times.
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn week(attachment: Attachment) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cloud = Cloud::start(attachment, &Configuration::START);
    let (changes, seed) = (extent(24, 200), seed());
    let (mut random, mut configuration) = (seed, Configuration::START);
    let daemon = cloud.daemon.pid();
    // Those of the start are reported later than the next packets.
    cloud.steady_drops();
    for gentle in [true, false] {
        // A machine that is busy with other work loses pings without the daemon's doing.
        let mut attempts = (0..3).map(|_| {
            let phase = cloud.change_often(&mut configuration, &mut random, (changes / 2, gentle));
            println!("{attachment:?}, seed {seed}, {} changes: {phase:?}", changes / 2);
            assert!(phase.bob.0 as u64 > changes / 2, "{phase:?}");
            assert_eq!(phase.bobs_drops, "", "{phase:?}\n{}", cloud.story());
            cloud.agrees(&configuration);
            phase
        });
        assert!(
            attempts.any(|p| p.bob.1 == 0 && (p.restarts > 0 || p.alice.1 == 0)),
            "pings were lost\n{}",
            cloud.story()
        );
    }
    for (address, present) in
        [("10.9.6.1", true), ("10.9.6.2", configuration.app), ("10.9.6.4", configuration.carol)]
    {
        if present {
            cloud.wait("a ping at the end", || cloud.ping(address));
        }
    }
    assert!(Command::new("kill").args(["-0", &daemon.as_raw_pid().to_string()]).status().unwrap().success());
}

#[test]
fn a_week_of_changes_over_af_xdp_costs_others_nothing() {
    if usable(OpenVswitch::usable()) {
        week(Attachment::Xsk);
    }
}

#[test]
fn a_week_of_changes_over_dpdk_costs_others_nothing() {
    if usable(OpenVswitch::usable()) {
        week(Attachment::Dpdk);
    }
}

#[test]
fn a_week_of_changes_on_wires_costs_others_nothing() {
    if usable(p4shield_testbed::usable()) {
        week(Attachment::Wire);
    }
}
