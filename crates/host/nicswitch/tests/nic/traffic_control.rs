//! The switch in traffic control. The tests of other modules are its tests, too: this program runs again for
//! them.

use std::process::Command;

use p4shield_nicswitch::{Hook, NicSwitch as _, Software};
use p4shield_testbed::wait_until;

use crate::bed::*;

/// The tests of other modules, by the start of their names. A bridge has tests of its own.
const SHARED: [&str; 8] =
    ["agreement::", "attacks::", "checksums::", "crash::", "extent::", "life::", "paths::", "rate::"];
/// Those about single frames, which is where the ways to compartments differ.
const OF_FRAMES: [&str; 4] = ["agreement::", "attacks::", "checksums::", "paths::"];

/// Runs tests of other modules with this back end.
fn pass_with(back_end: &str, tests: &[&str]) {
    let Some(bed) = Bed::without_switch() else { return };
    drop(bed);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--test-threads=1").args(tests).env(BACK_END, back_end);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for module in tests {
        assert!(text.contains(&format!("test {module}")), "{module} did not run: {text}");
    }
}

#[test]
fn tests_of_xdp_pass_in_traffic_control() {
    pass_with("tc", &OF_FRAMES);
}

#[test]
fn tests_of_xdp_pass_with_direct_compartments() {
    pass_with("tc-direct", &SHARED);
}

#[test]
fn each_hook_guards_ports_when_the_other_goes() {
    let Some(bed) = Bed::build() else { return };
    let hook = Hook::TrafficControl { are_direct: true };
    let mut later = Software::open(hook, format!("{}-tc", bed.folder.display())).unwrap();
    let filters = || {
        let words = ["filter", "show", "dev", "a1", "egress"];
        String::from_utf8(bed.host.command("tc").args(words).output().unwrap().stdout).unwrap()
    };
    let passes = || {
        let (from, frame) = allowed_to("ga");
        bed.sockets[from].send(&frame);
        let arrives = || bed.sockets["ga"].receive().as_ref() == Some(&frame);
        wait_until("the frame's arrival", 10, arrives).unwrap();
    };
    bed.host.ip("addr add 10.9.9.1/24 dev a1").unwrap();
    let sent_by_the_host = || {
        bed.host.command("ping").args(["-c", "1", "-W", "1", "10.9.9.2"]).output().unwrap();
        std::iter::from_fn(|| bed.sockets["a1"].receive()).filter(|frame| frame[12..14] == [8, 6]).count()
    };
    assert_eq!(bed.host.inside(|| later.apply(&ports())).unwrap().added.len(), NAMES.len());
    passes();
    assert!(filters().contains("nic_guard") && filters().contains("nic_outward"), "{}", filters());

    bed.host.inside(|| bed.nic().delete()).unwrap();
    passes();
    assert!(!filters().contains("nic_guard") && filters().contains("nic_outward"), "{}", filters());
    assert_eq!(sent_by_the_host(), 0);

    bed.apply(&ports()).unwrap();
    bed.host.inside(|| later.delete()).unwrap();
    passes();
    assert!(filters().contains("nic_guard") && !filters().contains("nic_outward"), "{}", filters());
    assert_eq!(sent_by_the_host(), 0);
}
