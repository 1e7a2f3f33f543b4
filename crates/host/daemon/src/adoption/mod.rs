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

mod identity;
mod record;

use crate::config::Config;
use p4shield_attach::listener;
use p4shield_control::{Socket, SocketError};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) use identity::ProcessIdentity;
pub(crate) use record::{P4VmRecord, PageRecord, ProcessRecord, ProgramMark};

/// Most bytes of a file in the folder.
const MAX_FILE: u64 = 16 << 20;

/// The configuration in force.
#[derive(Debug, Serialize, Deserialize)]
struct RunningRecord {
    text: String,
    names: Vec<(String, Vec<String>)>,
}

/// The folder.
#[derive(Debug)]
pub(crate) struct AdoptionFolder {
    path: PathBuf,
}

impl AdoptionFolder {
    /// Returns the folder beside the daemon's socket. The caller holds the socket's lock.
    pub(crate) fn beside(socket: &Path) -> Self {
        let mut path = socket.as_os_str().to_owned();
        path.push(".p4vms");
        Self { path: path.into() }
    }

    /// Creates the folder, unless it exists.
    ///
    /// # Errors
    /// It cannot be created, or another user made it.
    pub(crate) fn create(&self) -> io::Result<()> {
        match std::fs::DirBuilder::new().mode(0o700).create(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let found = std::fs::symlink_metadata(&self.path)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a folder of this user"));
        }
        std::fs::set_permissions(&self.path, PermissionsExt::from_mode(0o700))
    }

    /// Creates the door of a process, in place of one that exists.
    pub(crate) fn listen(&self, name: &str) -> io::Result<OwnedFd> {
        let (_folder, door) = self.door(name)?;
        listener(&door, SocketType::SEQPACKET, SocketFlags::NONBLOCK, Mode::from_raw_mode(0o600))
    }

    /// Connects to the door of a process.
    pub(crate) fn connect(&self, name: &str) -> Result<Socket, SocketError> {
        let kernel = |e: io::Error| SocketError::Kernel {
            what: "connect for",
            source: rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::NOENT),
        };
        let (_folder, door) = self.door(name).map_err(kernel)?;
        Socket::connect(&door)
    }

    /// Returns the folder and a short path of a door in it: a socket's path has at most 107 bytes.
    fn door(&self, name: &str) -> io::Result<(OwnedFd, PathBuf)> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{name}.sock", folder.as_raw_fd()));
        Ok((folder, path))
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
            let _ = std::fs::remove_file(self.path.join(format!("{name}.{kind}")));
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
        self.remove();
    }

    /// Returns the processes of all records.
    fn processes(&self) -> impl Iterator<Item = ProcessIdentity> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(|entry| {
            let file = entry.file_name();
            let record: ProcessRecord = self.load(file.to_str()?.strip_suffix(".json")?)?;
            Some(record.process)
        })
    }

    /// Removes the folder.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }

    fn write(&self, name: &str, record: &impl Serialize) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&self.path)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.persist(self.path.join(name))?;
        Ok(())
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        use std::io::Read;
        let mut text = Vec::new();
        let file = std::fs::File::open(self.path.join(name)).ok()?;
        file.take(MAX_FILE).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

#[cfg(test)]
mod tests;
