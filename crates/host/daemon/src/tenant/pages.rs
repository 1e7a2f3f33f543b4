//! Info page and log page of a user VM, as files.

use p4shield_abi::page::{INFO_PAGE_SIZE, LOG_PAGE_SIZE};
use p4shield_channel::{SharedMemory, ShmError};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Permissions of a page: its owner's alone.
const MODE: u32 = 0o600;

/// A page file. The one that the daemon made is removed when dropped. One that was there before is somebody else's,
/// such as a hypervisor's that shares it with a guest: it stays, so that the guest finds the next daemon in it.
pub(crate) struct Page {
    memory: SharedMemory,
    path: PathBuf,
    ours: bool,
}

/// Why a page cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The file cannot be made or used.
    #[error(transparent)]
    Memory(#[from] ShmError),
    /// Its folder or owner cannot be set.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Page {
    pub(crate) fn info(path: &Path, owner: Option<u32>) -> Result<Self, PageError> {
        Self::new(path, INFO_PAGE_SIZE, owner)
    }

    pub(crate) fn log(path: &Path, owner: Option<u32>) -> Result<Self, PageError> {
        Self::new(path, LOG_PAGE_SIZE, owner)
    }

    /// Makes the file, or uses the one that is there: a hypervisor's, or one that a daemon left behind and that agent and
    /// auditor may still have open.
    fn new(path: &Path, len: usize, owner: Option<u32>) -> Result<Self, PageError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| PageError::File { what, path, source }
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed("make the folder", folder))?;
        }
        let (memory, ours) = match SharedMemory::open_file(path, len) {
            Ok(memory) if !has_other_names(&memory) => (memory, false),
            _ => match std::fs::remove_file(path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed("replace", path)(e));
                }
                _ => (SharedMemory::create_file(path, len, MODE)?, true),
            },
        };
        let fd = memory.fd().ok_or(ShmError::Length(len))?;
        rustix::fs::fchmod(fd, MODE.into()).map_err(|e| failed("set the mode of", path)(e.into()))?;
        if let Some(owner) = owner {
            let owner = rustix::fs::Uid::from_raw(owner);
            rustix::fs::fchown(fd, Some(owner), None)
                .map_err(|e| failed("set the owner of", path)(e.into()))?;
        }
        Ok(Self { memory, path: path.to_owned(), ours })
    }
}

/// Whether a file is known by another name, too: somebody may have led us to a file of which he wants the owner changed.
fn has_other_names(memory: &SharedMemory) -> bool {
    memory.fd().and_then(|fd| rustix::fs::fstat(fd).ok()).is_none_or(|file| file.st_nlink > 1)
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.fd().expect("a page is a file, which was checked when it was made")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(page = %self.path.display(), %error, "a page file stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_with_another_name_is_left_as_it_is() {
        let folder = std::env::temp_dir().join(format!("p4shield-daemon-pages-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (theirs, page) = (folder.join("theirs"), folder.join("page"));
        std::fs::write(&theirs, vec![7; INFO_PAGE_SIZE]).unwrap();
        let before = std::fs::metadata(&theirs).unwrap();
        std::fs::hard_link(&theirs, &page).unwrap();
        let made = Page::info(&page, Some(65534)).unwrap();
        let after = std::fs::metadata(&theirs).unwrap();
        assert_eq!((after.uid(), after.mode(), after.nlink()), (before.uid(), before.mode(), 1));
        assert_eq!(std::fs::metadata(&page).unwrap().uid(), 65534, "the page is another file");
        drop(made);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
