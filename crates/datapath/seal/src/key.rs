//! A tenant's key, and the file that holds it until the attested exchange exists.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Bytes of a tenant's key.
pub const KEY_SIZE: usize = 32;

/// The only permission bits that a key file may have: its owner reads and writes it, and nobody else does anything.
const KEY_MODE: u32 = 0o600;

/// The secret that a tenant's user VMs and P4 VMs share. Wiped when dropped; never printed.
pub struct TenantKey {
    bytes: [u8; KEY_SIZE],
}

impl Drop for TenantKey {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.bytes);
    }
}

impl std::fmt::Debug for TenantKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TenantKey(secret)")
    }
}

/// Why there is no key. Every message says how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The system refused to open, read or write the file.
    #[error("cannot {doing} key file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "open", "read", ...
        doing: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// There is a file already, and a key is never overwritten.
    #[error("key file {} exists already; a key is never overwritten: name another file, or remove this one first", .0.display())]
    Exists(PathBuf),
    /// The path is a symbolic link.
    #[error("key file {} is a symbolic link; name the file itself, so that nobody can point the link elsewhere", .0.display())]
    Symlink(PathBuf),
    /// It is a directory, a device, a pipe...
    #[error("key file {} is not a regular file; make one with `p4shield keygen`", .0.display())]
    NotAFile(PathBuf),
    /// Others than the owner may use it, or its mode is otherwise not 0600.
    #[error("key file {} has mode {mode:04o}; only 0600 is accepted: run `chmod 600 {}`, and replace the key if others could have read it", path.display(), path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("key file {} belongs to user {owner}, and this process runs as user {user}; run `chown {user} {}`", path.display(), path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// User id of this process.
        user: u32,
    },
    /// It is not a key.
    #[error("key file {} has {size} bytes; a key has exactly {KEY_SIZE}: make one with `p4shield keygen`", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// The system has no randomness to give.
    #[error("the system gave no random bytes for key file {}: {reason}", path.display())]
    Random {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: getrandom::Error,
    },
}

impl TenantKey {
    /// A key from bytes that came another way than through a file: over a sandboxed process's control socket, or
    /// from an attested exchange.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_SIZE]) -> Self {
        Self { bytes }
    }

    /// The secret itself, to hand it on. Whoever calls this answers for the copy.
    #[must_use]
    pub const fn expose(&self) -> &[u8; KEY_SIZE] {
        &self.bytes
    }

    /// Reads a key file.
    ///
    /// All checks are made on the open file, so that nobody can exchange it between the check and the read.
    ///
    /// # Errors
    ///
    /// When it cannot be read; is no regular file, or reached through a symbolic link in its last component; has
    /// a mode other than 0600, another owner than this process, or another size than [`KEY_SIZE`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |doing| move |e| io_error(path, doing, e);
        // NONBLOCK: opening a pipe that somebody put there must not hang.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
            Errno::LOOP => KeyError::Symlink(path.to_owned()),
            e => io_error(path, "open", e),
        })?;
        check(path, &fd)?;
        let mut file = File::from(fd);
        let mut key = Self { bytes: [0; KEY_SIZE] };
        file.read_exact(&mut key.bytes).map_err(|e| io("read")(errno(&e)))?;
        Ok(key)
    }

    /// Makes a new key and writes it to a new file of mode 0600.
    ///
    /// # Errors
    ///
    /// When the file exists, cannot be written, or the system gives no randomness. What was begun is removed.
    pub fn generate(path: &Path) -> Result<Self, KeyError> {
        let mut key = Self { bytes: [0; KEY_SIZE] };
        getrandom::fill(&mut key.bytes)
            .map_err(|reason| KeyError::Random { path: path.to_owned(), reason })?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(KEY_MODE)).map_err(|e| match e {
            Errno::EXIST => KeyError::Exists(path.to_owned()),
            e => io_error(path, "create", e),
        })?;
        write_key(path, fd, &key).inspect_err(|_| {
            // The first error is the one to tell; a leftover is refused by its size.
            let _ = std::fs::remove_file(path);
        })?;
        Ok(key)
    }
}

fn write_key(path: &Path, fd: OwnedFd, key: &TenantKey) -> Result<(), KeyError> {
    // The umask may have taken bits away, and never adds any.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(KEY_MODE))
        .map_err(|e| io_error(path, "set the mode of", e))?;
    let mut file = File::from(fd);
    file.write_all(&key.bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| File::open(parent(path)).and_then(|d| d.sync_all()))
        .map_err(|e| io_error(path, "write", errno(&e)))
}

fn check(path: &Path, fd: &OwnedFd) -> Result<(), KeyError> {
    let stat = rustix::fs::fstat(fd).map_err(|e| io_error(path, "examine", e))?;
    let path = path.to_owned();
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(KeyError::NotAFile(path));
    }
    let mode = stat.st_mode & 0o7777;
    if mode != KEY_MODE {
        return Err(KeyError::Mode { path, mode });
    }
    let user = rustix::process::geteuid().as_raw();
    if stat.st_uid != user {
        return Err(KeyError::Owner { path, owner: stat.st_uid, user });
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size != KEY_SIZE as u64 {
        return Err(KeyError::Size { path, size });
    }
    Ok(())
}

/// The directory that a path is in.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

fn io_error(path: &Path, doing: &'static str, source: Errno) -> KeyError {
    KeyError::Io { path: path.to_owned(), doing, source: source.into() }
}
