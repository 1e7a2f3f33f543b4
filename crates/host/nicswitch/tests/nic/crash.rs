//! Processes that end: the policy stays, and the next process completes what one left undone.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use macaddr::MacAddr6;
use p4shield_nicswitch::{NicSwitch, Reason, Software};
use p4shield_testbed::wait_until;
use p4shield_topology::{Port, Role};

use crate::bed::*;
use crate::frames::*;

/// The folder of a switch that a process of this binary changes.
const FOLDER: &str = "P4SHIELD_TEST_NIC_FOLDER";
/// Set if that process goes on until it is killed.
const FOR_EVER: &str = "P4SHIELD_TEST_NIC_FOR_EVER";

/// MAC addresses of a1 and ga in the second list.
const X: MacAddr6 = mac(0x11);
const Y: MacAddr6 = mac(0x12);

/// Returns the ports with these MAC addresses of a1 and its gateway.
fn with_macs(vm: MacAddr6, gateway: MacAddr6) -> Vec<Port> {
    let mut list = ports();
    list[0].role = Role::Vm { vlan: A, mac: vm, addresses: vec![v4(0xa1).into()] };
    list[2].role = Role::Gateway { vlan: A, mac: gateway };
    list
}

/// Another process: changes the switch, if it was started for that.
#[test]
fn changes_the_switch_of_its_parent() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut nic = Software::open(hook(), folder).unwrap();
    nic.apply(&ports()).unwrap();
    while std::env::var_os(FOR_EVER).is_some() {
        nic.apply(&with_macs(X, Y)).unwrap();
        nic.apply(&ports()[..5]).unwrap();
        nic.apply(&ports()).unwrap();
        nic.delete().unwrap();
        nic.apply(&ports()[3..]).unwrap();
        nic.apply(&ports()).unwrap();
    }
}

fn another_process(bed: &Bed) -> Command {
    let mut command = bed.host.command(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::changes_the_switch_of_its_parent", "--nocapture"]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.env(FOLDER, &bed.folder);
    command
}

/// Kills a process when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_policy_outlives_the_process_that_applied_it() {
    let Some(bed) = Bed::without_switch() else { return };
    assert!(another_process(&bed).status().unwrap().success());
    for to in NAMES {
        let (from, frame) = allowed_to(to);
        assert_eq!(bed.try_frame(from, &frame), delivered(to), "{from} to {to}");
    }
    let foreign = ethernet(GA, A1, IPV4, &udp(v4(0xa2).into(), v4(1).into()));
    assert_eq!(bed.try_frame("a1", &foreign), dropped(Reason::SourceIp));
    assert!(bed.apply(&ports()).unwrap().is_empty());
    assert_eq!(bed.counters()["a1"].dropped(Reason::SourceIp), 1);
}

/// Frames from a1 that one list's VM would send to the other one's gateway.
fn mixed() -> [Vec<u8>; 2] {
    let packet = udp(v4(0xa1).into(), v4(1).into());
    [ethernet(Y, A1, IPV4, &packet), ethernet(GA, X, IPV4, &packet)]
}

#[test]
fn a_mixture_of_two_policies_is_never_in_force() {
    let Some(bed) = Bed::build() else { return };
    bed.apply(&with_macs(A1, Y)).unwrap();
    let [one, two] = mixed();
    bed.sockets["a1"].send(&one);
    wait_until("the twin's arrival", 10, || bed.sockets["ga"].receive().as_ref() == Some(&one)).unwrap();
    let delivered_before = bed.counters()["ga"].delivered_packets;
    bed.apply(&ports()).unwrap();
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for _ in 0..p4shield_need::extent(30, 1000) {
                assert_eq!(bed.apply(&with_macs(X, Y)).unwrap().changed, ["a1", "a2", "ga"]);
                bed.apply(&ports()).unwrap();
            }
        });
        while !changes.is_finished() {
            bed.sockets["a1"].send(&one);
            bed.sockets["a1"].send(&two);
        }
    });
    bed.wait_for_rest();
    assert_eq!(bed.try_frame("a1", &allowed_to("ga").1).dropped, None);
    let came = bed.counters()["ga"].delivered_packets - delivered_before;
    assert_eq!(came, 2, "an allowed frame, and the one that `try_frame` sends after it");
}

#[test]
fn a_killed_processs_change_is_completed() {
    let Some(bed) = Bed::without_switch() else { return };
    let frames = mixed();
    for round in 0..p4shield_need::extent(25, 500) {
        let mut child = Killed(another_process(&bed).env(FOR_EVER, "1").spawn().unwrap());
        for _ in 0..20 + round * 37 % 300 {
            frames.iter().for_each(|frame| bed.sockets["a1"].send(frame));
            std::thread::sleep(Duration::from_micros(500));
        }
        assert!(child.0.try_wait().unwrap().is_none(), "it goes on until it is killed");
        drop(child);
        for name in NAMES {
            let seen = std::iter::from_fn(|| bed.sockets[name].receive());
            assert_eq!(seen.filter(|frame| frames.contains(frame)).count(), 0, "{name}");
        }
        bed.apply(&ports()).unwrap();
        assert!(bed.apply(&ports()).unwrap().is_empty(), "round {round}");
        for to in ["a1", "ga", "b1", "wan"] {
            let (from, frame) = allowed_to(to);
            assert_eq!(bed.try_frame(from, &frame), delivered(to), "round {round}: {from} to {to}");
        }
        assert_eq!(bed.try_frame("a1", &frames[0]), dropped(Reason::Destination));
    }
}
