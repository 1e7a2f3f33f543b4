//! The messages between the process outside and the compartment.

use crate::api::Format;
use p4shield_control::{Envelope, MAX_DESCRIPTORS, SandboxReport, Socket, SocketError, decode, encode};
use p4shield_io::afxdp::Watch;
use p4shield_io::afxdp::handed::Description;
use rustix::fd::{BorrowedFd, OwnedFd};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// The most descriptors of a message: a port with all its queues.
pub(crate) const MOST: usize = 512;
/// The most interfaces that a switch may open or ask about: its ports, and those that it had.
pub(crate) const MAX_INTERFACES: usize = 2048;
/// Longest time for the descriptors behind a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// The configuration of a switch in a compartment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Numbers and names of the ports: network interfaces, or the controller's.
    pub ports: Vec<(u16, String)>,
    /// The number of packet threads.
    pub threads: usize,
    /// Files that are loaded before the first packet: name, format and text of each.
    pub entries: Vec<(String, Format, String)>,
    /// Where metrics are served over HTTP.
    pub metrics: Option<SocketAddr>,
    /// The program's file.
    pub program: String,
    /// Its objects, hexadecimal.
    pub objects: Vec<String>,
    /// The same for tracing, or the reason why there are none.
    pub traced: Result<Vec<String>, String>,
}

/// How an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) carrier: bool,
}

impl Seen {
    /// Returns how the interface is, if it is there.
    pub(crate) fn find(watch: &Watch, name: &str) -> Option<Self> {
        watch.find(name).map(|i| Self { index: i.index, up: i.up, carrier: i.carrier })
    }
}

/// A message of the compartment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// It has given up its privileges. The answer is [`Told::Setup`].
    Entered(SandboxReport),
    /// Opens an interface as a port, whose first queue is this thread's.
    Open { interface: String, first: usize },
    /// Asks how interfaces are.
    Look { interfaces: Vec<String> },
    /// It forwards. There is no answer.
    Ready,
    /// It does not start, since the program or a file is refused. There is no answer.
    Refused(String),
    /// It does not start for another reason. There is no answer.
    Failed(String),
}

/// An answer of the process outside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    /// A file with the [`Setup`], the bell of the interfaces, and the listener for metrics if there is one.
    Setup,
    /// The port, with its descriptors.
    Opened(Description),
    /// How each interface is; `None`: it is not there.
    Looked(Vec<Option<Seen>>),
    /// The reason why not.
    Failed(String),
}

/// A client, whose connection comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Reason why there is no message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Decode(#[from] p4shield_control::DecodeError),
    #[error("a message came without its descriptors")]
    Incomplete,
    #[error("a message comes with descriptors that were not asked for")]
    TooMany,
}

/// Sends a message with any number of descriptors: the envelope has their number, and those that do not fit
/// into the message follow it.
pub(crate) fn send<T: Serialize>(
    socket: &Socket,
    body: T,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), SocketError> {
    if descriptors.len() > MOST {
        return Err(SocketError::Cut);
    }
    let (with, after) = descriptors.split_at(descriptors.len().min(MAX_DESCRIPTORS));
    socket.send(&encode(&Envelope { id: descriptors.len() as u32, body })?, with)?;
    after.chunks(MAX_DESCRIPTORS).try_for_each(|some| socket.send(b"+", some))
}

/// A message, with its descriptors and its sender.
pub(crate) struct Message<T> {
    pub(crate) body: T,
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) sender: Option<rustix::process::Pid>,
}

/// Receives a message, waiting for it. `most`: how many descriptors may come with it.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: &mut Socket,
    most: usize,
) -> Result<Message<T>, LineError> {
    let first = socket.receive()?;
    let Envelope { id: count, body } = decode(&first.bytes)?;
    let count = count as usize;
    let mut descriptors = first.descriptors;
    if count > most {
        return Err(LineError::TooMany);
    }
    while descriptors.len() < count {
        socket.wait(Some(PATIENCE))?;
        let more = socket.receive()?.descriptors;
        if more.is_empty() {
            return Err(LineError::Incomplete);
        }
        descriptors.extend(more);
    }
    if descriptors.len() != count {
        return Err(LineError::Incomplete);
    }
    Ok(Message { body, descriptors, sender: first.sender })
}

/// Parses any bytes as a message of either side. Entry point for fuzzing.
pub fn fuzz_line(bytes: &[u8]) {
    let _ask: Result<Envelope<Ask>, _> = decode(bytes);
    let _told: Result<Envelope<Told>, _> = decode(bytes);
    let _client: Result<Envelope<Client>, _> = decode(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Socket, Socket) {
        Socket::pair().unwrap()
    }

    #[test]
    fn a_message_brings_any_number_of_descriptors() {
        for count in [0, 1, 4, 5, 130] {
            let (a, mut b) = pair();
            let error = rustix::stdio::stderr();
            send(&a, Client { uid: 1, gid: 2 }, &vec![error; count]).unwrap();
            let message = receive::<Client>(&mut b, 130).unwrap();
            assert_eq!((message.descriptors.len(), message.body.gid), (count, 2));
        }
    }

    #[test]
    fn a_message_without_its_descriptors_is_refused() {
        let (a, mut b) = pair();
        let lies = encode(&Envelope { id: 2, body: Client { uid: 0, gid: 0 } }).unwrap();
        a.send(&lies, &[rustix::stdio::stderr()]).unwrap();
        a.send(b"+", &[]).unwrap();
        assert!(matches!(receive::<Client>(&mut b, 130), Err(LineError::Incomplete)));
        let endless = encode(&Envelope { id: u32::MAX, body: Client { uid: 0, gid: 0 } }).unwrap();
        a.send(&endless, &[]).unwrap();
        assert!(matches!(receive::<Client>(&mut b, 130), Err(LineError::TooMany)));
        a.send(b"garbage that is no message at all", &[]).unwrap();
        assert!(receive::<Ask>(&mut b, 0).is_err());
    }
}
