//! Execution log records: authenticated, and chained by the tag of the previous record.
//!
//! Totals in a record count from the start of the epoch, so a missed record costs only resolution. In
//! addition to the counters, the chain reveals two P4 VMs with one key and one epoch (a cloned or
//! rolled back machine): the second one's records do not continue the first one's.

use p4shield_abi::log_page::{LOG_VERSION, LogRecord, RECORD_SIZE};
use p4shield_abi::page::{SALT_SIZE, TAG_SIZE};

use crate::derive::{Identity, Purpose};
use crate::epoch::Epoch;
use crate::key::{KeyId, TenantKey};
use crate::record_cipher::{Position, RecordCipher, SealedRecord};
use crate::rotation::LogKey;

/// Bytes of a sealed record.
pub const SEALED_LOG_SIZE: usize = SALT_SIZE + RECORD_SIZE + TAG_SIZE;

/// Seals records in the P4 VM.
pub struct LogSealer {
    cipher: RecordCipher,
    _epoch: Epoch,
    next: u64,
    previous_tag: [u8; TAG_SIZE],
    buffer: [u8; SEALED_LOG_SIZE],
}

impl LogSealer {
    /// A sealer of the log of `identity`. Consumes `epoch`.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>, epoch: Epoch) -> Self {
        let cipher = RecordCipher::new(key, identity, Purpose::Log, LOG_VERSION, epoch.start());
        Self { cipher, _epoch: epoch, next: 0, previous_tag: [0; TAG_SIZE], buffer: [0; SEALED_LOG_SIZE] }
    }

    /// Seals one record; replaces the caller's `previous_tag`. Allocates nothing.
    ///
    /// # Panics
    ///
    /// After 2^64 records.
    pub fn seal(&mut self, record: &LogRecord) -> SealedRecord<'_> {
        let counter = self.next;
        self.next = counter.checked_add(1).expect("fewer than 2^64 records");
        let record = LogRecord { previous_tag: self.previous_tag, ..*record };
        self.buffer[SALT_SIZE..][..RECORD_SIZE].copy_from_slice(&record.encode());
        self.cipher.seal(counter, &mut self.buffer);
        self.previous_tag = tag_of(&self.buffer);
        SealedRecord { epoch: self.cipher.epoch(), counter, bytes: &self.buffer }
    }

    /// Seals with another key from now on. Epoch, counter and chain continue: the next record names the tag
    /// of the last one under the old key. Leaves the old key in `key`, wiped, for another thread to free.
    pub fn rotate(&mut self, key: &mut LogKey) {
        key.cipher.set_start(self.cipher.start());
        std::mem::swap(&mut self.cipher, &mut key.cipher);
        key.wipe();
    }
}

/// How an accepted record continues the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// The first record that this reader accepts.
    First,
    /// The record after the previous one.
    Next,
    /// Records in between were not seen; the totals include them.
    Gap {
        /// Number of these records.
        missed: u64,
    },
    /// The P4 VM restarted: the totals count from 0, and packets judged after its last record are unknown.
    Restart {
        /// Previous epoch.
        previous_epoch: u64,
        /// Records of the new epoch that were not seen.
        missed: u64,
    },
}

/// A record that authenticates and continues the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedRecord {
    /// Epoch of the P4 VM.
    pub epoch: u64,
    /// Position in the epoch.
    pub counter: u64,
    /// How it continues the log.
    pub continuity: Continuity,
    /// Whether it is under another key than the record before.
    pub is_rekeyed: bool,
    /// Its contents.
    pub record: LogRecord,
}

/// Reason why a publication does not continue the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogRefusal {
    /// It is the record that was accepted last. This is no error.
    #[error("the record is the one already known")]
    Unchanged,
    /// It does not authenticate.
    #[error("the record is forged or damaged: it does not authenticate for this tenant, VM and position")]
    Forged,
    /// It is genuine and older than one that was seen before.
    #[error("the record is a replay: a newer one has been seen")]
    Replayed,
    /// It is genuine, but under the key before the last rotation, which ended.
    #[error(
        "the record is sealed with the previous key, which ended: the P4 VM did not follow the rotation, or \
             another writer has the old key"
    )]
    OldKey,
    /// It is genuine but does not follow from the previous record: two P4 VMs write with one key, or
    /// one was rolled back. The chain restarts from it.
    #[error("the record does not continue the chain: two P4 VMs write one log, or one was rolled back")]
    ChainBroken,
}

/// Totals of a reader of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTotals {
    /// Records accepted.
    pub accepted: u64,
    /// Publications that did not authenticate.
    pub forged: u64,
    /// Genuine records that were older than one already accepted.
    pub replayed: u64,
    /// Genuine records that did not continue the chain.
    pub chain_broken: u64,
    /// Genuine records under a key that had ended.
    pub old_key: u64,
    /// Records that were never seen, from gaps in the counters.
    pub missed: u64,
}

/// The state of a rotation.
enum Rotation {
    /// Both keys are accepted until the first record under this key, or until the steady clock reads this.
    Awaited(LogKey, u64),
    /// The old key, kept until the steady clock reads this, to recognise records that it must not seal.
    Done(LogKey, u64),
}

/// Opens records in the user VM.
///
/// After a rotation the log continues under the old key until its first record under the new one; from then
/// on, and after the window, a record under the old key is refused as [`LogRefusal::OldKey`].
pub struct LogOpener {
    cipher: RecordCipher,
    id: KeyId,
    /// The key of the record that was accepted last.
    last_key: Option<KeyId>,
    rotation: Option<Rotation>,
    /// Time for which an old key is recognised after its end.
    recognised_ns: u64,
    last: Option<Position>,
    /// The bytes of the last genuine record.
    last_bytes: [u8; SEALED_LOG_SIZE],
    totals: LogTotals,
    buffer: [u8; SEALED_LOG_SIZE],
}

impl LogOpener {
    /// An opener of the log of `identity`.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>) -> Self {
        Self {
            cipher: RecordCipher::reader(key, identity, Purpose::Log, LOG_VERSION),
            id: key.id(),
            last_key: None,
            rotation: None,
            recognised_ns: 0,
            last: None,
            last_bytes: [0; SEALED_LOG_SIZE],
            totals: LogTotals::default(),
            buffer: [0; SEALED_LOG_SIZE],
        }
    }

    /// Accepts `new` from now on, and the present key until the first record under the new one, but until the
    /// steady clock reads `until_ns` at most. After that, records under the old key are recognised for
    /// `recognised_ns`.
    pub fn rotate(&mut self, new: LogKey, until_ns: u64, recognised_ns: u64) {
        self.rotation = Some(Rotation::Awaited(new, until_ns));
        self.recognised_ns = recognised_ns;
    }

    /// Ends what is over by the steady clock.
    pub fn expire(&mut self, mono_ns: u64) {
        match &self.rotation {
            Some(Rotation::Awaited(_, until)) if mono_ns >= *until => self.finish(mono_ns),
            Some(Rotation::Done(_, until)) if mono_ns >= *until => self.rotation = None,
            _ => {}
        }
    }

    /// Returns whether the log still has to follow a rotation.
    #[must_use]
    pub const fn awaits_rotation(&self) -> bool {
        matches!(self.rotation, Some(Rotation::Awaited(..)))
    }

    /// Returns the number of the key that the log has.
    #[must_use]
    pub const fn key_id(&self) -> KeyId {
        self.id
    }

    /// Makes the new key the only one.
    fn finish(&mut self, mono_ns: u64) {
        if let Some(Rotation::Awaited(mut key, _)) = self.rotation.take() {
            std::mem::swap(&mut self.cipher, &mut key.cipher);
            std::mem::swap(&mut self.id, &mut key.id);
            self.rotation = Some(Rotation::Done(key, mono_ns.saturating_add(self.recognised_ns)));
        }
    }

    /// Checks and opens one publication, which was copied to private memory, when the steady clock reads
    /// `mono_ns`. Allocates nothing.
    ///
    /// # Errors
    ///
    /// If it does not continue the log. All refusals but [`LogRefusal::Unchanged`] are counted.
    pub fn open_at(
        &mut self,
        mono_ns: u64,
        epoch: u64,
        counter: u64,
        bytes: &[u8],
    ) -> Result<OpenedRecord, LogRefusal> {
        self.expire(mono_ns);
        let opened = self.check(mono_ns, (epoch, counter), bytes);
        match &opened {
            Ok(o) => {
                self.totals.accepted += 1;
                if let Continuity::Gap { missed } | Continuity::Restart { missed, .. } = o.continuity {
                    self.totals.missed = self.totals.missed.saturating_add(missed);
                }
            }
            Err(LogRefusal::Forged) => self.totals.forged += 1,
            Err(LogRefusal::Replayed) => self.totals.replayed += 1,
            Err(LogRefusal::ChainBroken) => self.totals.chain_broken += 1,
            Err(LogRefusal::OldKey) => self.totals.old_key += 1,
            Err(LogRefusal::Unchanged) => {}
        }
        opened
    }

    /// [`Self::open_at`] for a log whose key does not rotate.
    ///
    /// # Errors
    ///
    /// As [`Self::open_at`].
    pub fn open(&mut self, epoch: u64, counter: u64, bytes: &[u8]) -> Result<OpenedRecord, LogRefusal> {
        self.open_at(0, epoch, counter, bytes)
    }

    /// Decrypts `buffer` with the key of the log, or with the one that follows it. Returns whether it was the
    /// latter.
    fn decrypt(&mut self, position: Position) -> Result<bool, LogRefusal> {
        if self.cipher.open(position, &mut self.buffer) {
            return Ok(false);
        }
        let (is_next_key, other) = match &mut self.rotation {
            Some(Rotation::Awaited(new, _)) => (Ok(true), new),
            Some(Rotation::Done(old, _)) => (Err(LogRefusal::OldKey), old),
            None => return Err(LogRefusal::Forged),
        };
        if other.cipher.open(position, &mut self.buffer) { is_next_key } else { Err(LogRefusal::Forged) }
    }

    fn check(&mut self, mono_ns: u64, position: Position, bytes: &[u8]) -> Result<OpenedRecord, LogRefusal> {
        if bytes.len() != SEALED_LOG_SIZE {
            return Err(LogRefusal::Forged);
        }
        if self.last == Some(position) && bytes == self.last_bytes {
            return Err(LogRefusal::Unchanged);
        }
        self.buffer.copy_from_slice(bytes);
        let is_next_key = self.decrypt(position)?;
        let plain = self.buffer[SALT_SIZE..].first_chunk().expect("a sealed record is longer than a record");
        let record = LogRecord::decode(plain);
        let continuity = self.continuity(position, &record.previous_tag)?;
        if is_next_key {
            self.finish(mono_ns);
        }
        let is_rekeyed = self.last_key.replace(self.id).is_some_and(|last| last != self.id);
        self.last = Some(position);
        self.last_bytes.copy_from_slice(bytes);
        let (epoch, counter) = position;
        continuity
            .map(|continuity| OpenedRecord { epoch, counter, continuity, is_rekeyed, record })
            .ok_or(LogRefusal::ChainBroken)
    }

    /// Returns how a genuine record continues the log; `None` if the chain is broken and restarts from it.
    fn continuity(
        &self,
        position: Position,
        previous: &[u8; TAG_SIZE],
    ) -> Result<Option<Continuity>, LogRefusal> {
        let (epoch, counter) = position;
        let starts_chain = counter != 0 || *previous == [0; TAG_SIZE];
        let Some(last) = self.last else {
            return Ok(starts_chain.then_some(Continuity::First));
        };
        if position == last {
            // Genuine, at the same position, with another tag: two writers.
            return Ok(None);
        }
        if position < last {
            return Err(LogRefusal::Replayed);
        }
        let (last_epoch, last_counter) = last;
        if epoch > last_epoch {
            let restart = Continuity::Restart { previous_epoch: last_epoch, missed: counter };
            return Ok(starts_chain.then_some(restart));
        }
        match counter - last_counter {
            1 => Ok((*previous == tag_of(&self.last_bytes)).then_some(Continuity::Next)),
            n => Ok(Some(Continuity::Gap { missed: n - 1 })),
        }
    }

    /// Returns the totals so far.
    #[must_use]
    pub const fn totals(&self) -> LogTotals {
        self.totals
    }
}

/// Returns the tag at the end of a sealed record.
fn tag_of(sealed: &[u8]) -> [u8; TAG_SIZE] {
    sealed.last_chunk().copied().unwrap_or([0; TAG_SIZE])
}
