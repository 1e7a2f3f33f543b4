//! An operator attaches to the distribution's Open vSwitch by the steps of docs/how-to/attach-dpdk.md.

use std::path::Path;
use std::process::{Command, Stdio};

use p4shield_testbed::process::find;

/// Returns what this machine lacks for the test.
fn missing() -> Option<String> {
    if let Err(why) = p4shield_testbed::usable() {
        return Some(why);
    }
    let ovs = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    if !Path::new(ovs).exists() || find("unshare").is_none() {
        return Some("the package openvswitch-switch-dpdk or the command unshare is missing".into());
    }
    let folders =
        Command::new("unshare").args(["-m", "-p", "-f", "mount", "-t", "tmpfs", "none", "/run"]).output();
    folders.is_ok_and(|o| !o.status.success()).then(|| "this container must not mount".into())
}

#[test]
fn status_names_the_owner_of_each_port_of_a_stock_switch() {
    if let Some(why) = missing() {
        p4shield_need::skip("machine", why);
        return;
    }
    let folder = p4shield_testbed::leftover::folder("operator").unwrap();
    let library = std::env::current_exe().unwrap().with_file_name("libp4shield_dpdk.so");
    assert!(library.exists(), "cargo builds it with the tests");
    // The script's processes end with the first process of its PID namespace.
    let toured = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/operator.sh"))
        .env("P4SHIELD", env!("CARGO_BIN_EXE_p4shield"))
        .env("LIBRARY", library)
        .env("FOLDER", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&toured.stdout).into_owned();
    let complained = String::from_utf8_lossy(&toured.stderr).into_owned();
    assert!(toured.status.success() && said.ends_with("the tour is over\n"), "{said}\n---\n{complained}");
}
