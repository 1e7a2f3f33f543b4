//! One tenant's P4 VM is attacked under traffic: all packets of the other tenant pass, the policy applies to
//! its own, and a new P4 VM judges again without intervention.

use crate::Test;
use crate::attachment::{TestAttachment, Traffic};
use crate::fixture::{Fixture, wait_for};
use p4shield_channel::Memory;
use p4shield_daemon::Daemon;
use p4shield_daemon::status::State;
use p4shield_mediator::Reason;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = &[
    ("a_killed_p4_vm_costs_its_tenant_only_and_is_replaced", killed_drop),
    ("with_fail_pass_a_killed_p4_vm_lets_packets_through", killed_pass),
    ("a_stopped_p4_vm_costs_its_tenant_only_and_is_replaced", stopped),
    ("a_corrupted_channel_costs_its_tenant_only_and_is_replaced", corrupted),
    ("a_p4_vm_that_keeps_dying_is_replaced_each_time", killed_repeatedly),
];

const ALICE: usize = 0;
pub(crate) const BOB: usize = 1;

pub(crate) struct Cloud {
    pub(crate) daemon: Daemon,
    attachment: Arc<TestAttachment>,
    _traffic: Traffic,
    pub(crate) fixture: Fixture,
}

impl Cloud {
    /// Starts both tenants with traffic.
    fn new(name: &str, bobs_fail: &str) -> Self {
        let fixture = Fixture::new(name);
        let text = fixture.text(bobs_fail);
        Self::with(fixture, &text)
    }

    /// The same with another configuration of both tenants.
    pub(crate) fn with(fixture: Fixture, text: &str) -> Self {
        let config = fixture.config(text);
        let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
        let daemon = Daemon::start(config, attachment.clone(), Path::new("/proc/self/exe")).unwrap();
        wait_for("two P4 VMs", || daemon.status().tenants.iter().all(|t| t.state == State::Running));
        let traffic = attachment.traffic();
        let cloud = Self { daemon, attachment, _traffic: traffic, fixture };
        cloud.flows(ALICE, 1000);
        cloud.flows(BOB, 1000);
        cloud
    }

    /// Waits until `packets` more packets of a tenant have passed its program.
    fn flows(&self, tenant: usize, packets: u64) {
        let before = self.attachment.tally(tenant).passed;
        wait_for("traffic", || self.attachment.tally(tenant).passed >= before + packets);
    }

    fn bobs_pid(&self) -> Option<Pid> {
        self.daemon.status().tenants[BOB].pid.and_then(Pid::from_raw)
    }

    /// Attacks bob's P4 VM; checks that bob recovers and alice loses nothing.
    pub(crate) fn survives(&self, attack: impl FnOnce(Pid)) {
        let (pid, restarts) = (self.bobs_pid().unwrap(), self.daemon.status().tenants[BOB].restarts);
        let alice = self.attachment.tally(ALICE);
        attack(pid);
        wait_for("another P4 VM", || {
            let bob = &self.daemon.status().tenants[BOB];
            bob.restarts > restarts && bob.state == State::Running && bob.pid != Some(pid.as_raw_pid())
        });
        self.flows(BOB, 1000);
        self.flows(ALICE, 1000);
        let now = self.attachment.tally(ALICE);
        let error = &self.daemon.status().tenants[ALICE].error;
        assert_eq!(now.left(), now.passed, "alice lost packets: {now:?}, {error:?}");
        assert!(now.passed > alice.passed);
        let bob = &self.daemon.status().tenants[BOB];
        assert!(bob.error.is_some(), "{bob:?}");
    }
}

fn killed_drop() {
    let cloud = Cloud::new("killed-drop", "drop");
    cloud.survives(|pid| kill_process(pid, Signal::KILL).unwrap());
    let bob = cloud.attachment.tally(BOB);
    let unjudged: u64 = bob.dropped.iter().sum();
    assert!(unjudged > 0, "{bob:?}");
    assert_eq!((bob.dropped_for(Reason::Program), bob.let_through.iter().sum::<u64>()), (0, 0), "{bob:?}");
    let error = cloud.daemon.status().tenants[BOB].error.clone().unwrap();
    assert!(error.contains("killed (SIGKILL)"), "{error}");
}

fn killed_pass() {
    let cloud = Cloud::new("killed-pass", "pass");
    cloud.survives(|pid| kill_process(pid, Signal::KILL).unwrap());
    let bob = cloud.attachment.tally(BOB);
    assert!(bob.let_through.iter().sum::<u64>() > 0, "{bob:?}");
    assert_eq!(bob.dropped.iter().sum::<u64>(), 0, "{bob:?}");
}

fn stopped() {
    let cloud = Cloud::new("stopped", "drop");
    cloud.survives(|pid| kill_process(pid, Signal::STOP).unwrap());
    let bob = cloud.attachment.tally(BOB);
    assert!(bob.dropped_for(Reason::Deadline) > 0, "{bob:?}");
    assert_eq!(bob.let_through.iter().sum::<u64>(), 0);
}

fn corrupted() {
    let cloud = Cloud::new("corrupted", "drop");
    cloud.survives(|_| {
        let channels = cloud.attachment.channels.lock().unwrap();
        let memory = channels[BOB].as_ref().unwrap();
        let mut seed = 0x0123_4567_89ab_cdef_u64;
        for _ in 0..50 {
            for at in (0..memory.len()).step_by(8) {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                memory.copy_in(at, &seed.to_le_bytes());
            }
        }
    });
}

fn killed_repeatedly() {
    let cloud = Cloud::new("again", "drop");
    for _ in 0..4 {
        cloud.survives(|pid| kill_process(pid, Signal::KILL).unwrap());
    }
    assert!(cloud.daemon.status().tenants[BOB].restarts >= 4);
    let alice = cloud.daemon.status().tenants[ALICE].clone();
    assert_eq!(alice.restarts, 0, "{:?}", alice.error);
}
