//! Limits of memory and processor for P4 VMs, where the daemon was given a cgroup to divide (systemd's `Delegate=`).
//!
//! In cgroup v2 processes stand in leaves, so the daemon moves itself into one below the cgroup that it was started
//! in, and makes a leaf beside it for each P4 VM. Where that is not possible, the resource limits of the sandbox hold
//! alone, and status says why.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The cgroup that the daemon divides.
#[derive(Debug)]
pub(crate) struct Cgroup {
    root: PathBuf,
}

/// The leaf of one P4 VM; removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

/// Why there are no groups.
#[derive(Debug, thiserror::Error)]
#[error("no cgroup to divide ({reason}); under systemd, Delegate=yes gives one")]
pub(crate) struct NoCgroup {
    reason: String,
}

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

impl Cgroup {
    /// Takes the daemon's own cgroup.
    pub(crate) fn own() -> Result<Self, NoCgroup> {
        let because = |reason: &str| NoCgroup { reason: reason.to_owned() };
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|_| because("/proc is not mounted"))?;
        let mount = mount_point(&mounts).ok_or_else(|| because("cgroup v2 is not mounted"))?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|_| because("/proc is not mounted"))?;
        let own =
            own.lines().find_map(|l| l.strip_prefix("0::/")).ok_or_else(|| because("not in a v2 cgroup"))?;
        if own.is_empty() {
            return Err(because("the daemon is in the root cgroup"));
        }
        Self::divide(&mount.join(own), std::process::id())
    }

    /// Moves `pid` into a leaf of `root`, and hands the controllers down.
    fn divide(root: &Path, pid: u32) -> Result<Self, NoCgroup> {
        let because = |reason: String| NoCgroup { reason };
        let have = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if let Some(lacks) = CONTROLLERS.iter().find(|c| !have.split_whitespace().any(|h| h == **c)) {
            return Err(because(format!("controller {lacks} is not available in {}", root.display())));
        }
        let make = || -> io::Result<()> {
            let leaf = root.join("daemon");
            fs::create_dir_all(&leaf)?;
            fs::write(leaf.join("cgroup.procs"), pid.to_string())?;
            fs::write(root.join("cgroup.subtree_control"), CONTROLLERS.map(|c| format!("+{c}")).join(" "))
        };
        make().map_err(|e| because(format!("{}: {e}", root.display())))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Makes the leaf of a tenant's P4 VM.
    pub(crate) fn group(&self, tenant: &str, memory: u64, cpu_percent: Option<u32>) -> io::Result<Group> {
        let path = self.root.join(format!("p4vm-{tenant}"));
        fs::create_dir_all(&path)?;
        let group = Group { path };
        fs::write(group.path.join("memory.max"), memory.to_string())?;
        // A tenant's key is in this memory. A kernel without swap has no such file.
        let swap = group.path.join("memory.swap.max");
        if swap.exists() {
            fs::write(swap, "0")?;
        }
        let quota = cpu_percent.map_or_else(|| "max".to_owned(), |p| (u64::from(p) * 1000).to_string());
        fs::write(group.path.join("cpu.max"), format!("{quota} 100000"))?;
        fs::write(group.path.join("pids.max"), "16")?;
        Ok(group)
    }
}

impl Group {
    /// Puts a process into it. Its children follow.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Still busy for a moment after a kill; an empty group that stays is used again at the next start.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Where cgroup v2 is mounted, as `/proc/self/mountinfo` has it.
fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').next()? == "cgroup2").then(|| left.split(' ').nth(4).map(PathBuf::from))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found() {
        let text = "24 1 0:22 / /sys rw - sysfs sysfs rw\n30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(text), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point("nonsense\n"), None);
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let folder = std::env::temp_dir().join(format!("p4shield-rt-cgroup-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup.controllers"), "cpuset cpu io memory pids").unwrap();
        let cgroup = Cgroup::divide(&folder, 42).unwrap();
        assert_eq!(fs::read_to_string(folder.join("daemon/cgroup.procs")).unwrap(), "42");
        fs::create_dir(folder.join("p4vm-alice")).unwrap();
        fs::write(folder.join("p4vm-alice/memory.swap.max"), "max").unwrap();
        let group = cgroup.group("alice", 1 << 30, Some(50)).unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("p4vm-alice/memory.swap.max")).unwrap(),
            "0",
            "keys stay in memory"
        );
        group.add(7).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join("p4vm-alice").join(name)).unwrap();
        assert_eq!((read("cpu.max"), read("memory.max")), ("50000 100000".into(), "1073741824".into()));
        assert_eq!(read("cgroup.procs"), "7");
        drop(group);
        fs::write(folder.join("cgroup.controllers"), "cpu").unwrap();
        let error = Cgroup::divide(&folder, 42).unwrap_err().to_string();
        assert!(error.contains("memory is not available") && error.contains("Delegate=yes"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
