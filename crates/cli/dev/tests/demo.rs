//! A demo that loses a part names the part and its exit status, instead of reporting a failed claim.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use p4shield_testbed::{Guarded, process};
use rustix::process::{Pid, Signal, kill_process};

/// Returns the child of `parent` whose command begins with `program` and contains the word `argument`.
fn child_of(parent: Pid, program: &str, argument: &str) -> Option<Pid> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw).find(|pid| {
        let read = |name| std::fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_pid()));
        let (Ok(status), Ok(line)) = (read("status"), read("cmdline")) else { return false };
        let mut words = line.split('\0');
        status.contains(&format!("\nPPid:\t{}\n", parent.as_raw_pid()))
            && words.next().is_some_and(|w| w.rsplit('/').next().unwrap_or(w).starts_with(program))
            && words.any(|w| w == argument)
    })
}

/// One demo at a time: each fills two cores.
static ONE: Mutex<()> = Mutex::new(());

/// Runs the demo, kills one part in the first phase, and returns the error output.
fn without(program: &str, argument: &str) -> String {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = p4shield_testbed::leftover::folder("cut-demo").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.args(["demo", "--report"]).arg(folder.path().join("report"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut demo = Guarded::spawn(&mut command).unwrap();
    let mut lines = BufReader::new(demo.child().stdout.take().unwrap()).lines();
    let begun = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("-- "));
    let part = child_of(demo.pid(), program, argument);
    if let Some(part) = part {
        kill_process(part, Signal::KILL).unwrap();
    }
    let shown: Vec<_> = lines.map_while(Result::ok).collect();
    let mut told = String::new();
    demo.child().stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(begun && part.is_some(), "{begun}, {part:?}: {shown:#?}\n{told}");
    let status = demo.child().wait().unwrap();
    assert!(!status.success() && told.contains("SIGKILL"), "{status}: {shown:#?}\n{told}");
    told
}

fn usable() -> bool {
    let missing = p4shield_testbed::usable().err();
    if let Some(why) = &missing {
        p4shield_need::skip("machine", why);
    }
    missing.is_none()
}

#[test]
fn a_demo_names_the_switch_that_died() {
    if process::find("ovs-vswitchd").is_none() {
        p4shield_need::skip("openvswitch", "without Open vSwitch the demo's switch is the kernel's");
        return;
    }
    if usable() {
        let told = without("ovs-vswitchd", "--disable-system");
        // With the end of the switch's log.
        assert!(told.contains("the switch (ovs-vswitchd) ended") && told.contains("|bridge|"), "{told}");
    }
}

#[test]
fn a_demo_names_the_daemon_that_died() {
    if usable() {
        let told = without("p4shield", "run");
        assert!(told.contains("the host daemon (p4shield run) ended"), "{told}");
        assert!(told.contains("P4 VM runs"), "the end of its log: {told}");
    }
}
