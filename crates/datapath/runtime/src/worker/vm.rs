//! One user VM in the worker: its programs, its information, its log.

use super::audit::Audit;
use super::keys::{self, KeyChange, LogPage, VmError};
use super::steady_ns;
use crate::program::LoadedProgram;
use crate::tenant_settings::DecidingTerms;
use p4shield_abi::info::InfoStatus;
use p4shield_abi::info_page::{INFO_MAGIC, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_abi::log_page::{DirectionTotals, InfoTotals, LogRecord};
use p4shield_abi::{Direction, ProgramLimit, Verdict};
use p4shield_bpf::VmInfo;
use p4shield_channel::{PageReader, SharedMemory};
use p4shield_control::{DirectionStatus, VmStatus};
use p4shield_seal::{AgeLimit, Epoch, Identity, InfoOpener, KeyRing, Now, SEALED_INFO_SIZE};

/// A user VM.
pub struct Vm {
    index: u16,
    directions: [DirectionState; 2],
    pages: VmPages,
    /// What programs read; unknown unless there is an authentic, fresh snapshot.
    known: Box<VmInfo>,
    status: InfoStatus,
    replacements: u32,
}

/// The pages of a VM, with the keys that they are sealed with.
#[derive(Default)]
pub struct VmPages {
    info: Option<InfoPage>,
    log: Option<LogPage>,
    terms: DecidingTerms,
}

impl VmPages {
    /// Opens pages. The log begins with `epoch`.
    ///
    /// # Errors
    /// A page has the wrong size.
    pub fn open(
        identity: &Identity<'_>,
        keys: &KeyRing,
        terms: DecidingTerms,
        (info, log): (Option<SharedMemory>, Option<SharedMemory>),
        epoch: Epoch,
    ) -> Result<Self, VmError> {
        let info = info.map(|memory| InfoPage::new(memory, keys, identity, terms.limit)).transpose()?;
        let log = log.map(|memory| LogPage::new(memory, keys, identity, epoch)).transpose()?;
        Ok(Self { info, log, terms })
    }
}

/// The reading end of the info page.
struct InfoPage {
    page: PageReader,
    opener: InfoOpener,
    /// Number of publications at the last poll.
    seen: u64,
    sealed: Box<[u8; SEALED_INFO_SIZE]>,
}

/// The program and the counters of one direction.
#[derive(Default)]
pub(super) struct DirectionState {
    program: Option<Box<LoadedProgram>>,
    /// The verdict while a configured program does not run; `None`: no program is configured.
    fallback: Option<Verdict>,
    /// Without digests, which [`Audit`] sums.
    tally: DirectionTotals,
    /// Dropped packets that met a limit of the program, by [`ProgramLimit::index`].
    limited: [u64; ProgramLimit::ALL.len()],
}

/// What the verdict on a packet reads and changes.
pub(super) struct PacketContext<'a> {
    pub(super) state: &'a mut DirectionState,
    pub(super) info: &'a VmInfo,
    /// `None` if this VM has no log.
    pub(super) audit: Option<&'a mut Audit>,
}

impl DirectionState {
    #[inline]
    pub(super) fn program(&mut self) -> Option<&mut LoadedProgram> {
        self.program.as_deref_mut()
    }

    /// Returns the verdict without a program.
    #[inline]
    pub(super) fn verdict_without_program(&self, no_program: Verdict) -> Verdict {
        self.fallback.unwrap_or(no_program)
    }

    #[inline]
    pub(super) fn received(&mut self, bytes: u32) {
        self.tally.judged += 1;
        self.tally.judged_bytes += u64::from(bytes);
    }

    #[inline]
    pub(super) fn passed(&mut self, bytes: u32) {
        self.tally.passed += 1;
        self.tally.passed_bytes += u64::from(bytes);
    }

    #[inline]
    pub(super) fn dropped(&mut self, bytes: u32) {
        self.tally.dropped += 1;
        self.tally.dropped_bytes += u64::from(bytes);
    }

    #[inline]
    pub(super) fn failed(&mut self) {
        self.tally.failed += 1;
    }

    #[inline]
    pub(super) fn judged_without_program(&mut self) {
        self.tally.without_program += 1;
    }

    #[inline]
    pub(super) fn undecided(&mut self) {
        self.tally.undecided += 1;
    }

    #[inline]
    pub(super) fn met(&mut self, limit: ProgramLimit) {
        self.limited[limit.index()] += 1;
    }
}

impl Vm {
    /// Returns a VM without programs.
    #[must_use]
    pub fn new(index: u16, pages: VmPages) -> Self {
        Self {
            index,
            directions: Default::default(),
            pages,
            known: Box::new(VmInfo::unknown(InfoStatus::Missing)),
            status: InfoStatus::Missing,
            replacements: 0,
        }
    }

    /// Exchanges the pages.
    pub(super) fn exchange_pages(&mut self, pages: &mut VmPages) {
        std::mem::swap(&mut self.pages, pages);
    }

    pub(super) const fn index(&self) -> u16 {
        self.index
    }

    pub(super) fn program_mut(&mut self, direction: Direction) -> Option<&mut LoadedProgram> {
        self.directions[direction as usize].program()
    }

    /// Sets the verdict on packets of a configured program while it does not run.
    pub(super) fn expect_program(&mut self, direction: Direction, fallback: Verdict) {
        self.directions[direction as usize].fallback = Some(fallback);
    }

    /// Replaces a program and returns the previous one. Without one, no program is configured any more.
    pub(super) fn set_program(
        &mut self,
        direction: Direction,
        program: Option<Box<LoadedProgram>>,
    ) -> Option<Box<LoadedProgram>> {
        let state = &mut self.directions[direction as usize];
        if program.is_none() {
            state.fallback = None;
        }
        let old = std::mem::replace(&mut state.program, program);
        self.replacements = self.replacements.wrapping_add(u32::from(old.is_some()));
        old
    }

    #[inline]
    pub(super) fn packet_context(&mut self, direction: Direction) -> PacketContext<'_> {
        PacketContext {
            state: &mut self.directions[direction as usize],
            info: &self.known,
            audit: self.pages.log.as_mut().map(|log| &mut log.audit),
        }
    }

    /// Opens the newest snapshot if there is a new publication, and marks the last one as stale when it is
    /// too old.
    pub(super) fn refresh_info(&mut self, now: Now) {
        let Some(info) = &mut self.pages.info else { return };
        let changed = info.poll(now);
        let (snapshot, status) = info.opener.current(now);
        if changed || status != self.status {
            *self.known = VmInfo::new(snapshot, status);
            self.status = status;
        }
    }

    /// Seals and publishes a log record.
    pub(super) fn publish_log(&mut self, header_bytes: u32, no_program: Verdict, now: Now) {
        let VmPages { info, log: Some(log), terms } = &mut self.pages else { return };
        let verdicts = self.directions.each_ref().map(|d| d.verdict_without_program(no_program));
        let programs = self.directions.each_ref().map(|d| d.program.as_ref().map_or([0; 32], |p| p.digest()));
        let mut totals = self.directions.each_ref().map(|d| d.tally);
        for (tally, sums) in totals.iter_mut().zip(log.audit.sums()) {
            (tally.judged_digest, tally.passed_digest) = (sums.judged, sums.passed);
        }
        let record = LogRecord {
            published_ns: now.real_ns,
            previous_tag: [0; 16],
            header_bytes,
            replacements: self.replacements,
            totals,
            info: info.as_ref().map_or(InfoTotals::default(), |i| i.opener.totals()),
            programs,
            settings: terms.stated(|direction| verdicts[direction as usize] == Verdict::Pass),
            sketches: *log.audit.sketches(),
        };
        let agent_since = info.as_ref().and_then(|info| info.opener.current_since());
        log.publish(&record, now.mono_ns, agent_since);
    }

    /// Takes new keys over. What is to be freed stays in `change`.
    pub(super) fn change_keys(&mut self, change: &mut KeyChange) {
        let VmPages { info, log, .. } = &mut self.pages;
        keys::change(info.as_mut().map(|info| &mut info.opener), log.as_mut(), change);
    }

    pub(super) fn status(&self) -> VmStatus {
        let VmPages { info, log, .. } = &self.pages;
        let t = info.as_ref().map_or(InfoTotals::default(), |i| i.opener.totals());
        VmStatus {
            vm: self.index,
            info: self.status as u8,
            info_tally: [t.accepted, t.forged, t.replayed, t.stale],
            log_records: log.as_ref().map_or(0, |l| l.records),
            directions: self.directions.each_ref().map(DirectionState::status),
            keys: keys::status(info.as_ref().map(|i| &i.opener), log.as_ref(), steady_ns()),
            handshake: None,
        }
    }
}

impl DirectionState {
    fn status(&self) -> DirectionStatus {
        let t = &self.tally;
        DirectionStatus {
            judged: t.judged,
            passed: t.passed,
            dropped: t.dropped,
            undecided: t.undecided,
            failed: t.failed,
            limited: self.limited,
            program: self.program.as_ref().map(|p| p.digest()),
            reads_info: self.program.as_ref().is_some_and(|p| p.reads_info()),
        }
    }
}

impl InfoPage {
    fn new(
        memory: SharedMemory,
        keys: &KeyRing,
        identity: &Identity<'_>,
        limit: AgeLimit,
    ) -> Result<Self, VmError> {
        let page = PageReader::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)
            .map_err(|source| VmError::Page { which: "info", source })?;
        let opener = InfoOpener::with_keys(keys, identity, limit);
        Ok(Self { page, opener, seen: 0, sealed: Box::new([0; SEALED_INFO_SIZE]) })
    }

    /// Opens the newest publication if there is a new one. Returns whether there are new values.
    fn poll(&mut self, now: Now) -> bool {
        let published = self.page.published();
        if published == self.seen {
            return false;
        }
        match self.page.newest(&mut self.sealed[..]) {
            Ok(Some(p)) => {
                self.seen = published;
                // The opener counts refusals; the previous snapshot remains valid until it is too old.
                self.opener.open(p.epoch, p.counter, &self.sealed[..p.len], now).is_ok()
            }
            // The slot is being written, or the page is not set up yet: the next poll tries again.
            Ok(None) | Err(_) => false,
        }
    }
}
