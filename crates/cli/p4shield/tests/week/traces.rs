//! Machines that come and go many times, and that are killed at random moments, leave nothing behind and cost
//! their neighbour nothing.

use crate::cloud::{Cloud, ONE};
use crate::configuration::{Attachment, below};
use crate::machines::{MACHINE, kill, machines_are_usable};
use crate::seed;
use crate::upgrades::runs;
use p4shield_need::extent;
use p4shield_testbed::{process, wait_until};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Possessions of a daemon with running tenants.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    /// Files of the daemon's folder, but for the logs of pings.
    files: BTreeSet<PathBuf>,
    interfaces: usize,
    /// Groups beside the daemon's, if it has one of its own.
    cgroups: usize,
    /// The P4 VM's processes of this cloud, with QEMU.
    processes: usize,
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let is_log =
        |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"ping-"));
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| !is_log(path)).collect()
}

impl Cloud {
    fn held(&self) -> Held {
        let pid = self.daemon.pid().as_raw_pid();
        let doors = self.folder.path().join("p4shield.sock.p4vms");
        let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/")?.strip_suffix("/daemon"));
        Held {
            descriptors: entries(Path::new(&format!("/proc/{pid}/fd"))),
            files: [self.folder.path(), &doors].into_iter().flat_map(files).collect(),
            interfaces: self.interfaces(),
            cgroups: own.map_or(0, |own| entries(&Path::new("/sys/fs/cgroup").join(own))),
            processes: self.vmms().iter().map(|vmm| 1 + process::children(*vmm).len()).sum(),
        }
    }

    fn interfaces(&self) -> usize {
        self.host.ip("-oneline link show").unwrap().lines().count()
    }

    fn mappings(&self) -> usize {
        let maps = format!("/proc/{}/maps", self.daemon.pid().as_raw_pid());
        std::fs::read_to_string(maps).unwrap().lines().count()
    }

    /// Returns the processes above QEMU, of all machines of this cloud, whichever daemon started them.
    fn vmms(&self) -> Vec<i64> {
        let folder = self.folder.path().display().to_string();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i64>().ok());
        let line = |pid: &i64| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_ours = |line: String| line.contains("\0vmm\0") && line.contains(&folder);
        pids.filter(|pid| is_ours(line(pid))).collect()
    }

    /// Asserts that the daemon holds what it held before, once the last machine has settled.
    fn holds(&self, before: &(Held, usize)) {
        let end = Instant::now() + Duration::from_secs(60);
        // It may hold less: one that has just adopted P4 VMs has some descriptors open for a moment.
        let held = || {
            let held = self.held();
            let descriptors = held.descriptors.max(before.0.descriptors);
            Held { descriptors, ..held }
        };
        while held() != before.0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(500));
        }
        assert_eq!(held(), before.0, "something is left over\n{}", self.story());
        let mappings = self.mappings();
        assert!(mappings <= before.1 + 8, "mappings are left over: {} before, {mappings}", before.1);
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn machines_that_come_and_go_leave_no_trace() {
    if !machines_are_usable(p4shield_testbed::usable()) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(Attachment::Wire, &MACHINE);
    let mut configuration = MACHINE;
    let mut restart = |cloud: &Cloud| {
        configuration.budget += 1;
        cloud.replace_machine(|_| cloud.reload(&configuration))
    };
    restart(&cloud);
    let (before, drops, stream) =
        ((cloud.held(), cloud.mappings()), cloud.steady_drops()[0].clone(), cloud.stream());
    let times = extent(2, 100);
    let bob: Vec<_> = (0..times).map(|_| restart(&cloud)).collect();
    drop(stream);
    let answered: usize = bob.iter().map(|(answered, _)| answered).sum();
    let lossy: Vec<_> = bob.iter().filter(|(_, lost)| *lost > 0).collect();
    println!("{times} starts and stops: {answered} pings of the neighbour, rounds with losses: {lossy:?}");
    cloud.holds(&before);
    assert_eq!(cloud.steady_drops()[0].clone(), drops, "the neighbour lost packets");
    // A machine that is busy with other work loses pings without the daemon's doing.
    assert!(lossy.len() as u64 <= times / 2, "pings were lost");
    cloud.stops_without_a_trace();
}

/// Where a kill strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Qemu,
    P4Vm,
    Daemon,
}

impl Cloud {
    /// Kills QEMU, the process above it or the daemon at random moments, also while a machine boots. Adds
    /// their processes to `seen`, and returns how often each was killed.
    fn kill_at_random(&mut self, times: u64, seen: &mut BTreeSet<i64>) -> Vec<(Victim, usize)> {
        let mut random = seed();
        let mut below = |n| below(&mut random, n);
        let mut killed = Vec::new();
        while (killed.len() as u64) < times {
            std::thread::sleep(Duration::from_millis(below(4000)));
            let victim = [Victim::Qemu, Victim::P4Vm, Victim::Daemon][below(3) as usize];
            let vmms = self.vmms();
            let qemus: Vec<_> = vmms.iter().flat_map(|vmm| process::children(*vmm)).collect();
            seen.extend(vmms.iter().chain(&qemus));
            let target = if victim == Victim::Qemu { qemus.last() } else { vmms.last() };
            match (victim, target) {
                (Victim::Daemon, _) => self.kill_daemon(),
                (_, Some(pid)) => kill(*pid),
                // Between two machines.
                _ => continue,
            }
            killed.push(victim);
        }
        let count = |victim| (victim, killed.iter().filter(|v| **v == victim).count());
        [Victim::Qemu, Victim::P4Vm, Victim::Daemon].map(count).into()
    }
}

#[test]
#[allow(clippy::print_stdout, reason = "the figures are of interest")]
fn kills_at_random_moments_leave_no_trace() {
    if !machines_are_usable(p4shield_testbed::usable()) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cloud = Cloud::start(Attachment::Wire, &MACHINE);
    // As every further one, the daemon has adopted what runs.
    cloud.kill_daemon();
    cloud.wait_settled();
    let (before, drops) = ((cloud.held(), cloud.mappings()), cloud.steady_drops()[0].clone());
    let missed = cloud.missed_deadlines("bob");
    let (bob, stream, mut seen) = (cloud.pings("10.9.6.3"), cloud.stream(), BTreeSet::new());
    let killed = cloud.kill_at_random(extent(4, 50), &mut seen);
    cloud.wait("a machine that judges", || cloud.ping("10.9.6.1"));
    // Again one that has adopted what runs.
    cloud.kill_daemon();
    cloud.wait_settled();
    let bob = bob.end();
    drop(stream);
    let missed = cloud.missed_deadlines("bob").saturating_sub(missed);
    println!(
        "{killed:?}: pings of the neighbour that were answered and lost: {bob:?}, {missed} at deadlines"
    );
    cloud.holds(&before);
    assert_eq!(cloud.steady_drops()[0].clone(), drops, "the neighbour lost packets");
    // Beside other work, the neighbour's P4 VM may have no core until a deadline.
    assert!(bob.1.saturating_sub(missed) * 200 <= bob.0, "pings were lost: {bob:?}");
    cloud.stops_without_a_trace();
    wait_until("the end of all machines", 150, || !seen.iter().any(|pid| runs(*pid))).unwrap();
}
