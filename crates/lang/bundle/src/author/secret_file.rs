//! Files that their owner alone may read.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// The only permission bits that such a file may have.
const MODE: u32 = 0o600;

/// Reason why a file is not accepted.
pub(super) enum Unfit {
    /// A system call failed.
    Io(io::Error),
    /// It is a symbolic link, a folder, a device or a pipe.
    Kind,
    /// Its mode, which lets others read it.
    Mode(u32),
    /// Its owner is another user than this process's.
    Owner(u32),
}

impl From<rustix::io::Errno> for Unfit {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Reads at most `limit` bytes of a file. All checks are made on the open file, so that it cannot be
/// exchanged between check and read.
pub(super) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Unfit> {
    // NONBLOCK: if the path is a pipe, opening it must not hang.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::LOOP) => return Err(Unfit::Kind),
        other => other?,
    };
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Unfit::Kind);
    }
    let mode = stat.st_mode & 0o7777;
    if mode != MODE {
        return Err(Unfit::Mode(mode));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Unfit::Owner(stat.st_uid));
    }
    let mut bytes = Vec::new();
    File::from(fd).take(limit).read_to_end(&mut bytes).map_err(Unfit::Io)?;
    Ok(bytes)
}

/// Writes a new file; an existing one is not overwritten. A partly written file is removed.
pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // `EXCL` follows no symbolic link either.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(MODE))?;
    let written =
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(MODE)).map_err(io::Error::from).and_then(|()| {
            let mut file = File::from(fd);
            file.write_all(bytes)?;
            file.sync_all()
        });
    written.inspect_err(|_| {
        // The first error is reported. A file that is left has no key's form.
        let _ = std::fs::remove_file(path);
    })
}
