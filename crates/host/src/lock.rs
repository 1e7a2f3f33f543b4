//! One daemon for a socket.
//!
//! The lock is a file beside the socket. It stays when the daemon goes: whoever unlinked a file that others may be about
//! to lock would let two daemons each have a lock of that name.

use crate::daemon::DaemonError;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon that was killed may take to be gone: the next one is started at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Held while a daemon lives, so that a socket that a dead one left behind can be told from a living one's.
#[derive(Debug)]
pub(crate) struct SocketLock {
    _file: File,
}

impl SocketLock {
    /// Takes the lock of the socket at `path`, whose folder is made if it is not there.
    ///
    /// # Errors
    /// Another daemon has it, or it cannot be made.
    pub(crate) fn take(path: &Path) -> Result<Self, DaemonError> {
        let failed = |source| DaemonError::Listen { place: path.display().to_string(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let file = File::create(lock_path(path)).map_err(failed)?;
        let end = Instant::now() + PATIENCE;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= end {
                return Err(DaemonError::Running(path.to_owned()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(Self { _file: file })
    }
}

/// The file beside a socket.
pub(crate) fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
