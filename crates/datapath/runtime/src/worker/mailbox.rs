//! Orders from the control thread to the worker, and its answers.
//!
//! The worker pays one relaxed load per round for a mailbox that is empty. Orders and what they carry were allocated
//! by the control thread, and what has to be freed is answered back to it.

use super::{Served, Vm};
use crate::program::Loaded;
use p4shield_channel::Doorbell;
use p4shield_channel::futex::{self, FutexScope, FutexWait};
use p4shield_control::{Entries, ProgramSlot, Status};
use p4shield_mailbox::Poster;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something to do with a program between two batches.
pub(super) type Work = Box<dyn FnOnce(&mut Loaded) -> Result<Entries, String> + Send>;

/// An order.
pub enum Order {
    /// Makes a VM known.
    SetVm(Box<Vm>),
    /// Replaces a program; `None` takes it away.
    SetProgram(ProgramSlot, Option<Box<Loaded>>),
    /// Serves one more channel, with its doorbell.
    Attach(Box<Served>, Doorbell),
    /// Serves a channel no longer.
    Detach(u32),
    /// Reads or writes a program's maps.
    WithProgram(ProgramSlot, Work),
    /// Asks how things are.
    Status,
    /// Ends the worker.
    Stop,
}

/// The answer to an order.
pub enum Answer {
    /// Done.
    Done,
    /// Done; this program runs no longer.
    Retired(Option<Box<Loaded>>),
    /// Done; this channel is served no longer.
    Detached(Box<Served>, Doorbell),
    /// What [`Order::WithProgram`] brought.
    Worked(Result<Entries, String>),
    /// How things are.
    Status(Box<Status>),
    /// It cannot be done.
    Failed(String),
}

/// The control thread's end.
pub struct Control {
    orders: Poster<Order>,
    answers: Receiver<Answer>,
    bell: Doorbell,
    /// Counted up to wake a worker that sleeps there.
    word: Arc<AtomicU32>,
}

/// The worker's end.
pub struct Mailbox {
    orders: p4shield_mailbox::Mailbox<Order>,
    answers: Sender<Answer>,
    bell: Doorbell,
    word: Arc<AtomicU32>,
    orphaned: bool,
}

/// Both ends.
///
/// # Errors
/// No descriptor is left for the doorbell.
pub fn mailbox() -> Result<(Control, Mailbox), rustix::io::Errno> {
    let (ours, theirs) = Doorbell::pair()?;
    let (poster, orders) = p4shield_mailbox::mailbox();
    let (answer, answers) = channel();
    let word = Arc::new(AtomicU32::new(0));
    Ok((
        Control { orders: poster, answers, bell: ours, word: Arc::clone(&word) },
        Mailbox { orders, answers: answer, bell: theirs, word, orphaned: false },
    ))
}

impl Control {
    /// Gives an order and waits for its answer. `None` if the worker is gone.
    pub fn order(&self, order: Order) -> Option<Answer> {
        self.orders.post(order).then_some(())?;
        self.wake_at_word();
        // Wherever it sleeps: one that is about to finds its word changed, or polls the bell's descriptor.
        self.bell.ring().then_some(())?;
        self.answers.recv().ok()
    }
}

impl Control {
    fn wake_at_word(&self) {
        self.word.fetch_add(1, Ordering::Release);
        futex::wake(&self.word, FutexScope::Threads);
    }
}

/// A worker that sleeps at its words is not told by the bell's end that nobody gives orders any more.
impl Drop for Control {
    fn drop(&mut self) {
        self.orders.close();
        self.wake_at_word();
    }
}

impl Mailbox {
    /// What stands in the word that is counted up for each order.
    pub(super) fn seen(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// That word, to sleep at until it is not `seen` any more.
    pub(super) fn word(&self, seen: u32) -> FutexWait<'_> {
        FutexWait::private(&self.word, seen)
    }

    /// Whether there may be orders.
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.orders.has_messages() || self.orphaned
    }

    /// The next order.
    pub(super) fn take(&mut self) -> Option<Order> {
        let order = self.orders.take();
        self.orphaned |= self.orders.is_closed();
        order
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        self.orphaned |= self.answers.send(answer).is_err();
    }

    /// Whether the control thread is gone.
    pub(super) const fn orphaned(&self) -> bool {
        self.orphaned
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    /// After waking: an end that hung up means that the control thread is gone.
    pub(super) fn silence(&mut self) {
        self.orphaned |= !self.bell.drain();
    }
}
