//! The publisher: `p4shield agent`.
//!
//! One thread runs one loop. At each tick of a timer it collects, seals and publishes a snapshot; between
//! ticks it serves the control socket. The loop never waits for another process.

mod server;
mod ticker;
mod values;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use p4shield_abi::info::{FIELDS, Snapshot};
use p4shield_abi::info_page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_channel::{PageFault, PageWriter};
use p4shield_seal::{Epoch, InfoSealer, KeyFile, KeyId, Now, TenantKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::collect::Collector;
use crate::config::{AgentConfig, VmConfig};
use crate::control::{Answer, Reply, Request, Status, parse};
use crate::error::AgentError;
use crate::handshake::Handshaker;
use crate::page::{PageMemory, PageUse, PageWatch};
use crate::session_note::SessionNote;
use server::Server;
use ticker::Ticker;
use values::Values;

pub use values::ListedValue;

/// Maximum time between checks of the stop flag.
const STOP_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Runs the agent on the calling thread until `stop` is set.
///
/// # Errors
///
/// If configuration, key, epoch, page or socket are not usable. A running agent continues after errors.
pub fn run_agent(config: &AgentConfig, stop: &AtomicBool) -> Result<(), AgentError> {
    config.check()?;
    let key_file = config.handshake.as_ref().map(|_| &config.vm.key);
    for file in [&config.epoch_file, &config.socket].into_iter().chain(key_file) {
        make_folder_of(file)?;
    }
    let mut agent = Agent::new(config)?;
    let mut server = Server::new(&config.socket)?;
    let ticker = Ticker::new(config.interval()).map_err(|e| AgentError::Time(e.into()))?;
    tracing::info!(
        event = "agent_started",
        page = %config.info_page,
        interval_ms = config.interval_ms,
        "publishing"
    );
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&ticker, PollFlags::IN)];
        fds.extend(server.poll_fds());
        match poll(&mut fds, Some(&STOP_POLL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(AgentError::Time(e.into())),
        }
        let ticks = ticker.ticks();
        if ticks > 0 {
            agent.missed += ticks - 1;
            agent.publish();
        }
        server.serve(|line| agent.answer(line));
    }
    tracing::info!(event = "agent_stopped", published = agent.published, "stopped");
    Ok(())
}

/// Creates the folder of a file, for its owner alone, unless it exists.
fn make_folder_of(file: &Path) -> Result<(), AgentError> {
    let Some(folder) = file.parent().filter(|folder| *folder != Path::new("")) else { return Ok(()) };
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|source| AgentError::Folder { path: folder.to_owned(), source })
}

struct Agent {
    vm: VmConfig,
    keys: KeySource,
    /// The key that snapshots are sealed with.
    key: KeyId,
    interval_ms: u64,
    epoch: u64,
    /// None before the first session of a handshake.
    sealer: Option<InfoSealer>,
    page: PageWriter<PageMemory>,
    watch: PageWatch,
    collector: Collector,
    values: Values,
    newest: Snapshot,
    started: StartTime,
    published: u64,
    failed: u64,
    missed: u64,
}

/// Where the agent's key comes from.
enum KeySource {
    File(KeyFile),
    /// The epoch keeps its file locked against a second agent.
    Handshake {
        handshaker: Box<Handshaker>,
        _lock: Epoch,
    },
}

/// Time of the start, and CPU time at that moment.
struct StartTime {
    mono_ns: u64,
    cpu: Duration,
}

impl Agent {
    fn new(config: &AgentConfig) -> Result<Self, AgentError> {
        let epoch = Epoch::next_in(&config.epoch_file)?;
        let number = epoch.number();
        let (keys, key, sealer) = match &config.handshake {
            Some(handshake) => {
                let handshaker = Handshaker::new(&config.vm, handshake, number)?;
                let keys = KeySource::Handshake { handshaker: Box::new(handshaker), _lock: epoch };
                (keys, KeyId::default(), None)
            }
            None => {
                let (file, key) = KeyFile::open(&config.vm.key)?;
                let sealer = InfoSealer::new(&key, &config.vm.identity(), epoch);
                (KeySource::File(file), key.id(), Some(sealer))
            }
        };
        let (memory, watch) = PageWatch::open(&config.info_page, INFO_PAGE_SIZE, PageUse::Publish)?;
        Ok(Self {
            vm: config.vm.clone(),
            keys,
            key,
            interval_ms: config.interval_ms,
            epoch: number,
            sealer,
            page: PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)?,
            watch,
            collector: Collector::new(
                config.threshold,
                &config.interfaces,
                Duration::from_millis(config.window_ms),
            ),
            values: Values::new(config.names.clone()),
            newest: Snapshot::default(),
            started: StartTime { mono_ns: Now::read().mono_ns, cpu: cpu_time() },
            published: 0,
            failed: 0,
            missed: 0,
        })
    }

    fn publish(&mut self) {
        let now = Now::read();
        self.reopen_page(now);
        self.follow_key(now);
        if self.sealer.is_none() {
            return;
        }
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = now.real_ns;
        self.collector.collect(now.mono_ns, &mut snapshot);
        self.values.collect(now.mono_ns, &mut snapshot);
        let Some(sealer) = &mut self.sealer else { return };
        let sealed = sealer.seal(&snapshot);
        match self.page.publish(sealed.epoch, sealed.counter, sealed.bytes) {
            Ok(_) => self.published += 1,
            Err(error) => self.record_failure(&error),
        }
        self.newest = snapshot;
    }

    /// Seals with the new key if the key file was replaced or there is a new session.
    fn follow_key(&mut self, now: Now) {
        match &mut self.keys {
            KeySource::File(_) => self.follow_file(),
            KeySource::Handshake { handshaker, .. } => {
                let Some(session) = handshaker.step(now) else { return };
                let key = TenantKey::from_bytes(*session.records_key().expose());
                let epoch = Epoch::from_session(session.epoch());
                (self.epoch, self.key) = (epoch.number(), key.id());
                // The key is new, so its records begin anew, above every epoch before.
                self.sealer = Some(InfoSealer::new(&key, &self.vm.identity(), epoch));
                leave_to_auditor(&self.vm.key, &key, &SessionNote::of(session));
            }
        }
    }

    /// Seals with the new key if the key file was replaced. A file that is refused changes nothing.
    fn follow_file(&mut self) {
        let KeySource::File(file) = &mut self.keys else { return };
        match file.changed() {
            Ok(Some(key)) => {
                let identity = self.vm.identity();
                self.sealer.iter_mut().for_each(|sealer| sealer.rotate(&key, &identity));
                self.key = key.id();
                tracing::info!(
                 event = "key_followed",
                 key = %self.key,
                 "sealing with the new key of the key file"
                );
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(
                 event = "key_refused",
                 %error,
                 "the new key file is refused; the agent keeps its key"
                )
            }
        }
    }

    /// Reopens the info page if a restarted host daemon has re-created its file.
    fn reopen_page(&mut self, now: Now) {
        let Some(memory) = self.watch.recreated(now.mono_ns) else { return };
        if let Ok(page) = PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE) {
            tracing::info!(event = "info_page_recreated", "the info page was re-created");
            self.page = page;
            self.failed = 0;
        }
    }

    /// Counts a failed publication. The cloud may damage the page; only the first failure in a row is logged.
    fn record_failure(&mut self, error: &PageFault) {
        if self.failed == 0 {
            tracing::error!(
                event = "publish_failed",
                %error,
                "cannot publish: the info page is damaged, and programs will see stale \
                 information"
            );
        }
        self.failed += 1;
    }

    fn answer(&mut self, line: &[u8]) -> Reply {
        let now = Now::read().mono_ns;
        let done = match parse(line) {
            Err(why) => return Reply::Error(why),
            Ok(Request::List) => return Reply::Ok(Answer::Values(self.values.list(now))),
            Ok(Request::Status) => return Reply::Ok(Answer::Status(Box::new(self.status(now)))),
            Ok(Request::Set { key, value, for_ms }) => {
                self.values.set(now, &key, value, for_ms.map(Duration::from_millis))
            }
            Ok(Request::Unset { key }) => self.values.unset(&key),
        };
        done.map_or_else(|e| Reply::Error(e.to_string()), |()| Reply::Ok(Answer::Done))
    }

    fn status(&self, now: u64) -> Status {
        let up = Duration::from_nanos(now.saturating_sub(self.started.mono_ns));
        let cpu = cpu_time().saturating_sub(self.started.cpu);
        Status {
            tenant: self.vm.tenant.clone(),
            vm: self.vm.name.clone(),
            handshake: match &self.keys {
                KeySource::File(_) => None,
                KeySource::Handshake { handshaker, .. } => Some(handshaker.status()),
            },
            key: self.key.to_string(),
            epoch: self.epoch,
            published: self.published,
            failed: self.failed,
            missed: self.missed,
            interval_ms: self.interval_ms,
            uptime_s: up.as_secs_f64(),
            cpu_percent: 100.0 * cpu.as_secs_f64() / up.as_secs_f64().max(f64::MIN_POSITIVE),
            known: (0..FIELDS as u32).filter_map(|f| Some((f, self.newest.get(f)?))).collect(),
        }
    }
}

/// Writes a session's key where the auditor reads it, and the session's note beside it. The agent goes on
/// without: only the auditor misses them.
fn leave_to_auditor(key_file: &Path, key: &TenantKey, note: &SessionNote) {
    let written = note.store(key_file).map_err(AgentError::from);
    let written = written.and_then(|()| key.replace(key_file).map_err(AgentError::from));
    if let Err(error) = written {
        tracing::error!(
            event = "session_key_not_written",
            %error,
            "the auditor cannot read the session's key; make the folder writable for the agent"
        );
    }
}

/// Returns the CPU time of the calling thread.
fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}
