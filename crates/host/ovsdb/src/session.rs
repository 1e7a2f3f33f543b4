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

/// Silence after which we ask whether the server lives, and as much again until it counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// How long the server may take to read what we send.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest `echo` that is answered, in bytes; Open vSwitch's have a few dozen.
const MAX_ECHO: usize = 64 << 10;

/// Why the database is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody is there.
    #[error("cannot connect to Open vSwitch's database at {}; does ovsdb-server run?", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel says no.
    #[error("cannot {what} Open vSwitch's database")]
    Talk {
        /// What was tried.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server hung up.
    #[error("Open vSwitch's database closed the connection")]
    Closed,
    /// The server says nothing.
    #[error("Open vSwitch's database does not answer")]
    Silent,
    /// The server does not want to tell.
    #[error("Open vSwitch's database does not let itself be read: {0}")]
    Refused(String),
    /// What the server sends is not what OVSDB's protocol says.
    #[error("Open vSwitch's database does not keep to the protocol: {0}")]
    Protocol(String),
    /// We are to end.
    #[error("the connection was given up")]
    Stopped,
}

/// A connection, and what was learnt through it.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    stream: OwnedFd,
    /// Readable when we are to end.
    stop: Option<BorrowedFd<'a>>,
    splitter: Splitter,
    tables: Tables,
    /// Whether everything came.
    complete: bool,
    chunk: Vec<u8>,
}

impl<'a> Session<'a> {
    /// Connects, without waiting.
    pub(crate) fn connect(socket: &Path, stop: Option<BorrowedFd<'a>>) -> Result<Self, Error> {
        let stream = dial(socket)
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

    /// Asks for everything and waits until it is there, `patience` at most.
    pub(crate) fn subscribe(&mut self, patience: Duration) -> Result<(), Error> {
        self.send(&message::monitor())?;
        let end = Instant::now() + patience;
        while !self.complete {
            let left = end.saturating_duration_since(Instant::now());
            if !self.ready(PollFlags::IN, left)? {
                return Err(Error::Silent);
            }
            self.receive()?;
        }
        Ok(())
    }

    /// Waits until the server has told something new.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let mut asked = false;
        loop {
            if self.ready(PollFlags::IN, SILENCE)? {
                asked = false;
                if self.receive()? {
                    return Ok(());
                }
            } else if asked {
                return Err(Error::Silent);
            } else {
                self.send(&message::probe())?;
                asked = true;
            }
        }
    }

    /// What is known.
    pub(crate) fn switch(&self) -> Switch {
        self.tables.switch()
    }

    /// Reads what is there and acts upon it; whether something new was in it.
    fn receive(&mut self) -> Result<bool, Error> {
        let read = match rustix::io::read(&self.stream, &mut self.chunk) {
            Ok(0) => return Err(Error::Closed),
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(e) => return Err(Error::Talk { what: "read from", source: e.into() }),
        };
        self.splitter.feed(&self.chunk[..read]);
        let (mut news, mut answers) = (false, Vec::new());
        while let Some(bytes) = self.splitter.next().map_err(broken)? {
            match message::parse(bytes).map_err(broken)? {
                Message::Everything(updates) => {
                    self.tables = Tables::default();
                    self.tables.apply(*updates).map_err(broken)?;
                    (self.complete, news) = (true, true);
                }
                Message::Update(updates) => {
                    self.tables.apply(*updates).map_err(broken)?;
                    news = true;
                }
                Message::Refused(why) => return Err(Error::Refused(why)),
                Message::Echo { params, id } => {
                    answers.extend(message::echoed(params, id));
                    if answers.len() > MAX_ECHO {
                        return Err(broken("an echo is too long"));
                    }
                }
                Message::Other => {}
            }
        }
        self.send(&answers)?;
        Ok(news && self.complete)
    }

    /// Sends all of it.
    fn send(&self, mut bytes: &[u8]) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
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
                Err(e) => return Err(Error::Talk { what: "write to", source: e.into() }),
            }
        }
        Ok(())
    }

    /// Waits until the stream is ready for `what`; false if it is not after `patience`.
    fn ready(&self, what: PollFlags, patience: Duration) -> Result<bool, Error> {
        let mut fds = vec![PollFd::new(&self.stream, what)];
        fds.extend(self.stop.as_ref().map(|stop| PollFd::new(stop, PollFlags::IN)));
        let timeout = Timespec::try_from(patience).unwrap_or_default();
        match poll(&mut fds, Some(&timeout)) {
            // Woken for nothing: the caller reads nothing and comes again.
            Err(Errno::INTR) => Ok(true),
            Err(e) => Err(Error::Talk { what: "wait for", source: e.into() }),
            Ok(_) if fds.get(1).is_some_and(|stop| !stop.revents().is_empty()) => Err(Error::Stopped),
            Ok(n) => Ok(n > 0),
        }
    }
}

fn broken(why: impl ToString) -> Error {
    Error::Protocol(why.to_string())
}

fn dial(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&stream, &address)?;
    Ok(stream)
}
