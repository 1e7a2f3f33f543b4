//! A tenant's key and its file.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Bytes of a tenant's key.
pub const KEY_SIZE: usize = 32;

/// The only permission bits that a key file may have: only its owner reads and writes it.
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

/// Number of a key, by which people and programs recognise it. It reveals nothing about the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 8]);

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A key file was refused, or could not be read or written. Every message contains the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A system call failed.
    #[error("cannot {doing} key file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation: "open", "read", ...
        doing: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file exists; a key is never overwritten.
    #[error(
        "key file {} exists already; a key is never overwritten: name another file, or remove this one first",
        .0.display()
    )]
    Exists(PathBuf),
    /// The path is a symbolic link.
    #[error(
        "key file {} is a symbolic link, which could be changed to another file; name the file itself",
        .0.display()
    )]
    Symlink(PathBuf),
    /// The path is a directory, a device, a pipe...
    #[error("key file {} is not a regular file; create one with `p4shield keygen`", .0.display())]
    NotAFile(PathBuf),
    /// Its mode is not 0600.
    #[error(
        "key file {} has mode {mode:04o}; only 0600 is accepted: run `chmod 600 {}`, and replace the key \
         if other users could have read it",
        path.display(), path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to another user.
    #[error(
        "key file {} belongs to user {owner}, and this process runs as user {user}; run `chown {user} {}`",
        path.display(), path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// User id of its owner.
        owner: u32,
        /// User id of this process.
        user: u32,
    },
    /// It has another size than a key.
    #[error(
        "key file {} has {size} bytes; a key has exactly {KEY_SIZE}: create one with `p4shield keygen`",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
    },
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for key file {}: {reason}", path.display())]
    Random {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: getrandom::Error,
    },
}

impl TenantKey {
    /// A key from bytes, for example from the control socket of a sandboxed process.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; KEY_SIZE]) -> Self {
        Self { bytes }
    }

    /// Returns the secret, to pass it on. The caller is responsible for the copy.
    #[must_use]
    pub const fn expose(&self) -> &[u8; KEY_SIZE] {
        &self.bytes
    }

    /// Returns a copy, which is wiped on its own.
    #[must_use]
    pub const fn duplicate(&self) -> Self {
        Self { bytes: self.bytes }
    }

    /// Creates a random key.
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes. The error names `path`, for which the key is meant.
    pub fn random(path: &Path) -> Result<Self, KeyError> {
        let mut key = Self { bytes: [0; KEY_SIZE] };
        getrandom::fill(&mut key.bytes)
            .map_err(|reason| KeyError::Random { path: path.to_owned(), reason })?;
        Ok(key)
    }

    /// Reads a key file.
    ///
    /// All checks are made on the open file, so that it cannot be exchanged between check and read.
    ///
    /// # Errors
    ///
    /// If it cannot be read; is not a regular file, or its path ends in a symbolic link; or has
    /// another mode than 0600, another owner than this process, or another size than [`KEY_SIZE`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let io = |doing| move |e| io_error(path, doing, e);
        let fd = open_secret(path)?;
        check(path, &fd)?;
        let mut file = File::from(fd);
        let mut key = Self { bytes: [0; KEY_SIZE] };
        file.read_exact(&mut key.bytes).map_err(|e| io("read")(errno(&e)))?;
        Ok(key)
    }

    /// Creates a random key and writes it to a new file of mode 0600.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written, or the system returns no random bytes. A partly
    /// written file is removed.
    pub fn generate(path: &Path) -> Result<Self, KeyError> {
        let key = Self::random(path)?;
        // `EXCL` follows no symbolic link either.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(KEY_MODE)).map_err(|e| match e {
            Errno::EXIST => KeyError::Exists(path.to_owned()),
            e => io_error(path, "create", e),
        })?;
        write_key(path, fd, &key).inspect_err(|_| {
            // The first error is reported. If a partly written file is left, `load` refuses it by its size.
            let _ = std::fs::remove_file(path);
        })?;
        Ok(key)
    }

    /// Writes the key to a file of mode 0600 that replaces `path`. A reader finds the previous file or
    /// this one, whole, whenever it opens the path.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; the previous file stays.
    pub fn replace(&self, path: &Path) -> Result<(), KeyError> {
        replace_file(path, &self.bytes)
    }
}

/// Writes a file of mode 0600 with secret contents that replaces `path` as a whole.
pub(crate) fn replace_file(path: &Path, contents: &[u8]) -> Result<(), KeyError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A crash may have left it behind.
    let _ = std::fs::remove_file(&new);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&new, flags, Mode::from_raw_mode(KEY_MODE))
        .map_err(|e| io_error(path, "replace", e))?;
    let written = write_secret(path, fd, contents).and_then(|()| {
        std::fs::rename(&new, path)
            .and_then(|()| File::open(parent(path)).and_then(|d| d.sync_all()))
            .map_err(|e| io_error(path, "replace", errno(&e)))
    });
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

fn write_key(path: &Path, fd: OwnedFd, key: &TenantKey) -> Result<(), KeyError> {
    write_secret(path, fd, &key.bytes)
}

fn write_secret(path: &Path, fd: OwnedFd, contents: &[u8]) -> Result<(), KeyError> {
    // The umask may have cleared bits.
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(KEY_MODE))
        .map_err(|e| io_error(path, "set the mode of", e))?;
    let mut file = File::from(fd);
    file.write_all(contents)
        .and_then(|()| file.sync_all())
        .and_then(|()| File::open(parent(path)).and_then(|d| d.sync_all()))
        .map_err(|e| io_error(path, "write", errno(&e)))
}

/// Opens a file for reading; its last component must not be a symbolic link.
pub(crate) fn open_secret(path: &Path) -> Result<OwnedFd, KeyError> {
    // NONBLOCK: if the path is a pipe, opening it must not hang.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| match e {
        Errno::LOOP => KeyError::Symlink(path.to_owned()),
        e => io_error(path, "open", e),
    })
}

pub(crate) fn check(path: &Path, fd: &OwnedFd) -> Result<(), KeyError> {
    let size = check_access(path, fd)?;
    if size != KEY_SIZE as u64 {
        return Err(KeyError::Size { path: path.to_owned(), size });
    }
    Ok(())
}

/// Checks that only this process's user can read the open file. Returns its size.
pub(crate) fn check_access(path: &Path, fd: &OwnedFd) -> Result<u64, KeyError> {
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
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Returns the directory of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}

pub(crate) fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

pub(crate) fn io_error(path: &Path, doing: &'static str, source: Errno) -> KeyError {
    KeyError::Io { path: path.to_owned(), doing, source: source.into() }
}
