//! `p4shield-dev bench tenants` in small, as a user runs it. The test checks what is reported, never times.

use std::process::Command;

use p4shield_testbed::usable;
use serde_json::Value;

/// Runs a benchmark and returns its report; `None` where none can run.
fn report(words: &[&str]) -> Option<Value> {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    let out = command.arg("bench").args(words).arg("--json").output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    Some(serde_json::from_slice(&out.stdout).unwrap())
}

#[test]
fn each_tenants_compartment_is_measured() {
    let Some(report) = report(&["tenants", "--tenants", "2", "--seconds", "1"]) else { return };
    for figure in ["pss_mb", "rss_mb", "idle_percent"] {
        let compartments = report["compartments"][figure]["rounds"].as_array().unwrap();
        assert_eq!(compartments.len(), 2, "{report:#}");
    }
    assert!(report["compartments"]["pss_mb"]["median"].as_f64() > Some(1.0), "{report:#}");
}
