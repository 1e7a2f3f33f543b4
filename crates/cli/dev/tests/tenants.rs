//! `p4shield-dev bench isolation` and `tenants` in small, as a user runs them. The tests check what is
//! reported, never times.

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
fn an_attack_makes_the_attackers_switch_search_many_masks() {
    // Masks are counted for packets that the switch remembers: a sweep has to come again.
    let Some(report) = report(&["isolation", "--seconds", "2", "--rate", "500"]) else { return };
    let rows = report["rows"].as_array().unwrap();
    let kinds: Vec<_> = rows.iter().map(|r| (r["level"].as_str(), r["attack"].as_str())).collect();
    let attacks = [Some("none"), Some("tenant"), Some("outside")];
    let expected: Vec<_> =
        ["baseline", "2"].into_iter().flat_map(|l| attacks.map(|a| (Some(l), a))).collect();
    assert_eq!(kinds, expected, "{report:#}");
    for row in rows {
        let is_attacked = row["attack"] != "none";
        assert_eq!(is_attacked, row["masks"].as_f64() > Some(10.0), "{report:#}");
        // On a busy machine an attack at the baseline may leave nothing.
        let is_served = row["level"] == "2" || !is_attacked;
        assert!(!is_served || row["received_pps"].as_f64() > Some(0.0), "{report:#}");
    }
    assert_eq!(report["bars"].as_array().unwrap().len(), 3, "{report:#}");
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
