//! The log page as a stream of records and refusals.

use p4shield_abi::log_page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_channel::{Memory, PageFault, PageReader, SharedMemory};
use p4shield_seal::{Identity, LogKey, LogOpener, LogRefusal, Now, OpenedRecord, TenantKey};

use super::AuditError;
use crate::audit::Audit;
use crate::error::AgentError;
use crate::page::{PageLocation, PageMemory, PageUse, PageWatch};

/// A reader of new publications on a log page.
pub(super) struct LogPage<M = PageMemory> {
    reader: PageReader<M>,
    opener: LogOpener,
    /// Number of the next publication to read.
    next: u64,
    /// Whether a record was the first under a new key.
    rekeyed: bool,
    buffer: Vec<u8>,
}

impl LogPage {
    /// Maps the page and starts after its present contents, which are not part of this audit.
    pub(super) fn open(
        page: &PageLocation,
        key: &TenantKey,
        identity: &Identity<'_>,
    ) -> Result<(Self, PageWatch), AuditError> {
        let (memory, watch) = PageWatch::open(page, LOG_PAGE_SIZE, PageUse::Read)?;
        let mut log = Self::new(memory, key, identity)?;
        log.next = log.reader.published();
        Ok((log, watch))
    }

    /// Continues with a re-created page from its beginning. The opener keeps its state: earlier records
    /// count as replays on the new page, too.
    pub(super) fn reopen(&mut self, memory: PageMemory) {
        if let Ok(reader) = PageReader::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE) {
            tracing::info!(event = "log_page_recreated", "the log page was re-created");
            self.reader = reader;
            self.next = 0;
        }
    }

    /// Awaits another key.
    pub(super) fn rotate(&mut self, key: LogKey, until_ns: u64, recognised_ns: u64) {
        self.opener.rotate(key, until_ns, recognised_ns);
    }

    /// Returns whether the log has changed its key since the last call.
    pub(super) const fn take_rekeyed(&mut self) -> bool {
        std::mem::replace(&mut self.rekeyed, false)
    }
}

impl<M: Memory> LogPage<M> {
    fn new(memory: M, key: &TenantKey, identity: &Identity<'_>) -> Result<Self, AgentError> {
        let reader = PageReader::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE)?;
        let buffer = vec![0; reader.room()];
        Ok(Self { reader, opener: LogOpener::new(key, identity), next: 0, rekeyed: false, buffer })
    }

    /// Passes each new publication to the audit engine, in order. The cloud controls the page's counters:
    /// they select the slots to read, but neither the duration nor the acceptance.
    pub(super) fn read(&mut self, now: Now, audit: &mut Audit) {
        let mut rekeyed = false;
        self.each(now.mono_ns, |opened| match opened {
            Ok(record) => {
                rekeyed |= record.is_rekeyed;
                audit.record(now, &record);
            }
            Err(refusal) => audit.refused(now, refusal),
        });
        self.rekeyed |= rekeyed;
    }

    fn each(&mut self, mono_ns: u64, mut take: impl FnMut(Result<OpenedRecord, LogRefusal>)) {
        let published = self.reader.published();
        if published < self.next {
            // The page was re-created or reset: continue with its newest record.
            self.next = published.saturating_sub(1);
        }
        let oldest = published.saturating_sub(u64::from(LOG_SLOTS));
        for index in self.next.max(oldest)..published {
            self.next = index + 1;
            match self.reader.read(index, &mut self.buffer) {
                Ok(p) => take(self.opener.open_at(mono_ns, p.epoch, p.counter, &self.buffer[..p.len])),
                // An honest writer overwrote the record meanwhile, or a dishonest one never wrote it: a gap.
                Err(PageFault::Torn(_) | PageFault::NotAPage) => {}
                Err(_) => take(Err(LogRefusal::Forged)),
            }
        }
    }
}

/// For fuzzers: reads and opens the publications of a log page.
pub(crate) fn fuzz(
    memory: SharedMemory,
    key: &TenantKey,
    identity: &Identity<'_>,
    genuine: &mut dyn FnMut(&OpenedRecord),
) {
    let mut log = LogPage::new(memory, key, identity).expect("the layout is right");
    log.each(0, |opened| {
        if let Ok(record) = opened {
            genuine(&record);
        }
    });
}
