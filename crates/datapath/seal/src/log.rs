//! Execution log records: authenticated, and each naming the one before it.
//!
//! Totals in a record run since the epoch began, so a missed record costs resolution only. What the chain adds to
//! the counters is that two P4 VMs with one key and one epoch (a cloned or rolled back machine) are noticed: the
//! second one's records do not continue the first one's.

use p4shield_abi::log::{LOG_VERSION, LogRecord, RECORD_SIZE};
use p4shield_abi::page::TAG_SIZE;

use crate::derive::{Identity, Purpose};
use crate::epoch::Epoch;
use crate::key::TenantKey;
use crate::seal::{Envelope, Position, SealedRecord};

/// Bytes of a sealed record.
pub const SEALED_LOG_SIZE: usize = RECORD_SIZE + TAG_SIZE;

/// Seals records in the P4 VM.
pub struct LogSealer {
    envelope: Envelope,
    _epoch: Epoch,
    next: u64,
    previous_tag: [u8; TAG_SIZE],
    buffer: [u8; SEALED_LOG_SIZE],
}

impl LogSealer {
    /// A sealer of the log of `identity` that uses up `epoch`.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>, epoch: Epoch) -> Self {
        let envelope = Envelope::new(key, identity, Purpose::Log, LOG_VERSION, epoch.number());
        Self { envelope, _epoch: epoch, next: 0, previous_tag: [0; TAG_SIZE], buffer: [0; SEALED_LOG_SIZE] }
    }

    /// Seals one record; `previous_tag` is filled in here, whatever the caller's says. Allocates nothing.
    ///
    /// # Panics
    ///
    /// After 2^64 records.
    pub fn seal(&mut self, record: &LogRecord) -> SealedRecord<'_> {
        let counter = self.next;
        self.next = counter.checked_add(1).expect("fewer than 2^64 records");
        let record = LogRecord { previous_tag: self.previous_tag, ..*record };
        self.buffer[..RECORD_SIZE].copy_from_slice(&record.encode());
        self.envelope.seal(counter, &mut self.buffer);
        self.previous_tag = tag_of(&self.buffer);
        SealedRecord { epoch: self.envelope.epoch(), counter, bytes: &self.buffer }
    }
}

/// How an accepted record continues what was accepted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuity {
    /// The first record that this reader accepts.
    First,
    /// The one after the last.
    Next,
    /// Records in between were not seen; the totals cover them.
    Gap {
        /// How many.
        missed: u64,
    },
    /// The P4 VM started anew: the totals are from 0, and nothing says what it judged after its last record.
    Restart {
        /// Epoch before.
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
    /// How it continues.
    pub continuity: Continuity,
    /// What it says.
    pub record: LogRecord,
}

/// Why a publication is no continuation of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogRefusal {
    /// It is the record that was accepted last. Nothing is wrong.
    #[error("the record is the one already known")]
    Unchanged,
    /// It does not authenticate.
    #[error("the record is forged or damaged: it does not authenticate for this tenant, VM and position")]
    Forged,
    /// It is genuine and older than one that was seen before.
    #[error("the record is a replay: a newer one has been seen")]
    Replayed,
    /// It is genuine and does not follow from the one before it: two P4 VMs write with one key, or one was rolled
    /// back. Reading goes on from it.
    #[error("the record does not continue the chain: two P4 VMs write one log, or one was rolled back")]
    ChainBroken,
}

/// What a reader of a log saw.
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
    /// Records never seen, from the gaps in the counters.
    pub missed: u64,
}

/// Opens records in the user VM.
pub struct LogOpener {
    envelope: Envelope,
    last: Option<Position>,
    /// The bytes of the last genuine record.
    shown: [u8; SEALED_LOG_SIZE],
    totals: LogTotals,
    buffer: [u8; SEALED_LOG_SIZE],
}

impl LogOpener {
    /// An opener of the log of `identity`.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>) -> Self {
        Self {
            envelope: Envelope::new(key, identity, Purpose::Log, LOG_VERSION, 0),
            last: None,
            shown: [0; SEALED_LOG_SIZE],
            totals: LogTotals::default(),
            buffer: [0; SEALED_LOG_SIZE],
        }
    }

    /// Judges one publication, already copied to private memory. Allocates nothing.
    ///
    /// # Errors
    ///
    /// When it is no continuation of the log. All but [`LogRefusal::Unchanged`] are counted.
    pub fn open(&mut self, epoch: u64, counter: u64, bytes: &[u8]) -> Result<OpenedRecord, LogRefusal> {
        let opened = self.judge((epoch, counter), bytes);
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
            Err(LogRefusal::Unchanged) => {}
        }
        opened
    }

    fn judge(&mut self, position: Position, bytes: &[u8]) -> Result<OpenedRecord, LogRefusal> {
        if bytes.len() != SEALED_LOG_SIZE {
            return Err(LogRefusal::Forged);
        }
        if self.last == Some(position) && bytes == self.shown {
            return Err(LogRefusal::Unchanged);
        }
        self.buffer.copy_from_slice(bytes);
        if !self.envelope.open(position, &mut self.buffer) {
            return Err(LogRefusal::Forged);
        }
        let plain = self.buffer.first_chunk().expect("a sealed record is longer than a record");
        let record = LogRecord::decode(plain);
        let continuity = self.continuity(position, &record.previous_tag)?;
        self.last = Some(position);
        self.shown.copy_from_slice(bytes);
        let (epoch, counter) = position;
        continuity
            .map(|continuity| OpenedRecord { epoch, counter, continuity, record })
            .ok_or(LogRefusal::ChainBroken)
    }

    /// How a genuine record continues the log; `None` when the chain is broken and starts anew from it.
    fn continuity(
        &self,
        position: Position,
        previous: &[u8; TAG_SIZE],
    ) -> Result<Option<Continuity>, LogRefusal> {
        let (epoch, counter) = position;
        let starts_right = counter != 0 || *previous == [0; TAG_SIZE];
        let Some(last) = self.last else {
            return Ok(starts_right.then_some(Continuity::First));
        };
        if position == last {
            // Genuine, at the same place, with another tag: two writers.
            return Ok(None);
        }
        if position < last {
            return Err(LogRefusal::Replayed);
        }
        let (last_epoch, last_counter) = last;
        if epoch > last_epoch {
            let restart = Continuity::Restart { previous_epoch: last_epoch, missed: counter };
            return Ok(starts_right.then_some(restart));
        }
        match counter - last_counter {
            1 => Ok((*previous == tag_of(&self.shown)).then_some(Continuity::Next)),
            n => Ok(Some(Continuity::Gap { missed: n - 1 })),
        }
    }

    /// What was seen so far.
    #[must_use]
    pub const fn totals(&self) -> LogTotals {
        self.totals
    }
}

/// The tag that ends a sealed record.
fn tag_of(sealed: &[u8]) -> [u8; TAG_SIZE] {
    sealed.last_chunk().copied().unwrap_or([0; TAG_SIZE])
}
