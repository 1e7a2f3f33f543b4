//! The applied plan, as a file: the next plan keeps its numbers.

use crate::TopologyError;
use p4shield_topology::{Plan, VERSION};
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The folder of the state.
#[derive(Clone, Debug)]
pub(crate) struct State(pub(crate) PathBuf);

impl State {
    fn file(&self) -> PathBuf {
        self.0.join("applied.json")
    }

    /// Returns the folder with the compartments' databases.
    pub(crate) fn databases(&self) -> PathBuf {
        self.0.join("switches")
    }

    /// Returns the plan that was applied last.
    ///
    /// # Errors
    /// The file cannot be read, or is of another release.
    pub(crate) fn read(&self) -> Result<Option<Plan>, TopologyError> {
        let file = self.file();
        let text = match fs::read(&file) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(TopologyError::file("read", &file))?,
        };
        let plan: Plan = serde_json::from_slice(&text).map_err(TopologyError::file("read", &file))?;
        if plan.version == VERSION {
            return Ok(Some(plan));
        }
        let other = format!("it is of version {}, this release writes {VERSION}", plan.version);
        Err(TopologyError::file("use", &file)(std::io::Error::other(other)))
    }

    /// Writes a plan: all of it, or nothing.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn write(&self, plan: &Plan) -> Result<(), TopologyError> {
        make_folder(&self.0, 0o755)?;
        let (file, next) = (self.file(), self.0.join("applied.json.next"));
        let write = || -> std::io::Result<()> {
            let mut to = File::create(&next)?;
            to.write_all(&serde_json::to_vec_pretty(plan)?)?;
            to.sync_all()?;
            fs::rename(&next, &file)
        };
        write().map_err(TopologyError::file("write", &file))
    }

    /// Forgets it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn forget(&self) -> Result<(), TopologyError> {
        remove_file(&self.file())
    }

    /// Waits until no other process or thread changes the topology or a part of it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn lock(&self) -> Result<File, TopologyError> {
        self.locked(File::lock)
    }

    /// Waits until no other process changes the topology. Parts of it may change at the same time.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn lock_part(&self) -> Result<File, TopologyError> {
        self.locked(File::lock_shared)
    }

    fn locked(&self, lock: impl Fn(&File) -> std::io::Result<()>) -> Result<File, TopologyError> {
        make_folder(&self.0, 0o755)?;
        let path = self.0.join("lock");
        let file = File::create(&path).map_err(TopologyError::file("open", &path))?;
        lock(&file).map_err(TopologyError::file("lock", &path))?;
        Ok(file)
    }
}

/// Makes a folder with this mode, if it is missing.
pub(crate) fn make_folder(path: &Path, mode: u32) -> Result<(), TopologyError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(TopologyError::file("make", path))
}

/// Checks that users without privileges reach a folder, as far as it is there.
pub(crate) fn check_reach(folder: &Path) -> Result<(), TopologyError> {
    for path in folder.ancestors() {
        // By its last permission, the search of others.
        if fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o001 == 0) {
            return Err(TopologyError::Unreachable { folder: folder.to_owned(), path: path.to_owned() });
        }
    }
    Ok(())
}

/// Removes a file, if it is there.
pub(crate) fn remove_file(path: &Path) -> Result<(), TopologyError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(TopologyError::file("remove", path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_only_root_reaches_is_named() {
        let folder = std::env::temp_dir().join(format!("p4shield-reach-{}", std::process::id()));
        make_folder(&folder.join("inner"), 0o755).unwrap();
        assert!(check_reach(&folder.join("inner/not-there-yet")).is_ok());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let error = check_reach(&folder.join("inner")).unwrap_err().to_string();
        assert!(error.ends_with(&format!("chmod o+x {}", folder.display())), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }
}
