//! The cores of a P4 VM: those on which no switch polls.
//!
//! A polling thread never yields its core. A P4 VM there would wait for a time slice before each batch, and
//! the switch would hold the packets meanwhile.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;

/// Keeps a P4 VM off the cores on which switches poll.
#[derive(Debug, Default)]
pub struct CorePlacement {
    /// The process and the cores that were last applied.
    applied: Option<(Pid, BTreeSet<u32>)>,
    problem: Option<String>,
}

impl CorePlacement {
    /// Moves the processes if necessary. Returns what is wrong, with a remedy. `bound`: the core that the
    /// configuration gives the worker, which overrides this. A P4 VM that is a virtual machine cannot choose
    /// the host's cores, so that the daemon puts all of its threads there.
    pub fn update(
        &mut self,
        process: Pid,
        (bound, is_machine): (Option<u32>, bool),
        polling: &BTreeSet<u32>,
    ) -> Option<String> {
        let moved = |(pid, cores): &(Pid, BTreeSet<u32>), to: &BTreeSet<u32>| *pid != process || cores != to;
        if let Some(core) = bound {
            let target = BTreeSet::from([core]);
            if is_machine && self.applied.as_ref().is_none_or(|a| moved(a, &target)) {
                self.problem = move_to(process, &target).err();
                self.applied = Some((process, target));
            }
            let polls = polling.contains(&core).then(|| {
                format!(
                    "cpu = {core} is a core on which the switch polls; set cpu to another, or leave it out"
                )
            });
            return polls.or_else(|| self.problem.clone());
        }
        if self.applied.as_ref().is_none_or(|a| moved(a, polling)) {
            self.problem = place(process, polling).err();
            self.applied = Some((process, polling.clone()));
        }
        self.problem.clone()
    }
}

fn failed(what: &str, e: rustix::io::Errno) -> String {
    format!("the daemon cannot {what} ({e}); run it with CAP_SYS_NICE, or set the tenant's cpu")
}

/// Restricts all threads of a P4 VM to the daemon's own cores without those in `polling`.
fn place(process: Pid, polling: &BTreeSet<u32>) -> Result<(), String> {
    let own = sched_getaffinity(None).map_err(|e| failed("read its cores", e))?;
    let allowed = cores(&own);
    let free: BTreeSet<u32> = allowed.difference(polling).copied().collect();
    move_to(process, if free.is_empty() { &allowed } else { &free })?;
    if free.is_empty() {
        return Err(format!(
            "the switch polls on every core that P4 VMs may use ({}), so they wait for time slices; give the \
             switch fewer cores (Open vSwitch: other_config:pmd-cpu-mask), or the daemon more",
            list(&allowed)
        ));
    }
    Ok(())
}

/// Restricts all threads of a process and of its descendants to these cores.
fn move_to(process: Pid, target: &BTreeSet<u32>) -> Result<(), String> {
    let mut set = CpuSet::new();
    target.iter().for_each(|core| set.set(*core as usize));
    // A thread that starts meanwhile inherits the cores of its creator; the second pass finds it.
    for _ in 0..2 {
        for thread in threads(process) {
            match sched_setaffinity(Some(thread), &set) {
                // The thread has ended.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(e) => return Err(failed("move the P4 VM to other cores", e)),
            }
        }
    }
    Ok(())
}

fn cores(set: &CpuSet) -> BTreeSet<u32> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).map(|core| core as u32).collect()
}

/// Returns the threads of a process, and of its descendants: QEMU is a child of a virtual machine's P4 VM.
pub(crate) fn threads(process: Pid) -> Vec<Pid> {
    let (mut found, mut processes) = (Vec::new(), vec![process]);
    while let Some(process) = processes.pop() {
        let folder = format!("/proc/{}/task", process.as_raw_pid());
        for thread in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            found.extend(thread.file_name().to_str().and_then(pid));
            let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            processes.extend(children.split_ascii_whitespace().filter_map(pid));
        }
    }
    found
}

fn pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn list(cores: &BTreeSet<u32>) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    struct Sleeper(Child);

    impl Sleeper {
        fn new() -> (Self, Pid) {
            let child = Command::new("sleep").arg("60").spawn().unwrap();
            let pid = Pid::from_child(&child);
            (Self(child), pid)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn of(process: Pid) -> BTreeSet<u32> {
        cores(&sched_getaffinity(Some(process)).unwrap())
    }

    #[test]
    fn a_p4_vm_leaves_the_core_on_which_a_switch_polls() {
        let all = of(rustix::process::getpid());
        let polling = BTreeSet::from([*all.first().unwrap()]);
        let (_sleeper, process) = Sleeper::new();
        let mut placement = CorePlacement::default();
        let problem = placement.update(process, (None, false), &polling);
        if all.len() == 1 {
            assert!(problem.unwrap().contains("every core"), "one core: it stays, and status says so");
            return;
        }
        assert_eq!(problem, None);
        assert_eq!(of(process), &all - &polling);
        assert_eq!(placement.update(process, (None, false), &BTreeSet::new()), None);
        assert_eq!(of(process), all, "the switch no longer polls");
    }

    #[test]
    fn a_p4_vm_without_a_free_core_is_reported() {
        let all = of(rustix::process::getpid());
        let (_sleeper, process) = Sleeper::new();
        let mut placement = CorePlacement::default();
        for _ in 0..2 {
            let problem = placement.update(process, (None, false), &all).unwrap();
            assert!(problem.contains("pmd-cpu-mask"), "{problem}");
            assert_eq!(of(process), all);
        }
    }

    #[test]
    fn a_configured_core_on_which_a_switch_polls_is_reported() {
        let (_sleeper, process) = Sleeper::new();
        let before = of(process);
        let mut placement = CorePlacement::default();
        assert!(placement.update(process, (Some(3), false), &[3].into()).unwrap().contains("cpu = 3"));
        assert_eq!(placement.update(process, (Some(2), false), &[3].into()), None);
        assert_eq!(of(process), before, "the configuration decides");
    }

    #[test]
    fn a_bound_machine_and_its_children_are_on_that_core() {
        let mut shell =
            Command::new("sh").args(["-c", "sleep 60 & echo; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let process = Pid::from_child(&shell);
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let all = threads(process);
        let core = *of(process).last().unwrap();
        let problem = CorePlacement::default().update(process, (Some(core), true), &BTreeSet::new());
        let placed: Vec<_> = all.iter().map(|t| of(*t)).collect();
        all.iter().for_each(|t| rustix::process::kill_process(*t, rustix::process::Signal::KILL).unwrap());
        shell.wait().unwrap();
        assert_eq!((problem, placed), (None, vec![BTreeSet::from([core]); 2]));
    }
}
