//! TransP4's experiments in small, as a user runs them. The tests check results, never times.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use p4shield_testbed::wait_until;
use serde_json::Value;

/// One experiment at a time: each has a polling switch, which with a P4 VM fills two cores.
static ONE: Mutex<()> = Mutex::new(());

/// Runs an experiment and returns its report; `None` if the machine cannot.
fn bench(arguments: &[&str]) -> Option<Value> {
    if let Err(why) = p4shield_bench::xsk::usable() {
        p4shield_need::skip("machine", why);
        return None;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let library = std::env::current_exe().unwrap().with_file_name("libp4shield_xsk.so");
    assert!(library.is_file(), "{} was not built", library.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "xsk", "--json", "--library"]).arg(library).args(arguments);
    let out = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{}\n{said}", out.status);
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn a_program_sheds_load_and_readmits_it() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().display().to_string();
    // A slow link, so that a busy machine can fill it.
    let Some(report) = bench(&["--part", "hysteresis", "--seconds", "4", "--link-mbps", "5", "--svg", &svg])
    else {
        return;
    };
    let t = &report["hysteresis"];
    assert!(number(&t["cycles"]) >= 2.0, "{t:#}");
    let samples = t["samples"].as_array().unwrap();
    let used: Vec<f64> = samples.iter().filter_map(|s| s["utilisation"].as_f64()).collect();
    assert!(used.iter().any(|u| *u > 30.0) && used.iter().any(|u| *u < 10.0), "{used:?}");
    let percent = |n: usize| 100.0 * number(&t["arrived"][n]) / number(&t["sent"][n]);
    assert!(percent(0) >= 80.0, "port 8000 lost packets: {} %", percent(0));
    assert!((5.0..95.0).contains(&percent(1)), "port 9000: {} %", percent(1));
    for chart in ["network", "ports"] {
        let svg = std::fs::read_to_string(folder.path().join(format!("xsk-hysteresis-{chart}.svg"))).unwrap();
        assert!(svg.contains("<svg"), "{chart}");
    }
}

#[test]
fn an_interrupted_experiment_leaves_nothing_behind() {
    if let Err(why) = p4shield_bench::xsk::usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    // The plain mode comes first and needs no library.
    command.args(["bench", "xsk", "--part", "messages", "--library", "/nowhere"]).stdin(Stdio::null());
    let mut bench = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let own = format!("p4s-{}-", bench.id());
    let left = || {
        let names = std::fs::read_dir("/run/netns").unwrap().flatten().map(|e| e.file_name());
        names.filter(|n| n.to_string_lossy().starts_with(&own)).count()
    };
    wait_until("its namespaces", 60, || left() == 3).unwrap();
    let pid = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = bench.wait().unwrap();
    assert_eq!(ended.signal(), Some(rustix::process::Signal::INT.as_raw()), "{ended}");
    assert_eq!(left(), 0, "namespaces");
}

#[test]
fn messages_of_every_size_get_through_in_every_mode() {
    let quick = ["--rounds", "1", "--round-trips", "20", "--time-ms", "50"];
    let Some(report) = bench(&[&["--part", "messages", "--message", "1,1400,65536"][..], &quick].concat())
    else {
        return;
    };
    for (part, value) in [("latency", "/micros/p50"), ("throughput", "/mbps/median")] {
        let rows = report["messages"][part].as_array().unwrap();
        assert_eq!(rows.len(), 3 * 3 * 2, "three modes, three sizes, two protocols");
        let carried = |r: &&Value| part == "latency" || r["protocol"] == "tcp";
        for row in rows.iter().filter(carried) {
            assert!(number(row.pointer(value).unwrap()) > 0.0, "{row}");
        }
    }
}

#[test]
fn a_p4vm_that_takes_longer_makes_packets_take_longer() {
    const DELAY_US: f64 = 1_000.0;
    let quick = ["--rounds", "1", "--round-trips", "20", "--time-ms", "50", "--message", "1400"];
    let Some(report) = bench(&[&["--part", "delay", "--delay-us", "0,1000"][..], &quick].concat()) else {
        return;
    };
    let rows = report["delay"]["latency"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 2, "plain, no delay, delay; two protocols");
    for row in rows.iter().filter(|r| r["delay_us"].as_f64() == Some(DELAY_US)) {
        // A request waits for the delay at least once, whatever the machine's speed.
        assert!(number(&row["micros"]["p50"]) >= DELAY_US, "{row}");
    }
}

/// Takes seconds in an ordinary run, five minutes with `P4SHIELD_EFFORT=full`.
#[test]
fn connections_survive_packet_loss_and_p4_vm_restarts() {
    let (seconds, every) = p4shield_need::extent(("8", "4"), ("300", "40"));
    let arguments = ["--part", "long", "--seconds", seconds, "--restart-every", every, "--connections", "8"];
    let Some(report) = bench(&arguments) else { return };
    let l = &report["long"];
    println!("{l:#}");
    assert_eq!(l["failures"], Value::Array(Vec::new()), "a connection failed or stalled");
    assert_eq!((number(&l["corrupted"]), &l["aborted"]), (0.0, &false.into()), "{l:#}");
    assert!(number(&l["messages"]) > 0.0 && number(&l["restarts"]) >= 1.0, "{l:#}");
    assert!(number(&l["retransmitted"]) > 0.0, "no packet was dropped: {l:#}");
    let sockets = l["sockets"].as_array().unwrap();
    assert_eq!(sockets.len(), 2);
    for socket in sockets {
        assert_eq!((number(&socket["total"]), number(&socket["refused"])), (16_384.0, 0.0), "{socket}");
    }
}
