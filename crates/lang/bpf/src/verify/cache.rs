//! Remembers what came out: a proof takes milliseconds to seconds, and the same program comes again.
//!
//! An entry is found by everything that the outcome depends on: the program's digest, the verifier's version, the
//! version of context and helpers, and the limits. Refusals are remembered too, but not those for want of resources.
//!
//! A directory makes it outlast the process. Whoever can write there decides what may run, so it has to be ours and
//! closed to all others, and so has each entry; what is not, and what does not read back, counts as not there.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use p4shield_abi::context::PROGRAM_ABI_VERSION;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, fsync, mkdir, open, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Limits, Refusal, Report, VERIFIER_VERSION};
use crate::linked::{Linked, Verified};

/// The most outcomes that are kept in memory.
const MAX_ENTRIES: usize = 1024;
/// The longest entry in a directory.
const MAX_ENTRY_BYTES: u64 = 64 << 10;

type Key = [u8; 32];
type Outcome = Result<Report, Refusal>;

/// Outcomes of verifications.
#[derive(Debug)]
pub struct Cache {
    entries: HashMap<Key, Outcome>,
    directory: Option<OwnedFd>,
    /// Part of the names of files that are being written.
    written: u64,
}

/// An entry in a file.
#[derive(Serialize, Deserialize)]
struct Entry {
    key: Key,
    outcome: Outcome,
}

impl Cache {
    /// Forgets with the process.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { entries: HashMap::new(), directory: None, written: 0 }
    }

    /// Keeps outcomes in a directory too, which is made if it does not exist.
    ///
    /// # Errors
    /// If it is no directory of ours with mode 0700, or cannot be opened or made.
    pub fn in_directory(path: &Path) -> io::Result<Self> {
        match mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let directory = open(path, flags, Mode::empty())?;
        if !is_private(&fstat(&directory)?, FileType::Directory, Mode::RWXU) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{} decides which programs may run: it has to belong to this user with mode 0700 (chmod 700)",
                    path.display()
                ),
            ));
        }
        Ok(Self { directory: Some(directory), ..Self::in_memory() })
    }

    /// What came out for this program before, or else what `judge` says now.
    ///
    /// # Errors
    /// As `judge`.
    pub fn check(
        &mut self,
        linked: &Linked,
        limits: &Limits,
        judge: impl FnOnce(&Linked) -> Outcome,
    ) -> Outcome {
        let key = key(linked, limits);
        if let Some(outcome) = self.find(&key) {
            return outcome.map_err(|refusal| refusal.placed_in(linked));
        }
        let outcome = judge(linked);
        if outcome.as_ref().map_or_else(Refusal::is_final, |_| true) {
            self.keep(key, outcome.clone());
        }
        outcome
    }

    /// Like [`Cache::check`], and gives the program the right to run.
    ///
    /// # Errors
    /// As `judge`.
    pub fn verify(
        &mut self,
        linked: Linked,
        limits: &Limits,
        judge: impl FnOnce(&Linked) -> Outcome,
    ) -> Result<(Verified, Report), Refusal> {
        let report = self.check(&linked, limits, judge)?;
        Ok((Verified::proven(linked), report))
    }

    fn find(&mut self, key: &Key) -> Option<Outcome> {
        if let Some(outcome) = self.entries.get(key) {
            return Some(outcome.clone());
        }
        let outcome = read(self.directory.as_ref()?, key)?;
        self.remember(*key, outcome.clone());
        Some(outcome)
    }

    fn keep(&mut self, key: Key, outcome: Outcome) {
        if let Some(directory) = &self.directory {
            self.written += 1;
            let entry = Entry { key, outcome: outcome.clone() };
            if let Err(e) = write(directory, &entry, self.written) {
                tracing::warn!(error = %e, "an outcome of verification was not kept");
            }
        }
        self.remember(key, outcome);
    }

    fn remember(&mut self, key: Key, outcome: Outcome) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.clear();
        }
        self.entries.insert(key, outcome);
    }
}

fn key(linked: &Linked, limits: &Limits) -> Key {
    let mut h = Sha256::new();
    h.update(b"p4shield verification, form 1\0");
    h.update(linked.digest());
    h.update(PROGRAM_ABI_VERSION.to_le_bytes());
    h.update((limits.instructions as u64).to_le_bytes());
    h.update((limits.expanded as u64).to_le_bytes());
    h.update(VERIFIER_VERSION);
    h.finalize().into()
}

fn name(key: &Key) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}

/// Whether it is ours and of this type and mode exactly.
fn is_private(s: &Stat, kind: FileType, mode: Mode) -> bool {
    s.st_uid == geteuid().as_raw()
        && FileType::from_raw_mode(s.st_mode) == kind
        && Mode::from_raw_mode(s.st_mode) == mode
}

/// Anything that is wrong with an entry makes it one that is not there.
fn read(directory: &OwnedFd, key: &Key) -> Option<Outcome> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(directory, name(key), flags, Mode::empty()).ok()?;
    if !is_private(&fstat(&file).ok()?, FileType::RegularFile, Mode::RUSR | Mode::WUSR) {
        tracing::warn!(entry = name(key), "an outcome of verification is not ours alone and is not used");
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(MAX_ENTRY_BYTES).read_to_end(&mut bytes).ok()?;
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if Sha256::digest(body)[..] != *sum {
        return None;
    }
    match postcard::take_from_bytes::<Entry>(body) {
        Ok((entry, [])) if entry.key == *key => Some(entry.outcome),
        _ => None,
    }
}

/// Written beside, then renamed: a reader finds all of it or nothing.
fn write(directory: &OwnedFd, entry: &Entry, number: u64) -> io::Result<()> {
    let mut bytes = postcard::to_stdvec(entry).map_err(io::Error::other)?;
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    let beside = format!(".{}.{number}.new", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(directory, &beside, flags, Mode::RUSR | Mode::WUSR) {
        // Left by a process of the same number that did not finish.
        Err(Errno::EXIST) => {
            unlinkat(directory, &beside, AtFlags::empty())?;
            openat(directory, &beside, flags, Mode::RUSR | Mode::WUSR)?
        }
        opened => opened?,
    };
    let mut file = std::fs::File::from(file);
    let finish = || -> io::Result<()> {
        file.write_all(&bytes)?;
        fsync(&file)?;
        renameat(directory, &beside, directory, name(&entry.key))?;
        Ok(())
    };
    let mut finish = finish;
    finish().inspect_err(|_| {
        let _ = unlinkat(directory, &beside, AtFlags::empty());
    })
}
