//! `p4shield switch queue`.

use super::Scene;
use p4shield_testbed::process::run;
use p4shield_testbed::{ping, wait_until};

#[test]
fn a_port_with_a_rate_drops_what_its_queue_cannot_hold() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    assert_eq!(scene.asks(&["queue", "list"]), "no queues\n");
    scene.asks(&["queue", "set", "2", "--packets", "20", "--bits", "1M", "--depth", "2"]);
    let flood = |count: &str| {
        let mut ping = scene.left.command("ping");
        run(ping.args(["-c", count, "-i", "0.002", "-W", "1", "10.9.2.1"])).unwrap_or_default()
    };
    let passes = || {
        wait_until("answers to most pings", 60, || {
            let output = flood("100");
            assert_eq!(ping::lost(&output), 0, "{output}");
            ping::answered(&output).len() > 50
        })
        .is_ok()
    };
    flood("100");
    let listed: serde_json::Value = serde_json::from_str(&scene.asks(&["queue", "list", "--json"])).unwrap();
    let queue = &listed[0];
    assert_eq!(
        (&queue["port"], &queue["packets"], &queue["bits"]),
        (&2.into(), &20.into(), &1_000_000.into())
    );
    let dropped = queue["dropped"].as_u64().unwrap();
    assert!(dropped > 0 && queue["depth"] == 2, "{listed}");
    let status: serde_json::Value = serde_json::from_str(&scene.asks(&["status", "--json"])).unwrap();
    let reason =
        |name: &str| status["dropped"].as_array().unwrap().iter().find(|d| d["reason"] == name).cloned();
    assert!(reason("queue").unwrap()["packets"].as_u64().unwrap() >= dropped, "{status}");

    scene.refuses(&["queue", "set", "3", "--packets", "1"], "the switch has no port 3; it has 1, 2");
    scene.refuses(&["queue", "set", "2", "--depth", "5000"], "a queue holds 1 to 1024 packets, not 5000");
    scene.refuses(&["queue", "set", "2", "--bits", "0"], "at least 1 a second");
    scene.refuses(&["queue", "delete", "1"], "the port has no queue");
    let header = "  port  packets/s  bits/s   depth  waiting  dropped\n  2     20         1000000  2      ";
    assert!(scene.asks(&["queue", "list"]).starts_with(header), "{}", scene.asks(&["queue", "list"]));

    let file = scene.file("queues.txt", "set_queue_rate 100000\nset_queue_depth 500\n");
    scene.asks(&["table", "load", &file]);
    assert!(passes(), "both queues are fast");
    for port in ["1", "2"] {
        scene.asks(&["queue", "delete", port]);
    }
    assert!(passes(), "there is no queue");
}
