//! `p4shield-dev bench calls` in small, as a user runs it. The test checks what is reported, never times.

use std::process::Command;

use p4shield_testbed::usable;
use serde_json::Value;

#[test]
fn functions_run_in_the_program_and_apart_from_it() {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "calls", "--json", "--rounds", "1", "--milliseconds", "20"]);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["packet_bytes"], 64, "{report:#}");
    for rate in [&report["inline"], &report["apart"], &report["ratio"]] {
        assert!(rate["median"].as_f64() > Some(0.0), "{report:#}");
    }
}
