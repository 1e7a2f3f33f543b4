//! Taps.

use crate::LinkError;
use crate::request::{add_macvtap, delete, inside};
use crate::sys::Sysfs;
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A tap that has all packets of an interface. The interface is another one's no more: the kernel's own stack
/// sees none of its packets.
///
/// It is an interface, too, which exists until this is dropped, or its network namespace ends. A program
/// reads and writes packets at its file, each behind a header of 10 bytes
/// (`include/uapi/linux/virtio_net.h`).
#[derive(Debug)]
pub struct Tap {
    made: Made,
    file: File,
}

/// An interface that was made here.
#[derive(Debug)]
struct Made {
    name: String,
    /// Its network namespace; `None`: this thread's.
    namespace: Option<OwnedFd>,
    /// It stays when this is dropped.
    stays: bool,
}

impl Made {
    /// Does something in the interface's network namespace.
    fn inside<R: Send>(&self, act: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        match &self.namespace {
            Some(namespace) => inside(namespace.as_fd(), act)?,
            None => act(),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.stays {
            // The interface below it, or its namespace, may be gone.
            let _ = self.inside(|| delete(&self.name).map_err(io::Error::other));
        }
    }
}

impl Tap {
    /// Makes a tap with this name of an interface.
    ///
    /// # Errors
    /// The interface is not there or has another user, or the kernel has no macvtap.
    pub fn of(interface: &str, name: &str) -> Result<Self, LinkError> {
        Self::make(interface, name, None)
    }

    /// As [`Self::of`], in another network namespace. The tap is at no time in this one, so it ends with
    /// that namespace, however this process ends.
    ///
    /// # Errors
    /// Those of [`Self::of`], or the process may not enter the namespace.
    pub fn of_in(namespace: BorrowedFd<'_>, interface: &str, name: &str) -> Result<Self, LinkError> {
        let copy = namespace.try_clone_to_owned();
        Self::make(interface, name, Some(copy.map_err(LinkError::of("make a tap of", interface))?))
    }

    fn make(interface: &str, name: &str, namespace: Option<OwnedFd>) -> Result<Self, LinkError> {
        add_macvtap(interface, name, namespace.as_ref().map(|namespace| namespace.as_fd()))?;
        let made = Made { name: name.to_owned(), namespace, stays: false };
        let file = made.inside(|| open(name)).map_err(LinkError::of("open the tap of", interface))?;
        Ok(Self { made, file })
    }

    /// Returns the bytes of the longest packet behind the Ethernet header.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn mtu(&self) -> Result<u32, LinkError> {
        let failed = LinkError::of::<io::Error>("find the MTU of", self.name());
        let mtu = self.made.inside(|| Sysfs::mount().and_then(|sysfs| sysfs.read(self.name(), "mtu")));
        mtu.and_then(|mtu| mtu.parse().map_err(io::Error::other)).map_err(failed)
    }

    /// Returns the name of the interface that it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.made.name
    }
}

impl Tap {
    /// Returns its file. The interface stays until the one below it is deleted, or its network namespace
    /// ends.
    #[must_use]
    pub fn into_file(self) -> File {
        let Self { mut made, file } = self;
        made.stays = true;
        file
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the device of a macvtap of this network namespace.
fn open(name: &str) -> io::Result<File> {
    let sysfs = Sysfs::mount()?;
    let device = format!("tap{}", sysfs.read(name, "ifindex")?);
    let numbers = sysfs.read(name, Path::new(&device).join("dev"))?;
    let (major, minor) = numbers.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
    let [major, minor] = [major, minor].map(|n| n.parse().map_err(io::Error::other));
    let device_number = makedev(major?, minor?);
    let path = Path::new("/dev").join(device);
    // It is missing in a container's /dev, and may be another namespace's.
    let is_it = std::fs::metadata(&path).is_ok_and(|found| found.rdev() == device_number);
    if is_it { open_device(&path) } else { open_own(device_number) }
}

/// Opens a device by a name of our own, which does not stay.
fn open_own(device_number: u64) -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("p4shield-tap-{}-{device_number}", std::process::id()));
    mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, device_number)?;
    let opened = open_device(&path);
    std::fs::remove_file(&path)?;
    opened
}

fn open_device(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}
