//! Sealed snapshots of in-VM information, and the rules by which a P4 VM believes one.

use std::time::Duration;

use p4shield_abi::info::{InfoStatus, LAYOUT_VERSION, SNAPSHOT_SIZE, Snapshot};
use p4shield_abi::log::InfoTotals;
use p4shield_abi::page::TAG_SIZE;

use crate::clock::Now;
use crate::derive::{Identity, Purpose};
use crate::epoch::Epoch;
use crate::key::TenantKey;
use crate::seal::{Envelope, Position, SealedRecord};

/// Bytes of a sealed snapshot.
pub const SEALED_INFO_SIZE: usize = SNAPSHOT_SIZE + TAG_SIZE;

/// Seals snapshots in the user VM.
pub struct InfoSealer {
    envelope: Envelope,
    _epoch: Epoch,
    next: u64,
    buffer: [u8; SEALED_INFO_SIZE],
}

impl InfoSealer {
    /// A sealer of `identity`'s snapshots that uses up `epoch`.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>, epoch: Epoch) -> Self {
        let envelope = Envelope::new(key, identity, Purpose::Info, LAYOUT_VERSION, epoch.number());
        Self { envelope, _epoch: epoch, next: 0, buffer: [0; SEALED_INFO_SIZE] }
    }

    /// Seals one snapshot. Allocates nothing.
    ///
    /// # Panics
    ///
    /// After 2^64 snapshots.
    pub fn seal(&mut self, snapshot: &Snapshot) -> SealedRecord<'_> {
        let counter = self.next;
        self.next = counter.checked_add(1).expect("fewer than 2^64 snapshots");
        self.buffer[..SNAPSHOT_SIZE].copy_from_slice(&snapshot.encode());
        self.envelope.seal(counter, &mut self.buffer);
        SealedRecord { epoch: self.envelope.epoch(), counter, bytes: &self.buffer }
    }
}

/// How old a snapshot may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeLimit {
    /// Longest time since a snapshot was accepted, by the reader's steady clock, and since it was taken, by the
    /// real-time clocks of both.
    pub max_age: Duration,
    /// How far the two real-time clocks may be apart. A cloud that delays the stream gains at most this much; a
    /// snapshot from further in the future is refused, since it would stay young for too long.
    pub skew: Duration,
}

impl Default for AgeLimit {
    /// 500 ms, which is fifty publications at the default interval and thus survives a busy user VM, and as much
    /// clock skew, which any synchronised pair of clocks keeps by two orders of magnitude.
    fn default() -> Self {
        Self { max_age: Duration::from_millis(500), skew: Duration::from_millis(500) }
    }
}

/// Why a publication gave no new information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InfoRefusal {
    /// It is the snapshot that was accepted last. Nothing is wrong.
    #[error("the snapshot is the one already known")]
    Unchanged,
    /// It does not authenticate.
    #[error("the snapshot is forged or damaged: it does not authenticate for this tenant, VM and position")]
    Forged,
    /// It is genuine and older than one that was seen before.
    #[error("the snapshot is a replay: a newer one has been seen")]
    Replayed,
    /// It is genuine and new here, and was taken too long ago: somebody held it back, or a clock is wrong.
    #[error("the snapshot was taken {} ms ago, which is beyond the age limit: the page is delayed, or a clock is wrong", .age.as_millis())]
    Stale {
        /// Time since it was taken, by the two real-time clocks.
        age: Duration,
    },
    /// It is genuine and was taken further in the future than the clocks may be apart.
    #[error("the snapshot was taken {} ms in the future, beyond the allowed clock skew: set the clocks", .ahead.as_millis())]
    Future {
        /// How far ahead it is.
        ahead: Duration,
    },
}

/// A publication that was judged.
struct Judged {
    position: Position,
    len: usize,
    refusal: InfoRefusal,
}

/// Opens snapshots in the P4 VM: once per publication, never per packet.
pub struct InfoOpener {
    envelope: Envelope,
    limit: AgeLimit,
    /// Highest position that authenticated.
    highest: Option<Position>,
    /// Values that may be used, with the reading of the steady clock at which they were accepted.
    accepted: Option<u64>,
    snapshot: Snapshot,
    /// The publication judged last, so that a page that keeps showing it costs nothing.
    judged: Option<Judged>,
    /// Its bytes. All of them: a tag alone would let a damaged copy, shown first, shut out the genuine one.
    shown: [u8; SEALED_INFO_SIZE],
    totals: InfoTotals,
    buffer: [u8; SEALED_INFO_SIZE],
}

impl InfoOpener {
    /// An opener of `identity`'s snapshots.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>, limit: AgeLimit) -> Self {
        Self {
            envelope: Envelope::new(key, identity, Purpose::Info, LAYOUT_VERSION, 0),
            limit,
            highest: None,
            accepted: None,
            snapshot: Snapshot::default(),
            judged: None,
            shown: [0; SEALED_INFO_SIZE],
            totals: InfoTotals::default(),
            buffer: [0; SEALED_INFO_SIZE],
        }
    }

    /// Judges one publication, already copied to private memory. Allocates nothing. A publication that was judged
    /// just before is neither opened nor counted again.
    ///
    /// # Errors
    ///
    /// Whatever it says, values accepted before stay in force until [`Self::status`] finds them too old.
    pub fn open(
        &mut self,
        epoch: u64,
        counter: u64,
        bytes: &[u8],
        now: Now,
    ) -> Result<&Snapshot, InfoRefusal> {
        let position = (epoch, counter);
        if let Some(before) = &self.judged
            && (before.position, before.len) == (position, bytes.len())
            // What has a wrong length is a forgery whatever its bytes.
            && (bytes.len() != SEALED_INFO_SIZE || bytes == self.shown)
        {
            return Err(before.refusal);
        }
        let judged = self.judge(position, bytes, now);
        let refusal = judged.err().unwrap_or(InfoRefusal::Unchanged);
        self.judged = Some(Judged { position, len: bytes.len(), refusal });
        match judged {
            Ok(()) => self.totals.accepted += 1,
            Err(InfoRefusal::Forged) => self.totals.forged += 1,
            Err(InfoRefusal::Replayed) => self.totals.replayed += 1,
            Err(InfoRefusal::Stale { .. } | InfoRefusal::Future { .. }) => self.totals.stale += 1,
            Err(InfoRefusal::Unchanged) => {}
        }
        judged.map(|()| &self.snapshot)
    }

    fn judge(&mut self, position: Position, bytes: &[u8], now: Now) -> Result<(), InfoRefusal> {
        if bytes.len() != SEALED_INFO_SIZE {
            return Err(InfoRefusal::Forged);
        }
        self.shown.copy_from_slice(bytes);
        self.buffer.copy_from_slice(bytes);
        if !self.envelope.open(position, &mut self.buffer) {
            return Err(InfoRefusal::Forged);
        }
        if self.highest.is_some_and(|h| position <= h) {
            return Err(InfoRefusal::Replayed);
        }
        self.highest = Some(position);
        let plain = self.buffer.first_chunk().expect("a sealed snapshot is longer than a snapshot");
        let snapshot = Snapshot::decode(plain);
        self.age_of(snapshot.taken_ns, now)?;
        self.snapshot = snapshot;
        self.accepted = Some(now.mono_ns);
        Ok(())
    }

    fn age_of(&self, taken_ns: u64, now: Now) -> Result<(), InfoRefusal> {
        let ahead = Duration::from_nanos(taken_ns.saturating_sub(now.real_ns));
        if ahead > self.limit.skew {
            return Err(InfoRefusal::Future { ahead });
        }
        let age = Duration::from_nanos(now.real_ns.saturating_sub(taken_ns));
        if age > self.limit.max_age.saturating_add(self.limit.skew) {
            return Err(InfoRefusal::Stale { age });
        }
        Ok(())
    }

    /// Whether the values can be believed now. When they turn too old they are forgotten, once and for good.
    pub fn status(&mut self, now: Now) -> InfoStatus {
        if let Some(at) = self.accepted {
            let since = Duration::from_nanos(now.mono_ns.saturating_sub(at));
            if since <= self.limit.max_age && self.age_of(self.snapshot.taken_ns, now).is_ok() {
                return InfoStatus::Known;
            }
            self.accepted = None;
            self.snapshot = Snapshot::default();
            self.totals.stale += 1;
        }
        match self.judged.as_ref().map(|j| j.refusal) {
            Some(InfoRefusal::Forged) => InfoStatus::Forged,
            Some(InfoRefusal::Replayed) => InfoStatus::Replayed,
            _ if self.highest.is_some() => InfoStatus::Stale,
            _ => InfoStatus::Missing,
        }
    }

    /// The values with their status. While the status is not `Known` every value is unknown.
    pub fn current(&mut self, now: Now) -> (&Snapshot, InfoStatus) {
        let status = self.status(now);
        (&self.snapshot, status)
    }

    /// What was seen so far.
    #[must_use]
    pub const fn totals(&self) -> InfoTotals {
        self.totals
    }
}
