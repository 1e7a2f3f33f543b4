//! Questions of the switch in a compartment to the process outside: for ports, and how interfaces are.

use crate::line::{Ask, MOST, Seen, Told, receive, send};
use p4shield_control::Socket;
use p4shield_io::afxdp::handed::adopt;
use p4shield_io::afxdp::{Error, PortPart};
use p4shield_switch::Share;
use p4shield_text::chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest time for an answer: an interface whose queues are still in use is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connection to the process outside.
#[derive(Debug)]
pub(crate) struct Opener(Mutex<Connection>);

#[derive(Debug)]
struct Connection {
    socket: Socket,
    /// An answer did not come: the next one would not be that to the next question.
    is_broken: bool,
}

impl Opener {
    pub(crate) const fn new(socket: Socket) -> Self {
        Self(Mutex::new(Connection { socket, is_broken: false }))
    }

    /// Opens an interface as a port of as many threads as the switch has.
    pub(crate) fn open(&self, interface: &str, share: Share) -> Result<Vec<PortPart>, Error> {
        let ask = Ask::Open { interface: interface.to_owned(), first: share.first };
        match self.ask(&ask)? {
            (Told::Opened(description), descriptors) => adopt(&description, descriptors, share),
            (Told::Failed(why), _) => Err(Error::Handed { why }),
            _ => Err(unexpected()),
        }
    }

    fn look(&self, interfaces: Vec<String>) -> Result<Vec<Option<Seen>>, Error> {
        match self.ask(&Ask::Look { interfaces })? {
            (Told::Looked(seen), _) => Ok(seen),
            (Told::Failed(why), _) => Err(Error::Handed { why }),
            _ => Err(unexpected()),
        }
    }

    /// Says something that has no answer. The process outside may have ended.
    pub(crate) fn say(&self, ask: &Ask) {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = send(&connection.socket, ask, &[]);
    }

    pub(crate) fn ask(&self, ask: &Ask) -> Result<(Told, Vec<OwnedFd>), Error> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.is_broken {
            return Err(Error::Handed { why: "the process that opens ports gave no answer".to_owned() });
        }
        let failed = |error: &(dyn std::error::Error + 'static)| Error::Handed {
            why: format!("the process that opens ports does not answer: {}", chain(error)),
        };
        // A question that is not sent, such as one about a name that is too long, has no answer to wait for.
        send(&connection.socket, ask, &[]).map_err(|e| failed(&e))?;
        connection.is_broken = true;
        connection.socket.wait(Some(PATIENCE)).map_err(|e| failed(&e))?;
        let message = receive(&mut connection.socket, MOST).map_err(|e| failed(&e))?;
        connection.is_broken = false;
        Ok((message.body, message.descriptors))
    }
}

fn unexpected() -> Error {
    Error::Handed { why: "the process that opens ports answers something else".to_owned() }
}

/// The interfaces as the process outside sees them.
#[derive(Debug)]
pub(crate) struct OutsideWatch {
    opener: Arc<Opener>,
    bell: OwnedFd,
    seen: Vec<(String, Option<Seen>)>,
}

impl OutsideWatch {
    pub(crate) const fn new(opener: Arc<Opener>, bell: OwnedFd) -> Self {
        Self { opener, bell, seen: Vec::new() }
    }

    /// Looks how these interfaces are.
    pub(crate) fn look(&mut self, interfaces: Vec<String>) -> Result<(), Error> {
        let seen = self.opener.look(interfaces.clone())?;
        self.seen = interfaces.into_iter().zip(seen).collect();
        Ok(())
    }

    /// Sleeps until an interface changes or `bell` is readable, at most for `longest`.
    pub(crate) fn wait(&self, longest: Duration, bell: BorrowedFd<'_>) -> Result<(), Error> {
        let timeout = Timespec::try_from(longest).ok();
        let own = self.bell.as_fd();
        let mut fds = [PollFd::new(&own, PollFlags::IN), PollFd::new(&bell, PollFlags::IN)];
        // A signal only makes it look earlier.
        let _ = poll(&mut fds, timeout.as_ref());
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        Ok(())
    }

    pub(crate) fn find(&self, name: &str) -> Option<Seen> {
        self.seen.iter().find(|(n, _)| n == name).and_then(|(_, seen)| *seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_not_sent_costs_no_other_one() {
        let (ours, mut theirs) = Socket::pair().unwrap();
        let opener = Opener::new(ours);
        let outside = std::thread::spawn(move || {
            receive::<Ask>(&mut theirs, 0).unwrap();
            send(&theirs, Told::Looked(vec![None]), &[]).unwrap();
        });
        assert!(opener.look(vec!["x".repeat(1 << 20)]).is_err());
        assert_eq!(opener.look(vec!["veth1".to_owned()]).unwrap(), [None]);
        outside.join().unwrap();
    }
}
