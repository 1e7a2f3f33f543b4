//! Control requests to switches that run programs themselves, and the supervisors that wait for the replies.

use p4shield_attach::Peer;
use p4shield_control::{ClientError, Reply, SocketError};
use p4shield_text::{printable, printable_lines};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The requests without a reply.
#[derive(Default)]
pub(super) struct PendingRequests(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    next: u32,
    waiting: HashMap<u32, (Arc<Peer>, Sender<Reply>)>,
}

/// A request whose reply the caller waits for.
pub(super) struct PendingRequest<'a> {
    all: &'a PendingRequests,
    pub(super) id: u32,
    reply: Receiver<Reply>,
}

impl PendingRequests {
    fn lock(&self) -> std::sync::MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request to this switch and assigns its number.
    pub(super) fn open(&self, peer: &Arc<Peer>) -> PendingRequest<'_> {
        let (sender, reply) = channel();
        let mut open = self.lock();
        open.next = open.next.wrapping_add(1);
        let id = open.next;
        open.waiting.insert(id, (Arc::clone(peer), sender));
        PendingRequest { all: self, id, reply }
    }

    /// Delivers a reply. A reply without a request to this switch is ignored.
    pub(super) fn complete(&self, peer: &Arc<Peer>, id: u32, reply: Reply) {
        let mut open = self.lock();
        if open.waiting.get(&id).is_some_and(|(switch, _)| Arc::ptr_eq(switch, peer))
            && let Some((_, sender)) = open.waiting.remove(&id)
        {
            // An error means that the caller no longer waits.
            let _ = sender.send(reply);
        }
    }

    /// Cancels the requests to a switch that has left.
    pub(super) fn cancel(&self, peer: &Arc<Peer>) {
        self.lock().waiting.retain(|_, (switch, _)| !Arc::ptr_eq(switch, peer));
    }
}

impl PendingRequest<'_> {
    /// Waits for the reply.
    pub(super) fn wait(self, timeout: Duration) -> Result<Reply, ClientError> {
        match self.reply.recv_timeout(timeout) {
            Ok(Reply::Failed(text)) => Err(ClientError::Failed(printable(&text))),
            Ok(Reply::Refused(text)) => Err(ClientError::Refused(printable_lines(&text))),
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => Err(SocketError::Timeout(timeout).into()),
            Err(RecvTimeoutError::Disconnected) => Err(SocketError::Closed.into()),
        }
    }
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.all.lock().waiting.remove(&self.id);
    }
}
