//! A demo that loses a part names the part and its exit status, instead of reporting a failed claim.

use std::io::{BufRead, BufReader, Lines, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
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

/// Starts the demo with these arguments, which writes its report into `folder`.
fn start(arguments: &[&str], folder: &Path) -> (Guarded, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p4shield-dev"));
    command.arg("demo").args(arguments).arg("--report").arg(folder.join("report"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut demo = Guarded::spawn(&mut command).unwrap();
    let lines = BufReader::new(demo.child().stdout.take().unwrap()).lines();
    (demo, lines)
}

/// Runs the demo with these arguments, kills one part in the first phase, and returns the error output.
fn without(arguments: &[&str], program: &str, argument: &str) -> String {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = p4shield_testbed::leftover::folder("cut-demo").unwrap();
    let (mut demo, mut lines) = start(arguments, folder.path());
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
        let told = without(&[], "ovs-vswitchd", "--disable-system");
        // With the end of the switch's log.
        assert!(told.contains("the switch (ovs-vswitchd) ended") && told.contains("|bridge|"), "{told}");
    }
}

#[test]
fn a_demo_names_the_daemon_that_died() {
    if usable() {
        let told = without(&[], "p4shield", "run");
        assert!(told.contains("the host daemon (p4shield run) ended"), "{told}");
        assert!(told.contains("P4 VM runs"), "the end of its log: {told}");
    }
}

/// Returns the library for the switch of a demo with guests; cargo puts it beside the tests. `None` if this
/// machine cannot run that demo.
fn library_of_guests() -> Option<PathBuf> {
    let library = std::env::current_exe().unwrap().with_file_name("libp4shield_dpdk.so");
    if let Err(why) = p4shield_demo::guests::usable(&library) {
        p4shield_need::skip("guest", why);
        return None;
    }
    Some(library)
}

/// Returns the names of namespaces and files of this process, and the command lines that contain such a name.
fn left_by(demo: Pid) -> Vec<String> {
    let mark = format!("p4s-{}-", demo.as_raw_pid());
    let names = [Path::new("/run/netns"), &std::env::temp_dir()].map(|folder| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    });
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = pids.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    names.into_iter().flatten().chain(lines).filter(|text| text.contains(&mark)).collect()
}

#[test]
fn a_demo_names_the_guest_that_died() {
    if let Some(library) = library_of_guests() {
        let library = library.display().to_string();
        let arguments = ["--user-vms", "guests", "--library", &library];
        // Of the guests only the user VM has pages.
        let told = without(&arguments, "qemu-system", "ivshmem-plain,memdev=p4shield-page0");
        assert!(told.contains("the user VM (qemu-system-x86_64) ended"), "{told}");
    }
}

#[test]
fn an_interrupted_demo_with_guests_leaves_nothing() {
    let Some(library) = library_of_guests() else { return };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = p4shield_testbed::leftover::folder("cut-demo").unwrap();
    let arguments = ["--user-vms", "guests", "--library", library.to_str().unwrap()];
    let (mut demo, mut lines) = start(&arguments, folder.path());
    let boots = lines.by_ref().map_while(Result::ok).any(|line| line.contains("guest boot"));
    assert!(boots && left_by(demo.pid()).len() > 5, "{:?}", left_by(demo.pid()));
    kill_process(demo.pid(), Signal::INT).unwrap();
    lines.for_each(drop);
    let mut told = String::new();
    demo.child().stderr.take().unwrap().read_to_string(&mut told).unwrap();
    let status = demo.child().wait().unwrap();
    assert!(!status.success() && told.contains("interrupted"), "{status}: {told}");
    assert_eq!(left_by(demo.pid()), Vec::<String>::new());
}
