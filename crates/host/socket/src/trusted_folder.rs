//! Folders in which a process believes what it finds: only root and the process's own user can change them,
//! or what leads to them.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, lstat, open};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Permission to write of the group and of others.
const OTHERS_WRITE: u32 = 0o022;
/// Only the owner of a file in a folder with this bit may rename or remove it.
const STICKY: u32 = 0o1000;

/// Reason why a folder is not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It cannot be created or examined.
    #[error("cannot use folder {}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It belongs to a user who could change it.
    #[error(
        "{} belongs to user {owner}, who could plant files in it; only root and user {user} may own it: \
         set another folder for sockets and state, such as /run/p4shield",
        path.display()
    )]
    Owner {
        /// The folder, one that contains it, or a link to it.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The process's user.
        user: u32,
    },
    /// Other users may write it.
    #[error(
        "{} has mode {mode:04o}: other users could plant files in it; remove what is not yours and run \
         `chmod go-w {}`, or set another folder for sockets and state, such as /run/p4shield",
        path.display(), path.display()
    )]
    Writable {
        /// The folder, or one that contains it.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Opens the folder at `path`; creates it if it is missing. What is opened relative to the descriptor, or
/// by the path, cannot be exchanged by others.
///
/// Folders above it may have the sticky bit and be writable, as /tmp: only a file's owner renames it there.
/// The folder itself may not: others could create a name before the process does.
///
/// # Errors
/// Someone else than root and this process's user could change the folder or what leads to it.
pub fn open_trusted(path: &Path) -> Result<OwnedFd, FolderError> {
    let failed = |source| FolderError::Io { path: path.to_owned(), source };
    let path = std::path::absolute(path).map_err(failed)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&path).map_err(failed)?;
    check_way(&path)?;
    // Where links lead, which others cannot change either.
    let real = path.canonicalize().map_err(failed)?;
    check_way(&real)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(&real, flags, Mode::empty()).map_err(|e| failed(e.into()))?;
    check(&real, &fstat(&folder).map_err(|e| failed(e.into()))?, false)?;
    Ok(folder)
}

/// Checks all that leads to a path, from the root on.
fn check_way(path: &Path) -> Result<(), FolderError> {
    let mut above: Vec<_> = path.ancestors().skip(1).collect();
    above.reverse();
    for folder in above {
        let found = lstat(folder);
        let found = found.map_err(|e| FolderError::Io { path: folder.to_owned(), source: e.into() })?;
        check(folder, &found, true)?;
    }
    Ok(())
}

/// Checks owner and mode of a folder or link.
///
/// # Errors
/// Someone else than root and this process's user owns it, or can change it.
pub fn check(path: &Path, found: &Stat, may_be_sticky: bool) -> Result<(), FolderError> {
    let (owner, user) = (found.st_uid, rustix::process::geteuid().as_raw());
    if owner != 0 && owner != user {
        return Err(FolderError::Owner { path: path.to_owned(), owner, user });
    }
    let mode = found.st_mode & 0o7777;
    let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    let is_safe = mode & OTHERS_WRITE == 0 || (may_be_sticky && mode & STICKY != 0);
    if is_link || is_safe { Ok(()) } else { Err(FolderError::Writable { path: path.to_owned(), mode }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, create_dir, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const OTHER: u32 = 4242;

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("new/run");
        open_trusted(&folder).unwrap();
        for mode in [0o775, 0o757, 0o1777] {
            set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let error = open_trusted(&folder).unwrap_err();
            assert!(matches!(error, FolderError::Writable { mode: m, .. } if m == mode), "{error}");
            assert!(error.to_string().contains("chmod go-w"), "{error}");
        }
        set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let above = outer.path().join("new");
        set_permissions(&above, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(open_trusted(&folder), Err(FolderError::Writable { path, .. }) if path == above));
        set_permissions(&above, Permissions::from_mode(0o1777)).unwrap();
        open_trusted(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_own_is_refused() {
        if !rustix::process::geteuid().is_root() {
            p4shield_need::skip("root", "only root can give a folder away");
            return;
        }
        let outer = tempfile::tempdir().unwrap();
        let [own, theirs] = ["own", "theirs"].map(|name| outer.path().join(name));
        create_dir(&own).unwrap();
        create_dir(&theirs).unwrap();
        create_dir(theirs.join("deeper")).unwrap();
        chown(&theirs, Some(OTHER), None).unwrap();
        for folder in [theirs.clone(), theirs.join("deeper")] {
            let error = open_trusted(&folder).unwrap_err();
            assert!(matches!(error, FolderError::Owner { owner: OTHER, .. }), "{error}");
        }
        // A link of another user leads elsewhere tomorrow.
        let link = outer.path().join("link");
        symlink(&own, &link).unwrap();
        open_trusted(&link.join("below")).unwrap();
        std::os::unix::fs::lchown(&link, Some(OTHER), None).unwrap();
        let error = open_trusted(&link.join("below")).unwrap_err();
        assert!(matches!(error, FolderError::Owner { owner: OTHER, .. }), "{error}");
    }
}
