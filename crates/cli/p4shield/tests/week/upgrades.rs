//! The daemon is killed and upgraded under load.

use crate::cloud::{Cloud, ONE, usable};
use crate::configuration::{Attachment, Configuration};
use p4shield_need::extent;
use p4shield_testbed::{OpenVswitch, wait_until};
use serde_json::Value;
use std::sync::PoisonError;
use std::time::Duration;

/// What happened: pings of two VMs that were answered and lost, and drops that no machine's load explains.
#[derive(Debug)]
pub(crate) struct Phase {
    pub(crate) bob: (usize, usize),
    pub(crate) alice: (usize, usize),
    pub(crate) drops: [String; 2],
}

impl Cloud {
    /// Returns the processes of the P4 VMs.
    pub(crate) fn p4vms(&self) -> Vec<i64> {
        let status: Value = serde_json::from_str(&self.p4shield("status", &["--json"]).1).unwrap();
        let tenants = status["tenants"].as_array().cloned().unwrap_or_default();
        tenants.iter().filter_map(|t| t["pid"].as_i64()).collect()
    }

    /// Stops the daemon. Asserts that no P4 VM and no file is left.
    pub(crate) fn stops_without_a_trace(&mut self) {
        let p4vms = self.p4vms();
        let status = self.daemon.stop().expect("the daemon ends by itself");
        assert!(status.success(), "{status:?}");
        wait_until("the end of the P4 VMs", 60, || !p4vms.iter().any(|pid| runs(*pid))).unwrap();
        let left = |name: &str| self.folder.path().join(name).exists();
        assert!(!left("p4shield.sock.p4vms") && !left("p4shield.sock"), "files are left over");
    }

    /// Returns the drops of both tenants once two seconds pass without a new one: drops of the time before
    /// the channels of a P4 VM were attached reach the metrics later.
    pub(crate) fn steady_drops(&self) -> [String; 2] {
        let drops = || ["bob", "alice"].map(|tenant| self.drops(tenant));
        let mut before = drops();
        self.wait("drops of the start to be reported", || {
            std::thread::sleep(Duration::from_secs(2));
            let now = drops();
            std::mem::replace(&mut before, now.clone()) == now
        });
        before
    }

    /// Kills and upgrades the daemon by turns under pings and TCP.
    pub(crate) fn replace_daemon_often(&mut self, times: u64) -> Phase {
        let (bob, alice, stream) = (self.pings("10.9.6.3"), self.pings("10.9.6.1"), self.stream());
        std::thread::sleep(Duration::from_millis(200));
        let (before, p4vms) = (self.steady_drops(), self.p4vms());
        for _ in 0..times {
            let (code, text) = self.p4shield("upgrade", &[]);
            assert_eq!(code, 0, "{text}");
            assert!(text.contains("2 P4 VMs adopted"), "{text}");
            self.kill_daemon();
            self.wait_settled();
            assert_eq!(self.p4vms(), p4vms, "the P4 VMs go on");
        }
        let (bob, alice) = (bob.end(), alice.end());
        drop(stream);
        let drops = Some(self.steady_drops()).filter(|drops| *drops != before).unwrap_or_default();
        Phase { bob, alice, drops }
    }
}

/// Returns whether a process runs.
pub(crate) fn runs(pid: i64) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("State:") && !status.contains("State:\tZ")
}

/// Kills and upgrades the daemon many times.
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn replacements(attachment: Attachment) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(attachment, &Configuration::START);
    let times = extent(3, 50);
    // A machine that is busy with other work loses pings without the daemon's doing.
    let mut attempts = (0..3).map(|_| {
        let phase = cloud.replace_daemon_often(times);
        println!("{attachment:?}, killed and upgraded {times} times: {phase:?}");
        assert_eq!(phase.drops, ["", ""], "a policy judged packets");
        phase
    });
    assert!(attempts.any(|p| p.bob.1 == 0 && p.alice.1 == 0), "pings were lost");
    cloud.agrees(&Configuration::START);
    cloud.stops_without_a_trace();
}

#[test]
fn the_number_of_a_removed_tenant_stays_vacant() {
    if !usable(p4shield_testbed::usable()) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Alice keeps her number, which is after that of carol.
    let mut cloud = Cloud::start(Attachment::Wire, &Configuration { carol: true, ..Configuration::START });
    cloud.reload(&Configuration::START);
    cloud.kill_daemon();
    cloud.wait_settled();
    cloud.agrees(&Configuration::START);
    let log = std::fs::read_to_string(cloud.folder.path().join("daemon.log")).unwrap();
    assert!(!log.contains("p4vm_start_failed"), "{log}");
}

#[test]
fn kills_and_upgrades_cost_af_xdp_switches_nothing() {
    if usable(OpenVswitch::usable()) {
        replacements(Attachment::Xsk);
    }
}

#[test]
fn kills_and_upgrades_cost_dpdk_switches_nothing() {
    if usable(OpenVswitch::usable()) {
        replacements(Attachment::Dpdk);
    }
}

#[test]
fn kills_and_upgrades_cost_wires_nothing() {
    if usable(p4shield_testbed::usable()) {
        replacements(Attachment::Wire);
    }
}
