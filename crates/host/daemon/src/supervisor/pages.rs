//! The files of a user VM's info page, log page and handshake page.

use crate::adoption::PageRecord;
use crate::config::Vm;
use p4shield_abi::handshake_page::HANDSHAKE_PAGE_SIZE;
use p4shield_abi::info_page::INFO_PAGE_SIZE;
use p4shield_abi::log_page::LOG_PAGE_SIZE;
use p4shield_channel::{SharedMemory, ShmError};
use p4shield_text::chain;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Permissions of a page: read and write for its owner only.
const MODE: u32 = 0o600;
/// The same, and for a group: that of the tenant's QEMU, which opens the file to share it with the P4 VM.
const MODE_OF_GROUP: u32 = 0o660;

/// A page file. A file that the daemon created is removed when dropped. A file that existed before, such as
/// one that a hypervisor shares with a guest, stays, so that the guest finds the next daemon's pages in it.
pub(crate) struct Page {
    memory: SharedMemory,
    path: PathBuf,
    ours: bool,
}

/// Reason why a page cannot be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    /// The file cannot be created or mapped.
    #[error(transparent)]
    Memory(#[from] ShmError),
    /// Its folder cannot be created, or its mode or owner cannot be set.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Page {
    /// Creates the pages of a VM.
    pub(crate) fn of(vm: &Vm) -> Result<[Option<Self>; 3], PageError> {
        let info = vm.info_page.as_ref().map(|p| Self::info(p, vm.page_owner)).transpose()?;
        let log = vm.log_page.as_ref().map(|p| Self::log(p, vm.page_owner)).transpose()?;
        let handshake = vm.handshake.as_ref().map(|h| Self::new(&h.page, HANDSHAKE_PAGE_SIZE, vm.page_owner));
        Ok([info, log, handshake.transpose()?])
    }

    /// Leaves the file to `other` if that has the same path.
    pub(crate) fn hand_over(&mut self, other: &mut Self) {
        if self.path == other.path {
            other.ours |= std::mem::take(&mut self.ours);
        }
    }

    /// Returns which file it is.
    pub(crate) fn record(&self) -> Option<PageRecord> {
        PageRecord::of(self, self.ours)
    }

    /// Takes the file over from the daemon that made `record`. Returns whether it is the same file.
    pub(crate) fn adopt(&mut self, record: PageRecord) -> bool {
        let same = self.record().is_some_and(|own| own.is_same_file(&record));
        self.ours |= same && record.ours;
        same
    }

    /// Lets a group read and write the page, or its owner only. A QEMU of that group may have cut the file
    /// before: it gets its length again.
    pub(crate) fn grant(&self, group: Option<u32>) -> Result<(), PageError> {
        let failed = |operation| {
            let path = self.path.clone();
            move |e: rustix::io::Errno| PageError::File { operation, path, source: e.into() }
        };
        if let Some(group) = group {
            let group = rustix::fs::Gid::from_raw(group);
            rustix::fs::fchown(self, None, Some(group)).map_err(failed("set the group of"))?;
        }
        let mode = if group.is_some() { MODE_OF_GROUP } else { MODE };
        rustix::fs::fchmod(self, mode.into()).map_err(failed("set the mode of"))?;
        let len = self.memory.len() as u64;
        rustix::fs::ftruncate(self, len).map_err(failed("set the length of"))
    }

    pub(crate) fn info(path: &Path, owner: Option<u32>) -> Result<Self, PageError> {
        Self::new(path, INFO_PAGE_SIZE, owner)
    }

    pub(crate) fn log(path: &Path, owner: Option<u32>) -> Result<Self, PageError> {
        Self::new(path, LOG_PAGE_SIZE, owner)
    }

    /// Creates the file, or opens the existing one: a hypervisor's, or one that a previous daemon left behind
    /// and that agent and auditor may still have open.
    fn new(path: &Path, len: usize, owner: Option<u32>) -> Result<Self, PageError> {
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| PageError::File { operation, path, source }
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed("create the folder", folder))?;
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

/// Returns whether the file has another name: it may be an attacker's hard link to a file whose owner must
/// not change.
fn has_other_names(memory: &SharedMemory) -> bool {
    memory.fd().and_then(|fd| rustix::fs::fstat(fd).ok()).is_none_or(|file| file.st_nlink > 1)
}

impl AsFd for Page {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.fd().expect("a page has a file, as checked on creation")
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(
                event = "page_not_removed",
                page = %self.path.display(),
                %error,
                "cannot remove a page file"
            );
        }
    }
}

/// Describes why pages cannot be created, with a remedy.
pub(super) fn pages_advice(error: &PageError) -> String {
    format!(
        "cannot create its pages: {}; free the path, or set another info_page or log_page and run \
         `p4shield reload`; the daemon tries again until then",
        chain(error)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_page_that_was_cut_gets_its_length_again() {
        let folder = tempfile::tempdir().unwrap();
        let page = Page::info(&folder.path().join("page"), None).unwrap();
        for len in [0, 1, 1 << 20] {
            rustix::fs::ftruncate(&page, len).unwrap();
            page.grant(None).unwrap();
            assert_eq!(rustix::fs::fstat(&page).unwrap().st_size, INFO_PAGE_SIZE as i64);
        }
    }

    #[test]
    fn a_hard_linked_page_is_replaced_not_changed() {
        let folder = std::env::temp_dir().join(format!("p4shield-daemon-pages-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (theirs, page) = (folder.join("theirs"), folder.join("page"));
        std::fs::write(&theirs, vec![7; INFO_PAGE_SIZE]).unwrap();
        let before = std::fs::metadata(&theirs).unwrap();
        std::fs::hard_link(&theirs, &page).unwrap();
        let created = Page::info(&page, Some(65534)).unwrap();
        let after = std::fs::metadata(&theirs).unwrap();
        assert_eq!((after.uid(), after.mode(), after.nlink()), (before.uid(), before.mode(), 1));
        assert_eq!(std::fs::metadata(&page).unwrap().uid(), 65534, "the page is another file");
        drop(created);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
