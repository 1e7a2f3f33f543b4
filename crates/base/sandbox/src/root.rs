//! An empty root directory.

use crate::{During as _, SandboxError, Step};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, mount_move, mount_remount,
};
use rustix::process::{chdir, chroot, pivot_root};

/// Where the new root is mounted at first. The directory exists, as the user namespace's maps were just
/// written there.
const SCAFFOLD: &str = "/proc";

/// Replaces the root by an empty, read-only tmpfs and detaches the old one.
pub fn empty_root() -> Result<(), SandboxError> {
    let step = Step("replace its root by an empty one", "allow mounting tmpfs in user namespaces");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).during(step)?;
    mount("p4vm", SCAFFOLD, "tmpfs", flags, c"size=4k,nr_inodes=2,mode=0555").during(step)?;
    chdir(SCAFFOLD).during(step)?;
    // With both names equal, the old root is mounted over the new one, from where it can be unmounted.
    match pivot_root(".", ".") {
        Ok(()) => rustix::mount::unmount(".", UnmountFlags::DETACH).during(step)?,
        // pivot_root does not work on the initial RAM file system. Without capabilities and without
        // descriptors of the old root, a moved mount with chroot isolates as well.
        Err(rustix::io::Errno::INVAL) => {
            mount_move(".", "/").during(step)?;
            chroot(".").during(step)?;
        }
        Err(e) => return Err(step.failed(e)),
    }
    chdir("/").during(step)?;
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | flags, c"").during(step)
}
