//! A cache of verification results: a proof takes milliseconds to seconds, and programs come back.
//!
//! The key of an entry covers everything that the result depends on: the program's digest, the
//! versions of verifier, context and helpers, and the limits. The cache also stores refusals, except
//! those for lack of resources.
//!
//! With a directory the cache outlasts the process. Its contents decide which programs may run, so the
//! directory and each entry have to belong to this user with private modes. Other entries, and
//! damaged ones, are ignored.

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

/// Maximum number of results in memory.
const MAX_ENTRIES: usize = 1024;
/// Maximum size of an entry file.
const MAX_ENTRY_BYTES: u64 = 64 << 10;

type Key = [u8; 32];
type VerifyResult = Result<Report, Refusal>;

/// A cache of verification results.
#[derive(Debug)]
pub struct Cache {
    entries: HashMap<Key, VerifyResult>,
    directory: Option<OwnedFd>,
    /// Number of files written; part of the names of temporary files.
    written: u64,
}

/// Contents of an entry file.
#[derive(Serialize, Deserialize)]
struct Entry {
    key: Key,
    result: VerifyResult,
}

impl Cache {
    /// Creates a cache in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { entries: HashMap::new(), directory: None, written: 0 }
    }

    /// Creates a cache that also stores its results in a directory, and creates the directory if necessary.
    ///
    /// # Errors
    /// If the directory cannot be opened or created, or is not private to this user with mode 0700.
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
                    "{}: the verifier's cache has to belong to this user with mode 0700 (chmod 700)",
                    path.display()
                ),
            ));
        }
        Ok(Self { directory: Some(directory), ..Self::in_memory() })
    }

    /// Returns the stored result for this program, or calls `verifier` and stores its result.
    ///
    /// # Errors
    /// As `verifier`.
    pub fn check(
        &mut self,
        linked: &Linked,
        limits: &Limits,
        verifier: impl FnOnce(&Linked) -> VerifyResult,
    ) -> VerifyResult {
        let key = key(linked, limits);
        if let Some(result) = self.find(&key) {
            return result.map_err(|refusal| refusal.located_in(linked));
        }
        let result = verifier(linked);
        if result.as_ref().map_or_else(Refusal::is_final, |_| true) {
            self.store(key, result.clone());
        }
        result
    }

    /// Like [`Cache::check`]; also marks the program as verified.
    ///
    /// # Errors
    /// As `verifier`.
    pub fn verify(
        &mut self,
        linked: Linked,
        limits: &Limits,
        verifier: impl FnOnce(&Linked) -> VerifyResult,
    ) -> Result<(Verified, Report), Refusal> {
        let report = self.check(&linked, limits, verifier)?;
        Ok((Verified::proven(linked), report))
    }

    fn find(&mut self, key: &Key) -> Option<VerifyResult> {
        if let Some(result) = self.entries.get(key) {
            return Some(result.clone());
        }
        let result = read(self.directory.as_ref()?, key)?;
        self.insert(*key, result.clone());
        Some(result)
    }

    fn store(&mut self, key: Key, result: VerifyResult) {
        if let Some(directory) = &self.directory {
            self.written += 1;
            let entry = Entry { key, result: result.clone() };
            if let Err(e) = write(directory, &entry, self.written) {
                tracing::warn!(
                    event = "verify_cache_failed",
                    error = %e,
                    "cannot store a verification result in the cache directory"
                );
            }
        }
        self.insert(key, result);
    }

    fn insert(&mut self, key: Key, result: VerifyResult) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries.clear();
        }
        self.entries.insert(key, result);
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

/// Returns whether a file belongs to this user and has exactly this type and mode.
fn is_private(s: &Stat, kind: FileType, mode: Mode) -> bool {
    s.st_uid == geteuid().as_raw()
        && FileType::from_raw_mode(s.st_mode) == kind
        && Mode::from_raw_mode(s.st_mode) == mode
}

/// Reads an entry. A damaged or foreign entry counts as missing.
fn read(directory: &OwnedFd, key: &Key) -> Option<VerifyResult> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(directory, name(key), flags, Mode::empty()).ok()?;
    if !is_private(&fstat(&file).ok()?, FileType::RegularFile, Mode::RUSR | Mode::WUSR) {
        tracing::warn!(
            event = "verify_cache_ignored",
            entry = name(key),
            "ignored a cached verification result: the file is not private"
        );
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(MAX_ENTRY_BYTES).read_to_end(&mut bytes).ok()?;
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if Sha256::digest(body)[..] != *sum {
        return None;
    }
    match postcard::take_from_bytes::<Entry>(body) {
        Ok((entry, [])) if entry.key == *key => Some(entry.result),
        _ => None,
    }
}

/// Writes a temporary file and renames it, so that a reader finds a complete entry or none.
fn write(directory: &OwnedFd, entry: &Entry, number: u64) -> io::Result<()> {
    let mut bytes = postcard::to_stdvec(entry).map_err(io::Error::other)?;
    let sum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&sum);
    let beside = format!(".{}.{number}.new", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(directory, &beside, flags, Mode::RUSR | Mode::WUSR) {
        // An unfinished process with the same number left the file.
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
