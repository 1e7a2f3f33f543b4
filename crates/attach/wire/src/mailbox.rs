//! Jobs that other threads give to a thread of the loop.
//!
//! A job is a closure over the thread's own state. The thread checks for jobs with one load, which costs
//! its hot path nothing; an eventfd wakes it if it sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use p4shield_mailbox::{Mailbox, Poster, mailbox};
use rustix::event::{EventfdFlags, eventfd};

use crate::engine::Engine;
use crate::{EngineJob, Error, Result};

/// Gives jobs of type `J` to a thread.
pub(crate) struct Caller<J> {
    jobs: Mutex<Poster<J>>,
    bell: Arc<OwnedFd>,
}

/// The jobs of a thread. When the thread ends and drops this, waiting callers get [`Error::Gone`].
pub(crate) struct Jobs<J> {
    mailbox: Mailbox<J>,
    bell: Arc<OwnedFd>,
}

/// Creates both ends.
pub(crate) fn jobs<J>() -> Result<(Caller<J>, Jobs<J>)> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let bell = eventfd(0, flags).map_err(|e| Error::system("make an eventfd")(io::Error::from(e)))?;
    let (bell, (poster, mailbox)) = (Arc::new(bell), mailbox());
    Ok((Caller { jobs: Mutex::new(poster), bell: Arc::clone(&bell) }, Jobs { mailbox, bell }))
}

impl<J> Caller<J> {
    /// Posts a job made from the sender of its result, and waits for the result.
    pub(crate) fn call<R>(&self, job: impl FnOnce(mpsc::Sender<R>) -> J) -> Result<R> {
        let (reply, result) = mpsc::channel();
        if !self.jobs.lock().unwrap_or_else(PoisonError::into_inner).post(job(reply)) {
            return Err(Error::Gone);
        }
        // A full eventfd rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        result.recv().map_err(|_| Error::Gone)
    }
}

impl<J> Jobs<J> {
    /// Returns whether there are jobs.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.mailbox.has_messages()
    }

    /// Silences the bell and takes all jobs.
    pub(crate) fn take(&mut self) -> Vec<J> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        std::iter::from_fn(|| self.mailbox.take()).collect()
    }
}

impl<J> AsFd for Jobs<J> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Caller<EngineJob> {
    /// Runs `f` on the hot thread, between two rounds.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        f: impl for<'a, 'p> FnOnce(&'a mut Engine<'p>) -> R + Send + 'static,
    ) -> Result<R> {
        self.call(|reply| -> EngineJob {
            Box::new(move |engine: &mut Engine<'_>| {
                // An error means that the caller no longer waits.
                let _ = reply.send(f(engine));
            })
        })
    }
}

impl<J> std::fmt::Debug for Caller<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").field("bell", &self.bell).finish_non_exhaustive()
    }
}
