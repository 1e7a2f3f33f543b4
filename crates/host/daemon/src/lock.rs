//! One daemon for a socket.
//!
//! The lock is a file beside the socket. It stays when the daemon goes: whoever unlinked a file that others may be about
//! to lock would let two daemons each have a lock of that name.

use crate::daemon::DaemonError;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, open};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon that was killed may take to be gone: the next one is started at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Held while a daemon lives, so that a socket that a dead one left behind can be told from a living one's.
#[derive(Debug)]
pub(crate) struct SocketLock {
    _file: OwnedFd,
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
        let lock = lock_path(path);
        // Whoever can open a file can lock it, and so keep daemons from starting.
        let private = Mode::from_raw_mode(0o600);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(&lock, flags, private).map_err(|e| failed(e.into()))?;
        fchmod(&file, private).map_err(|e| failed(e.into()))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_else_can_take_the_lock_or_lead_it_elsewhere() {
        let folder = std::env::temp_dir().join(format!("p4shield-rt-lock-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = folder.join("daemon.sock");
        // As daemons before this one left it: open to all.
        std::fs::write(lock_path(&socket), "").unwrap();
        std::fs::set_permissions(lock_path(&socket), PermissionsExt::from_mode(0o644)).unwrap();
        drop(SocketLock::take(&socket).unwrap());
        let mode = std::fs::metadata(lock_path(&socket)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let precious = folder.join("precious");
        std::fs::write(&precious, "precious").unwrap();
        let led = folder.join("led.sock");
        std::os::unix::fs::symlink(&precious, lock_path(&led)).unwrap();
        assert!(matches!(SocketLock::take(&led), Err(DaemonError::Listen { .. })));
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
