//! Keeps other processes from changing the bridge meanwhile.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::NicError;

/// A folder that exists while it is locked.
#[derive(Debug)]
pub(super) struct Lock {
    folder: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until no other process has the lock.
    pub(super) fn take(folder: &Path) -> Result<Self, NicError> {
        let failed = |source: io::Error| NicError::Folder { folder: folder.to_owned(), remedy: "", source };
        loop {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
            let file = match File::open(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(failed)?,
            };
            rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
            // The one that had it removed the folder, and another one may have made it again.
            let (ours, now) = (file.metadata().map_err(failed)?, std::fs::metadata(folder));
            if now.is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Self { folder: folder.to_owned(), _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Another one's files may be in it.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
