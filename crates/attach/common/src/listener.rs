//! A listening UNIX socket whose permissions hold from the first moment.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmod, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// Name of a socket until it has its mode.
const NAME: &str = "socket";

/// The file of a listening socket, whatever has its path since.
#[derive(Debug)]
pub(crate) struct SocketFile(OwnedFd);

impl SocketFile {
    /// Changes who can connect.
    pub(crate) fn set_mode(&self, mode: Mode) -> io::Result<()> {
        // The descriptor of a path has no fchmod, but its link below /proc leads to this file and no other.
        chmod(format!("/proc/self/fd/{}", self.0.as_raw_fd()), mode).map_err(io::Error::from)
    }
}

/// Listens on `path`, and replaces a socket that exists there: the caller checks that it may.
/// Creates the folder. From the first moment, only users with write permission in `mode` can
/// connect.
///
/// The folder may belong to another user: no file but the socket is changed, whatever that user puts there.
///
/// # Errors
/// Another kind of file exists there (it stays), or the system refuses.
pub fn listener(path: &Path, kind: SocketType, flags: SocketFlags, mode: Mode) -> io::Result<OwnedFd> {
    listener_with_file(path, kind, flags, mode).map(|(socket, _)| socket)
}

/// Does the same, and returns the socket's file, too.
pub(crate) fn listener_with_file(
    path: &Path,
    kind: SocketType,
    flags: SocketFlags,
    mode: Mode,
) -> io::Result<(OwnedFd, SocketFile)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    refuse_other_files(path)?;
    // Only this user can enter the folder in which the socket gets its mode.
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(".new");
    let hidden = PathBuf::from(hidden);
    let private = private_folder(&hidden)?;
    let _ = unlinkat(&private, NAME, AtFlags::empty());
    let socket = socket_with(AddressFamily::UNIX, kind, flags | SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new(format!("/proc/self/fd/{}/{NAME}", private.as_raw_fd()))?)?;
    let found = openat(&private, NAME, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let file = SocketFile(found);
    file.set_mode(mode)?;
    listen(&socket, BACKLOG)?;
    renameat(&private, NAME, CWD, path)?;
    let _ = std::fs::remove_dir(hidden);
    Ok((socket, file))
}

/// Opens a folder that only this process's user can enter; creates it unless a process that died left it.
fn private_folder(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let other = || {
        let why = format!("{} exists and is not a private folder of this user; remove it", path.display());
        io::Error::new(io::ErrorKind::AlreadyExists, why)
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP => other(),
        e => e.into(),
    })?;
    let found = fstat(&folder)?;
    let is_private = found.st_uid == rustix::process::geteuid().as_raw() && found.st_mode & 0o077 == 0;
    if is_private { Ok(folder) } else { Err(other()) }
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
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        let left = folder.path().join("deeper/daemon.sock.new");
        std::fs::DirBuilder::new().mode(0o700).create(&left).unwrap();
        drop(UnixListener::bind(left.join(NAME)).unwrap());
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
            assert!(error.to_string().contains("exists and is not"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
            std::fs::remove_file(path).unwrap();
        }
        let link = folder.path().join("link");
        symlink("/dev/null", &link).unwrap();
        assert!(private(&link).is_err() && link.is_symlink(), "nor is a link followed or replaced");
    }

    /// The owner of the folder exchanges all that appears beside the socket.
    #[test]
    fn no_planted_link_is_given_the_sockets_mode() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("precious"), "").unwrap();
        std::fs::set_permissions(at("precious"), PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::create_dir(at("planted")).unwrap();
        symlink(at("precious"), at("planted").join(NAME)).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for target in ["precious", "planted"].into_iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let appeared = std::fs::rename(at("public.sock.new"), at("taken"));
                    if appeared.is_ok() {
                        let _ = symlink(at(target), at("public.sock.new"));
                        std::thread::sleep(std::time::Duration::from_micros(20));
                        let _ = std::fs::remove_file(at("public.sock.new"));
                        let _ = std::fs::remove_file(at("taken"));
                        let _ = std::fs::remove_dir_all(at("taken"));
                    }
                }
            });
            for _ in 0..5_000 {
                // The attack may keep it from listening.
                let mode = Mode::from_raw_mode(0o666);
                drop(listener(&at("public.sock"), SocketType::STREAM, SocketFlags::empty(), mode));
                let _ = std::fs::remove_file(at("public.sock"));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(at("precious").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_changed_mode_is_the_sockets_own() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("a.sock"), folder.path().join("precious"));
        let mode = Mode::from_raw_mode(0o600);
        let bound = listener_with_file(&path, SocketType::STREAM, SocketFlags::empty(), mode);
        let (_socket, file) = bound.unwrap();
        std::fs::write(&precious, "").unwrap();
        std::fs::set_permissions(&precious, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(&path, folder.path().join("b.sock")).unwrap();
        symlink(&precious, &path).unwrap();
        file.set_mode(Mode::from_raw_mode(0o666)).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&precious), mode(&folder.path().join("b.sock"))), (0o600, 0o666));
    }
}
