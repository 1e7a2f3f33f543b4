//! `p4shield switch port`: ports come and go while packets flow.

use super::Scene;
use crate::common::{code, example, stderr};
use p4shield_testbed::wait_until;
use serde_json::Value;

impl Scene {
    pub(super) fn status(&self) -> Value {
        let status = self.ask(&["status", "--json"]);
        serde_json::from_slice(&status.stdout).unwrap()
    }

    /// Waits until the port with this index has a state, and returns the status.
    pub(super) fn wait_state(&self, port: usize, state: &str) -> Value {
        let has = |status: &Value| status["ports"][port]["state"] == state;
        wait_until(&format!("port {port} to be {state}"), 20, || has(&self.status())).unwrap();
        self.status()
    }

    /// Connects port 2 with the right host anew, after its interface was deleted.
    pub(super) fn connect_right(&self) {
        let name = self.right.name();
        self.host.ip(&format!("link add p1 type veth peer name eth0 netns {name}")).unwrap();
        self.host.ip("link set p1 up").unwrap();
        for words in [
            "link set eth0 address 02:00:00:00:00:02",
            "link set eth0 up",
            "addr add 10.9.2.1/24 dev eth0",
            "neigh replace 10.9.2.254 lladdr 02:00:00:00:00:fe dev eth0",
            "route add 10.9.1.0/24 via 10.9.2.254",
        ] {
            self.right.ip(words).unwrap();
        }
    }
}

fn dropped(status: &Value, reason: &str) -> u64 {
    let all = status["dropped"].as_array().unwrap();
    all.iter().find(|d| d["reason"] == reason).unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn a_port_opens_again_once_its_interface_is_back() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    for _ in 0..2 {
        scene.host.ip("link del p1").unwrap();
        let status = scene.wait_state(1, "gone");
        let problem = status["problems"][0].as_str().unwrap();
        assert!(problem.starts_with("port 2: p1 is gone: it was deleted or moved"), "{problem}");
        let before = dropped(&status, "port_down");
        assert!(!scene.pings());
        assert!(dropped(&scene.status(), "port_down") > before);
        scene.connect_right();
        scene.wait_state(1, "up");
        wait_until("a ping through the port", 20, || scene.pings()).unwrap();
        assert_eq!(code(&scene.ask(&["status"])), 0, "the problem is gone");
    }
}

#[test]
fn an_interface_that_moves_away_and_back_is_found() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    let (host, left) = (scene.host.name().to_owned(), scene.left.name().to_owned());
    for pause in [true, false] {
        scene.host.ip(&format!("link set p1 netns {left}")).unwrap();
        if pause {
            scene.wait_state(1, "gone");
        }
        scene.left.ip(&format!("link set p1 netns {host}")).unwrap();
        scene.host.ip("link set p1 up").unwrap();
        wait_until("a ping through the port", 20, || scene.pings()).unwrap();
        scene.wait_state(1, "up");
    }
}

#[test]
fn a_port_that_is_down_is_named_with_the_remedy() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    scene.host.ip("link set p1 down").unwrap();
    let status = scene.wait_state(1, "down");
    assert_eq!(status["problems"][0], "port 2: p1 is down; bring it up: ip link set p1 up");
    let before = dropped(&status, "port_down");
    assert!(!scene.pings());
    assert!(dropped(&scene.status(), "port_down") > before);
    scene.host.ip("link set p1 up").unwrap();
    scene.wait_state(1, "up");
    wait_until("a ping through the port", 20, || scene.pings()).unwrap();

    scene.right.ip("link set eth0 down").unwrap();
    let status = scene.wait_state(1, "down");
    assert!(status["problems"][0].as_str().unwrap().starts_with("port 2: p1 has no carrier"), "{status}");
    // Renamed, it is another interface; its name stays the port's.
    scene.host.ip("link set p1 down").unwrap();
    scene.host.ip("link set p1 name q1").unwrap();
    scene.wait_state(1, "gone");
    let list = scene.asks(&["port", "list"]);
    assert!(list.starts_with("  port  interface  state  received"), "{list}");
}

#[test]
fn a_port_that_cannot_be_opened_is_tried_again() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    scene.host.ip("link del p1").unwrap();
    scene.wait_state(1, "gone");
    scene.host.ip("link add br0 type bridge").unwrap();
    scene.host.ip(&format!("link add q1 type veth peer name eth0 netns {}", scene.right.name())).unwrap();
    scene.host.ip("link set q1 master br0").unwrap();
    scene.host.ip("link set q1 name p1").unwrap();
    scene.host.ip("link set p1 up").unwrap();
    let status = scene.wait_state(1, "failed");
    let problem = "port 2: p1 cannot be opened, which is tried again every second: p1 is a port of br0 \
                   already; remove it there first: ip link set p1 nomaster";
    assert_eq!(status["problems"][0], problem);
    scene.host.ip("link set p1 nomaster").unwrap();
    scene.right.ip("link set eth0 up").unwrap();
    scene.wait_state(1, "up");
    assert_eq!(code(&scene.ask(&["status"])), 0);
}

#[test]
fn ports_are_added_and_deleted_while_packets_flow() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    scene.asks(&["group", "set", "1", "2"]);
    scene.asks(&["queue", "set", "2", "--packets", "1000"]);
    scene.asks(&["port", "delete", "2"]);
    assert!(!scene.pings());
    let status = scene.status();
    assert!(dropped(&status, "no_port") > 0 && status["deleted"]["sent"].as_u64() > Some(0), "{status}");
    assert_eq!(status["ports"].as_array().unwrap().len(), 1);
    assert_eq!(scene.asks(&["queue", "list"]), "no queues\n");
    assert!(scene.asks(&["group", "list"]).contains("2:0"), "the group stays");
    let link = scene.host.ip("-d link show p1").unwrap();
    assert!(!link.contains("xdp"), "its interface belongs to others again: {link}");
    scene.asks(&["port", "add", "2=p1"]);
    wait_until("a ping through the new port", 20, || scene.pings()).unwrap();

    scene.host.ip("link add p2 type veth peer name p3").unwrap();
    scene.host.ip("link set p2 up").unwrap();
    for (words, why) in [
        (["add", "3=nowhere"], "there is no interface nowhere in this network namespace"),
        (["add", "3=p3"], "p3 is down; bring it up first: ip link set p3 up"),
        (["add", "2=p2"], "port 2 is p1 already; delete it first: p4shield switch port delete 2"),
        (["add", "3=p1"], "p1 is port 2 already"),
        (["add", "512=p2"], "port 512: a port's number is 0 to 511"),
        (["delete", "3"], "the switch has no port 3; it has 1, 2"),
    ] {
        scene.refuses(&[&["port"], &words[..]].concat(), why);
    }
    assert!(!scene.host.ip("-d link show p2").unwrap().contains("xdp"), "nothing stays behind");
    scene.asks(&["port", "add", "511=p2"]);
    let ports: Value = serde_json::from_str(&scene.asks(&["port", "list", "--json"])).unwrap();
    assert_eq!((&ports[2]["number"], &ports[2]["interface"]), (&511.into(), &"p2".into()));
    assert!(scene.answers(), "the switch went on");
}

#[test]
fn a_second_switch_on_an_interface_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    scene.host.ip("link add p2 type veth peer name p3").unwrap();
    scene.host.ip("link set p2 up").unwrap();
    let other = scene.folder.path().join("other.sock").display().to_string();
    let router = example("programs/router.p4");
    let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.args(["switch", "run", &router, "--port", "1=p0", "--socket", &other]);
    let refused = command.output().unwrap();
    assert_eq!(code(&refused), 1);
    let why = "cannot attach the XDP program to p0: another XDP program is attached; end the process that";
    assert!(stderr(&refused).contains(why), "{}", stderr(&refused));

    let mut command = scene.host.command(env!("CARGO_BIN_EXE_p4shield"));
    command.args(["switch", "run", &router, "--port", "1=p2", "--socket", &other]);
    let _second = p4shield_testbed::Guarded::spawn(&mut command).unwrap();
    let ask = |words: &[&str]| crate::common::p4shield(&[&["switch"], words, &["--socket", &other]].concat());
    wait_until("the second switch", 60, || code(&ask(&["port", "list"])) == 0).unwrap();
    let refused = ask(&["port", "add", "2=p0"]);
    assert!(code(&refused) == 3 && stderr(&refused).contains(why), "{}", stderr(&refused));
    assert!(scene.answers(), "the first one goes on");
}
