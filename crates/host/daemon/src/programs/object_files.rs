//! Object files and bundles as bytes.

use p4shield_control::MAX_BUNDLE;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::io::{Error, Read, Result as IoResult};
use std::path::{Path, PathBuf};

/// Opens a regular file. The open file of a pipe without a writer would otherwise make its reader wait.
fn open_regular(path: &Path) -> IoResult<File> {
    let file = File::from(open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::other("it is not a regular file")) }
}

/// Reads a program's object files, or a bundle, each up to the size of a bundle. The limit for objects is
/// checked where they are sent.
pub(crate) fn read_objects(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, String> {
    let read = |path: &PathBuf| {
        let failed = |e| format!("cannot read object {}: {e}", path.display());
        let mut bytes = Vec::new();
        let limit = MAX_BUNDLE as u64 + 1;
        open_regular(path).and_then(|f| f.take(limit).read_to_end(&mut bytes)).map_err(failed)?;
        if bytes.len() > MAX_BUNDLE {
            return Err(format!("object {} is larger than the limit of {MAX_BUNDLE} bytes", path.display()));
        }
        Ok(bytes)
    };
    paths.iter().map(read).collect()
}
