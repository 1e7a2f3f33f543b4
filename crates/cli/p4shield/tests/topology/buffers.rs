//! Room for packets that wait while their switch has no core.

use super::scene::Scene;
use super::two_tenants;
use p4shield_testbed::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Command;

/// Bytes that each port's socket holds: twice those asked for, as the kernel counts.
const BYTES: usize = 4 << 20;

/// Returns a switch, whichever compartment has it.
fn switch(scene: &Scene) -> Option<i32> {
    let processes = scene.processes_of(0..=4).into_iter();
    processes.filter_map(|(pid, name)| (name == "ovs-vswitchd").then_some(pid)).next()
}

/// Returns the receive buffers of a switch's packet sockets that have an interface.
fn buffers(switch: i32) -> Vec<usize> {
    let namespace = format!("--net=/proc/{switch}/ns/net");
    let listed = Command::new("nsenter").args([&namespace, "ss", "-0Hnmp"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let of_switch = |line: &&str| line.contains(&format!("pid={switch},")) && !line.contains("[0]:*");
    let lines = text.lines().filter(of_switch);
    lines
        .map(|line| line.split(",rb").nth(1).unwrap_or_else(|| panic!("{text}")))
        .map(|rest| rest.split(',').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn ports_have_room_for_packets_of_other_time_slices() {
    let Some(scene) = two_tenants() else { return };
    let most: usize = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let room = BYTES.min(2 * most);
    for (level, ports) in [("2", 2), ("baseline", 3)] {
        scene.configure(level, &["alice"]);
        scene.topology("apply");
        let have_room = |switch: Option<i32>| {
            let buffers = buffers(switch?);
            println!("level {level}: {buffers:?}");
            (buffers.len() >= ports && buffers.iter().all(|bytes| *bytes == room)).then_some(())
        };
        let first = switch(&scene).unwrap();
        wait_until("room at the ports", 10, || have_room(Some(first)).is_some()).unwrap();
        kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
        let another = || switch(&scene).filter(|pid| *pid != first);
        wait_until("room at those of the next switch", 20, || have_room(another()).is_some()).unwrap();
    }
}

/// Returns the threads of a compartment, each with its number of filters of system calls.
fn filters(scene: &Scene) -> Vec<(String, u32)> {
    let threads = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let filters = |thread: &Path| {
        let status = std::fs::read_to_string(thread.join("status")).ok()?;
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        Some((value("Name:")?.to_owned(), value("Seccomp_filters:")?.parse().ok()?))
    };
    let processes = scene.processes_of(0..=4).into_iter();
    let threads = processes.flat_map(|(pid, _)| threads(pid)).flatten();
    threads.filter_map(|thread| filters(&thread.path())).collect()
}

#[test]
fn one_thread_of_a_compartment_may_take_descriptors() {
    let Some(scene) = two_tenants() else { return };
    scene.configure("2", &["alice"]);
    scene.topology("apply");
    let threads = filters(&scene);
    let [taker] = &threads.iter().filter(|(name, _)| name == "buffers").collect::<Vec<_>>()[..] else {
        panic!("{threads:?}")
    };
    let others: Vec<_> = threads.iter().filter(|(name, _)| name != "buffers").collect();
    assert!(others.iter().any(|(name, _)| name == "ovs-vswitchd"), "{threads:?}");
    // A filter for descriptors is the last one that the first process applies.
    assert!(others.iter().all(|(_, count)| *count == taker.1 + 1), "{threads:?}");
}

/// A test for a guest whose kernel has a low limit. Its scene's host is a namespace, which cannot raise it.
pub(crate) const RAISED: &str = "buffers::apply_raises_the_hosts_limit";

#[test]
#[ignore = "changes a setting of the host: runs in a guest"]
fn apply_raises_the_hosts_limit() {
    let scene = two_tenants().unwrap();
    let limit = || std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    assert_eq!(limit(), "212992\n", "the kernel's own");
    let mut apply = Command::new(env!("CARGO_BIN_EXE_p4shield"));
    let out = apply.args(["topology", "apply", "--config"]).arg(scene.config()).output().unwrap();
    // The VMs' interfaces are in the scene.
    println!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(limit(), format!("{}\n", BYTES / 2));
}
