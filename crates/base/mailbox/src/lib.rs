//! A mailbox: a queue of messages to a polling thread, which must not wait.
//!
//! The owner of the [`Mailbox`] checks for messages with one load. It takes no more messages than
//! were counted, so it never meets a message that is still being written: there is one [`Poster`],
//! which counts a message after the queue has it. A sleeping owner needs a bell besides; which one
//! is the caller's choice.
//!
//! [`Doze`] tells another thread whether a bell is needed, for any queue.
#![forbid(unsafe_code)]

mod doze;

pub use doze::Doze;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// The sending end. It cannot be cloned: see the crate's documentation.
#[derive(Debug)]
pub struct Poster<T> {
    /// `None` once closed.
    sender: Option<mpsc::Sender<T>>,
    posted: Arc<AtomicUsize>,
}

/// The receiving end.
#[derive(Debug)]
pub struct Mailbox<T> {
    receiver: mpsc::Receiver<T>,
    posted: Arc<AtomicUsize>,
    taken: usize,
    closed: bool,
}

/// Creates a mailbox.
#[must_use]
pub fn mailbox<T>() -> (Poster<T>, Mailbox<T>) {
    let (sender, receiver) = mpsc::channel();
    let posted = Arc::new(AtomicUsize::new(0));
    let poster = Poster { sender: Some(sender), posted: Arc::clone(&posted) };
    (poster, Mailbox { receiver, posted, taken: 0, closed: false })
}

impl<T> Poster<T> {
    /// Posts a message. Returns false, and drops the message, if the mailbox is gone or this end is closed.
    pub fn post(&self, message: T) -> bool {
        let posted = self.sender.as_ref().is_some_and(|s| s.send(message).is_ok());
        if posted {
            self.posted.fetch_add(1, Ordering::Release);
        }
        posted
    }

    /// Closes the mailbox, as dropping this end does: the owner takes what was posted, then finds it closed.
    pub fn close(&mut self) {
        if self.sender.take().is_some() {
            // The owner polls once more, and finds the queue at its end.
            self.posted.fetch_add(1, Ordering::Release);
        }
    }
}

impl<T> Drop for Poster<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> Mailbox<T> {
    /// Returns whether there is a message, or the end of messages, to take: one load.
    #[inline]
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.posted.load(Ordering::Acquire) != self.taken
    }

    /// Takes the next message. Never waits.
    pub fn take(&mut self) -> Option<T> {
        if !self.has_messages() {
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        let message = self.receiver.try_recv().ok();
        self.closed |= message.is_none();
        message
    }

    /// Returns whether [`Self::take`] found that the poster is gone.
    #[inline]
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_once_and_in_order() {
        let (poster, mut mailbox) = mailbox();
        assert!(!mailbox.has_messages() && mailbox.take().is_none());
        let thread = std::thread::spawn(move || (0..10_000).for_each(|n| assert!(poster.post(n))));
        let mut next = 0;
        while next < 10_000 {
            match mailbox.take() {
                Some(n) => {
                    assert_eq!(n, next);
                    next += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        thread.join().unwrap();
        assert!(mailbox.take().is_none() && mailbox.is_closed() && !mailbox.has_messages());
    }

    #[test]
    fn a_closed_mailbox_yields_its_messages_first() {
        let (mut poster, mut mailbox) = mailbox();
        assert!(poster.post(1));
        poster.close();
        poster.close();
        assert!(!poster.post(2));
        assert_eq!((mailbox.take(), mailbox.is_closed()), (Some(1), false));
        assert!(mailbox.has_messages());
        assert_eq!((mailbox.take(), mailbox.is_closed()), (None, true));
        drop(poster);
        assert!(!mailbox.has_messages());
    }

    #[test]
    fn a_message_to_a_gone_owner_is_dropped() {
        let (poster, mailbox) = mailbox();
        drop(mailbox);
        assert!(!poster.post(1));
    }
}
