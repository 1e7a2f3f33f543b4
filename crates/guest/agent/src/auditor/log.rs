//! The log page as a stream of records and refusals.

use p4shield_abi::page::{LOG_MAGIC, LOG_PAGE_SIZE, LOG_SLOT_STRIDE, LOG_SLOTS};
use p4shield_channel::{Memory, PageFault, PageReader, SharedMemory};
use p4shield_seal::{Identity, LogOpener, LogRefusal, Now, OpenedRecord, TenantKey};

use super::AuditError;
use crate::audit::Audit;
use crate::page::{PageMemory, PagePlace, Place, Use};
use crate::publish::AgentError;

/// Reads what is new on a log page.
pub(super) struct LogPage<M = PageMemory> {
    reader: PageReader<M>,
    opener: LogOpener,
    /// Publications that were looked at or passed over.
    next: u64,
    buffer: Vec<u8>,
}

impl LogPage {
    /// Maps the page, and begins after what is on it: the past is not this audit's.
    pub(super) fn open(
        page: &PagePlace,
        key: &TenantKey,
        identity: &Identity<'_>,
    ) -> Result<(Self, Place), AuditError> {
        let (memory, place) = Place::open(page, LOG_PAGE_SIZE, Use::Read)?;
        let mut log = Self::new(memory, key, identity)?;
        log.next = log.reader.published();
        Ok((log, place))
    }

    /// Goes on with a page that was made anew, from its beginning. What was accepted before is not forgotten: records
    /// from before are replays there, too.
    pub(super) fn follow(&mut self, memory: PageMemory) {
        if let Ok(reader) = PageReader::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE) {
            tracing::info!("the log page was made anew");
            self.reader = reader;
            self.next = 0;
        }
    }
}

impl<M: Memory> LogPage<M> {
    fn new(memory: M, key: &TenantKey, identity: &Identity<'_>) -> Result<Self, AgentError> {
        let reader = PageReader::new(memory, LOG_MAGIC, LOG_SLOTS, LOG_SLOT_STRIDE)?;
        let buffer = vec![0; reader.room()];
        Ok(Self { reader, opener: LogOpener::new(key, identity), next: 0, buffer })
    }

    /// Tells the engine each new publication, in order. The page's numbers are the cloud's: they decide where to look,
    /// never how long, and never what to believe.
    pub(super) fn read(&mut self, now: Now, audit: &mut Audit) {
        self.each(|opened| match opened {
            Ok(record) => audit.record(now, &record),
            Err(refusal) => audit.refused(now, refusal),
        });
    }

    fn each(&mut self, mut take: impl FnMut(Result<OpenedRecord, LogRefusal>)) {
        let published = self.reader.published();
        if published < self.next {
            // The page was made anew, or somebody turned it back: what it holds newest tells.
            self.next = published.saturating_sub(1);
        }
        let oldest = published.saturating_sub(u64::from(LOG_SLOTS));
        for index in self.next.max(oldest)..published {
            self.next = index + 1;
            match self.reader.read(index, &mut self.buffer) {
                Ok(p) => take(self.opener.open(p.epoch, p.counter, &self.buffer[..p.len])),
                // Overwritten meanwhile by an honest writer, or never written by another: a gap either way.
                Err(PageFault::Torn(_) | PageFault::NotAPage) => {}
                Err(_) => take(Err(LogRefusal::Forged)),
            }
        }
    }
}

/// Feeds a log page with these bytes to reader and opener; `bytes` follow the page's header.
pub(crate) fn fuzz(
    memory: SharedMemory,
    key: &TenantKey,
    identity: &Identity<'_>,
    genuine: &mut dyn FnMut(&OpenedRecord),
) {
    let mut log = LogPage::new(memory, key, identity).expect("the layout is right");
    log.each(|opened| {
        if let Ok(record) = opened {
            genuine(&record);
        }
    });
}
