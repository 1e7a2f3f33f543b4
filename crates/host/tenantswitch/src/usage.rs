//! The resources of a switch: those of its cgroup, or of its processes if it has none of its own.

use crate::compartment::cgroup_name;
use crate::processes::Processes;
use p4shield_compartment::cgroup_of;
use rustix::process::Pid;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The use of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Processor time since its compartment started.
    pub(crate) cpu: Duration,
    /// Bytes of memory now.
    pub(crate) memory: u64,
}

/// Returns what the compartment of this name uses, which has these processes.
pub(crate) fn of(name: &str, processes: &Processes) -> Used {
    let cgroup = processes.first.and_then(|first| cgroup_of(first.as_raw_pid()).ok());
    let own = cgroup.filter(|folder| folder.ends_with(cgroup_name(name)));
    own.and_then(|folder| of_cgroup(&folder)).unwrap_or_else(|| of_processes(&processes.all))
}

fn of_cgroup(folder: &Path) -> Option<Used> {
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let used = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.parse().ok()?;
    let bytes = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let memory = bytes(&folder.join("memory.current"))?;
    // Huge pages are in files of their own.
    let files = fs::read_dir(folder).ok()?.flatten().map(|file| file.path());
    let is_of_pages = |file: &PathBuf| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("hugetlb.") && name.ends_with("B.current")
    };
    let pages = files.filter(is_of_pages).filter_map(|file| bytes(&file));
    Some(Used { cpu: Duration::from_micros(used), memory: pages.fold(memory, u64::saturating_add) })
}

/// Sums up processes. What has ended is in the sums of the process that waited for it.
fn of_processes(all: &[Pid]) -> Used {
    // A process may end meanwhile.
    let read = |pid: &Pid, file| fs::read_to_string(format!("/proc/{}/{file}", pid.as_raw_pid()));
    let ticks: u64 = all.iter().filter_map(|pid| ticks(&read(pid, "stat").ok()?)).sum();
    let memory = all.iter().filter_map(|pid| proportional(&read(pid, "smaps_rollup").ok()?)).sum();
    let hertz = rustix::param::clock_ticks_per_second().max(1);
    Used { cpu: Duration::from_micros(ticks * 1_000_000 / hertz), memory }
}

/// Returns the processor time of a process and of the children that it has waited for, in clock ticks, from
/// its `/proc/PID/stat`.
fn ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, which may contain anything.
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    // From utime, field 14, to cstime.
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the memory of a process in bytes, where a page that several processes share counts in parts, from
/// its `/proc/PID/smaps_rollup`.
fn proportional(smaps: &str) -> Option<u64> {
    let field = |name: &str| {
        let field = smaps.lines().find_map(|line| line.strip_prefix(name))?;
        field.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    // Huge pages are in no Pss. Those of a switch are its own, also where its memory is a shared mapping.
    let pages = ["Private_Hugetlb:", "Shared_Hugetlb:"].iter().filter_map(|name| field(name));
    Some(pages.fold(field("Pss:")?, u64::saturating_add) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_read_past_hostile_names() {
        let stat = "42 (a) S (1) 2 3) S 1 42 42 0 -1 4194304 9 9 9 9 100 20 3 4 20 0 1 0 5 6 7\n";
        assert_eq!(ticks(stat), Some(127));
        assert_eq!(ticks("42 (x) S 1"), None);
        let smaps = "Rss: 9 kB\nPss:                2048 kB\nPss_Dirty: 1 kB\n";
        assert_eq!(proportional(smaps), Some(2 << 20));
        let pages = format!("{smaps}Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:    4096 kB\n");
        assert_eq!(proportional(&pages), Some(6 << 20));
    }

    #[test]
    fn a_cgroup_says_what_its_processes_use() {
        let folder = std::env::temp_dir().join(format!("p4shield-usage-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cpu.stat"), "usage_usec 1500000\nuser_usec 7\n").unwrap();
        assert_eq!(of_cgroup(&folder), None, "without the memory controller");
        fs::write(folder.join("memory.current"), "4096\n").unwrap();
        assert_eq!(of_cgroup(&folder), Some(Used { cpu: Duration::from_millis(1500), memory: 4096 }));
        fs::write(folder.join("hugetlb.2MB.current"), "2097152\n").unwrap();
        fs::write(folder.join("hugetlb.2MB.rsvd.max"), "max\n").unwrap();
        let used = of_cgroup(&folder).unwrap();
        assert_eq!(used.memory, 4096 + (2 << 20), "with huge pages");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn processes_are_summed_up() {
        let own = of_processes(&[rustix::process::getpid()]);
        assert!(own.memory > 1 << 20, "{own:?}");
        let twice = of_processes(&[rustix::process::getpid(), rustix::process::getpid()]);
        assert!(twice.memory > own.memory, "{twice:?}");
    }
}
