//! Changes to a host: installs and removes the drop-in, reloads systemd, restarts the switch.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::dropin::{DropIn, Installed};
use crate::{PreloadedAttachment, Report, Root, systemd};

/// The changes that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostChanges {
    /// The drop-in was written or removed.
    pub changed: bool,
    /// systemd reloaded its units.
    pub reloaded: bool,
    /// The switch was restarted.
    pub restarted: bool,
}

/// Reason why not everything was done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// A check found a problem; see [`Report::problems`].
    #[error("nothing was installed: {0}")]
    Refused(String),
    /// The target is a program rather than a service, for which nothing is installed.
    #[error(
        "nothing is installed for a program; start it with the command line that `p4shield attach` prints"
    )]
    NoService,
    /// A restart was requested on a host without systemd.
    #[error(
        "--restart needs systemd, which does not run here; nothing was changed; restart the switch by \
         other means"
    )]
    NoSystemd,
    /// The drop-in belongs to another attachment, or was not written by P4 Shield.
    #[error("{} was not written by `p4shield attach {wanted}`; it was left unchanged", path.display())]
    NotOurs {
        /// The drop-in.
        path: PathBuf,
        /// The attachment to remove.
        wanted: &'static str,
    },
    /// A file operation failed.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// systemctl failed.
    #[error("`systemctl {words}` failed: {output}; the drop-in was changed nevertheless")]
    Systemd {
        /// The command.
        words: String,
        /// Its output.
        output: String,
    },
}

/// Installs the drop-in of a report, and restarts the switch if `restart` is set.
///
/// # Errors
/// See [`InstallError`]; among them, a problem that [`crate::examine`] found.
pub fn apply(report: &Report, restart: bool) -> Result<HostChanges, InstallError> {
    let Some(wanted) = &report.drop_in else { return Err(InstallError::NoService) };
    if let Some(problem) = report.problems().next() {
        return Err(InstallError::Refused(problem.what.clone()));
    }
    can_restart(&report.root, restart)?;
    let mut change = HostChanges::default();
    if !report.installed {
        write(&report.root, &wanted.path, &wanted.text)?;
        change.changed = true;
    }
    reload_systemd(&report.root, report.target.name(), restart, change)
}

/// Removes an attachment from a unit, and restarts the switch if `restart` is set. A missing drop-in is no
/// error.
///
/// # Errors
/// See [`InstallError`].
pub fn remove(
    root: &Root,
    kind: PreloadedAttachment,
    unit: &str,
    restart: bool,
) -> Result<HostChanges, InstallError> {
    let path = DropIn::path(unit);
    can_restart(root, restart)?;
    let mut change = HostChanges::default();
    match DropIn::installed(root, unit) {
        Installed::Nothing => {}
        Installed::Ours { kind: found, .. } if found == kind => {
            let at = locate(root, &path)?;
            std::fs::remove_file(&at).map_err(|e| file("remove", &at, e))?;
            if let Some(folder) = at.parent() {
                // Fails if the operator has other drop-ins in the folder.
                let _ = std::fs::remove_dir(folder);
            }
            change.changed = true;
        }
        Installed::Ours { .. } | Installed::Foreign => {
            return Err(InstallError::NotOurs { path, wanted: kind.word() });
        }
    }
    reload_systemd(root, unit, restart, change)
}

/// Returns the path of the drop-in with which a unit loads an attachment, if it is installed.
#[must_use]
pub fn installed(root: &Root, kind: PreloadedAttachment, unit: &str) -> Option<PathBuf> {
    let ours = matches!(DropIn::installed(root, unit), Installed::Ours { kind: found, .. } if found == kind);
    ours.then(|| DropIn::path(unit))
}

fn can_restart(root: &Root, restart: bool) -> Result<(), InstallError> {
    if restart && !systemd::runs(root) { Err(InstallError::NoSystemd) } else { Ok(()) }
}

fn reload_systemd(
    root: &Root,
    unit: &str,
    restart: bool,
    mut change: HostChanges,
) -> Result<HostChanges, InstallError> {
    let run = |words: &[&str]| {
        systemd::systemctl(words).map_err(|output| InstallError::Systemd { words: words.join(" "), output })
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

/// Writes a file atomically, also in case of a crash.
fn write(root: &Root, path: &Path, text: &str) -> Result<(), InstallError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    create_folders(root, folder)?;
    let (at, folder) = (locate(root, path)?, locate(root, folder)?);
    let new = at.with_extension("conf.new");
    // Left behind by an interrupted run.
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

/// Creates a folder and those above it, without following links out of the root.
fn create_folders(root: &Root, folder: &Path) -> Result<(), InstallError> {
    let mut above: Vec<_> = folder.ancestors().collect();
    above.reverse();
    for folder in above {
        let at = locate(root, folder)?;
        if !at.is_dir() {
            std::fs::create_dir(&at).map_err(|e| file("create", &at, e))?;
        }
    }
    Ok(())
}

fn locate(root: &Root, path: &Path) -> Result<PathBuf, InstallError> {
    root.locate(path).map_err(|e| file("find", path, e))
}

fn file(operation: &'static str, path: &Path, source: io::Error) -> InstallError {
    InstallError::File { operation, path: path.to_owned(), source }
}
