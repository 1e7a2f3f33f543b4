//! The daemon keeps tenants' switches running.

use super::scene::{Scene, pings};
use super::two_tenants;
use p4shield_testbed::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

/// A daemon, which ends with the test.
pub(crate) struct Daemon<'s> {
    scene: &'s Scene,
    process: Child,
}

impl<'s> Daemon<'s> {
    pub(crate) fn start(scene: &'s Scene) -> Self {
        let mut run = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
        run.arg("run").arg("--config").arg(scene.config());
        let process = run.stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
        Self { scene, process }
    }

    /// Runs a command that asks the daemon.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
        let output = command.args(words).arg("--socket").arg(self.scene.socket()).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).unwrap_or_default()
    }

    /// Returns the kinds of problems; `None` while the daemon does not answer.
    pub(crate) fn problems(&self) -> Option<Vec<String>> {
        let status = self.status();
        let problems = status["problems"].as_array()?;
        Some(problems.iter().map(|p| p["kind"].as_str().unwrap().to_owned()).collect())
    }

    /// Returns whether the daemon answers that its problems are these.
    pub(crate) fn has_problems(&self, kinds: &[&str]) -> bool {
        self.problems().is_some_and(|problems| problems == kinds)
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = kill_process(self.pid(), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Waits until all VMs reach the outside. Their kernels ask once a second for the router's address.
pub(crate) fn wait_for_pings(scene: &Scene) {
    wait_until("pings of all VMs", 30, || scene.vms.iter().all(|vm| pings(&vm.ns, "10.0.0.1") == 10))
        .unwrap();
}

#[test]
fn the_daemon_applies_the_topology_and_starts_dead_switches() {
    let Some(scene) = two_tenants() else { return };
    let daemon = Daemon::start(&scene);
    wait_for_pings(&scene);
    wait_until("no problem", 20, || {
        daemon.status()["topology"]["switches"].as_array().is_some_and(|s| s.len() == 2)
            && daemon.has_problems(&[])
    })
    .unwrap();
    let text = daemon.ask(&["status"]);
    assert!(text.contains("level 2") && text.contains("switch alice: works"), "{text}");
    for (pid, _) in scene.processes(2) {
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    wait_for_pings(&scene);
    let (names, mut metrics) =
        (["p4shield_tenant_switch_up{switch=\"bob\"} 1", "p4shield_nic_port_packets_total{"], String::new());
    wait_until("bob's switch in the metrics", 30, || {
        metrics = daemon.ask(&["metrics"]);
        names.iter().all(|name| metrics.contains(name))
    })
    .unwrap_or_else(|e| panic!("{e}: {metrics}"));
    // The switches outlive the daemon, and the next one finds them.
    // A tool may run at the moment.
    let daemons = ["ovsdb-server", "ovs-vswitchd"];
    let lasting = |compartment| {
        let mut processes = scene.processes(compartment);
        processes.retain(|(_, program)| daemons.contains(&program.as_str()));
        processes
    };
    let before = [lasting(1), lasting(2)];
    drop(daemon);
    assert_eq!(pings(&scene.outside, scene.vms[0].address), 10);
    let daemon = Daemon::start(&scene);
    wait_until("the next daemon", 20, || daemon.status()["topology"]["level"] == "2").unwrap();
    assert_eq!([lasting(1), lasting(2)], before);
}

#[test]
fn a_reload_changes_the_level_or_nothing() {
    let Some(scene) = two_tenants() else { return };
    let daemon = Daemon::start(&scene);
    wait_for_pings(&scene);
    scene.configure("1", &["alice", "bob"]);
    let reloaded = daemon.ask(&["reload"]);
    assert!(reloaded.contains("level"), "{reloaded}");
    wait_until("level 1", 30, || daemon.status()["topology"]["level"] == "1").unwrap();
    wait_for_pings(&scene);
    let text = std::fs::read_to_string(scene.config()).unwrap();
    let isolated = text
        .replace("level = \"1\"", "level = \"2\"")
        .replace("[topology]", "[topology]\ncores = \"isolated\"");
    let many = (0..40).map(|n| {
        format!(
            "[[tenant]]\nname = \"t{n}\"\n[[tenant.vm]]\nname = \"x\"\ninterface = \"none{n}\"\n\
                 mac = \"02:00:00:00:01:{n:02x}\"\naddresses = [\"10.0.9.{n}\"]\n"
        )
    });
    std::fs::write(scene.config(), isolated + &many.collect::<String>()).unwrap();
    let refused = daemon.ask(&["reload"]);
    assert!(refused.contains("nothing was changed") && refused.contains("needs 42 cores"), "{refused}");
    assert_eq!(daemon.status()["topology"]["level"], "1");
    // Without the table, the switches are removed.
    let first_table = text.find("[topology]").unwrap();
    std::fs::write(scene.config(), text[..first_table].replace("level = \"1\"", "") + TENANT).unwrap();
    let reloaded = daemon.ask(&["reload"]);
    wait_until("no switch", 30, || scene.leftovers().is_empty())
        .unwrap_or_else(|e| panic!("{e}: {reloaded}"));
}

/// A tenant without a port.
const TENANT: &str =
    "[[tenant]]\nname = \"alice\"\n[[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.1.2\"]\n";

#[test]
fn a_port_whose_interface_comes_later_is_served() {
    let Some(scene) = two_tenants() else { return };
    scene.host.ip("link set bob-web name away").unwrap();
    let daemon = Daemon::start(&scene);
    wait_until("a problem", 30, || daemon.has_problems(&["interface_down"])).unwrap();
    let text = daemon.ask(&["status"]);
    assert!(text.contains("tenant bob, VM web, interface bob-web: it does not exist"), "{text}");
    for words in ["link set away down", "link set away name bob-web", "link set bob-web up"] {
        scene.host.ip(words).unwrap();
    }
    wait_for_pings(&scene);
    wait_until("no problem", 30, || daemon.has_problems(&[])).unwrap();
}
