//! The metrics of a switch, as Prometheus fetches them.

use p4shield_testbed::process::run;
use p4shield_testbed::wait_until;

use super::Scene;
use crate::common::{code, example, stderr};

impl Scene {
    pub(super) fn metrics(&self) -> String {
        run(self.host.command("curl").args(["-sSf", "http://127.0.0.1:9465/metrics"])).unwrap()
    }
}

/// Returns the value of the row that begins so.
pub(super) fn value(served: &str, row: &str) -> u64 {
    let line = served.lines().find_map(|line| line.strip_prefix(row));
    line.unwrap_or_else(|| panic!("{served}")).trim().parse().unwrap()
}

#[test]
fn counters_with_a_metric_are_among_the_switchs_metrics() {
    let Some(scene) = Scene::new() else { return };
    scene.host.ip("link set lo up").unwrap();
    let router = std::fs::read_to_string(example("programs/router.p4")).unwrap();
    let counted = "@metric(\"routed\") direct_counter(CounterType.packets_and_bytes) hits;\n\
                   table routes {\n counters = hits;";
    let program = scene.file("counted.p4", &router.replace("table routes {", counted));
    let _switch = scene.start_command(scene.program_command(&program).args(["--metrics", "127.0.0.1:9465"]));
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    let row = |unit: &str| {
        format!("p4shield_p4switch_counter_{unit}_total{{counter=\"routed\",index=\"0x0a090200/24\"}}")
    };
    let served = scene.metrics();
    let packets = value(&served, &row("packets"));
    // A ping is a packet of 98 bytes.
    assert!(packets > 0 && value(&served, &row("bytes")) == packets * 98, "{served}");
}

#[test]
fn metrics_of_a_switch_are_served_on_loopback() {
    let Some(scene) = Scene::new() else { return };
    scene.host.ip("link set lo up").unwrap();
    let refused = scene.run_command(&["--metrics", "10.9.9.9:9465"]).output().unwrap();
    assert!(code(&refused) == 2 && stderr(&refused).contains("no loopback address"), "{}", stderr(&refused));
    let _switch = scene.start_command(&mut scene.run_command(&["--metrics", "127.0.0.1:9465"]));
    assert!(!scene.pings(), "no entry routes");
    let served = scene.metrics();
    assert!(value(&served, "p4shield_p4switch_received_packets_total{port=\"1\",interface=\"p0\"}") > 0);
    assert!(value(&served, "p4shield_p4switch_dropped_packets_total{reason=\"program\"}") > 0);
    scene.host.ip("link add p2 type veth peer name p3").unwrap();
    scene.host.ip("link set p2 up").unwrap();
    let other = scene.folder.path().join("other.sock");
    let mut second = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    second.args(["switch", "run", &example("programs/router.p4"), "--port", "1=p2", "--socket"]).arg(other);
    let second = second.args(["--metrics", "127.0.0.1:9465"]).output().unwrap();
    assert!(code(&second) == 1 && stderr(&second).contains("another process may"), "{}", stderr(&second));
}
