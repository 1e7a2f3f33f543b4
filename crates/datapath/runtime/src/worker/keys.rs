//! Rotation of a user VM's key in the worker.
//!
//! The control thread derives the keys; the worker takes them over between two batches. Snapshots are
//! accepted under both keys until the agent uses the new one. The log changes its key [`SETTLING_NS`] later,
//! so that an auditor that reads the same key file has it by then, or at the end of the window.
//!
//! The window is measured by this machine's steady clock. A host that makes that clock slow prolongs it, and
//! a host that restarts the P4 VM can begin another; the auditor measures its own window.

use super::audit::Audit;
use p4shield_abi::log_page::LogRecord;
use p4shield_abi::log_page::{LOG_MAGIC, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_channel::{ChannelError, PageWriter, SharedMemory};
use p4shield_control::KeyStatus;
use p4shield_seal::{Epoch, Identity, InfoKey, InfoOpener, KeyId, KeyRing, LogKey, LogSealer, TenantKey};

/// Time from the agent's first snapshot under a new key to the first log record under it.
pub(crate) const SETTLING_NS: u64 = 3_000_000_000;

/// Reason why a VM's pages cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmError {
    /// A page has the wrong size or contents.
    #[error("invalid {which} page")]
    Page {
        /// `info` or `log`.
        which: &'static str,
        /// The cause.
        #[source]
        source: ChannelError,
    },
}

/// A change of a user VM's keys.
pub struct KeyChange {
    pub(crate) vm: u16,
    /// The new key, derived, and afterwards what it replaced, wiped; none: the VM has the current key,
    /// and only the window changes.
    new: Option<DerivedKeys>,
    /// Reading of the steady clock at which the previous key ends.
    until_ns: u64,
}

/// The derived keys of a [`KeyChange`].
struct DerivedKeys {
    info: Option<InfoKey>,
    log: Option<Box<LogKey>>,
}

impl KeyChange {
    /// Derives the keys of a VM for a rotation.
    pub(crate) fn rotation(vm: u16, key: &TenantKey, identity: &Identity<'_>, until_ns: u64) -> Self {
        let info = Some(InfoKey::new(key, identity));
        let log = Some(Box::new(LogKey::new(key, identity)));
        Self { vm, new: Some(DerivedKeys { info, log }), until_ns }
    }

    /// Shortens the window of a VM's rotation.
    pub(crate) const fn shorter_window(vm: u16, until_ns: u64) -> Self {
        Self { vm, new: None, until_ns }
    }
}

/// The writing end of the log page.
pub(super) struct LogPage {
    page: PageWriter,
    sealer: LogSealer,
    pub(super) audit: Audit,
    pub(super) records: u64,
    key: KeyId,
    next: Option<NextKey>,
}

/// The key that the log changes to.
struct NextKey {
    key: Box<LogKey>,
    id: KeyId,
    until_ns: u64,
    /// Whether the log has changed; `key` is wiped then, and freed by another thread.
    is_done: bool,
}

impl LogPage {
    /// Starts a log. While the ring has a previous key, the log begins under that.
    pub(super) fn new(
        memory: SharedMemory,
        keys: &KeyRing,
        identity: &Identity<'_>,
        epoch: Epoch,
    ) -> Result<Self, VmError> {
        let page = PageWriter::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE)
            .map_err(|source| VmError::Page { which: "log", source })?;
        let first = keys.previous().map_or(keys.current(), |(key, _)| key);
        let next = keys.previous().map(|(_, until_ns)| NextKey {
            key: Box::new(LogKey::new(keys.current(), identity)),
            id: keys.current().id(),
            until_ns,
            is_done: false,
        });
        let digest = LogKey::new(first, identity).digest().clone();
        let sealer = LogSealer::new(first, identity, epoch);
        Ok(Self { page, sealer, audit: Audit::new(digest), records: 0, key: first.id(), next })
    }

    /// Seals and publishes a record. If a key is due, the next one is sealed with it.
    pub(super) fn publish(&mut self, record: &LogRecord, mono_ns: u64, agent_since: Option<u64>) {
        let sealed = self.sealer.seal(record);
        // If the page cannot be written, the auditor notices the silence; packets are judged nevertheless.
        self.records += u64::from(self.page.publish(sealed.epoch, sealed.counter, sealed.bytes).is_ok());
        self.follow(mono_ns, agent_since);
    }

    /// Changes the key of log and digests if it is due. The sums up to here are in the record before, so that
    /// each interval between two records has one key.
    fn follow(&mut self, mono_ns: u64, agent_since: Option<u64>) {
        let Some(next) = self.next.as_mut().filter(|next| !next.is_done) else { return };
        let settled = agent_since.is_some_and(|since| mono_ns >= since.saturating_add(SETTLING_NS));
        if settled || mono_ns >= next.until_ns {
            self.audit.set_key(next.key.digest());
            self.sealer.rotate(&mut next.key);
            self.key = next.id;
            next.is_done = true;
        }
    }

    /// Awaits another key. Returns one that is wiped.
    fn rotate(&mut self, key: Box<LogKey>, until_ns: u64) -> Option<Box<LogKey>> {
        let id = key.id();
        let mut replaced = self.next.replace(NextKey { key, id, until_ns, is_done: false })?;
        replaced.key.wipe();
        Some(replaced.key)
    }

    fn shorten_window(&mut self, until_ns: u64) {
        if let Some(next) = &mut self.next {
            next.until_ns = next.until_ns.min(until_ns);
        }
    }

    /// Returns when the log changes its key at the latest.
    fn awaits_until(&self) -> Option<u64> {
        self.next.as_ref().filter(|next| !next.is_done).map(|next| next.until_ns)
    }
}

/// Applies a change of keys. What is to be freed stays in `change`.
pub(super) fn change(info: Option<&mut InfoOpener>, log: Option<&mut LogPage>, change: &mut KeyChange) {
    let until_ns = change.until_ns;
    match &mut change.new {
        None => {
            info.into_iter().for_each(|info| info.shorten_window(until_ns));
            log.into_iter().for_each(|log| log.shorten_window(until_ns));
        }
        Some(DerivedKeys { info: info_key, log: log_key }) => {
            info.into_iter().for_each(|info| info.rotate(info_key, until_ns));
            if let (Some(log), Some(key)) = (log, log_key.take()) {
                *log_key = log.rotate(key, until_ns);
            }
        }
    }
}

/// Returns the status of a VM's keys when the steady clock reads `mono_ns`; none if it has no pages.
pub(super) fn status(info: Option<&InfoOpener>, log: Option<&LogPage>, mono_ns: u64) -> Option<KeyStatus> {
    let awaits = log.and_then(LogPage::awaits_until);
    let current = match (info, log) {
        (Some(info), _) => info.key_id(),
        (None, Some(log)) => log.next.as_ref().map_or(log.key, |next| next.id),
        (None, None) => return None,
    };
    let until = info.and_then(InfoOpener::previous_until).max(awaits);
    Some(KeyStatus {
        current: current.0,
        previous_ms: until.map(|until| until.saturating_sub(mono_ns).div_ceil(1_000_000)),
        agent_follows: info.is_some_and(|info| info.current_since().is_some()),
        log_follows: awaits.is_none(),
    })
}
