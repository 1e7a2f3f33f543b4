//! Sealed snapshots of in-VM information, and the rules by which a P4 VM accepts them.

use std::time::Duration;

use p4shield_abi::info::{InfoStatus, LAYOUT_VERSION, SNAPSHOT_SIZE, Snapshot};
use p4shield_abi::log_page::InfoTotals;
use p4shield_abi::page::{SALT_SIZE, TAG_SIZE};

use crate::clock::Now;
use crate::derive::{Identity, Purpose};
use crate::epoch::Epoch;
use crate::key::{KeyId, TenantKey};
use crate::record_cipher::{Position, RecordCipher, SealedRecord};
use crate::rotation::{InfoKey, KeyRing};

/// Bytes of a sealed snapshot.
pub const SEALED_INFO_SIZE: usize = SALT_SIZE + SNAPSHOT_SIZE + TAG_SIZE;

/// Seals snapshots in the user VM.
pub struct InfoSealer {
    cipher: RecordCipher,
    _epoch: Epoch,
    next: u64,
    buffer: [u8; SEALED_INFO_SIZE],
}

impl InfoSealer {
    /// A sealer of `identity`'s snapshots. Consumes `epoch`.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>, epoch: Epoch) -> Self {
        let cipher = RecordCipher::new(key, identity, Purpose::Info, LAYOUT_VERSION, epoch.start());
        Self { cipher, _epoch: epoch, next: 0, buffer: [0; SEALED_INFO_SIZE] }
    }

    /// Seals one snapshot. Allocates nothing.
    ///
    /// # Panics
    ///
    /// After 2^64 snapshots.
    pub fn seal(&mut self, snapshot: &Snapshot) -> SealedRecord<'_> {
        let counter = self.next;
        self.next = counter.checked_add(1).expect("fewer than 2^64 snapshots");
        self.buffer[SALT_SIZE..][..SNAPSHOT_SIZE].copy_from_slice(&snapshot.encode());
        self.cipher.seal(counter, &mut self.buffer);
        SealedRecord { epoch: self.cipher.epoch(), counter, bytes: &self.buffer }
    }

    /// Seals with another key from now on. Epoch and counter continue, so that no position repeats.
    pub fn rotate(&mut self, key: &TenantKey, identity: &Identity<'_>) {
        let start = self.cipher.start();
        self.cipher = RecordCipher::new(key, identity, Purpose::Info, LAYOUT_VERSION, start);
    }
}

/// Age limit of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeLimit {
    /// Longest time since a snapshot was accepted, by the reader's steady clock, and since it was
    /// taken, by the real-time clocks of both sides.
    pub max_age: Duration,
    /// Largest difference between the two real-time clocks. A cloud that delays the stream gains at
    /// most this much. A snapshot from further in the future is refused, because it would stay fresh
    /// for too long.
    pub skew: Duration,
}

impl Default for AgeLimit {
    /// 500 ms, fifty publications at the default interval, so that a busy user VM stays within it;
    /// and 500 ms of clock skew, a hundred times more than synchronised clocks have.
    fn default() -> Self {
        Self { max_age: Duration::from_millis(500), skew: Duration::from_millis(500) }
    }
}

/// Reason why a publication contains no new information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InfoRefusal {
    /// It is the snapshot that was accepted last. This is no error.
    #[error("the snapshot is the one already known")]
    Unchanged,
    /// It does not authenticate.
    #[error("the snapshot is forged or damaged: it does not authenticate for this tenant, VM and position")]
    Forged,
    /// It is genuine and older than one that was seen before.
    #[error("the snapshot is a replay: a newer one has been seen")]
    Replayed,
    /// It is genuine and new, but was taken too long ago: it was delayed, or a clock is wrong.
    #[error(
        "the snapshot was taken {} ms ago, which exceeds the age limit: the page is delayed, or a clock \
         is wrong",
        .age.as_millis()
    )]
    Stale {
        /// Time since it was taken, by the two real-time clocks.
        age: Duration,
    },
    /// It is genuine, but was taken further in the future than the allowed clock skew.
    #[error(
        "the snapshot was taken {} ms in the future, which exceeds the allowed clock skew: set the clocks",
        .ahead.as_millis()
    )]
    Future {
        /// Time by which it is ahead.
        ahead: Duration,
    },
}

/// A publication that was checked.
struct CheckedPublication {
    position: Position,
    len: usize,
    refusal: InfoRefusal,
}

/// The previous key, while the agent may still use it.
struct Previous {
    key: InfoKey,
    /// Reading of the steady clock at which it ends.
    until_ns: u64,
    /// Whether it is wiped: its memory is freed later, by another thread.
    is_wiped: bool,
}

impl Previous {
    fn open(&mut self, position: Position, buffer: &mut [u8]) -> bool {
        !self.is_wiped && self.key.cipher.open(position, buffer)
    }

    fn wipe(&mut self) {
        if !self.is_wiped {
            self.key.cipher.wipe();
            self.is_wiped = true;
        }
    }
}

/// Opens snapshots in the P4 VM: once per publication, never per packet.
///
/// After a rotation it accepts the previous key, too, until the agent uses the new one or the window ends.
/// Both keys share one highest position: a rotation makes no old snapshot new.
pub struct InfoOpener {
    key: InfoKey,
    previous: Option<Previous>,
    /// Reading of the steady clock when the first snapshot under the current key came.
    current_since: Option<u64>,
    limit: AgeLimit,
    /// Highest position that authenticated.
    highest: Option<Position>,
    /// Reading of the steady clock when `snapshot` was accepted; none: its values must not be used.
    accepted: Option<u64>,
    snapshot: Snapshot,
    /// The publication checked last, so that checking an unchanged page costs nothing.
    checked: Option<CheckedPublication>,
    /// All its bytes. With the tag alone, a damaged copy that comes first would block the genuine snapshot.
    checked_bytes: [u8; SEALED_INFO_SIZE],
    totals: InfoTotals,
    buffer: [u8; SEALED_INFO_SIZE],
}

impl InfoOpener {
    /// An opener of `identity`'s snapshots.
    #[must_use]
    pub fn new(key: &TenantKey, identity: &Identity<'_>, limit: AgeLimit) -> Self {
        Self {
            key: InfoKey::new(key, identity),
            previous: None,
            current_since: None,
            limit,
            highest: None,
            accepted: None,
            snapshot: Snapshot::default(),
            checked: None,
            checked_bytes: [0; SEALED_INFO_SIZE],
            totals: InfoTotals::default(),
            buffer: [0; SEALED_INFO_SIZE],
        }
    }

    /// An opener with a ring's keys.
    #[must_use]
    pub fn with_keys(keys: &KeyRing, identity: &Identity<'_>, limit: AgeLimit) -> Self {
        let mut opener = Self::new(keys.current(), identity, limit);
        opener.previous = keys.previous().map(|(key, until_ns)| Previous {
            key: InfoKey::new(key, identity),
            until_ns,
            is_wiped: false,
        });
        opener
    }

    /// Makes `new` the current key, and accepts the present one until the steady clock reads `until_ns`.
    /// Leaves in `new` a key that is wiped, if there is one to free: allocates and frees nothing itself.
    pub fn rotate(&mut self, new: &mut Option<InfoKey>, until_ns: u64) {
        let Some(next) = new.take() else { return };
        let key = std::mem::replace(&mut self.key, next);
        let replaced = self.previous.replace(Previous { key, until_ns, is_wiped: false });
        self.current_since = None;
        *new = replaced.map(|mut previous| {
            previous.wipe();
            previous.key
        });
    }

    /// Ends the previous key's window at `until_ns`, if that is earlier. A window never becomes longer.
    pub fn shorten_window(&mut self, until_ns: u64) {
        if let Some(previous) = &mut self.previous {
            previous.until_ns = previous.until_ns.min(until_ns);
        }
    }

    /// Returns when the previous key ends, by the steady clock; `None` if it is not accepted any more.
    #[must_use]
    pub fn previous_until(&self) -> Option<u64> {
        self.previous.as_ref().filter(|p| !p.is_wiped).map(|p| p.until_ns)
    }

    /// Returns when the agent first used the current key, by the steady clock.
    #[must_use]
    pub const fn current_since(&self) -> Option<u64> {
        self.current_since
    }

    /// Returns the number of the current key.
    #[must_use]
    pub const fn key_id(&self) -> KeyId {
        self.key.id
    }

    /// Checks and opens one publication, which was copied to private memory. Allocates nothing. The
    /// publication that was checked last is neither opened nor counted again.
    ///
    /// # Errors
    ///
    /// If it is refused. Values accepted earlier stay valid until [`Self::status`] finds them too old.
    pub fn open(
        &mut self,
        epoch: u64,
        counter: u64,
        bytes: &[u8],
        now: Now,
    ) -> Result<&Snapshot, InfoRefusal> {
        let position = (epoch, counter);
        if let Some(before) = &self.checked
            && (before.position, before.len) == (position, bytes.len())
            // A publication of another length is a forgery whatever its bytes.
            && (bytes.len() != SEALED_INFO_SIZE || bytes == self.checked_bytes)
        {
            return Err(before.refusal);
        }
        let result = self.check(position, bytes, now);
        let refusal = result.err().unwrap_or(InfoRefusal::Unchanged);
        self.checked = Some(CheckedPublication { position, len: bytes.len(), refusal });
        match result {
            Ok(()) => self.totals.accepted += 1,
            Err(InfoRefusal::Forged) => self.totals.forged += 1,
            Err(InfoRefusal::Replayed) => self.totals.replayed += 1,
            Err(InfoRefusal::Stale { .. } | InfoRefusal::Future { .. }) => self.totals.stale += 1,
            Err(InfoRefusal::Unchanged) => {}
        }
        result.map(|()| &self.snapshot)
    }

    fn check(&mut self, position: Position, bytes: &[u8], now: Now) -> Result<(), InfoRefusal> {
        if bytes.len() != SEALED_INFO_SIZE {
            return Err(InfoRefusal::Forged);
        }
        self.checked_bytes.copy_from_slice(bytes);
        self.buffer.copy_from_slice(bytes);
        self.expire(now.mono_ns);
        let is_current = self.key.cipher.open(position, &mut self.buffer);
        if !is_current && !self.previous.as_mut().is_some_and(|p| p.open(position, &mut self.buffer)) {
            return Err(InfoRefusal::Forged);
        }
        if self.highest.is_some_and(|h| position <= h) {
            return Err(InfoRefusal::Replayed);
        }
        self.highest = Some(position);
        if is_current {
            // The agent never returns to the previous key.
            self.current_since.get_or_insert(now.mono_ns);
            self.previous.iter_mut().for_each(Previous::wipe);
        }
        let plain =
            self.buffer[SALT_SIZE..].first_chunk().expect("a sealed snapshot is longer than a snapshot");
        let snapshot = Snapshot::decode(plain);
        self.check_age(snapshot.taken_ns, now)?;
        self.snapshot = snapshot;
        self.accepted = Some(now.mono_ns);
        Ok(())
    }

    /// Wipes the previous key once its window is over.
    fn expire(&mut self, mono_ns: u64) {
        self.previous.iter_mut().filter(|p| mono_ns >= p.until_ns).for_each(Previous::wipe);
    }

    fn check_age(&self, taken_ns: u64, now: Now) -> Result<(), InfoRefusal> {
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

    /// Returns whether the values are valid now. Values that become too old are discarded for good.
    pub fn status(&mut self, now: Now) -> InfoStatus {
        self.expire(now.mono_ns);
        if let Some(at) = self.accepted {
            let since = Duration::from_nanos(now.mono_ns.saturating_sub(at));
            if since <= self.limit.max_age && self.check_age(self.snapshot.taken_ns, now).is_ok() {
                return InfoStatus::Known;
            }
            self.accepted = None;
            self.snapshot = Snapshot::default();
            self.totals.stale += 1;
        }
        match self.checked.as_ref().map(|c| c.refusal) {
            Some(InfoRefusal::Forged) => InfoStatus::Forged,
            Some(InfoRefusal::Replayed) => InfoStatus::Replayed,
            _ if self.highest.is_some() => InfoStatus::Stale,
            _ => InfoStatus::Missing,
        }
    }

    /// Returns the values with their status. While the status is not `Known` every value is unknown.
    pub fn current(&mut self, now: Now) -> (&Snapshot, InfoStatus) {
        let status = self.status(now);
        (&self.snapshot, status)
    }

    /// Returns the totals so far.
    #[must_use]
    pub const fn totals(&self) -> InfoTotals {
        self.totals
    }
}
