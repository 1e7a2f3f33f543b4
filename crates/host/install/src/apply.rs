//! What changes a host.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::dropin::{DropIn, Installed};
use crate::{Kind, Report, Root, systemd};

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The drop-in is another than before.
    pub changed: bool,
    /// systemd has read it.
    pub reloaded: bool,
    /// The switch was restarted.
    pub restarted: bool,
}

/// Why nothing, or not everything, was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// Something stands in the way; see [`Report::problems`].
    #[error("nothing was installed: {0}")]
    Refused(String),
    /// A program that is no service has nothing to be installed.
    #[error(
        "only a service can be changed; start the program with the command line that `p4shield attach` prints"
    )]
    NoService,
    /// A restart was asked for where there is nobody to do it.
    #[error(
        "systemd does not run this host, so the switch cannot be restarted by --restart; nothing was changed"
    )]
    NoSystemd,
    /// What is there is another attachment's, or somebody else's.
    #[error("{} was not written by `p4shield attach {wanted}`; it stays", path.display())]
    NotOurs {
        /// The drop-in.
        path: PathBuf,
        /// The attachment that was to be taken away.
        wanted: &'static str,
    },
    /// A file.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// systemd.
    #[error("`systemctl {words}` failed: {said}; the drop-in is in place all the same")]
    Systemd {
        /// The command.
        words: String,
        /// What it said.
        said: String,
    },
}

/// Installs what was examined, and restarts the switch if asked to.
///
/// # Errors
/// See [`InstallError`]; a problem that [`crate::examine`] has found is one.
pub fn apply(report: &Report, restart: bool) -> Result<Change, InstallError> {
    let Some(wanted) = &report.drop_in else { return Err(InstallError::NoService) };
    if let Some(problem) = report.problems().next() {
        return Err(InstallError::Refused(problem.what.clone()));
    }
    can_restart(&report.root, restart)?;
    let mut change = Change::default();
    if !report.installed {
        write(&report.root, &wanted.path, &wanted.text)?;
        change.changed = true;
    }
    tell_systemd(&report.root, report.target.name(), restart, change)
}

/// Takes an attachment away from a unit, and restarts the switch if asked to. Nothing there is no error.
///
/// # Errors
/// See [`InstallError`].
pub fn remove(root: &Root, kind: Kind, unit: &str, restart: bool) -> Result<Change, InstallError> {
    let path = DropIn::path(unit);
    can_restart(root, restart)?;
    let mut change = Change::default();
    match DropIn::installed(root, unit) {
        Installed::Nothing => {}
        Installed::Ours { kind: found, .. } if found == kind => {
            let at = locate(root, &path)?;
            std::fs::remove_file(&at).map_err(|e| file("remove", &at, e))?;
            if let Some(folder) = at.parent() {
                // Not empty if the operator has drop-ins of his own.
                let _ = std::fs::remove_dir(folder);
            }
            change.changed = true;
        }
        Installed::Ours { .. } | Installed::Foreign => {
            return Err(InstallError::NotOurs { path, wanted: kind.word() });
        }
    }
    tell_systemd(root, unit, restart, change)
}

/// Where the drop-in is that has a unit load an attachment; none if it does not.
#[must_use]
pub fn installed(root: &Root, kind: Kind, unit: &str) -> Option<PathBuf> {
    let ours = matches!(DropIn::installed(root, unit), Installed::Ours { kind: found, .. } if found == kind);
    ours.then(|| DropIn::path(unit))
}

fn can_restart(root: &Root, restart: bool) -> Result<(), InstallError> {
    if restart && !systemd::runs(root) { Err(InstallError::NoSystemd) } else { Ok(()) }
}

fn tell_systemd(root: &Root, unit: &str, restart: bool, mut change: Change) -> Result<Change, InstallError> {
    let run = |words: &[&str]| {
        systemd::systemctl(words).map_err(|said| InstallError::Systemd { words: words.join(" "), said })
    };
    if change.changed && systemd::runs(root) {
        run(&["daemon-reload"])?;
        change.reloaded = true;
    }
    if restart {
        run(&["restart", unit])?;
        change.restarted = true;
    }
    Ok(change)
}

/// Writes a file so that it is there whole or not at all, after a crash, too.
fn write(root: &Root, path: &Path, text: &str) -> Result<(), InstallError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    make_folders(root, folder)?;
    let (at, folder) = (locate(root, path)?, locate(root, folder)?);
    let new = at.with_extension("conf.new");
    // Of one that was interrupted.
    let _ = std::fs::remove_file(&new);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new).and_then(|mut f| {
        f.write_all(text.as_bytes())?;
        f.sync_all()
    });
    let done =
        written.and_then(|()| std::fs::rename(&new, &at)).and_then(|()| File::open(folder)?.sync_all());
    done.map_err(|e| {
        let _ = std::fs::remove_file(&new);
        file("write", &at, e)
    })
}

/// Makes a folder and those above it, without following links out of the root.
fn make_folders(root: &Root, folder: &Path) -> Result<(), InstallError> {
    let mut above: Vec<_> = folder.ancestors().collect();
    above.reverse();
    for folder in above {
        let at = locate(root, folder)?;
        if !at.is_dir() {
            std::fs::create_dir(&at).map_err(|e| file("make", &at, e))?;
        }
    }
    Ok(())
}

fn locate(root: &Root, path: &Path) -> Result<PathBuf, InstallError> {
    root.locate(path).map_err(|e| file("find", path, e))
}

fn file(what: &'static str, path: &Path, source: io::Error) -> InstallError {
    InstallError::File { what, path: path.to_owned(), source }
}
