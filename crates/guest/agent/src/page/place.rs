//! Where a page is: a device that stays, or a file by its name, which the other side may make anew.
//!
//! A host daemon may take its page files along when it ends and make new ones when it starts. A mapping outlives its
//! file's name, so whoever goes on using it speaks into a page that nobody else has.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use p4shield_channel::{SharedMemory, ShmError};

use super::device::Device;
use super::{DeviceError, PageMemory, PagePlace};
use crate::publish::AgentError;

/// Time between two looks at the name.
const LOOK_NS: u64 = 500_000_000;

/// What a page is used for, which decides how a device's memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Mostly written: writes are combined where the kernel offers that, or each word would travel alone.
    Publish,
    /// Mostly read: nothing is gained by combining, and uncached memory keeps its order.
    Read,
}

/// The place of a page that is in use.
pub(crate) struct Place {
    size: usize,
    followed: Option<Followed>,
}

/// A file that may be made anew.
struct Followed {
    path: PathBuf,
    /// The file in use.
    file: Option<OwnedFd>,
    /// When to look next, steady clock.
    next: u64,
}

impl Place {
    /// Opens the page, or makes its file.
    ///
    /// # Errors
    ///
    /// When it can be neither opened nor made, or has another size.
    pub(crate) fn open(place: &PagePlace, size: usize, use_: Use) -> Result<(PageMemory, Self), AgentError> {
        let device = match place {
            PagePlace::File(path) => return Self::open_file(path, size),
            PagePlace::Device(address) => Device::at(*address, size as u64)?,
            PagePlace::AnyDevice => Device::find(size as u64)?,
        };
        let (memory, combined) = map(&device, size, use_ == Use::Publish)?;
        tracing::info!(device = %device.address(), combined, "mapped a page of an ivshmem device");
        Ok((memory, Self { size, followed: None }))
    }

    fn open_file(path: &Path, size: usize) -> Result<(PageMemory, Self), AgentError> {
        let memory =
            open_or_make(path, size).map_err(|source| AgentError::Page { path: path.to_owned(), source })?;
        let followed = Followed { path: path.to_owned(), file: file_of(&memory), next: 0 };
        Ok((memory.into(), Self { size, followed: Some(followed) }))
    }

    /// The page that stands there now, if the one in use was taken away and another was made. Looks twice a second at
    /// most, and never makes one: that is whoever took it away to do.
    pub(crate) fn made_anew(&mut self, now: u64) -> Option<PageMemory> {
        let followed = self.followed.as_mut().filter(|f| now >= f.next)?;
        followed.next = now.saturating_add(LOOK_NS);
        let in_use = followed.file.as_ref().and_then(|f| rustix::fs::fstat(f).ok());
        if in_use.is_none_or(|s| s.st_nlink != 0) {
            return None;
        }
        let memory = SharedMemory::open_file(&followed.path, self.size).ok()?;
        followed.file = file_of(&memory);
        Some(memory.into())
    }
}

/// Maps a device's memory; also tells whether writes are combined.
pub(super) fn map(device: &Device, size: usize, combine: bool) -> Result<(PageMemory, bool), DeviceError> {
    let (file, combined) = device.open(combine)?;
    let failed = |source| DeviceError::System { what: "map", path: device.memory(combined), source };
    Ok((PageMemory::map_device(&file, size).map_err(failed)?, combined))
}

fn file_of(memory: &SharedMemory) -> Option<OwnedFd> {
    memory.fd().and_then(|fd| fd.try_clone_to_owned().ok())
}

fn open_or_make(path: &Path, size: usize) -> Result<SharedMemory, ShmError> {
    match SharedMemory::create_file(path, size, 0o600) {
        Ok(made) => return Ok(made),
        Err(e) if !path.exists() => return Err(e),
        Err(_) => {}
    }
    // Whoever makes it just now has not given it its size yet.
    for _ in 0..20 {
        match SharedMemory::open_file(path, size) {
            Err(ShmError::Size { actual: 0, .. }) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    SharedMemory::open_file(path, size)
}
