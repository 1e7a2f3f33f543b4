//! What the next daemon needs to adopt this one's P4 VMs: after an upgrade, or after this one was killed.
//!
//! P4 VMs outlive their daemon for `daemon.adoption_time`, and so do their channels: mediators and P4 VMs hold
//! them, not the daemon. Beside the daemon's socket there is a folder that only root may enter:
//!
//! ```text
//!   p4shield.sock.p4vms/running.json   the configuration in force, with the numbers of tenants and VMs
//!                       3.json         what the P4 VM of tenant 3 has: its process, pages and programs
//!                       3.sock         its door: the P4 VM has the listening socket
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
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(crate) use identity::ProcessIdentity;
pub(crate) use record::{P4VmRecord, PageRecord, ProgramMark};

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

    /// Creates the door of a tenant's P4 VM, in place of one that exists.
    pub(crate) fn listen(&self, tenant: usize) -> io::Result<OwnedFd> {
        let (_folder, door) = self.door(tenant)?;
        listener(&door, SocketType::SEQPACKET, SocketFlags::NONBLOCK, Mode::from_raw_mode(0o600))
    }

    /// Connects to the door of a tenant's P4 VM.
    pub(crate) fn connect(&self, tenant: usize) -> Result<Socket, SocketError> {
        let kernel = |e: io::Error| SocketError::Kernel {
            what: "connect for",
            source: rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::NOENT),
        };
        let (_folder, door) = self.door(tenant).map_err(kernel)?;
        Socket::connect(&door)
    }

    /// Returns the folder and a short path of a door in it: a socket's path has at most 107 bytes.
    fn door(&self, tenant: usize) -> io::Result<(OwnedFd, PathBuf)> {
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = rustix::fs::open(&self.path, flags, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{tenant}.sock", folder.as_raw_fd()));
        Ok((folder, path))
    }

    /// Records what a tenant's P4 VM has.
    pub(crate) fn save(&self, tenant: usize, record: &P4VmRecord) -> io::Result<()> {
        self.write(&format!("{tenant}.json"), record)
    }

    /// Returns what the P4 VM of a tenant has, if another daemon started it.
    pub(crate) fn load(&self, tenant: usize) -> Option<P4VmRecord> {
        self.read(&format!("{tenant}.json"))
    }

    /// Forgets the P4 VM of a tenant.
    pub(crate) fn forget(&self, tenant: usize) {
        for kind in ["json", "sock"] {
            let _ = std::fs::remove_file(self.path.join(format!("{tenant}.{kind}")));
        }
    }

    /// Records the configuration in force.
    pub(crate) fn save_running(&self, config: &Config) -> io::Result<()> {
        let record = RunningRecord { text: config.text().to_owned(), names: config.names() };
        self.write("running.json", &record)
    }

    /// Returns the configuration that was in force, whose file is that of `config`, if a P4 VM still runs.
    pub(crate) fn running(&self, config: &Config) -> Option<Config> {
        if !self.records().any(|(_, record)| record.process.open().is_some()) {
            return None;
        }
        let record: RunningRecord = self.read("running.json")?;
        let before = Config::parse(&config.file, &record.text).ok()?;
        Some(before.numbered_by(&record.names))
    }

    /// Ends all P4 VMs of another daemon and forgets them.
    pub(crate) fn end_all(&self) {
        self.records().for_each(|(_, record)| record.process.kill());
        self.remove();
    }

    /// Returns the records of all P4 VMs, with the numbers of their tenants.
    fn records(&self) -> impl Iterator<Item = (usize, P4VmRecord)> {
        let number = |name: &OsStr| name.to_str()?.strip_suffix(".json")?.parse().ok();
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let number = number(&entry.file_name())?;
            Some((number, self.load(number)?))
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
