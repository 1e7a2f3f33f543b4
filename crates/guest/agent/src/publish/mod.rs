//! The publisher: `p4shield agent`.
//!
//! One thread and one loop: at each beat it collects, seals and publishes; between beats it serves the control
//! socket. Nothing in the loop waits for anybody else.

mod server;
mod ticker;
mod values;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use p4shield_abi::info::{FIELDS, Snapshot};
use p4shield_abi::page::{INFO_MAGIC, INFO_PAGE_SIZE, INFO_SLOT_STRIDE, INFO_SLOTS};
use p4shield_channel::{ChannelError, PageFault, PageWriter, ShmError};
use p4shield_seal::{Epoch, EpochError, Identity, InfoSealer, KeyError, Now, TenantKey};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::collect::Collector;
use crate::config::{AgentConfig, ConfigError};
use crate::control::{Answer, Reply, Request, Status, parse};
use crate::page::{DeviceError, PageMemory, Place, Use};
use server::Server;
use ticker::Ticker;
use values::Values;

pub use values::Listed;

/// Longest that the loop sleeps before it looks at its stop flag.
const LOOK_UP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Why the agent does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no epoch.
    #[error(transparent)]
    Epoch(#[from] EpochError),
    /// The page cannot be mapped.
    #[error("cannot use page {}", path.display())]
    Page {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ShmError,
    },
    /// The page is no device's memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The page went away while it was measured.
    #[error("the page cannot be measured")]
    Measure(#[source] PageFault),
    /// The page's size or layout is wrong.
    #[error(transparent)]
    Layout(#[from] ChannelError),
    /// Another agent answers at the socket.
    #[error("another agent listens at {} already; stop it first", .0.display())]
    AlreadyRunning(PathBuf),
    /// The socket cannot be made.
    #[error("cannot listen at {}", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The system refuses a timer or to wait.
    #[error("cannot keep time")]
    Time(#[source] std::io::Error),
}

/// Runs the agent on the calling thread until `stop` is set.
///
/// # Errors
///
/// When it cannot start: configuration, key, epoch, page or socket. Once it runs, it goes on whatever happens.
pub fn run_agent(config: &AgentConfig, stop: &AtomicBool) -> Result<(), AgentError> {
    config.check()?;
    let mut agent = Agent::new(config)?;
    let mut server = Server::new(&config.socket)?;
    let ticker = Ticker::new(config.interval()).map_err(|e| AgentError::Time(e.into()))?;
    tracing::info!(page = %config.info_page, interval_ms = config.interval_ms, "publishing");
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&ticker, PollFlags::IN)];
        fds.extend(server.poll_fds());
        match poll(&mut fds, Some(&LOOK_UP)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(AgentError::Time(e.into())),
        }
        let beats = ticker.beats();
        if beats > 0 {
            agent.missed += beats - 1;
            agent.publish();
        }
        server.serve(|line| agent.answer(line));
    }
    tracing::info!(published = agent.published, "stopped");
    Ok(())
}

struct Agent {
    tenant: String,
    vm: String,
    interval_ms: u64,
    epoch: u64,
    sealer: InfoSealer,
    page: PageWriter<PageMemory>,
    place: Place,
    collector: Collector,
    values: Values,
    newest: Snapshot,
    started: Started,
    published: u64,
    failed: u64,
    missed: u64,
}

/// When the agent started, by the wall and by its own use of a core.
struct Started {
    mono_ns: u64,
    cpu: Duration,
}

impl Agent {
    fn new(config: &AgentConfig) -> Result<Self, AgentError> {
        let key = TenantKey::load(&config.vm.key)?;
        let epoch = Epoch::next_in(&config.epoch_file)?;
        let number = epoch.number();
        let identity = Identity { tenant: &config.vm.tenant, vm: &config.vm.name };
        let (memory, place) = Place::open(&config.info_page, INFO_PAGE_SIZE, Use::Publish)?;
        Ok(Self {
            tenant: config.vm.tenant.clone(),
            vm: config.vm.name.clone(),
            interval_ms: config.interval_ms,
            epoch: number,
            sealer: InfoSealer::new(&key, &identity, epoch),
            page: PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE)?,
            place,
            collector: Collector::new(
                config.threshold,
                &config.interfaces,
                Duration::from_millis(config.window_ms),
            ),
            values: Values::new(config.names.clone()),
            newest: Snapshot::default(),
            started: Started { mono_ns: Now::read().mono_ns, cpu: cpu_time() },
            published: 0,
            failed: 0,
            missed: 0,
        })
    }

    fn publish(&mut self) {
        let now = Now::read();
        self.follow(now);
        let mut snapshot = Snapshot::default();
        snapshot.taken_ns = now.real_ns;
        self.collector.collect(now.mono_ns, &mut snapshot);
        self.values.collect(now.mono_ns, &mut snapshot);
        let sealed = self.sealer.seal(&snapshot);
        match self.page.publish(sealed.epoch, sealed.counter, sealed.bytes) {
            Ok(_) => self.published += 1,
            Err(error) => self.refused(&error),
        }
        self.newest = snapshot;
    }

    /// Goes on in the page file that stands where ours stood: a host daemon that was restarted has made it anew.
    fn follow(&mut self, now: Now) {
        let Some(memory) = self.place.made_anew(now.mono_ns) else { return };
        if let Ok(page) = PageWriter::new(memory, INFO_MAGIC, INFO_SLOTS, INFO_SLOT_STRIDE) {
            tracing::info!("the info page was made anew");
            self.page = page;
            self.failed = 0;
        }
    }

    /// The page belongs to the cloud, which may break it; that is told once for a run of failures.
    fn refused(&mut self, error: &PageFault) {
        if self.failed == 0 {
            tracing::error!(%error, "the info page takes no snapshot; the P4 VM will call the information stale");
        }
        self.failed += 1;
    }

    fn answer(&mut self, line: &[u8]) -> Reply {
        let now = Now::read().mono_ns;
        let done = match parse(line) {
            Err(why) => return Reply::Error(why),
            Ok(Request::List) => return Reply::Ok(Answer::Values(self.values.list(now))),
            Ok(Request::Status) => return Reply::Ok(Answer::Status(self.status(now))),
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
            tenant: self.tenant.clone(),
            vm: self.vm.clone(),
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

/// Time on a core that the calling thread has used.
fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}
