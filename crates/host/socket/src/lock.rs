//! A lock file beside a socket, so that one server at a time listens there.
//!
//! The file stays when the server ends. If it were unlinked while another server is about to lock it, two
//! servers could each hold a lock of that name.

use crate::ListenError;
use crate::trusted_folder::open_trusted;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, open};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for a server that was killed to end: its successor may be started at once.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A held lock. It distinguishes the socket of a running server from one that a dead server left behind.
#[derive(Debug)]
pub struct SocketLock {
    _file: OwnedFd,
}

impl SocketLock {
    /// Takes the lock of the socket at `path`. Creates the folder if it is missing.
    ///
    /// # Errors
    /// Another server holds the lock, the file cannot be created, or others can write its folder.
    pub fn take(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io { path: path.to_owned(), source };
        drop(open_trusted(folder_of(path))?);
        let lock = lock_path(path);
        // A process that can open the file can lock it, and so keep servers from starting.
        let private = Mode::from_raw_mode(0o600);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(&lock, flags, private).map_err(|e| failed(e.into()))?;
        fchmod(&file, private).map_err(|e| failed(e.into()))?;
        let end = Instant::now() + TIMEOUT;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= end {
                return Err(ListenError::Running(path.to_owned()));
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        Ok(Self { _file: file })
    }
}

/// Returns the folder of a socket.
#[must_use]
pub fn folder_of(socket: &Path) -> &Path {
    socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path of the lock file for the socket at `path`.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_lock_is_private_and_follows_no_symlink() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path();
        let socket = folder.join("daemon.sock");
        // Earlier versions left the file readable by all.
        std::fs::write(lock_path(&socket), "").unwrap();
        std::fs::set_permissions(lock_path(&socket), PermissionsExt::from_mode(0o644)).unwrap();
        drop(SocketLock::take(&socket).unwrap());
        let mode = std::fs::metadata(lock_path(&socket)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let precious = folder.join("precious");
        std::fs::write(&precious, "precious").unwrap();
        let linked = folder.join("linked.sock");
        std::os::unix::fs::symlink(&precious, lock_path(&linked)).unwrap();
        assert!(matches!(SocketLock::take(&linked), Err(ListenError::Io { .. })));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    }

    #[test]
    fn nothing_is_created_in_a_folder_that_others_write() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        let error = SocketLock::take(&folder.path().join("daemon.sock")).unwrap_err();
        assert!(matches!(error, ListenError::Folder(_)), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
