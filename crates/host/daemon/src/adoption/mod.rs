//! What the next daemon needs to adopt this one's P4 VMs and wires: after an upgrade, or after this one was
//! killed.
//!
//! P4 VMs outlive their daemon for `daemon.adoption_time`, and so do their channels: mediators and P4 VMs
//! hold them, not the daemon. Beside the daemon's socket there is a folder that only root may enter:
//!
//! ```text
//!   p4shield.sock.p4vms/running.json   the configuration in force, with the numbers of tenants and VMs
//!                       3.json         what the P4 VM of tenant 3 has: its process, pages and programs
//!                       3.sock         its door: the P4 VM has the listening socket
//!                       wires.json     the process that serves the wires, and its door
//! ```
//!
//! The next daemon starts with that configuration and adopts each P4 VM that still has what its file says;
//! then it applies what has changed in the configuration since, as a reload does. A P4 VM that cannot be
//! adopted is ended, and another is started. A daemon that ends in order ends its P4 VMs and removes the
//! folder.

mod record;

use crate::config::Config;
use crate::error::DaemonError;
use p4shield_attach::listener;
use p4shield_compartment::ProcessIdentity;
use p4shield_control::{Socket, SocketError};
use p4shield_socket::{check, folder_of, open_trusted};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

pub(crate) use record::{Handover, P4VmRecord, PageRecord, ProcessRecord, ProgramMark};

/// Most bytes of a file in the folder.
const MAX_FILE: u64 = 16 << 20;

/// The configuration in force.
#[derive(Debug, Serialize, Deserialize)]
struct RunningRecord {
    text: String,
    names: Vec<(String, Vec<String>)>,
}

/// The folder. It is opened once, and then all files are found by its descriptor.
#[derive(Debug)]
pub(crate) struct AdoptionFolder {
    folder: OwnedFd,
    /// The socket's folder, and the name in it.
    parent: OwnedFd,
    name: OsString,
}

impl AdoptionFolder {
    /// Opens the folder beside the daemon's socket; creates it if it is missing. The caller holds the
    /// socket's lock. Nothing in the folder is read before its owner and its mode are checked.
    ///
    /// # Errors
    /// It cannot be created, or others could have changed it.
    pub(crate) fn beside(socket: &Path) -> Result<Self, DaemonError> {
        let parent = open_trusted(folder_of(socket))?;
        let mut name = socket.file_name().unwrap_or_default().to_owned();
        name.push(".p4vms");
        let path = socket.with_file_name(&name);
        let unusable = |source| DaemonError::Adoption { path: path.clone(), source };
        let failed = |e: Errno| unusable(e.into());
        match mkdirat(&parent, &name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) | Ok(()) => {}
            Err(e) => return Err(failed(e)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&parent, &name, flags, Mode::empty()).map_err(failed)?;
        let found = fstat(&folder).map_err(failed)?;
        check(&path, &found, false).map_err(|e| unusable(io::Error::other(e)))?;
        Ok(Self { folder, parent, name })
    }

    /// Returns the path of a file in the folder, which leads there whatever happens to the folder's name. It
    /// is short, too: a socket's path has at most 107 bytes.
    fn at(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{file}", self.folder.as_raw_fd()))
    }

    /// Creates the door of a process, in place of one that exists.
    pub(crate) fn listen(&self, name: &str) -> io::Result<OwnedFd> {
        let door = self.at(&format!("{name}.sock"));
        listener(&door, SocketType::SEQPACKET, SocketFlags::NONBLOCK, Mode::from_raw_mode(0o600))
    }

    /// Connects to the door of a process.
    pub(crate) fn connect(&self, name: &str) -> Result<Socket, SocketError> {
        Socket::connect(&self.at(&format!("{name}.sock")))
    }

    /// Records a process.
    pub(crate) fn save(&self, name: &str, record: &impl Serialize) -> io::Result<()> {
        self.write(&format!("{name}.json"), record)
    }

    /// Returns the record of a process that another daemon started.
    pub(crate) fn load<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        self.read(&format!("{name}.json"))
    }

    /// Forgets a process.
    pub(crate) fn forget(&self, name: &str) {
        for kind in ["json", "sock"] {
            let _ = std::fs::remove_file(self.at(&format!("{name}.{kind}")));
        }
    }

    /// Records the configuration in force.
    pub(crate) fn save_running(&self, config: &Config) -> io::Result<()> {
        let record = RunningRecord { text: config.text().to_owned(), names: config.names() };
        self.write("running.json", &record)
    }

    /// Returns the configuration that was in force, whose file is that of `config`, if a process still runs.
    pub(crate) fn running(&self, config: &Config) -> Option<Config> {
        if !self.processes().any(|process| process.open().is_some()) {
            return None;
        }
        let record: RunningRecord = self.read("running.json")?;
        let before = Config::parse(&config.file, &record.text).ok()?;
        Some(before.numbered_by(&record.names))
    }

    /// Ends all processes of another daemon and forgets them.
    pub(crate) fn end_all(&self) {
        self.processes().for_each(|process| process.kill());
        self.clear();
    }

    /// Returns the processes of all records.
    fn processes(&self) -> impl Iterator<Item = ProcessIdentity> {
        self.files().filter_map(|file| {
            let record: ProcessRecord = self.load(file.to_str()?.strip_suffix(".json")?)?;
            Some(record.process)
        })
    }

    /// Returns the names of all files.
    fn files(&self) -> impl Iterator<Item = OsString> {
        let entries = std::fs::read_dir(self.at("")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name())
    }

    /// Removes all files.
    fn clear(&self) {
        for file in self.files() {
            let _ = unlinkat(&self.folder, &file, AtFlags::empty());
        }
    }

    /// Removes the folder.
    pub(crate) fn remove(&self) {
        self.clear();
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }

    fn write(&self, name: &str, record: &impl Serialize) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(self.at(""))?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.persist(self.at(name))?;
        Ok(())
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        use std::io::Read;
        let mut text = Vec::new();
        let file = std::fs::File::open(self.at(name)).ok()?;
        file.take(MAX_FILE).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

#[cfg(test)]
mod tests;
