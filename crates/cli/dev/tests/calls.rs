//! `p4shield-dev bench calls` in small, as a user runs it. The test checks what is reported, never times.

use std::process::Command;

use p4shield_testbed::usable;
use serde_json::Value;

/// Returns what the command prints, with these further options.
fn printed(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["bench", "calls", "--rounds", "1", "--milliseconds", "20"]).args(options);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn functions_run_in_the_program_and_apart_from_it() {
    if let Err(why) = usable() {
        p4shield_need::skip("machine", why);
        return;
    }
    let report: Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    assert_eq!(report["packet_bytes"], 64, "{report:#}");
    for name in ["inline", "apart", "ratio", "echo", "echo_ratio"] {
        assert!(report[name]["median"].as_f64() > Some(0.0), "{name}: {report:#}");
    }
    let text = printed(&[]);
    for row in ["inline ", "echo: ", "in a compartment ", "for channel and compartment"] {
        assert!(text.contains(row), "{row}: {text}");
    }
}
