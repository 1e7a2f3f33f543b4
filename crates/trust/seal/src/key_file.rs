//! A key file that may be replaced while its reader runs.

use std::path::{Path, PathBuf};

use crate::key::{KeyError, KeyId, TenantKey};

/// What distinguishes a replaced or rewritten file, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: i64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
    fn of(path: &Path) -> Option<Self> {
        let s = rustix::fs::lstat(path).ok()?;
        Some(Self {
            file: (s.st_dev as u64, s.st_ino as u64),
            size: s.st_size as i64,
            modified: (s.st_mtime as i64, s.st_mtime_nsec as i64),
            changed: (s.st_ctime as i64, s.st_ctime_nsec as i64),
        })
    }
}

/// A key file and the key that it had when it was read last.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    /// `None`: there was no file.
    seen: Option<Stamp>,
    key: KeyId,
}

impl KeyFile {
    /// Reads a key file.
    ///
    /// # Errors
    ///
    /// As [`TenantKey::load`].
    pub fn open(path: &Path) -> Result<(Self, TenantKey), KeyError> {
        // The file may be replaced in between: then the next check reads it again.
        let seen = Stamp::of(path);
        let key = TenantKey::load(path)?;
        Ok((Self { path: path.to_owned(), seen, key: key.id() }, key))
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the new key if the file has another one than before. One system call if it did not change.
    ///
    /// # Errors
    ///
    /// If the changed file is refused: once for each change, and the previous key stays the reader's.
    pub fn changed(&mut self) -> Result<Option<TenantKey>, KeyError> {
        let stamp = Stamp::of(&self.path);
        if stamp == self.seen {
            return Ok(None);
        }
        self.seen = stamp;
        let key = TenantKey::load(&self.path)?;
        if key.id() == self.key {
            return Ok(None);
        }
        self.key = key.id();
        Ok(Some(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_read_once_and_a_bad_one_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let first = TenantKey::generate(&path).unwrap();
        let (mut file, key) = KeyFile::open(&path).unwrap();
        assert_eq!(key.id(), first.id());
        assert!(file.changed().unwrap().is_none());
        let second = TenantKey::random(&path).unwrap();
        second.replace(&path).unwrap();
        assert_eq!(file.changed().unwrap().unwrap().id(), second.id());
        assert!(file.changed().unwrap().is_none());
        // The same key in another file is no change.
        second.replace(&path).unwrap();
        assert!(file.changed().unwrap().is_none());
        std::fs::remove_file(&path).unwrap();
        assert!(file.changed().is_err());
        assert!(file.changed().unwrap().is_none(), "reported once");
        std::fs::write(&path, [1; 32]).unwrap();
        assert!(matches!(file.changed(), Err(KeyError::Mode { .. })));
        first.replace(&path).unwrap();
        assert_eq!(file.changed().unwrap().unwrap().id(), first.id());
    }

    #[test]
    fn a_replacement_is_whole_private_and_leaves_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        TenantKey::generate(&path).unwrap();
        // What a crash left behind does not matter.
        std::fs::write(dir.path().join("key.new"), b"torn").unwrap();
        let new = TenantKey::random(&path).unwrap();
        new.replace(&path).unwrap();
        assert_eq!(TenantKey::load(&path).unwrap().id(), new.id());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
