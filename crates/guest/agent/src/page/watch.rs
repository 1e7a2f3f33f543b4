//! Watching of a page in use: a device stays, but the other side may re-create a file.
//!
//! A host daemon may remove its page files when it stops, and create new ones when it starts. A mapping
//! outlives its file's name, so a page must be reopened when its name refers to a new file.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use p4shield_channel::{SharedMemory, ShmError};

use super::device::Device;
use super::{DeviceError, PageLocation, PageMemory};
use crate::error::AgentError;

/// Interval between checks of the file's name.
const CHECK_NS: u64 = 500_000_000;

/// Kind of access, which selects the mapping of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageUse {
    /// Mostly written: with write combining if the kernel supports it, else each word is transferred alone.
    Publish,
    /// Mostly read: uncached, because combining has no benefit and uncached memory keeps its order.
    Read,
}

/// Watches the location of a page in use.
pub(crate) struct PageWatch {
    size: usize,
    file: Option<WatchedFile>,
}

/// A file that may be re-created.
struct WatchedFile {
    path: PathBuf,
    /// The file in use.
    open: Option<OwnedFd>,
    /// Time of the next check on the monotonic clock.
    next: u64,
}

impl PageWatch {
    /// Opens the page, and creates a missing file.
    ///
    /// # Errors
    ///
    /// If the page can neither be opened nor created, or has another size.
    pub(crate) fn open(
        location: &PageLocation,
        size: usize,
        use_: PageUse,
    ) -> Result<(PageMemory, Self), AgentError> {
        let device = match location {
            PageLocation::File(path) => return Self::open_file(path, size),
            PageLocation::Device(address) => Device::at(*address, size as u64)?,
            PageLocation::AnyDevice => Device::find(size as u64)?,
        };
        let (memory, combined) = map(&device, size, use_ == PageUse::Publish)?;
        tracing::info!(
            event = "page_mapped",
            device = %device.address(),
            combined,
            "mapped a page of an ivshmem device"
        );
        Ok((memory, Self { size, file: None }))
    }

    fn open_file(path: &Path, size: usize) -> Result<(PageMemory, Self), AgentError> {
        let memory = open_or_create(path, size)
            .map_err(|source| AgentError::Page { path: path.to_owned(), source })?;
        let file = WatchedFile { path: path.to_owned(), open: file_of(&memory), next: 0 };
        Ok((memory.into(), Self { size, file: Some(file) }))
    }

    /// Opens the new page if the file in use was removed and another one exists. Checks at most twice per
    /// second. Never creates a file: the side that removed it does.
    pub(crate) fn recreated(&mut self, now: u64) -> Option<PageMemory> {
        let file = self.file.as_mut().filter(|f| now >= f.next)?;
        file.next = now.saturating_add(CHECK_NS);
        let in_use = file.open.as_ref().and_then(|f| rustix::fs::fstat(f).ok());
        if in_use.is_none_or(|s| s.st_nlink != 0) {
            return None;
        }
        let memory = SharedMemory::open_file(&file.path, self.size).ok()?;
        file.open = file_of(&memory);
        Some(memory.into())
    }
}

/// Maps a device's memory. The result states whether writes are combined.
pub(super) fn map(device: &Device, size: usize, combine: bool) -> Result<(PageMemory, bool), DeviceError> {
    let (file, combined) = device.open(combine)?;
    let failed = |source| DeviceError::System { what: "map", path: device.memory(combined), source };
    Ok((PageMemory::map_device(&file, size).map_err(failed)?, combined))
}

fn file_of(memory: &SharedMemory) -> Option<OwnedFd> {
    memory.fd().and_then(|fd| fd.try_clone_to_owned().ok())
}

fn open_or_create(path: &Path, size: usize) -> Result<SharedMemory, ShmError> {
    match SharedMemory::create_file(path, size, 0o600) {
        Ok(created) => return Ok(created),
        Err(e) if !path.exists() => return Err(e),
        Err(_) => {}
    }
    // The process that creates the file may not have set its size yet.
    for _ in 0..20 {
        match SharedMemory::open_file(path, size) {
            Err(ShmError::Size { actual: 0, .. }) => std::thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    SharedMemory::open_file(path, size)
}
