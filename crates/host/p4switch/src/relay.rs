//! Clients of a switch in a virtual machine, whose bytes come and go over the line to the machine.

use p4shield_line::switch::{FromSwitch, MAX_CLIENTS, MAX_FROM_SWITCH, MAX_PIECE, MAX_TO_SWITCH, ToSwitch};
use p4shield_line::{FrameError, FrameReader, encode_frame};
use p4shield_socket::{Entrance as _, Listener, Visitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Most bytes that wait for the machine before no more are read from clients.
const MAX_UNSENT: usize = 1 << 20;
/// Most bytes that wait for clients, together.
const MAX_UNREAD: usize = 64 << 20;

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
    stream: UnixStream,
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
    /// `listener`. Returns what the switch says of itself.
    pub(crate) fn round(
        &mut self,
        listener: Option<&mut Listener>,
        longest: Duration,
    ) -> Result<Vec<FromSwitch>, RelayError> {
        let due = self.wait(listener.as_deref(), longest)?;
        if due.comes {
            self.admit(listener)?;
        }
        for number in due.clients {
            self.serve(number)?;
        }
        write_some(&mut self.line, &mut self.unsent)?;
        if due.says { self.listen() } else { Ok(Vec::new()) }
    }

    fn wait(&self, listener: Option<&Listener>, longest: Duration) -> Result<Due, RelayError> {
        let out = |bytes: &Vec<u8>| if bytes.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let more = if self.unsent.len() < MAX_UNSENT { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = vec![PollFd::new(&self.line, PollFlags::IN | out(&self.unsent))];
        fds.extend(self.clients.values().map(|c| PollFd::new(&c.stream, more | out(&c.unread))));
        let may_come = self.clients.len() < MAX_CLIENTS;
        fds.extend(listener.filter(|_| may_come).map(|listener| PollFd::new(listener, PollFlags::IN)));
        match poll(&mut fds, Timespec::try_from(longest).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(RelayError::Line(error.into())),
        }
        let is_due = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
        let clients = self.clients.keys().enumerate().filter(|(n, _)| is_due(n + 1));
        Ok(Due {
            says: is_due(0),
            clients: clients.map(|(_, number)| *number).collect(),
            comes: is_due(1 + self.clients.len()),
        })
    }

    /// Takes a client whose user may connect.
    fn admit(&mut self, listener: Option<&mut Listener>) -> Result<(), RelayError> {
        let Some(Ok(Visitor { stream, uid, .. })) = listener.map(Listener::next_visitor) else {
            return Ok(());
        };
        let is_allowed = uid == 0 || uid == rustix::process::geteuid().as_raw();
        if is_allowed && stream.set_nonblocking(true).is_ok() {
            self.last = self.last.wrapping_add(1);
            self.send(&ToSwitch::Open(self.last))?;
            self.clients.insert(self.last, Client { stream, unread: Vec::new(), ends: false });
        }
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
    comes: bool,
}

/// Writes what a socket takes at once.
fn write_some(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> io::Result<()> {
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
    use std::path::PathBuf;
    use tempfile::TempDir;

    const SOON: Duration = Duration::from_millis(10);

    /// A relay, the machine behind it, and the socket that clients connect to.
    struct World {
        relay: Relay,
        machine: UnixStream,
        listener: Listener,
        socket: PathBuf,
        _folder: TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("switch.sock");
            let (line, machine) = UnixStream::pair().unwrap();
            let (relay, listener) = (Relay::new(line).unwrap(), listen(&socket).unwrap());
            Self { relay, machine, listener, socket, _folder: folder }
        }

        fn round(&mut self) -> Result<Vec<FromSwitch>, RelayError> {
            self.relay.round(Some(&mut self.listener), SOON)
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
