//! Epochs: numbers of a writer's starts, which never repeat.
//!
//! A nonce counter starts from 0 in every process, so every process needs a key of its own. The key
//! is derived from the epoch; hence a repeated epoch would break AES-GCM. An epoch is therefore on
//! stable storage *before* the first record is sealed with it. It is higher than the stored one, and
//! at least the current real time in nanoseconds, so that it still grows if the stored one is lost.
//! Its lowest 20 bits are random: a machine restored from an image, including its clock, most likely
//! takes another number. The key is derived from 64 random bits, too, which precede each record: even where
//! a number repeats, because a clock is frozen or a state file restored, no nonce does.
//!
//! With a session of a handshake none of this is needed: its key is new, and its epoch agreed upon.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use p4shield_abi::page::SALT_SIZE;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::clock::Now;
use crate::derive::Salt;
use crate::key::parent;
use crate::record_cipher::WriterStart;

/// Number of low bits that are random: about a millisecond of real time, less than any restart takes.
const RANDOM_BITS: u32 = 20;
/// Largest value of the random bits.
pub(crate) const RANDOM: u64 = (1 << RANDOM_BITS) - 1;

/// Above it the random bits would not fit, so that two starts could take the same number.
const HIGHEST_FLOOR: u64 = u64::MAX - RANDOM;

/// Most nanoseconds that a floor may be ahead of the clock: 417 days. Honest floors are ahead after a clock
/// was set back, and by a minute for each start of a P4 VM that fails again and again. A higher floor would
/// let a host take the numbers away that later epochs need.
pub const MAX_FLOOR_LEAD_NS: u64 = 1 << 55;

/// Nanoseconds of a day.
const DAY_NS: u64 = 86_400_000_000_000;

/// Longest state file: one line.
const STATE_LIMIT: u64 = 128;

/// One start of a writer. It cannot be copied, and a sealer consumes it.
///
/// While an epoch from [`Epoch::next_in`] lives, its state file is locked against a second writer.
#[derive(Debug)]
pub struct Epoch {
    number: u64,
    salt: Salt,
    _lock: Option<OwnedFd>,
}

/// No epoch can be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// Another process has locked the file.
    #[error(
        "epoch file {} is in use by another process; two writers would invalidate each other's records: \
         stop the other one, or name another file",
        .0.display()
    )]
    InUse(PathBuf),
    /// A system call failed.
    #[error("cannot {doing} epoch file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The stored number is the highest.
    #[error(
        "epoch file {} contains the highest number; create a new tenant key and remove the file",
        .0.display()
    )]
    Exhausted(PathBuf),
    /// The floor is too far ahead of the clock.
    #[error(
        "the epoch floor {floor} is {} days ahead of this P4 VM's clock, more than the {} that are accepted: \
         set the host's clock; if it is right, the tenant's epoch file in the daemon's state folder is \
         damaged or forged: remove it",
        floor.saturating_sub(*clock) / DAY_NS, MAX_FLOOR_LEAD_NS / DAY_NS
    )]
    FloorTooHigh {
        /// The floor.
        floor: u64,
        /// What the clock reads, in nanoseconds.
        clock: u64,
    },
    /// This process has taken the highest number.
    #[error("this P4 VM has used all epochs: set the host's clock and restart the P4 VM")]
    Spent,
    /// The system returned no random bytes.
    #[error("the system returned no random bytes for an epoch: {0}")]
    Random(getrandom::Error),
}

impl Epoch {
    /// Takes the next epoch of the writer whose state is in file `path`, and stores it before
    /// returning. `path` with `.lock` and `.new` appended are used, too; the directory has to exist.
    ///
    /// A missing or damaged file counts as lost: then the clock alone decides.
    ///
    /// # Errors
    ///
    /// If another process has locked the file, it cannot be stored, or no number is left.
    pub fn next_in(path: &Path) -> Result<Self, EpochError> {
        let lock = lock(path)?;
        let last = load(path)?;
        let number = after(last, Now::read().real_ns, random()?)
            .ok_or_else(|| EpochError::Exhausted(path.to_owned()))?;
        store(path, number)?;
        Ok(Self { number, salt: random()?.to_le_bytes(), _lock: Some(lock) })
    }

    /// Takes an epoch from the clock alone, for a writer without storage and without an
    /// [`EpochFloor`]. It grows as long as the clock does between starts.
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes.
    ///
    /// [`EpochFloor`]: crate::EpochFloor
    pub fn from_clock() -> Result<Self, EpochError> {
        Self::from_floor(0)
    }

    /// Takes the only epoch of a process without storage, as [`EpochSequence::next`].
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes, or the floor is too far ahead of the clock.
    pub fn from_floor(floor: u64) -> Result<Self, EpochError> {
        EpochSequence::default().next(floor)
    }

    /// Takes the epoch of a session, for a writer that begins with it: after its start, or its peer's.
    /// Neither storage nor clock nor host has a part in it: the session's key is new, and both ends agreed
    /// on a number above every epoch that either of them has seen.
    ///
    /// Take it once for each session: the sealer consumes it. A writer that goes on when a session is
    /// renewed keeps its epoch and rotates the key.
    #[must_use]
    pub const fn from_session(number: u64) -> Self {
        Self { number, salt: [0; SALT_SIZE], _lock: None }
    }

    /// Returns its number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns what a writer's key is derived for.
    pub(crate) const fn start(&self) -> WriterStart {
        (self.number, self.salt)
    }
}

/// Epochs of a process without storage (a P4 VM in an empty root), which begins several logs: each epoch is
/// above all earlier ones of the process, whatever host and clock say in between.
#[derive(Debug, Default)]
pub struct EpochSequence {
    /// The highest epoch that was taken.
    last: Option<u64>,
}

impl EpochSequence {
    /// Takes an epoch: above the earlier ones, not below `floor`, which the host daemon keeps
    /// ([`EpochFloor`]), nor below the clock. A false floor changes little: if it is too low, the clock
    /// decides; if it is more than [`MAX_FLOOR_LEAD_NS`] ahead of the clock, it is refused; any other leaves
    /// the random bits, and the memory of this process.
    ///
    /// # Errors
    ///
    /// If the system returns no random bytes, the floor is too far ahead of the clock, or no number is left.
    ///
    /// [`EpochFloor`]: crate::EpochFloor
    pub fn next(&mut self, floor: u64) -> Result<Epoch, EpochError> {
        self.next_at(Now::read().real_ns, floor)
    }

    fn next_at(&mut self, clock: u64, floor: u64) -> Result<Epoch, EpochError> {
        if floor > clock.saturating_add(MAX_FLOOR_LEAD_NS) {
            return Err(EpochError::FloorTooHigh { floor, clock });
        }
        let after_last = self.last.map_or(0, |last| last.saturating_add(1));
        let from = floor.max(clock).max(after_last);
        if from > HIGHEST_FLOOR {
            return Err(EpochError::Spent);
        }
        let number = from + (random()? & RANDOM);
        self.last = Some(number);
        Ok(Epoch { number, salt: random()?.to_le_bytes(), _lock: None })
    }
}

/// Returns the epoch after `last`: above it, not below the clock, and with random low bits.
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
    // In this order: contents on disk, then the name, then the directory that contains the name.
    file.write_all(line(number).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, path))
        .and_then(|()| File::open(parent(path)).and_then(|d| d.sync_all()))
        .map_err(|source| EpochError::Io { path: path.to_owned(), doing: "store", source })
}

/// Encodes the state file: one line with a word, the number, and a checksum that detects torn and
/// foreign files.
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

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: u64 = 20_000 * DAY_NS;

    #[test]
    fn a_process_repeats_no_epoch_under_any_clock_or_floor() {
        let mut epochs = EpochSequence::default();
        let mut last = 0;
        let clocks = [CLOCK, CLOCK, CLOCK - DAY_NS, 0, CLOCK];
        for (n, clock) in clocks.into_iter().cycle().take(5_000).enumerate() {
            let floor = if n % 3 == 0 { clock + MAX_FLOOR_LEAD_NS } else { 0 };
            let epoch = epochs.next_at(clock, floor).unwrap().number();
            assert!(epoch > last, "round {n}: {epoch} after {last}");
            last = epoch;
        }
    }

    #[test]
    fn a_floor_far_above_the_clock_is_refused_with_a_remedy() {
        let mut epochs = EpochSequence::default();
        let first = epochs.next_at(CLOCK, CLOCK + MAX_FLOOR_LEAD_NS).unwrap().number();
        for floor in [CLOCK + MAX_FLOOR_LEAD_NS + 1, u64::MAX] {
            let error = epochs.next_at(CLOCK, floor).unwrap_err().to_string();
            assert!(error.contains("days ahead") && error.contains("set the host's clock"), "{error}");
        }
        let next = epochs.next_at(CLOCK, 0).unwrap().number();
        assert!((first + 1..=first + 1 + RANDOM).contains(&next), "a refusal takes no number");
    }

    #[test]
    fn epochs_end_rather_than_repeat() {
        for last in [HIGHEST_FLOOR, u64::MAX] {
            let mut epochs = EpochSequence { last: Some(last) };
            assert!(matches!(epochs.next_at(CLOCK, 0), Err(EpochError::Spent)), "{last}");
        }
    }
}
