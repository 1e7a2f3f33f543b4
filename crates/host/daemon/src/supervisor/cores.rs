//! The cores of a P4 VM: those on which no switch polls.
//!
//! A polling thread never yields its core. A P4 VM there would wait for a time slice before each batch, and
//! the switch would hold the packets meanwhile.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;

/// Keeps a P4 VM off the cores on which switches poll.
#[derive(Debug, Default)]
pub(super) struct CorePlacement {
    /// The process and the cores that were last applied.
    applied: Option<(Pid, BTreeSet<u32>)>,
    problem: Option<String>,
}

impl CorePlacement {
    /// Moves the process if necessary. Returns what is wrong, with a remedy. `bound`: the core that the
    /// configuration gives the worker, which overrides this.
    pub(super) fn update(
        &mut self,
        process: Pid,
        bound: Option<u32>,
        polling: &BTreeSet<u32>,
    ) -> Option<String> {
        if let Some(core) = bound {
            return polling.contains(&core).then(|| {
                format!(
                    "cpu = {core} is a core on which the switch polls; set cpu to another, or leave it out"
                )
            });
        }
        if self.applied.as_ref().is_none_or(|(pid, cores)| *pid != process || cores != polling) {
            self.problem = place(process, polling).err();
            self.applied = Some((process, polling.clone()));
        }
        self.problem.clone()
    }
}

/// Restricts all threads of a process to the daemon's own cores without those in `polling`.
fn place(process: Pid, polling: &BTreeSet<u32>) -> Result<(), String> {
    let failed = |what: &str, e: rustix::io::Errno| {
        format!("the daemon cannot {what} ({e}); run it with CAP_SYS_NICE, or set the tenant's cpu")
    };
    let own = sched_getaffinity(None).map_err(|e| failed("read its cores", e))?;
    let allowed = cores(&own);
    let free: BTreeSet<u32> = allowed.difference(polling).copied().collect();
    let target = if free.is_empty() { &allowed } else { &free };
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
    if free.is_empty() {
        return Err(format!(
            "the switch polls on every core that P4 VMs may use ({}), so they wait for time slices; give the \
             switch fewer cores (Open vSwitch: other_config:pmd-cpu-mask), or the daemon more",
            list(&allowed)
        ));
    }
    Ok(())
}

fn cores(set: &CpuSet) -> BTreeSet<u32> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).map(|core| core as u32).collect()
}

fn threads(process: Pid) -> Vec<Pid> {
    let folder = format!("/proc/{}/task", process.as_raw_pid());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|e| Pid::from_raw(e.file_name().to_str()?.parse().ok()?)).collect()
}

fn list(cores: &BTreeSet<u32>) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

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
        let problem = placement.update(process, None, &polling);
        if all.len() == 1 {
            assert!(problem.unwrap().contains("every core"), "one core: it stays, and status says so");
            return;
        }
        assert_eq!(problem, None);
        assert_eq!(of(process), &all - &polling);
        assert_eq!(placement.update(process, None, &BTreeSet::new()), None);
        assert_eq!(of(process), all, "the switch no longer polls");
    }

    #[test]
    fn a_p4_vm_without_a_free_core_is_reported() {
        let all = of(rustix::process::getpid());
        let (_sleeper, process) = Sleeper::new();
        let mut placement = CorePlacement::default();
        for _ in 0..2 {
            let problem = placement.update(process, None, &all).unwrap();
            assert!(problem.contains("pmd-cpu-mask"), "{problem}");
            assert_eq!(of(process), all);
        }
    }

    #[test]
    fn a_configured_core_on_which_a_switch_polls_is_reported() {
        let (_sleeper, process) = Sleeper::new();
        let before = of(process);
        let mut placement = CorePlacement::default();
        assert!(placement.update(process, Some(3), &[3].into()).unwrap().contains("cpu = 3"));
        assert_eq!(placement.update(process, Some(2), &[3].into()), None);
        assert_eq!(of(process), before, "the configuration decides");
    }
}
