//! The thread that keeps the copy of the database up to date.

use p4shield_text::chain;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder, ExponentialBuilder};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::session::{Error, Session};
use crate::switch::Switch;

/// Longest pause between attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The pauses between attempts. A connection that lasted longer than the longest one starts them anew.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(100))
    .with_max_delay(LONGEST_PAUSE)
    .without_max_times();
/// Longest time for the complete contents: the database may be large and the machine busy.
const CONTENTS_TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the connection to the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The database has not answered yet.
    #[default]
    Connecting,
    /// The copy is up to date.
    Connected,
    /// The connection is lost, for this reason. The last contents remain available while the monitor
    /// reconnects.
    Lost(String),
}

/// Monitors a switch's database until dropped.
///
/// ```no_run
/// let monitor = p4shield_ovsdb::Monitor::start(p4shield_ovsdb::DEFAULT_SOCKET)?;
/// loop {
///     monitor.wait(None); // or poll `monitor.changed()` beside other descriptors
///     for interface in &monitor.snapshot().interfaces {
///         println!("{}: {:?}", interface.name, interface.iface_id);
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    socket: PathBuf,
    contents: Mutex<Contents>,
    /// An eventfd, readable while there is a change that was not read.
    changed: OwnedFd,
    /// An eventfd, readable once the thread is to end.
    stop: OwnedFd,
}

#[derive(Debug, Default)]
struct Contents {
    switch: Arc<Switch>,
    state: State,
}

impl Monitor {
    /// Starts to monitor the database behind the UNIX socket at `socket`, which need not exist yet.
    ///
    /// # Errors
    /// A descriptor or thread cannot be created.
    pub fn start(socket: impl Into<PathBuf>) -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (changed, stop) = (event()?, event()?);
        let shared = Arc::new(Shared { socket: socket.into(), contents: Mutex::default(), changed, stop });
        let watching = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("p4shield-ovsdb".into()).spawn(move || watch(&watching))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the present switch; an empty one until the database has answered for the first time.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Switch> {
        // Cleared before the copy is read, so that a later change makes it readable again.
        let _ = rustix::io::read(&self.shared.changed, &mut [0; 8]);
        Arc::clone(&self.shared.contents().switch)
    }

    /// The state of the connection to the database.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.contents().state.clone()
    }

    /// Returns a descriptor, for polling only, that is readable after a change of [`Self::snapshot`] or
    /// [`Self::state`] until the next call of `snapshot`.
    #[must_use]
    pub fn changed(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }

    /// Waits for a change, without a limit if `timeout` is `None`. Returns whether there was one.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        readable(&self.shared.changed, timeout)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Ignores poisoning: no panic can leave the contents inconsistent.
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the switch and the state, and signals a change if they differ from the previous ones.
    fn store(&self, switch: Option<Switch>, state: State) {
        let mut contents = self.contents();
        let changed = contents.state != state || switch.as_ref().is_some_and(|s| *s != *contents.switch);
        contents.state = state;
        if let Some(switch) = switch {
            contents.switch = Arc::new(switch);
        }
        drop(contents);
        if changed {
            let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
        }
    }
}

/// Runs the thread: connects again and again until the monitor is dropped.
fn watch(shared: &Shared) {
    let mut pauses = PAUSES.build();
    loop {
        let since = Instant::now();
        let error = follow(shared);
        if since.elapsed() > LONGEST_PAUSE {
            pauses = PAUSES.build();
        }
        if matches!(error, Error::Stopped) {
            return;
        }
        let why = chain(&error);
        if shared.contents().state != State::Lost(why.clone()) {
            tracing::warn!(
                event = "ovsdb_lost",
                socket = %shared.socket.display(),
                error = why,
                "cannot read Open vSwitch's \
                 database"
            );
        }
        shared.store(None, State::Lost(why));
        if readable(&shared.stop, pauses.next()) {
            return;
        }
    }
}

/// Reads the database until an error, and returns the error.
fn follow(shared: &Shared) -> Error {
    let read = || {
        let mut session = Session::connect(&shared.socket, Some(shared.stop.as_fd()))?;
        session.subscribe(CONTENTS_TIMEOUT)?;
        tracing::info!(
            event = "ovsdb_connected",
            socket = %shared.socket.display(),
            "connected to Open vSwitch's database"
        );
        shared.store(Some(session.switch()), State::Connected);
        loop {
            session.wait()?;
            shared.store(Some(session.switch()), State::Connected);
        }
    };
    match read() {
        Ok(never) => never,
        Err(error) => error,
    }
}

/// Reads the contents of the database once, within `timeout`.
///
/// # Errors
/// See [`Error`].
pub fn read_once(socket: &Path, timeout: Duration) -> Result<Switch, Error> {
    let mut session = Session::connect(socket, None)?;
    session.subscribe(timeout)?;
    Ok(session.switch())
}

fn readable(event: &OwnedFd, timeout: Option<Duration>) -> bool {
    let timeout = timeout.and_then(|p| Timespec::try_from(p).ok());
    let mut fds = [PollFd::new(event, PollFlags::IN)];
    poll(&mut fds, timeout.as_ref()).is_ok_and(|n| n > 0)
}
