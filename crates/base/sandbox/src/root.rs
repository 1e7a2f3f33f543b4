//! An empty root directory, or one with a few folders of the host.

use crate::{During as _, SandboxError, Step};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, mount_move,
    mount_remount,
};
use rustix::process::{chdir, chroot, pivot_root};
use std::ffi::{CStr, CString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::{fs, io};

const STEP: Step =
    Step("replace its root by one of its own", "allow mounting tmpfs and folders in user namespaces");

/// Where the new root is mounted at first. The directory exists, as the user namespace's maps were just
/// written there.
const SCAFFOLD: &str = "/proc";

/// A root directory with a few folders of the host.
#[derive(Clone, Debug, Default)]
pub struct Root<'a> {
    /// Folders and files of the host that are there by the same path, read-only. A symbolic link stays one;
    /// whatever the host lacks is left out.
    pub visible: &'a [&'a str],
    /// Folders that are empty.
    pub empty: &'a [&'a str],
    /// Files that only this root has, with their contents.
    pub files: &'a [(&'a str, &'a str)],
    /// Device files of the host.
    pub devices: &'a [&'a str],
    /// Folders of the host that are writable.
    pub writable: &'a [Writable<'a>],
    /// Bytes of `/tmp`, which is empty at first.
    pub scratch: u64,
}

/// A folder that is writable.
#[derive(Clone, Copy, Debug)]
pub struct Writable<'a> {
    /// Where it is outside.
    pub folder: &'a Path,
    /// Where it is inside.
    pub at: &'a str,
}

/// Replaces the root by an empty, read-only tmpfs and detaches the old one.
///
/// # Errors
/// The kernel refuses a mount.
pub fn empty_root() -> Result<(), SandboxError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    begin(flags, c"size=4k,nr_inodes=2,mode=0555")?;
    enter(flags)
}

/// Replaces the root by a read-only tmpfs with these folders, and detaches the old one. Programs can be
/// started from them.
///
/// # Errors
/// The kernel refuses a mount, or a folder is missing.
pub fn own_root(root: &Root<'_>) -> Result<(), SandboxError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    begin(flags, c"size=64k,nr_inodes=64,mode=0555")?;
    let named = |path: &Path, done: io::Result<()>| {
        done.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display()))).during(STEP)
    };
    // First: something visible may be below it.
    fs::create_dir(inside("/tmp")).during(STEP)?;
    let size = CString::new(format!("size={},nr_inodes=256,mode=0700", root.scratch)).unwrap_or_default();
    let scratch = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmp", inside("/tmp"), "tmpfs", scratch, size.as_c_str()).during(STEP)?;
    for path in root.visible {
        named(Path::new(path), show(path))?;
    }
    for path in root.empty {
        named(Path::new(path), fs::create_dir_all(inside(path)))?;
    }
    for (path, contents) in root.files {
        named(Path::new(path), write(path, contents))?;
    }
    for path in root.devices {
        named(Path::new(path), bind(Path::new(path), path))?;
    }
    for Writable { folder, at } in root.writable {
        named(folder, bind(folder, at))?;
    }
    enter(flags)
}

/// Returns where a path of the new root is before it is the root.
fn inside(path: &str) -> PathBuf {
    Path::new(SCAFFOLD).join(path.trim_start_matches('/'))
}

/// Makes a folder or file of the host visible.
fn show(path: &str) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if found.is_symlink() {
        return symlink(fs::read_link(path)?, inside(path));
    }
    bind(Path::new(path), path)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount_remount(inside(path), flags, c"")?)
}

/// Writes a file of the new root.
fn write(path: &str, contents: &str) -> io::Result<()> {
    let file = inside(path);
    fs::create_dir_all(file.parent().unwrap_or(&file))?;
    fs::write(file, contents)
}

/// Mounts a folder or file of the host in the new root.
fn bind(from: &Path, at: &str) -> io::Result<()> {
    let to = inside(at);
    let is_folder = fs::metadata(from)?.is_dir();
    fs::create_dir_all(if is_folder { &to } else { to.parent().unwrap_or(&to) })?;
    if !is_folder {
        fs::File::create(&to)?;
    }
    // What is mounted below cannot be left out in a user namespace of one's own.
    Ok(mount_bind_recursive(from, to)?)
}

/// Mounts the new root.
fn begin(flags: MountFlags, options: &CStr) -> Result<(), SandboxError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).during(STEP)?;
    mount("sandbox", SCAFFOLD, "tmpfs", flags, options).during(STEP)
}

/// Makes the new root the root.
fn enter(flags: MountFlags) -> Result<(), SandboxError> {
    chdir(SCAFFOLD).during(STEP)?;
    // With both names equal, the old root is mounted over the new one, from where it can be unmounted.
    match pivot_root(".", ".") {
        Ok(()) => rustix::mount::unmount(".", UnmountFlags::DETACH).during(STEP)?,
        // pivot_root does not work on the initial RAM file system. Without capabilities and without
        // descriptors of the old root, a moved mount with chroot isolates as well.
        Err(rustix::io::Errno::INVAL) => {
            mount_move(".", "/").during(STEP)?;
            chroot(".").during(STEP)?;
        }
        Err(e) => return Err(STEP.failed(e)),
    }
    chdir("/").during(STEP)?;
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY | flags, c"").during(STEP)
}
