//! The thread that keeps what is known up to date.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::session::{Error, Session};
use crate::switch::Switch;

/// Pause before the second attempt to connect; each one after it is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a server may take to tell everything: a large database on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How it stands with the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It has not answered yet.
    #[default]
    Connecting,
    /// What is known is what it says.
    Connected,
    /// It is gone, and connected to again as soon as possible. What it said last is still known.
    Lost(String),
}

/// Watches a switch's database until it is dropped.
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
    known: Mutex<Known>,
    /// Readable while something is new. An eventfd.
    changed: OwnedFd,
    /// Readable once the thread is to end. An eventfd.
    stop: OwnedFd,
}

#[derive(Debug, Default)]
struct Known {
    switch: Arc<Switch>,
    state: State,
}

impl Monitor {
    /// Starts to watch the database behind the UNIX socket at `socket`. It need not be there yet.
    ///
    /// # Errors
    /// No descriptor or thread is left.
    pub fn start(socket: impl Into<PathBuf>) -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (changed, stop) = (event()?, event()?);
        let shared = Arc::new(Shared { socket: socket.into(), known: Mutex::default(), changed, stop });
        let watching = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("p4shield-ovsdb".into()).spawn(move || watch(&watching))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What is known; an empty switch until the database has answered for the first time.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Switch> {
        // Before looking, so that what comes in between makes it readable again.
        let _ = rustix::io::read(&self.shared.changed, &mut [0; 8]);
        Arc::clone(&self.shared.known().switch)
    }

    /// How it stands with the database.
    #[must_use]
    pub fn state(&self) -> State {
        self.shared.known().state.clone()
    }

    /// A descriptor that is readable while [`Self::snapshot`] or [`Self::state`] has something new; `snapshot` makes
    /// it unreadable. Only to be polled.
    #[must_use]
    pub fn changed(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }

    /// Waits until something is new, for ever without a `patience`; whether it is.
    #[must_use]
    pub fn wait(&self, patience: Option<Duration>) -> bool {
        readable(&self.shared.changed, patience)
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
    /// Nothing in here can be left half done by a panic.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what is now known, if it is another than before.
    fn tell(&self, switch: Option<Switch>, state: State) {
        let mut known = self.known();
        let news = known.state != state || switch.as_ref().is_some_and(|s| *s != *known.switch);
        known.state = state;
        if let Some(switch) = switch {
            known.switch = Arc::new(switch);
        }
        drop(known);
        if news {
            let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
        }
    }
}

/// The thread.
fn watch(shared: &Shared) {
    let mut pause = FIRST_PAUSE;
    loop {
        let since = Instant::now();
        let error = follow(shared);
        if since.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        if matches!(error, Error::Stopped) {
            return;
        }
        let why = chain(&error);
        if shared.known().state != State::Lost(why.clone()) {
            tracing::warn!(socket = %shared.socket.display(), error = why, "Open vSwitch's database is not read");
        }
        shared.tell(None, State::Lost(why));
        if readable(&shared.stop, Some(pause)) {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Follows the database until something goes wrong.
fn follow(shared: &Shared) -> Error {
    let talk = || {
        let mut session = Session::connect(&shared.socket, Some(shared.stop.as_fd()))?;
        session.subscribe(PATIENCE)?;
        tracing::info!(socket = %shared.socket.display(), "Open vSwitch's database is read");
        shared.tell(Some(session.switch()), State::Connected);
        loop {
            session.wait()?;
            shared.tell(Some(session.switch()), State::Connected);
        }
    };
    match talk() {
        Ok(never) => never,
        Err(error) => error,
    }
}

/// Reads the database once: what it says now. Waits `patience` at most.
///
/// # Errors
/// See [`Error`].
pub fn read_once(socket: &Path, patience: Duration) -> Result<Switch, Error> {
    let mut session = Session::connect(socket, None)?;
    session.subscribe(patience)?;
    Ok(session.switch())
}

fn readable(event: &OwnedFd, patience: Option<Duration>) -> bool {
    let timeout = patience.and_then(|p| Timespec::try_from(p).ok());
    let mut fds = [PollFd::new(event, PollFlags::IN)];
    poll(&mut fds, timeout.as_ref()).is_ok_and(|n| n > 0)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(e) = next {
        text = format!("{text}: {e}");
        next = e.source();
    }
    text
}
