//! How the link thread leaves something for a thread that must not wait.
//!
//! The owner looks whether anything is there with one load. It takes no more than was counted as left, so it never meets
//! a message that is still being written: there is one [`Poster`], and it counts a message after the channel has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// The end that leaves messages. Not to be cloned: see the module.
pub(crate) struct Poster<T> {
    sender: mpsc::Sender<T>,
    posted: Arc<AtomicUsize>,
}

/// The end that takes them.
pub(crate) struct Mailbox<T> {
    receiver: mpsc::Receiver<T>,
    posted: Arc<AtomicUsize>,
    taken: usize,
}

pub(crate) fn mailbox<T>() -> (Poster<T>, Mailbox<T>) {
    let (sender, receiver) = mpsc::channel();
    let posted = Arc::new(AtomicUsize::new(0));
    (Poster { sender, posted: Arc::clone(&posted) }, Mailbox { receiver, posted, taken: 0 })
}

impl<T> Poster<T> {
    /// Leaves a message. One for an owner that is gone is dropped.
    pub(crate) fn post(&self, message: T) {
        if self.sender.send(message).is_ok() {
            self.posted.fetch_add(1, Ordering::Release);
        }
    }
}

impl<T> Mailbox<T> {
    /// Whether there is a message.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.posted.load(Ordering::Acquire) != self.taken
    }

    /// The next message. Never waits.
    pub(crate) fn take(&mut self) -> Option<T> {
        if !self.has_news() {
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        self.receiver.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_once_and_in_order() {
        let (poster, mut mailbox) = mailbox();
        assert!(!mailbox.has_news() && mailbox.take().is_none());
        let thread = std::thread::spawn(move || (0..10_000).for_each(|n| poster.post(n)));
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
        assert!(!mailbox.has_news() && mailbox.take().is_none());
    }

    #[test]
    fn an_owner_that_is_gone_is_no_error() {
        let (poster, mailbox) = mailbox();
        drop(mailbox);
        poster.post(1);
    }
}
