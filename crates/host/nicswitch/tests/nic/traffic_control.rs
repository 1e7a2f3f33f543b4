//! The switch in traffic control. The tests of other modules are its tests, too: this program runs again for
//! them.

use std::process::Command;

use p4shield_nicswitch::{Hook, NicSwitch as _, Reason, Software};
use p4shield_testbed::wait_until;

use crate::bed::*;
use crate::frames::{IPV4, ethernet, ipv4};
use crate::raw::Raw;

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

/// Returns a packet of TCP which the interface that sends it is to divide, behind the header of virtio that
/// says so.
fn undivided(bytes: usize) -> Vec<u8> {
    let tcp = [
        &[0x13, 0x88, 0x13, 0x89, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0][..],
        &vec![0; bytes],
    ];
    let frame = ethernet(GA, A1, IPV4, &ipv4(v4(0xa1), v4(1), 6, &tcp.concat()));
    // Flags: the checksum is undone; type: TCP over IPv4.
    let mut virtio = vec![1, 1];
    // Bytes of headers, bytes of a segment; first byte under the checksum, the checksum's place behind it.
    virtio.extend([54_u16, 500, 34, 16].into_iter().flat_map(u16::to_le_bytes));
    [virtio, frame].concat()
}

#[test]
fn packets_that_are_still_to_be_divided_are_too_long() {
    let Some(bed) = Bed::without_switch() else { return };
    offload(&bed.ends, &end("a1"), ["tx", "on"]);
    offload(&bed.ends, &end("a1"), ["tso", "on"]);
    let sender = Raw::open(&bed.ends, &end("a1")).with_offloads();
    for (are_direct, bytes) in [(false, 1000), (false, 4000), (true, 1000), (true, 4000)] {
        let packet = undivided(bytes);
        let mut switch = Software::open(Hook::TrafficControl { are_direct }, &bed.folder).unwrap();
        bed.host.inside(|| switch.apply(&ports())).unwrap();
        sender.send(&packet);
        let counters = || {
            let all = bed.host.inside(|| switch.counters()).unwrap();
            all.into_iter().find(|port| port.interface == "a1").unwrap()
        };
        wait_until("reception", 10, || counters().received_packets > 0).unwrap();
        let found = counters();
        assert_eq!(found.received_bytes, packet.len() as u64 - 10, "it came as one: {found:?}");
        assert_eq!(found.dropped(Reason::TooLong), 1, "{found:?}");
        bed.host.inside(|| switch.delete()).unwrap();
    }
}
