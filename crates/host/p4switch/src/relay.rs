//! Clients of a switch in a virtual machine, of its socket and its metrics, whose bytes come and go over the
//! line to the machine.

use p4shield_line::switch::{FromSwitch, MAX_CLIENTS, MAX_FROM_SWITCH, MAX_PIECE, MAX_TO_SWITCH, ToSwitch};
use p4shield_line::{FrameError, FrameReader, encode_frame};
use p4shield_socket::{Entrance as _, Listener, Visitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most bytes that wait for the machine before no more are read from clients.
const MAX_UNSENT: usize = 1 << 20;
/// Most bytes that wait for clients, together.
const MAX_UNREAD: usize = 64 << 20;
/// Most of the clients that ask for metrics: any user of the host may.
const MAX_SCRAPERS: usize = 8;

/// Reason why the machine cannot be used further.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("it has ended")]
    Ended,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the line to it fails")]
    Line(#[from] io::Error),
}

/// The sockets of a switch on its host.
pub(crate) struct Entrances {
    /// Of commands.
    pub(crate) commands: Listener,
    /// Of metrics.
    pub(crate) metrics: Option<TcpListener>,
}

impl Entrances {
    /// Returns the next client, a stream without waits, and the message that announces it.
    fn next(&mut self, kind: Kind) -> io::Result<Option<File>> {
        let stream = match (kind, &self.metrics) {
            (Kind::Command, _) => {
                let Visitor { stream, uid, .. } = self.commands.next_visitor()?;
                let is_allowed = uid == 0 || uid == rustix::process::geteuid().as_raw();
                is_allowed.then(|| OwnedFd::from(stream))
            }
            (Kind::Metrics, metrics) => match metrics {
                Some(listener) => Some(listener.accept()?.0.into()),
                None => None,
            },
        };
        if let Some(stream) = &stream {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        Ok(stream.map(File::from))
    }
}

/// The purpose of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Command,
    Metrics,
}

/// The line to the machine, and the clients beside it.
pub(crate) struct Relay {
    line: UnixStream,
    frames: FrameReader,
    unsent: Vec<u8>,
    clients: BTreeMap<u32, Client>,
    /// The number of the client that came last.
    last: u32,
}

struct Client {
    kind: Kind,
    stream: File,
    unread: Vec<u8>,
    /// The switch has closed the connection, which ends with what is unread.
    ends: bool,
}

impl Relay {
    pub(crate) fn new(line: UnixStream) -> io::Result<Self> {
        line.set_nonblocking(true)?;
        let frames = FrameReader::new(MAX_FROM_SWITCH);
        Ok(Self { line, frames, unsent: Vec::new(), clients: BTreeMap::new(), last: 0 })
    }

    /// Sends a message, in this round and the next ones.
    pub(crate) fn send(&mut self, message: &ToSwitch) -> Result<(), RelayError> {
        self.unsent.extend(encode_frame(message, MAX_TO_SWITCH)?);
        Ok(())
    }

    /// Waits until there is something to do, at most for `longest`, and does it. Takes clients from
    /// `entrances`. Returns what the switch says of itself.
    pub(crate) fn round(
        &mut self,
        entrances: Option<&mut Entrances>,
        longest: Duration,
    ) -> Result<Vec<FromSwitch>, RelayError> {
        let due = self.wait(entrances.as_deref(), longest)?;
        if let Some(entrances) = entrances {
            for kind in due.comes {
                self.admit(entrances, kind)?;
            }
        }
        for number in due.clients {
            self.serve(number)?;
        }
        write_some(&mut self.line, &mut self.unsent)?;
        if due.says { self.listen() } else { Ok(Vec::new()) }
    }

    fn wait(&self, entrances: Option<&Entrances>, longest: Duration) -> Result<Due, RelayError> {
        let out = |bytes: &Vec<u8>| if bytes.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let more = if self.unsent.len() < MAX_UNSENT { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.line, PollFlags::IN | out(&self.unsent))];
        fds.extend(self.clients.values().map(|c| PollFd::new(&c.stream, more | out(&c.unread))));
        let mut kinds = Vec::new();
        if let Some(Entrances { commands, metrics }) = entrances.filter(|_| self.clients.len() < MAX_CLIENTS)
        {
            fds.push(PollFd::new(commands, PollFlags::IN));
            kinds.push(Kind::Command);
            let scrapers = self.clients.values().filter(|client| client.kind == Kind::Metrics).count();
            if let Some(metrics) = metrics.as_ref().filter(|_| scrapers < MAX_SCRAPERS) {
                fds.push(PollFd::new(metrics, PollFlags::IN));
                kinds.push(Kind::Metrics);
            }
        }
        match poll(&mut fds, Timespec::try_from(longest).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RelayError::Line(error.into())),
        }
        let is_due = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
        let clients = self.clients.keys().enumerate().filter(|(n, _)| is_due(n + 1));
        let comes = kinds.iter().enumerate().filter(|(n, _)| is_due(1 + self.clients.len() + n));
        Ok(Due {
            says: is_due(0),
            clients: clients.map(|(_, number)| *number).collect(),
            comes: comes.map(|(_, kind)| *kind).collect(),
        })
    }

    /// Takes a client whose user may connect.
    fn admit(&mut self, entrances: &mut Entrances, kind: Kind) -> Result<(), RelayError> {
        // One that has gone meanwhile costs nothing.
        let Ok(Some(stream)) = entrances.next(kind) else { return Ok(()) };
        self.last = self.last.wrapping_add(1);
        self.send(&match kind {
            Kind::Command => ToSwitch::Open(self.last),
            Kind::Metrics => ToSwitch::OpenMetrics(self.last),
        })?;
        self.clients.insert(self.last, Client { kind, stream, unread: Vec::new(), ends: false });
        Ok(())
    }

    /// Passes on what a client sends, and what it has not read yet.
    fn serve(&mut self, number: u32) -> Result<(), RelayError> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let mut buffer = vec![0; MAX_PIECE];
        let read = client.stream.read(&mut buffer);
        let is_open = write_some(&mut client.stream, &mut client.unread).is_ok();
        if client.ends {
            if !is_open || client.unread.is_empty() {
                self.clients.remove(&number);
            }
            return Ok(());
        }
        match read {
            Ok(n @ 1..) if is_open => self.send(&ToSwitch::Data(number, buffer[..n].to_vec())),
            Err(error) if is_open && is_temporary(&error) => Ok(()),
            _ => {
                self.clients.remove(&number);
                self.send(&ToSwitch::Close(number))
            }
        }
    }

    /// Receives what the machine sends.
    fn listen(&mut self) -> Result<Vec<FromSwitch>, RelayError> {
        let mut buffer = vec![0; MAX_PIECE];
        match self.line.read(&mut buffer) {
            Ok(0) => return Err(RelayError::Ended),
            Ok(n) => self.frames.extend(&buffer[..n]),
            Err(error) if is_temporary(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(RelayError::Ended),
            Err(error) => return Err(error.into()),
        }
        let mut said = Vec::new();
        while let Some(message) = self.frames.take()? {
            match message {
                FromSwitch::Data(number, bytes) => self.answer(number, &bytes)?,
                FromSwitch::Close(number) => self.close(number),
                other => said.push(other),
            }
        }
        Ok(said)
    }

    /// Passes on what the switch answers a client. One that reads too little is closed.
    fn answer(&mut self, number: u32, bytes: &[u8]) -> Result<(), RelayError> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        client.unread.extend_from_slice(bytes);
        let is_open = write_some(&mut client.stream, &mut client.unread).is_ok();
        let unread: usize = self.clients.values().map(|client| client.unread.len()).sum();
        if is_open && unread <= MAX_UNREAD {
            return Ok(());
        }
        self.clients.remove(&number);
        self.send(&ToSwitch::Close(number))
    }

    /// Closes a client's connection, with what it can still read.
    fn close(&mut self, number: u32) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.ends = true;
            if write_some(&mut client.stream, &mut client.unread).is_err() || client.unread.is_empty() {
                self.clients.remove(&number);
            }
        }
    }
}

/// The things that there are to do.
struct Due {
    says: bool,
    clients: Vec<u32>,
    comes: Vec<Kind>,
}

/// Writes what a socket takes at once.
fn write_some(stream: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    let result = loop {
        if written == bytes.len() {
            break Ok(());
        }
        match stream.write(&bytes[written..]) {
            Ok(n) => written += n,
            Err(error) if is_temporary(&error) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bytes.drain(..written);
    result
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_socket::listen;
    use std::net::TcpStream;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const SOON: Duration = Duration::from_millis(10);

    /// A relay, the machine behind it, and the socket that clients connect to.
    struct World {
        relay: Relay,
        machine: UnixStream,
        entrances: Entrances,
        socket: PathBuf,
        _folder: TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("switch.sock");
            let (line, machine) = UnixStream::pair().unwrap();
            let metrics = TcpListener::bind("127.0.0.1:0").unwrap();
            let entrances = Entrances { commands: listen(&socket).unwrap(), metrics: Some(metrics) };
            Self { relay: Relay::new(line).unwrap(), machine, entrances, socket, _folder: folder }
        }

        fn round(&mut self) -> Result<Vec<FromSwitch>, RelayError> {
            self.relay.round(Some(&mut self.entrances), SOON)
        }

        /// Connects a client, which has the number 1 if it is the first.
        fn connect(&mut self) -> UnixStream {
            let client = UnixStream::connect(&self.socket).unwrap();
            self.round().unwrap();
            client
        }

        fn say(&mut self, message: &FromSwitch) {
            self.machine.write_all(&encode_frame(message, MAX_FROM_SWITCH).unwrap()).unwrap();
        }

        /// Returns what has come to the machine.
        fn heard(&mut self) -> Vec<ToSwitch> {
            self.machine.set_nonblocking(true).unwrap();
            let mut frames = FrameReader::new(MAX_TO_SWITCH);
            let mut buffer = vec![0; 1 << 20];
            while let Ok(n @ 1..) = self.machine.read(&mut buffer) {
                frames.extend(&buffer[..n]);
            }
            self.machine.set_nonblocking(false).unwrap();
            std::iter::from_fn(|| frames.take().unwrap()).collect()
        }
    }

    #[test]
    fn bytes_go_both_ways_until_either_side_closes() {
        let mut world = World::new();
        let mut client = world.connect();
        client.write_all(b"question").unwrap();
        world.round().unwrap();
        assert_eq!(world.heard(), [ToSwitch::Open(1), ToSwitch::Data(1, b"question".to_vec())]);
        world.say(&FromSwitch::Data(1, b"answer".to_vec()));
        world.say(&FromSwitch::Close(1));
        assert_eq!(world.round().unwrap(), []);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        drop(world.connect());
        world.round().unwrap();
        assert_eq!(world.heard(), [ToSwitch::Open(2), ToSwitch::Close(2)]);
    }

    #[test]
    fn scrapers_leave_room_for_commands() {
        let mut world = World::new();
        let address = world.entrances.metrics.as_ref().unwrap().local_addr().unwrap();
        let _scrapers: Vec<_> = (0..MAX_CLIENTS).map(|_| TcpStream::connect(address).unwrap()).collect();
        for _ in 0..MAX_CLIENTS {
            world.round().unwrap();
        }
        let _client = world.connect();
        let heard = world.heard();
        assert_eq!(heard.iter().filter(|m| matches!(m, ToSwitch::OpenMetrics(_))).count(), MAX_SCRAPERS);
        assert_eq!(heard.last(), Some(&ToSwitch::Open(MAX_SCRAPERS as u32 + 1)));
    }

    #[test]
    fn a_machine_that_floods_a_client_costs_bounded_memory() {
        let mut world = World::new();
        let _client = world.connect();
        let piece = FromSwitch::Data(1, vec![0; MAX_PIECE]);
        for _ in 0..MAX_UNREAD / MAX_PIECE + 100 {
            let mut frame = encode_frame(&piece, MAX_FROM_SWITCH).unwrap();
            while !frame.is_empty() {
                world.machine.set_nonblocking(true).unwrap();
                write_some(&mut world.machine, &mut frame).unwrap();
                world.round().unwrap();
            }
        }
        assert!(world.relay.clients.is_empty(), "its connection is closed");
        assert!(world.heard().contains(&ToSwitch::Close(1)));
        // To a client that is gone, and to one that never came.
        world.say(&piece);
        world.say(&FromSwitch::Close(77));
        assert_eq!(world.round().unwrap(), []);
    }

    #[test]
    fn a_machine_that_reads_nothing_stops_its_clients() {
        let mut world = World::new();
        let mut client = world.connect();
        client.set_nonblocking(true).unwrap();
        let mut rest = Vec::new();
        for _ in 0..200 {
            rest.resize(1 << 20, 0);
            write_some(&mut client, &mut rest).unwrap();
            world.round().unwrap();
        }
        assert!(world.relay.unsent.len() < MAX_UNSENT + 2 * MAX_PIECE, "{}", world.relay.unsent.len());
        assert!(!rest.is_empty(), "the client waits");
    }

    #[test]
    fn a_machine_that_breaks_the_protocol_is_ended() {
        let mut world = World::new();
        world.machine.write_all(&[0xff; 64]).unwrap();
        assert!(matches!(world.round(), Err(RelayError::Frame(_))));
        let mut world = World::new();
        world.say(&FromSwitch::Booted { version: 7 });
        assert_eq!(world.round().unwrap(), [FromSwitch::Booted { version: 7 }]);
        drop(std::mem::replace(&mut world.machine, UnixStream::pair().unwrap().0));
        assert!(matches!(world.round(), Err(RelayError::Ended)));
    }
}
