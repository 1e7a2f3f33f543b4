//! One connection to the database.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::message::{self, Message};
use crate::stream::Splitter;
use crate::switch::Switch;
use crate::tables::Tables;

/// Silence after which the client sends an `echo`; after the same time without an answer the server counts as
/// down.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest time for the server to read a request.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest `echo` that is answered, in bytes; those of Open vSwitch have a few dozen.
const MAX_ECHO: usize = 64 << 10;

/// Reason why the database cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection cannot be opened.
    #[error("cannot connect to Open vSwitch's database at {}; check that ovsdb-server \
             runs", socket.display())]
    Connect {
        /// Path of the socket.
        socket: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The connection failed.
    #[error("cannot {operation} Open vSwitch's database")]
    Connection {
        /// The operation.
        operation: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server closed the connection.
    #[error("Open vSwitch's database closed the connection")]
    Closed,
    /// The server does not answer.
    #[error("Open vSwitch's database does not answer")]
    Silent,
    /// The server refused the request.
    #[error("Open vSwitch's database refused to be monitored: {0}")]
    Refused(String),
    /// The server violated the protocol.
    #[error("Open vSwitch's database violated the OVSDB protocol: {0}")]
    Protocol(String),
    /// The owner ended the connection.
    #[error("the connection to Open vSwitch's database was ended")]
    Stopped,
}

/// A connection and the tables received through it.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    stream: OwnedFd,
    /// Readable when the session is to end.
    stop: Option<BorrowedFd<'a>>,
    splitter: Splitter,
    tables: Tables,
    /// Whether the complete contents were received.
    complete: bool,
    chunk: Vec<u8>,
}

impl<'a> Session<'a> {
    /// Connects without waiting.
    pub(crate) fn connect(socket: &Path, stop: Option<BorrowedFd<'a>>) -> Result<Self, Error> {
        let stream = open_socket(socket)
            .map_err(|e| Error::Connect { socket: socket.to_owned(), source: io::Error::from(e) })?;
        let chunk = vec![0; 64 << 10];
        Ok(Self {
            stream,
            stop,
            splitter: Splitter::default(),
            tables: Tables::default(),
            complete: false,
            chunk,
        })
    }

    /// Requests the contents and waits for them, at most for `timeout`.
    pub(crate) fn subscribe(&mut self, timeout: Duration) -> Result<(), Error> {
        self.send(&message::monitor())?;
        let end = Instant::now() + timeout;
        while !self.complete {
            let left = end.saturating_duration_since(Instant::now());
            if !self.ready(PollFlags::IN, left)? {
                return Err(Error::Silent);
            }
            self.receive()?;
        }
        Ok(())
    }

    /// Waits until the server has sent a change.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let mut probed = false;
        loop {
            if self.ready(PollFlags::IN, SILENCE)? {
                probed = false;
                if self.receive()? {
                    return Ok(());
                }
            } else if probed {
                return Err(Error::Silent);
            } else {
                self.send(&message::probe())?;
                probed = true;
            }
        }
    }

    /// Returns the present switch.
    pub(crate) fn switch(&self) -> Switch {
        self.tables.switch()
    }

    /// Reads and processes the available messages. Returns whether there were changes.
    fn receive(&mut self) -> Result<bool, Error> {
        let read = match rustix::io::read(&self.stream, &mut self.chunk) {
            Ok(0) => return Err(Error::Closed),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(Error::Connection { operation: "read from", source: e.into() }),
        };
        self.splitter.feed(&self.chunk[..read]);
        let (mut changed, mut answers) = (false, Vec::new());
        while let Some(bytes) = self.splitter.next().map_err(protocol_error)? {
            match message::parse(bytes).map_err(protocol_error)? {
                Message::Contents(updates) => {
                    self.tables = Tables::default();
                    self.tables.apply(*updates).map_err(protocol_error)?;
                    (self.complete, changed) = (true, true);
                }
                Message::Update(updates) => {
                    self.tables.apply(*updates).map_err(protocol_error)?;
                    changed = true;
                }
                Message::Refused(why) => return Err(Error::Refused(why)),
                Message::Echo { params, id } => {
                    answers.extend(message::echo_answer(params, id));
                    if answers.len() > MAX_ECHO {
                        return Err(protocol_error("the parameters of an echo are too long"));
                    }
                }
                Message::Other => {}
            }
        }
        self.send(&answers)?;
        Ok(changed && self.complete)
    }

    /// Sends all bytes.
    fn send(&self, mut bytes: &[u8]) -> Result<(), Error> {
        let end = Instant::now() + SEND_TIMEOUT;
        while !bytes.is_empty() {
            match rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !self.ready(PollFlags::OUT, end.saturating_duration_since(Instant::now()))? {
                        return Err(Error::Silent);
                    }
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Closed),
                Err(e) => return Err(Error::Connection { operation: "write to", source: e.into() }),
            }
        }
        Ok(())
    }

    /// Waits until the stream is ready for `events`. Returns false after `timeout`.
    fn ready(&self, events: PollFlags, timeout: Duration) -> Result<bool, Error> {
        let mut fds = vec![PollFd::new(&self.stream, events)];
        fds.extend(self.stop.as_ref().map(|stop| PollFd::new(stop, PollFlags::IN)));
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            // A spurious wake-up: the caller reads nothing and waits again.
            Err(Errno::INTR) => Ok(true),
            Err(e) => Err(Error::Connection { operation: "wait for", source: e.into() }),
            Ok(_) if fds.get(1).is_some_and(|stop| !stop.revents().is_empty()) => Err(Error::Stopped),
            Ok(n) => Ok(n > 0),
        }
    }
}

fn protocol_error(why: impl ToString) -> Error {
    Error::Protocol(why.to_string())
}

fn open_socket(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&stream, &address)?;
    Ok(stream)
}
