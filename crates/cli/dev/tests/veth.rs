//! `p4shield-dev bench veth` in small, as a user runs it. The test checks results, never times.

use std::process::Command;

use p4shield_testbed::Testpmd;
use serde_json::Value;

#[test]
fn entries_are_written_while_packets_flow_and_none_is_dropped() {
    if let Err(why) = Testpmd::usable() {
        p4shield_need::skip("dpdk", why);
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "veth", "--json", "--rounds", "1", "--seconds", "1", "--round-trips", "2000"]);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let modes = |rows: &Value| rows.as_array().unwrap().iter().map(|r| r["mode"].clone()).collect::<Vec<_>>();
    assert_eq!(modes(&report["throughput"]), ["testpmd", "p4shield", "pipeline"], "{report:#}");
    assert_eq!(modes(&report["latency"]), ["idle", "elsewhere", "written"], "{report:#}");
    assert!(report["latency"][2]["entries_s"].as_f64() > Some(0.0), "{report:#}");
    for row in report["latency"].as_array().unwrap() {
        assert_eq!(row["dropped"], 0, "{report:#}");
    }
}
