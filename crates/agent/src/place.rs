//! Where a page is: a file by its name, which the other side may make anew.
//!
//! The host daemon takes its pages along when it ends and makes new ones when it starts. A mapping outlives its file's
//! name, so whoever goes on using it speaks into a page that nobody else has.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use p4shield_channel::{SharedMemory, ShmError};

use crate::publish::AgentError;

/// Time between two looks at the name.
const LOOK_NS: u64 = 500_000_000;

/// The place of a page that is in use.
pub(crate) struct Place {
    path: PathBuf,
    size: usize,
    /// The file in use.
    file: Option<OwnedFd>,
    /// When to look next, steady clock.
    next: u64,
}

impl Place {
    /// Opens the page at `path`, or makes it.
    ///
    /// # Errors
    ///
    /// When it can be neither opened nor made, or has another size.
    pub(crate) fn open(path: &Path, size: usize) -> Result<(SharedMemory, Self), AgentError> {
        let memory =
            open_or_make(path, size).map_err(|source| AgentError::Page { path: path.to_owned(), source })?;
        let file = file_of(&memory);
        Ok((memory, Self { path: path.to_owned(), size, file, next: 0 }))
    }

    /// The page that stands there now, if the one in use was taken away and another was made. Looks twice a second at
    /// most, and never makes one: that is whoever took it away to do.
    pub(crate) fn made_anew(&mut self, now: u64) -> Option<SharedMemory> {
        if now < self.next {
            return None;
        }
        self.next = now.saturating_add(LOOK_NS);
        let in_use = self.file.as_ref().and_then(|f| rustix::fs::fstat(f).ok());
        if in_use.is_none_or(|s| s.st_nlink != 0) {
            return None;
        }
        let memory = SharedMemory::open_file(&self.path, self.size).ok()?;
        self.file = file_of(&memory);
        Some(memory)
    }
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
