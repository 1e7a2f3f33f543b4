//! The folder in a BPF file system where the switch's maps and links are pinned.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, Program};
use rustix::fs::FlockOperation;
use rustix::mount::{MountFlags, mount};

use crate::NicError;

/// `BPF_FS_MAGIC` (`include/uapi/linux/magic.h`).
const BPF_FS: u32 = 0xcafe_4a11;
/// Where BPF file systems are mounted.
const MOUNT_POINT: &str = "/sys/fs/bpf";
/// The folder of links in it.
const LINKS: &str = "links";
const NOT_BPF: &str =
    ": it is in no BPF file system; mount one (mount -t bpf bpf /sys/fs/bpf) and choose a folder in it";

/// The folder. It need not exist.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A folder whose parent is in a BPF file system, which is mounted at its usual place if it is missing.
    pub(crate) fn at(path: PathBuf) -> Result<Self, NicError> {
        let folder = Self { path };
        let parent = folder.path.parent().unwrap_or(&folder.path);
        let is_bpf = || rustix::fs::statfs(parent).map(|found| found.f_type as u32 == BPF_FS);
        let mut found = is_bpf();
        if matches!(found, Ok(false)) && parent == Path::new(MOUNT_POINT) {
            // systemd mounts it at boot; a container may lack it.
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            found = mount("bpf", parent, "bpf", flags, c"mode=0700").and_then(|()| is_bpf());
        }
        match found {
            Ok(true) => Ok(folder),
            Ok(false) => Err(folder.failed(NOT_BPF)(ErrorKind::Unsupported.into())),
            Err(error) => Err(folder.failed(NOT_BPF)(error.into())),
        }
    }

    /// Returns the error of a folder that another process changes without the lock.
    pub(crate) fn changed(&self) -> NicError {
        self.failed(": another process removes what is pinned there")(ErrorKind::NotFound.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the place of a pinned map.
    pub(crate) fn map(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn exists(&self) -> bool {
        self.path.exists()
    }

    fn failed(&self, remedy: &'static str) -> impl FnOnce(io::Error) -> NicError {
        let folder = self.path.clone();
        move |source| NicError::Folder { folder, remedy, source }
    }

    pub(crate) fn create(&self) -> Result<(), NicError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(self.path.join(LINKS));
        made.map_err(self.failed(""))
    }

    /// Waits until no other process changes the switch, and keeps them out until the lock is dropped.
    pub(crate) fn lock(&self) -> Result<File, NicError> {
        let file = File::open(&self.path).map_err(self.failed(""))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| self.failed("")(e.into()))?;
        Ok(file)
    }

    /// Returns the place of an interface's link. A BPF file system has no dots in names, and interfaces have
    /// no colons.
    pub(crate) fn link(&self, interface: &str) -> PathBuf {
        self.path.join(LINKS).join(interface.replace('.', ":"))
    }

    /// Returns the names of all interfaces with a pinned link, sorted.
    pub(crate) fn interfaces(&self) -> Result<Vec<String>, NicError> {
        let entries = match std::fs::read_dir(self.path.join(LINKS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(self.failed(""))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(self.failed(""))?.file_name();
            names.push(name.to_string_lossy().replace(':', "."));
        }
        names.sort();
        Ok(names)
    }

    fn open_link(&self, interface: &str) -> Result<Option<Link>, NicError> {
        let path = self.link(interface);
        if !path.exists() {
            return Ok(None);
        }
        Link::open(path).map(Some).map_err(NicError::kernel("open the link of an interface"))
    }

    /// Returns the index of the interface to which a pinned program is attached; it was the one of this name.
    pub(crate) fn attached(&self, interface: &str) -> Result<Option<u32>, NicError> {
        let Some(link) = self.open_link(interface)? else { return Ok(None) };
        let info = link.info().map_err(NicError::kernel("read the link of an interface"))?;
        // The kernel's link of an interface that is gone has none.
        let index = match info.info {
            LinkTypeInfo::Xdp(xdp) => xdp.ifindex,
            LinkTypeInfo::Tcx(tcx) => tcx.ifindex,
            _ => 0,
        };
        Ok(Some(index).filter(|index| *index != 0))
    }

    /// Has the link of an interface attach another program from now on; no frame comes between the two.
    pub(crate) fn replace(&self, interface: &str, program: &Program<'_>) -> libbpf_rs::Result<()> {
        Link::open(self.link(interface))?.update_prog(program)
    }

    /// Takes the program off an interface, also if another process has the link open.
    pub(crate) fn detach(&self, interface: &str) -> Result<(), NicError> {
        match self.open_link(interface)? {
            Some(link) => link.detach().map_err(NicError::kernel("detach the program")),
            None => Ok(()),
        }
    }

    /// Removes the pin of an interface's link, if there is one.
    pub(crate) fn remove(&self, interface: &str) -> Result<(), NicError> {
        self.gone(std::fs::remove_file(self.link(interface)))
    }

    /// Removes the pins of these maps.
    pub(crate) fn remove_maps(&self, maps: &[&str]) -> Result<(), NicError> {
        maps.iter().try_for_each(|name| self.gone(std::fs::remove_file(self.map(name))))
    }

    /// Removes the pins of `maps`, and the folder, in which no link is left.
    pub(crate) fn delete(&self, maps: &[&str]) -> Result<(), NicError> {
        self.remove_maps(maps)?;
        self.gone(std::fs::remove_dir(self.path.join(LINKS)))?;
        self.gone(std::fs::remove_dir(&self.path))
    }

    fn gone(&self, removed: io::Result<()>) -> Result<(), NicError> {
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed("")(error)),
            _ => Ok(()),
        }
    }
}
