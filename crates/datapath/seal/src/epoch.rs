//! Epochs: numbers of a writer's starts that never come twice.
//!
//! A nonce counter starts from 0 with every process, so every process needs a key of its own. Its key is derived
//! from its epoch; hence an epoch that came twice would break AES-GCM. An epoch is therefore on stable storage
//! *before* the first record is sealed under it, is higher than the one stored before, and at least the current
//! real time in nanoseconds, so that it still grows when the stored one is lost. Its lowest 20 bits are random: a
//! machine restored from an image, clock and all, most likely still takes another number.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::clock::Now;
use crate::key::parent;

/// The low bits that are random: about a millisecond of real time, less than any restart takes.
const RANDOM_BITS: u32 = 20;
/// The most that random bits add.
pub(crate) const RANDOM: u64 = (1 << RANDOM_BITS) - 1;

/// Above it random bits would be cut, so that two starts could take the same number.
const HIGHEST_FLOOR: u64 = u64::MAX - RANDOM;

/// Longest state file that is read: one line.
const STATE_LIMIT: u64 = 128;

/// One start of a writer. It cannot be copied: whoever seals with it uses it up.
///
/// While one from [`Epoch::next_in`] lives, its state file is locked against a second writer.
#[derive(Debug)]
pub struct Epoch {
    number: u64,
    _lock: Option<OwnedFd>,
}

/// Why there is no epoch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// Another process holds it.
    #[error("epoch file {} is in use by another process; two writers would invalidate each other's records: stop the other one, or name another file", .0.display())]
    InUse(PathBuf),
    /// The system refused.
    #[error("cannot {doing} epoch file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The stored number is the last that there is.
    #[error("epoch file {} holds the highest number that there is; make a new tenant key and remove the file", .0.display())]
    Exhausted(PathBuf),
    /// What whoever starts a writer says is the lowest number to take.
    #[error(
        "epochs from {0} on are too few: whoever starts this writer keeps a damaged or forged epoch file; remove it"
    )]
    FloorTooHigh(u64),
    /// The system has no randomness to give.
    #[error("the system gave no random bytes for an epoch: {0}")]
    Random(getrandom::Error),
}

impl Epoch {
    /// The next epoch of the writer whose state is in file `path`, stored before this returns. `path` with
    /// `.lock` and `.new` appended are used too; the directory must exist.
    ///
    /// A missing or damaged file counts as lost: the clock alone decides then.
    ///
    /// # Errors
    ///
    /// When another process holds the file, the system refuses to store it, or no number is left.
    pub fn next_in(path: &Path) -> Result<Self, EpochError> {
        let lock = lock(path)?;
        let last = load(path)?;
        let number = after(last, Now::read().real_ns, random()?)
            .ok_or_else(|| EpochError::Exhausted(path.to_owned()))?;
        store(path, number)?;
        Ok(Self { number, _lock: Some(lock) })
    }

    /// An epoch from the clock alone, for a writer that has no storage and nobody who keeps a [`Floor`] for it. It
    /// grows as long as the clock does between starts.
    ///
    /// # Errors
    ///
    /// When the system gives no randomness.
    ///
    /// [`Floor`]: crate::Floor
    pub fn from_clock() -> Result<Self, EpochError> {
        Self::from_floor(0)
    }

    /// An epoch for a writer that has no storage (a P4 VM in an empty root): not below `floor`, which somebody with
    /// storage keeps for it ([`Floor`]), nor below the clock. A floor that lies changes little: one that is too low
    /// leaves the clock, one that is so high that random bits have no room is refused, and any other leaves them random.
    ///
    /// # Errors
    ///
    /// When the system gives no randomness, or the floor leaves no room.
    ///
    /// [`Floor`]: crate::Floor
    pub fn from_floor(floor: u64) -> Result<Self, EpochError> {
        if floor > HIGHEST_FLOOR {
            return Err(EpochError::FloorTooHigh(floor));
        }
        let from = floor.max(Now::read().real_ns.min(HIGHEST_FLOOR));
        Ok(Self { number: from + (random()? & RANDOM), _lock: None })
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }
}

/// The epoch after `last`: above it, not below the clock, and with random low bits.
fn after(last: Option<u64>, real_ns: u64, random: u64) -> Option<u64> {
    let floor = match last {
        Some(last) => last.checked_add(1)?.max(real_ns),
        None => real_ns,
    };
    Some(floor.saturating_add(random & RANDOM))
}

fn random() -> Result<u64, EpochError> {
    getrandom::u64().map_err(EpochError::Random)
}

pub(crate) fn lock(path: &Path) -> Result<OwnedFd, EpochError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(with(path, ".lock"), flags, Mode::from_raw_mode(0o600))
        .map_err(|e| io(path, "lock", e))?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(fd),
        Err(Errno::WOULDBLOCK) => Err(EpochError::InUse(path.to_owned())),
        Err(e) => Err(io(path, "lock", e)),
    }
}

pub(crate) fn load(path: &Path) -> Result<Option<u64>, EpochError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(io(path, "open", e)),
    };
    let mut text = Vec::new();
    File::from(fd)
        .take(STATE_LIMIT)
        .read_to_end(&mut text)
        .map_err(|e| io(path, "read", Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
    Ok(std::str::from_utf8(&text).ok().and_then(parse))
}

pub(crate) fn store(path: &Path, number: u64) -> Result<(), EpochError> {
    let new = with(path, ".new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&new, flags, Mode::from_raw_mode(0o600)).map_err(|e| io(path, "write", e))?;
    let mut file = File::from(fd);
    // The order matters: contents on disk, then the name, then the directory that holds the name.
    file.write_all(line(number).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, path))
        .and_then(|()| File::open(parent(path)).and_then(|d| d.sync_all()))
        .map_err(|source| EpochError::Io { path: path.to_owned(), doing: "store", source })
}

/// One line: a word, the number, and a check sum that a torn or foreign file does not pass.
fn line(number: u64) -> String {
    let sum = Sha256::digest(format!("p4shield epoch {number}"));
    let check: String = sum.iter().take(8).map(|b| format!("{b:02x}")).collect();
    format!("epoch {number} {check}\n")
}

fn parse(text: &str) -> Option<u64> {
    let number = text.strip_prefix("epoch ")?.split(' ').next()?.parse().ok()?;
    (line(number) == text).then_some(number)
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut p = path.as_os_str().to_owned();
    p.push(suffix);
    p.into()
}

fn io(path: &Path, doing: &'static str, source: Errno) -> EpochError {
    EpochError::Io { path: path.to_owned(), doing, source: source.into() }
}
