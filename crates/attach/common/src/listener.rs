//! A listening UNIX socket whose permissions hold from the first moment.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io;
use std::path::{Path, PathBuf};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// Listens on `path`, and replaces a socket that exists there: the caller checks that it may.
/// Creates the folder. From the first moment, only users with write permission in `mode` can
/// connect.
///
/// # Errors
/// Another kind of file exists there (it stays), or the system refuses.
pub fn listener(path: &Path, kind: SocketType, flags: SocketFlags, mode: Mode) -> io::Result<OwnedFd> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    refuse_other_files(path)?;
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(".new");
    let hidden = PathBuf::from(hidden);
    refuse_other_files(&hidden)?;
    let _ = std::fs::remove_file(&hidden);
    let fd = socket_with(AddressFamily::UNIX, kind, flags | SocketFlags::CLOEXEC, None)?;
    // Linux creates the file with the mode of the socket, less the umask: never with more permissions.
    rustix::fs::fchmod(&fd, mode)?;
    bind(&fd, &SocketAddrUnix::new(&hidden)?)?;
    rustix::fs::chmod(&hidden, mode)?;
    listen(&fd, BACKLOG)?;
    std::fs::rename(&hidden, path)?;
    Ok(fd)
}

/// Refuses a path with another kind of file: a mistaken configuration must not delete it.
fn refuse_other_files(path: &Path) -> io::Result<()> {
    match rustix::fs::lstat(path) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            let why =
                format!("{} exists and is not a socket; remove it or configure another path", path.display());
            Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn private(path: &Path) -> io::Result<OwnedFd> {
        listener(path, SocketType::STREAM, SocketFlags::empty(), Mode::from_raw_mode(0o600))
    }

    #[test]
    fn a_socket_is_closed_to_others_and_takes_a_dead_ones_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/daemon.sock");
        for _ in 0..2 {
            let _socket = private(&path).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        // One that was about to listen when it died.
        drop(UnixListener::bind(folder.path().join("deeper/daemon.sock.new")).unwrap());
        let _socket = private(&path).unwrap();
        assert!(!folder.path().join("deeper/daemon.sock.new").exists());
    }

    #[test]
    fn what_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["file", "file.new"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "precious").unwrap();
            let error = private(&folder.path().join("file")).unwrap_err();
            assert!(error.to_string().contains("not a socket"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
            std::fs::remove_file(path).unwrap();
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(private(&link).is_err() && link.is_symlink(), "nor is a link followed or replaced");
    }
}
