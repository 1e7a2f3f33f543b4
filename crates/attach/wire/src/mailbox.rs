//! Work that other threads give to a thread of ours.
//!
//! A job is a closure over the thread's own state. The thread looks whether there is any with one relaxed load,
//! which costs its hot path nothing, and is woken by an eventfd if it sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::engine::Engine;
use crate::supervisor::{Supervisor, SupervisorJob};
use crate::{EngineJob, Error, Result};

/// Jobs of type `J` for one thread.
pub(crate) struct Mailbox<J> {
    pending: AtomicBool,
    /// None when the thread has ended.
    jobs: Mutex<Option<Vec<J>>>,
    bell: OwnedFd,
}

impl<J> Mailbox<J> {
    pub(crate) fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { pending: AtomicBool::new(false), jobs: Mutex::new(Some(Vec::new())), bell })
    }

    /// Leaves a job made from the sender of its result, and waits for the result.
    fn call<R>(&self, job: impl FnOnce(mpsc::Sender<R>) -> J) -> Result<R> {
        let (reply, result) = mpsc::channel();
        {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.as_mut().ok_or(Error::Gone)?.push(job(reply));
            // Inside the lock, so that `take` cannot clear it after taking less than all.
            self.pending.store(true, Ordering::Release);
        }
        // A full eventfd rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        result.recv().map_err(|_| Error::Gone)
    }

    /// Whether there may be jobs.
    #[inline]
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed)
    }

    /// All jobs; the bell is silent afterwards.
    pub(crate) fn take(&self) -> Vec<J> {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        self.pending.store(false, Ordering::Relaxed);
        jobs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Refuses jobs from now on; those that wait get [`Error::Gone`]. Called by the thread when it ends, however
    /// it does.
    pub(crate) fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Mailbox<EngineJob> {
    /// Does something on the hot thread, between two rounds.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        f: impl for<'a, 'p> FnOnce(&'a mut Engine<'p>) -> R + Send + 'static,
    ) -> Result<R> {
        self.call(|reply| -> EngineJob {
            Box::new(move |engine: &mut Engine<'_>| {
                // Nobody waits for the result any more: the caller's business.
                let _ = reply.send(f(engine));
            })
        })
    }
}

impl Mailbox<SupervisorJob> {
    /// Does something on the control thread.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Supervisor) -> R + Send + 'static,
    ) -> Result<R> {
        self.call(|reply| -> SupervisorJob {
            Box::new(move |supervisor| {
                let _ = reply.send(f(supervisor));
            })
        })
    }
}

impl<J> std::fmt::Debug for Mailbox<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("pending", &self.pending).finish_non_exhaustive()
    }
}

impl<J> AsFd for Mailbox<J> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Closes a mailbox when its thread ends or panics.
pub(crate) struct Closing<'m, J>(pub(crate) &'m Mailbox<J>);

impl<J> Drop for Closing<'_, J> {
    fn drop(&mut self) {
        self.0.close();
    }
}
