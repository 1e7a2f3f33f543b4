//! Questions to switches that run programs themselves, and who waits for the answers.

use p4shield_attach::Peer;
use p4shield_control::{ClientError, Reply, SocketError, printable, printable_lines};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Those that are open.
#[derive(Default)]
pub(super) struct Asks(Mutex<Open>);

#[derive(Default)]
struct Open {
    next: u32,
    waiting: HashMap<u32, (Arc<Peer>, Sender<Reply>)>,
}

/// A question whose answer is waited for.
pub(super) struct Asked<'a> {
    asks: &'a Asks,
    pub(super) id: u32,
    answer: Receiver<Reply>,
}

impl Asks {
    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a question to this switch.
    pub(super) fn ask(&self, peer: &Arc<Peer>) -> Asked<'_> {
        let (sender, answer) = channel();
        let mut open = self.open();
        open.next = open.next.wrapping_add(1);
        let id = open.next;
        open.waiting.insert(id, (Arc::clone(peer), sender));
        Asked { asks: self, id, answer }
    }

    /// An answer came. One that nobody asked this switch for is ignored.
    pub(super) fn answered(&self, peer: &Arc<Peer>, id: u32, reply: Reply) {
        let mut open = self.open();
        if open.waiting.get(&id).is_some_and(|(asked, _)| Arc::ptr_eq(asked, peer))
            && let Some((_, sender)) = open.waiting.remove(&id)
        {
            // Who asked may have stopped waiting.
            let _ = sender.send(reply);
        }
    }

    /// A switch left: whoever waits for it waits no longer.
    pub(super) fn left(&self, peer: &Arc<Peer>) {
        self.open().waiting.retain(|_, (asked, _)| !Arc::ptr_eq(asked, peer));
    }
}

impl Asked<'_> {
    /// Waits for the answer.
    pub(super) fn wait(self, timeout: Duration) -> Result<Reply, ClientError> {
        match self.answer.recv_timeout(timeout) {
            Ok(Reply::Failed(text)) => Err(ClientError::Failed(printable(&text))),
            Ok(Reply::Refused(text)) => Err(ClientError::Refused(printable_lines(&text))),
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(SocketError::Timeout(timeout).into()),
            Err(RecvTimeoutError::Disconnected) => Err(SocketError::Closed.into()),
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.asks.open().waiting.remove(&self.id);
    }
}
