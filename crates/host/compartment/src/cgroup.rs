//! Memory and CPU limits for compartments, if a cgroup is delegated to the daemon (systemd's `Delegate=`).
//!
//! In cgroup v2 only leaves hold processes. The daemon therefore moves itself into a leaf below the cgroup
//! that it was started in, and creates a leaf beside it for each compartment. Where that is not possible,
//! only the resource limits of the sandbox apply, and `status` reports why.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The cgroup that is delegated to the daemon.
#[derive(Debug)]
pub struct Cgroup {
    root: PathBuf,
}

/// The leaf cgroup of one compartment; removed when dropped.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
}

/// Reason why compartments have no cgroups.
#[derive(Debug, thiserror::Error)]
#[error("none ({reason}); under systemd, set Delegate=yes")]
pub struct NoCgroup {
    reason: String,
}

/// The daemon's own leaf.
const LEAF: &str = "daemon";

/// The limits of a compartment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory. There is no swap: the memory may hold keys.
    pub memory: u64,
    /// Bytes of huge pages of each size, which are none of the memory. A host may lack the controller.
    pub huge_pages: u64,
    /// Percent of one processor's time; `None`: no limit.
    pub cpu_percent: Option<u32>,
    /// Processes and threads.
    pub processes: u32,
}

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The one that is used where a host has it.
const HUGE_PAGES: &str = "hugetlb";

impl Cgroup {
    /// Prepares the daemon's own cgroup.
    ///
    /// # Errors
    /// No cgroup of version 2 with the controllers is delegated to the daemon.
    pub fn own() -> Result<Self, NoCgroup> {
        let (mount, own) = place_of("self")?;
        if own.is_empty() {
            return Err(NoCgroup { reason: "the daemon is in the root cgroup".to_owned() });
        }
        Self::divide(undivided(&mount.join(own)), std::process::id())
    }

    /// Moves `pid` into a leaf of `root` and enables the controllers for its leaves.
    fn divide(root: &Path, pid: u32) -> Result<Self, NoCgroup> {
        let no_cgroup = |reason: String| NoCgroup { reason };
        let have = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if let Some(missing) = CONTROLLERS.iter().find(|c| !have.split_whitespace().any(|h| h == **c)) {
            return Err(no_cgroup(format!("controller {missing} is not available in {}", root.display())));
        }
        let make = || -> io::Result<()> {
            let leaf = root.join(LEAF);
            fs::create_dir_all(&leaf)?;
            fs::write(leaf.join("cgroup.procs"), pid.to_string())?;
            let more = have.split_whitespace().filter(|c| *c == HUGE_PAGES);
            let all: Vec<_> = CONTROLLERS.into_iter().chain(more).map(|c| format!("+{c}")).collect();
            fs::write(root.join("cgroup.subtree_control"), all.join(" "))
        };
        make().map_err(|e| no_cgroup(format!("{}: {e}", root.display())))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Creates the leaf of a compartment, or sets the limits of the existing one.
    ///
    /// # Errors
    /// The kernel refuses the name or a limit.
    pub fn group(&self, name: &str, limits: &Limits) -> io::Result<Group> {
        let path = self.root.join(name);
        fs::create_dir_all(&path)?;
        let group = Group { path };
        fs::write(group.path.join("memory.max"), limits.memory.to_string())?;
        // The memory may hold a tenant's key, which must not be swapped out. A kernel without swap lacks the
        // file.
        let swap = group.path.join("memory.swap.max");
        if swap.exists() {
            fs::write(swap, "0")?;
        }
        let quota =
            limits.cpu_percent.map_or_else(|| "max".to_owned(), |p| (u64::from(p) * 1000).to_string());
        fs::write(group.path.join("cpu.max"), format!("{quota} 100000"))?;
        fs::write(group.path.join("pids.max"), limits.processes.to_string())?;
        for file in fs::read_dir(&group.path)? {
            let file = file?.path();
            let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
            // Of the pages, and of the reservations for them.
            if name.starts_with("hugetlb.") && name.ends_with(".max") {
                fs::write(file, limits.huge_pages.to_string())?;
            }
        }
        Ok(group)
    }

    /// Removes the leaf of a compartment, if it has one and no process.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_dir(self.root.join(name));
    }
}

impl Group {
    /// Returns its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a process into the group. Its future children join it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group may be busy for a moment after a kill; the next start then uses it again.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the folder of the cgroup of version 2 that a process is in.
///
/// # Errors
/// There is no such process, or no cgroup of version 2 is mounted.
pub fn cgroup_of(process: i32) -> Result<PathBuf, NoCgroup> {
    let (mount, own) = place_of(&process.to_string())?;
    Ok(mount.join(own))
}

/// Returns where cgroup v2 is mounted, and the path of a process's cgroup below it.
fn place_of(process: &str) -> Result<(PathBuf, String), NoCgroup> {
    let no_cgroup = |reason: &str| NoCgroup { reason: reason.to_owned() };
    let read = |path: String| fs::read_to_string(path).map_err(|_| no_cgroup("/proc is not mounted"));
    let mounts = read("/proc/self/mountinfo".to_owned())?;
    let mount = mount_point(&mounts).ok_or_else(|| no_cgroup("cgroup v2 is not mounted"))?;
    let groups = read(format!("/proc/{process}/cgroup"))?;
    let own = groups.lines().find_map(|l| l.strip_prefix("0::/"));
    Ok((mount, own.ok_or_else(|| no_cgroup("not in a v2 cgroup"))?.to_owned()))
}

/// Returns the cgroup that a daemon started in, if `own` is the leaf into which an earlier release of this
/// process moved itself.
fn undivided(own: &Path) -> &Path {
    let divided = |root: &&Path| {
        let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        CONTROLLERS.iter().all(|c| enabled.split_whitespace().any(|e| e == *c))
    };
    own.parent().filter(|_| own.ends_with(LEAF)).filter(divided).unwrap_or(own)
}

/// Returns where cgroup v2 is mounted, according to `/proc/self/mountinfo`.
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
    fn the_mount_point_is_found() {
        let text = "24 1 0:22 / /sys rw - sysfs sysfs rw\n\
                    30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(text), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point("nonsense\n"), None);
    }

    #[test]
    fn limits_are_written_in_the_kernels_format() {
        let folder = std::env::temp_dir().join(format!("p4shield-rt-cgroup-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup.controllers"), "cpuset cpu io memory pids").unwrap();
        let cgroup = Cgroup::divide(&folder, 42).unwrap();
        assert_eq!(fs::read_to_string(folder.join("daemon/cgroup.procs")).unwrap(), "42");
        fs::create_dir(folder.join("p4vm-alice")).unwrap();
        fs::write(folder.join("p4vm-alice/memory.swap.max"), "max").unwrap();
        let limits = Limits { memory: 1 << 30, huge_pages: 2 << 20, cpu_percent: Some(50), processes: 16 };
        let pages = folder.join("p4vm-alice/hugetlb.2MB.rsvd.max");
        fs::write(&pages, "max").unwrap();
        let group = cgroup.group("p4vm-alice", &limits).unwrap();
        assert_eq!(fs::read_to_string(pages).unwrap(), "2097152");
        assert_eq!(
            fs::read_to_string(folder.join("p4vm-alice/memory.swap.max")).unwrap(),
            "0",
            "keys stay in memory"
        );
        group.add(7).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join("p4vm-alice").join(name)).unwrap();
        assert_eq!((read("cpu.max"), read("memory.max")), ("50000 100000".into(), "1073741824".into()));
        assert_eq!(read("cgroup.procs"), "7");
        assert_eq!(read("pids.max"), "16");
        drop(group);
        // The kernel shows what is enabled without the sign.
        fs::write(folder.join("cgroup.subtree_control"), "cpuset cpu memory pids").unwrap();
        assert_eq!(undivided(&folder.join("daemon")), folder, "the process was upgraded");
        assert_eq!(undivided(&folder.join("p4vm-daemon")), folder.join("p4vm-daemon"));
        fs::write(folder.join("cgroup.subtree_control"), "cpu").unwrap();
        assert_eq!(undivided(&folder.join("daemon")), folder.join("daemon"), "the leaf is the delegated one");
        fs::write(folder.join("cgroup.controllers"), "cpu").unwrap();
        let error = Cgroup::divide(&folder, 42).unwrap_err().to_string();
        assert!(error.contains("memory is not available") && error.contains("Delegate=yes"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
