//! The kernel's facts of the interfaces of this network namespace, in sysfs.

use crate::LinkError;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The sysfs of this thread's network namespace: what is mounted at `/sys` may be another one's.
#[derive(Debug)]
pub(crate) struct Sysfs(OwnedFd);

impl Sysfs {
    /// Mounts it without a place in any tree, until it is dropped.
    pub(crate) fn mount() -> io::Result<Self> {
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
    }

    /// Returns the names of all interfaces.
    pub(crate) fn interfaces(&self) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.0, "class/net", flags, Mode::empty())?;
        let entries = rustix::fs::Dir::read_from(folder)?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names: io::Result<Vec<_>> = names.collect();
        Ok(names?.into_iter().filter(|name| !name.starts_with('.')).collect())
    }

    /// Reads a file of an interface, a line.
    pub(crate) fn read(&self, interface: &str, file: impl AsRef<Path>) -> io::Result<String> {
        let path = Path::new("class/net").join(interface).join(file);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.0, path, flags, Mode::empty())?);
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text.trim().to_owned())
    }
}

/// Returns the Ethernet address of an interface of this network namespace.
///
/// # Errors
/// There is none with this name, or it has no Ethernet address.
pub fn address_of(interface: &str) -> Result<[u8; 6], LinkError> {
    let read = || -> io::Result<[u8; 6]> {
        let text = Sysfs::mount()?.read(interface, "address")?;
        let bytes: Option<Vec<_>> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has no Ethernet address"))
    };
    read().map_err(LinkError::of("read the address of", interface))
}

/// Returns the names of all interfaces of this network namespace.
///
/// # Errors
/// The system's.
pub fn names() -> Result<Vec<String>, LinkError> {
    let names = Sysfs::mount().and_then(|sysfs| sysfs.interfaces());
    names.map_err(LinkError::of("list", "interfaces"))
}
