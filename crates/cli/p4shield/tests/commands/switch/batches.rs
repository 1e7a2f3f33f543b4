//! `p4shield switch batches`: the times of batches of a switch that runs.

use super::*;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Notes batches of a switch while a host pings.
fn notes_batches(options: &[&str]) {
    let Some(scene) = Scene::new() else { return };
    let mut switch = scene.start_command(&mut scene.run_command(options));
    scene.add_routes();
    wait_until("a ping through the switch", 20, || scene.pings()).unwrap();

    let lines = scene.asks_while_pinging(&["batches", "--count", "6", "--json"]);
    let batches: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(batches.len(), 6, "{lines}");
    for batch in &batches {
        let of = |name: &str| batch[name].as_u64().unwrap();
        assert!((1..=64).contains(&of("packets")) && (1..=2).contains(&of("thread")), "{batch}");
        let times = ["receive_ns", "process_ns", "send_ns"].map(of);
        assert!(times.iter().all(|time| (1..10_000_000_000).contains(time)), "{batch}");
    }

    let (first, mut shown) =
        ("  packets  batches  receive µs  process µs  send µs  all µs\n  1  ", String::new());
    wait_until("batches of one packet", 60, || {
        shown = scene.asks_while_pinging(&["batches"]);
        shown.starts_with(first)
    })
    .unwrap_or_else(|e| panic!("{e}: {shown}"));
    assert!(shown.contains(" of the threads' time, "), "{shown}");

    let socket = scene.socket().display().to_string();
    let mut first = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    first.args(["switch", "batches", "--for", "1000", "--socket", &socket]);
    let mut first = Guarded::spawn(first.stderr(Stdio::piped())).unwrap();
    let mut said = String::new();
    BufReader::new(first.child().stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("noting batches"), "{said}");
    scene.refuses(&["batches", "--for", "1"], "another client takes the batches");
    // One that is killed leaves nothing behind.
    kill_process(first.pid(), Signal::KILL).unwrap();
    wait_until("the client's end", 60, || first.ended().is_some()).unwrap();
    wait_until("the end of its notes", 60, || code(&scene.ask(&["batches"])) == 0).unwrap();
    assert!(scene.answers() && switch.ended().is_none(), "the switch goes on");
}

#[test]
fn batches_of_a_switch_are_noted_while_a_client_asks() {
    notes_batches(&["--threads", "2"]);
}

#[test]
fn batches_in_a_compartment_are_noted_as_well() {
    notes_batches(&["--placement", "pipeline"]);
}

#[test]
fn a_switch_without_packets_has_no_batches() {
    let Some(scene) = Scene::new() else { return };
    let _switch = scene.start();
    assert_eq!(scene.asks(&["batches"]), "no batches\n");
    let both = scene.ask(&["batches", "--for", "1", "--count", "1"]);
    assert!(code(&both) == 2 && stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}
