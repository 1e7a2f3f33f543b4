//! The mailbox between the control thread, which sends commands, and the worker, which answers them.
//!
//! An empty mailbox costs the worker one load per round. An answer costs it neither a lock nor a system call:
//! its place is allocated in advance, and the control thread polls for it.

use super::command::{WorkerAnswer, WorkerCommand};
use p4shield_channel::Doorbell;
use p4shield_channel::futex::{self, FutexScope, FutexWait};
use p4shield_mailbox::Poster;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// Shortest and longest pause of the control thread between two looks for an answer.
const PAUSES: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];

/// The control thread's end.
pub struct WorkerHandle {
    commands: Poster<WorkerCommand>,
    answers: Receiver<WorkerAnswer>,
    doorbell: Doorbell,
    /// Incremented to wake a worker that sleeps at it.
    futex_word: Arc<AtomicU32>,
}

/// The worker's end.
pub struct Mailbox {
    commands: p4shield_mailbox::Mailbox<WorkerCommand>,
    answers: SyncSender<WorkerAnswer>,
    doorbell: Doorbell,
    futex_word: Arc<AtomicU32>,
    disconnected: bool,
}

/// Creates both ends.
///
/// # Errors
/// The doorbell's descriptors cannot be created.
pub fn mailbox() -> Result<(WorkerHandle, Mailbox), rustix::io::Errno> {
    let (ours, theirs) = Doorbell::pair()?;
    let (poster, commands) = p4shield_mailbox::mailbox();
    // One command is answered before the next one is sent.
    let (answer, answers) = sync_channel(1);
    let futex_word = Arc::new(AtomicU32::new(0));
    Ok((
        WorkerHandle { commands: poster, answers, doorbell: ours, futex_word: Arc::clone(&futex_word) },
        Mailbox { commands, answers: answer, doorbell: theirs, futex_word, disconnected: false },
    ))
}

impl WorkerHandle {
    /// Sends a command and waits for the answer. Returns `None` if the worker has ended.
    pub fn send(&self, command: WorkerCommand) -> Option<WorkerAnswer> {
        self.post(command).then_some(())?;
        self.wake_at_futex();
        // A worker about to sleep either finds the futex word changed or polls the doorbell's descriptor.
        self.doorbell.ring().then_some(())?;
        // A receiver that sleeps in the channel would cost the worker a system call.
        let [mut pause, longest] = PAUSES;
        loop {
            match self.answers.try_recv() {
                Ok(answer) => return Some(answer),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// Posts a command without waking the worker.
    pub(super) fn post(&self, command: WorkerCommand) -> bool {
        self.commands.post(command)
    }

    /// Returns the answer, if it is there.
    #[cfg(test)]
    pub(super) fn answer(&self) -> Option<WorkerAnswer> {
        self.answers.try_recv().ok()
    }

    fn wake_at_futex(&self) {
        self.futex_word.fetch_add(1, Ordering::Release);
        futex::wake(&self.futex_word, FutexScope::Threads);
    }
}

/// Wakes a worker that sleeps at its futexes, which does not notice that the doorbell closes.
impl Drop for WorkerHandle {
    fn drop(&mut self) {
        self.commands.close();
        self.wake_at_futex();
    }
}

impl Mailbox {
    /// Returns the futex word, which each command increments.
    pub(super) fn seen(&self) -> u32 {
        self.futex_word.load(Ordering::Acquire)
    }

    /// Returns the futex to sleep at while the futex word is `seen`.
    pub(super) fn futex(&self, seen: u32) -> FutexWait<'_> {
        FutexWait::private(&self.futex_word, seen)
    }

    /// Returns whether there may be commands.
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.commands.has_messages() || self.disconnected
    }

    /// Returns the next command.
    pub(super) fn take(&mut self) -> Option<WorkerCommand> {
        let command = self.commands.take();
        self.disconnected |= self.commands.is_closed();
        command
    }

    pub(super) fn answer(&mut self, answer: WorkerAnswer) {
        // There is room: see `mailbox`.
        self.disconnected |= self.answers.try_send(answer).is_err();
    }

    /// Returns whether the control thread has ended.
    pub(super) const fn disconnected(&self) -> bool {
        self.disconnected
    }

    pub(super) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.fd()
    }

    /// Drains the doorbell after waking. A closed doorbell means that the control thread has ended.
    pub(super) fn drain(&mut self) {
        self.disconnected |= !self.doorbell.drain();
    }
}

/// Runs programs, as the control thread sees it: a worker, or a switch that runs them itself.
pub(crate) trait ProgramRunner {
    /// Sends a command and waits for the answer. Returns `None` if the worker has ended.
    fn send(&self, command: WorkerCommand) -> Option<WorkerAnswer>;
}

impl ProgramRunner for WorkerHandle {
    fn send(&self, command: WorkerCommand) -> Option<WorkerAnswer> {
        Self::send(self, command)
    }
}
