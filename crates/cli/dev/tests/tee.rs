//! `p4shield-dev bench tee` in small, as a user runs it. The tests check what is reported, never times.

use std::ffi::OsStr;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use p4shield_testbed::{NetNs, usable};
use serde_json::Value;

/// The longest time that the generator runs.
const PATIENCE: Duration = Duration::from_secs(120);
/// No further options.
const NONE: [&str; 0] = [];

/// Runs the command with `--json` and these options.
fn report<A: AsRef<OsStr>>(options: &[&str], further: impl IntoIterator<Item = A>) -> Value {
    report_of(Command::new(env!("CARGO_BIN_EXE_p4shield-dev")), options, further)
}

/// Runs a command of this binary as [`report`] does.
fn report_of<A: AsRef<OsStr>>(
    mut command: Command,
    options: &[&str],
    further: impl IntoIterator<Item = A>,
) -> Value {
    command.args(["bench", "tee", "--json", "--rounds", "1", "--bytes", "64"]).args(options).args(further);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Returns the sum of a field of the elements.
fn sum(elements: &Value, field: &str) -> f64 {
    elements.as_array().unwrap().iter().map(|e| e[field].as_f64().unwrap()).sum()
}

#[test]
fn memory_rows_have_all_sizes_and_parts_that_add_up() {
    let report = report(&["--ports", "memory", "--threads", "1", "--milliseconds", "20"], NONE);
    let [row] = &report["rows"].as_array().unwrap()[..] else { panic!("{report:#}") };
    assert_eq!([&row["placement"], &row["ports"]], ["bare", "memory"], "{row:#}");
    let sizes = row["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 32, "{row:#}");
    assert!(sizes.iter().all(|size| size["batches"].as_u64() > Some(0)), "{row:#}");
    assert!(row["costs"]["b_p"]["value"].as_f64() > Some(0.0), "{row:#}");
    let measured = &row["maximum"]["measured"]["median"];
    let whole = 32.0 / measured.as_f64().unwrap();
    assert!((sum(&row["parts"], "micros") - whole).abs() < 1e-6 * whole, "{row:#}");
    assert_eq!(report["paper"].as_array().unwrap().len(), 18);
}

#[test]
fn batches_of_a_sender_have_natural_sizes() {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let report = report(&["--ports", "veth", "--milliseconds", "100"], NONE);
    let rows = report["rows"].as_array().unwrap();
    let placements: Vec<_> = rows.iter().map(|row| row["placement"].as_str().unwrap()).collect();
    assert_eq!(placements, ["bare", "inline", "secure pipeline, process", "extern, process"], "{report:#}");
    for row in rows {
        assert_eq!(row["ports"], "veth", "{row:#}");
        assert!(row["maximum"]["measured"]["median"].as_f64() > Some(0.0), "{row:#}");
        assert_eq!(row["loads"].as_array().unwrap().len(), 10, "{row:#}");
        assert!(sum(&row["loads"], "batches") > 0.0, "{row:#}");
        let all = sum(&row["sizes"], "batches");
        assert!(sum(&row["loads"], "batches") < all, "batches at full load are among them: {row:#}");
        let latencies = row["latencies"].as_array().unwrap();
        assert_eq!(latencies.len(), 2, "{row:#}");
        assert!(latencies[0]["micros"]["p50"].as_f64() > Some(0.0), "{row:#}");
        assert!(sum(&row["latencies"], "others_mpps") > 0.0, "{row:#}");
    }
    assert!(rows[0]["maximum"]["compared"].is_null(), "{report:#}");
    let with: Vec<_> =
        rows[1..].iter().map(|row| row["maximum"]["compared"]["with"].as_str().unwrap()).collect();
    assert_eq!(with, ["bare", "bare", "inline"], "{report:#}");
    for row in &rows[1..] {
        let compared = &row["maximum"]["compared"];
        let is_compared = |of: &&str| compared[of]["median"].as_f64() > Some(0.0);
        assert!(["measured", "of_core"].iter().all(is_compared), "{compared:#}");
    }
}

#[test]
fn the_report_has_both_figures_and_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/report");
    let json = report(&["--ports", "memory", "--threads", "1", "--milliseconds", "5", "--report"], [&path]);
    let page = std::fs::read_to_string(path.join("tee.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4, "{page}");
    for word in
        ["Figure 3", "Figure 4a", "Figure 4b", "here: bare, memory", "with 64 bytes", "SEV-SNP", "SGX"]
    {
        assert!(page.contains(word), "{word} is missing");
    }
    let written: Value = serde_json::from_slice(&std::fs::read(path.join("tee.json")).unwrap()).unwrap();
    assert_eq!(written, json);
}

#[test]
fn interfaces_of_this_machine_are_measured_under_a_generator() {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let [host, left, right] = ["teeh", "teel", "teer"].map(|name| NetNs::create(name).unwrap());
    host.veth("in0", &left, "eth0").unwrap();
    host.veth("out0", &right, "eth0").unwrap();
    left.ip("addr add 10.9.7.1/24 dev eth0").unwrap();
    left.ip("neigh add 10.9.7.2 lladdr 02:00:00:00:00:02 dev eth0").unwrap();
    let stop = AtomicBool::new(false);
    let row = std::thread::scope(|scope| {
        scope.spawn(|| {
            left.inside(|| {
                let socket = UdpSocket::bind("10.9.7.1:0").unwrap();
                // A failed assertion does not stop it.
                let start = Instant::now();
                while !stop.load(Ordering::Relaxed) && start.elapsed() < PATIENCE {
                    let _ = socket.send_to(&[0; 100], "10.9.7.2:9");
                }
            });
        });
        let options = ["--ports", "interfaces", "--interfaces", "in0,out0", "--milliseconds", "200"];
        let command = host.command(env!("CARGO_BIN_EXE_p4shield-dev"));
        let report = report_of(command, &options, NONE);
        stop.store(true, Ordering::Relaxed);
        report["rows"][0].clone()
    });
    assert_eq!(row["ports"], "interfaces", "{row:#}");
    assert!(sum(&row["sizes"], "batches") > 100.0, "{row:#}");
    assert!(row["maximum"]["measured"]["median"].as_f64() > Some(0.0), "{row:#}");
}
