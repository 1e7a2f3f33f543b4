//! `--watch`, and rates.

use std::io::{BufRead, BufReader, Lines};
use std::process::{ChildStdout, Command, Stdio};

use p4shield_testbed::{Guarded, wait_until};
use serde_json::Value;

use super::Scene;

impl Scene {
    /// Starts a command that shows something again and again, and returns its lines.
    fn watches(&self, words: &[&str]) -> (Guarded, Lines<BufReader<ChildStdout>>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield"));
        command.arg("switch").args(words).args(["--watch", "0.1", "--json", "--socket"]).arg(self.socket());
        let mut watch = Guarded::spawn(command.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let out = watch.child().stdout.take().unwrap();
        (watch, BufReader::new(out).lines())
    }
}

fn json(line: Option<std::io::Result<String>>) -> Value {
    serde_json::from_str(&line.expect("another line").unwrap()).unwrap()
}

#[test]
fn a_watched_table_shows_each_change_until_the_switch_ends() {
    let Some(scene) = Scene::new() else { return };
    let switch = scene.start();
    let (mut watch, mut lines) = scene.watches(&["table", "list", "routes"]);
    let rows = |view: Value| view["objects"][0]["rows"].as_array().unwrap().len();
    assert_eq!(rows(json(lines.next())), 0);
    scene.add_routes();
    assert!((0..100).any(|_| rows(json(lines.next())) == 2), "the table never had both entries");
    drop(switch);
    wait_until("the end of the watch", 20, || watch.ended().is_some()).unwrap();
    assert_eq!(watch.ended().unwrap().code(), Some(1), "no switch listens any more");
}

#[test]
fn the_status_has_rates_while_packets_flow() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();
    let ping = ["-q", "-i0.01", "-w30", "10.9.2.1"];
    let _ping = Guarded::spawn(scene.left.command("ping").args(ping).stdout(Stdio::null())).unwrap();
    let (_watch, mut lines) = scene.watches(&["status"]);
    let flows = |status: &Value| {
        let rate = |port: usize, key: &str| status["ports"][port][key].as_u64().unwrap();
        let packets = rate(0, "received_packets_s").min(rate(1, "sent_packets_s"));
        // 98 bytes each.
        packets > 0 && rate(0, "received_bits_s") >= packets * 98 * 8 / 2
    };
    assert!((0..100).any(|_| flows(&json(lines.next()))), "no packet counted");
}
