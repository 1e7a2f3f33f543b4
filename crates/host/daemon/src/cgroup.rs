//! Memory and CPU limits for P4 VMs, if a cgroup is delegated to the daemon (systemd's `Delegate=`).
//!
//! In cgroup v2 only leaves hold processes. The daemon therefore moves itself into a leaf below the cgroup
//! that it was started in, and creates a leaf beside it for each P4 VM. Where that is not possible, only the
//! resource limits of the sandbox apply, and `status` reports why.

use crate::config::{Compartment, Tenant};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The cgroup that is delegated to the daemon.
#[derive(Debug)]
pub(crate) struct Cgroup {
    root: PathBuf,
}

/// The leaf cgroup of one P4 VM; removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

/// Why P4 VMs have no cgroups.
#[derive(Debug, thiserror::Error)]
#[error("none ({reason}); under systemd, set Delegate=yes")]
pub(crate) struct NoCgroup {
    reason: String,
}

/// The daemon's own leaf.
const LEAF: &str = "daemon";

/// Most processes and threads of a P4 VM in a process.
const PROCESSES: u32 = 16;
/// The same for a virtual machine: QEMU has a thread for each processor and a pool for its own work.
const QEMU_PROCESSES: u32 = 192;
/// What QEMU needs beside the memory of its virtual machine: its own, translated code, and its page tables.
const QEMU_MEMORY: u64 = 384 << 20;

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

impl Cgroup {
    /// Prepares the daemon's own cgroup.
    pub(crate) fn own() -> Result<Self, NoCgroup> {
        let no_cgroup = |reason: &str| NoCgroup { reason: reason.to_owned() };
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|_| no_cgroup("/proc is not mounted"))?;
        let mount = mount_point(&mounts).ok_or_else(|| no_cgroup("cgroup v2 is not mounted"))?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|_| no_cgroup("/proc is not mounted"))?;
        let own = own
            .lines()
            .find_map(|l| l.strip_prefix("0::/"))
            .ok_or_else(|| no_cgroup("not in a v2 cgroup"))?;
        if own.is_empty() {
            return Err(no_cgroup("the daemon is in the root cgroup"));
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
            fs::write(root.join("cgroup.subtree_control"), CONTROLLERS.map(|c| format!("+{c}")).join(" "))
        };
        make().map_err(|e| no_cgroup(format!("{}: {e}", root.display())))?;
        Ok(Self { root: root.to_owned() })
    }

    /// Creates the leaf of a tenant's P4 VM.
    pub(crate) fn group(&self, tenant: &Tenant) -> io::Result<Group> {
        let path = self.root.join(format!("p4vm-{}", tenant.name));
        let (memory, processes) = match tenant.compartment {
            Compartment::Process => (tenant.memory, PROCESSES),
            Compartment::Vm => (tenant.memory.saturating_add(QEMU_MEMORY), QEMU_PROCESSES),
        };
        fs::create_dir_all(&path)?;
        let group = Group { path };
        fs::write(group.path.join("memory.max"), memory.to_string())?;
        // The memory holds the tenant's key, which must not be swapped out. A kernel without swap lacks the
        // file.
        let swap = group.path.join("memory.swap.max");
        if swap.exists() {
            fs::write(swap, "0")?;
        }
        let quota =
            tenant.cpu_percent.map_or_else(|| "max".to_owned(), |p| (u64::from(p) * 1000).to_string());
        fs::write(group.path.join("cpu.max"), format!("{quota} 100000"))?;
        fs::write(group.path.join("pids.max"), processes.to_string())?;
        Ok(group)
    }
}

impl Group {
    /// Moves a process into the group. Its future children join it.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group may be busy for a moment after a kill; the next start then uses it again.
        let _ = fs::remove_dir(&self.path);
    }
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

    fn alice() -> Tenant {
        let text = "attachment = \"wire\"\n[[tenant]]\nname = \"alice\"\nmemory = \"1GiB\"\n\
                    cpu_percent = 50\n\
                    [[tenant.vm]]\nname = \"web\"\naddresses = [\"10.0.0.2\"]\n\
                    [[wire]]\ntenant = \"alice\"\nvm = \"web\"\nvm_interface = \"a\"\n\
                    switch_interface = \"b\"\n";
        crate::config::Config::parse(Path::new("p4shield.toml"), text).unwrap().tenants.remove(0)
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
        let mut alice = alice();
        let group = cgroup.group(&alice).unwrap();
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
        alice.compartment = Compartment::Vm;
        drop(cgroup.group(&alice).unwrap());
        let limit: u64 = read("memory.max").parse().unwrap();
        assert_eq!(limit - alice.memory, QEMU_MEMORY, "QEMU's own memory comes on top of the machine's");
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
