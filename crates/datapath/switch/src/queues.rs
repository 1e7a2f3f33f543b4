//! The queues of ports, which all packet threads share behind a lock. A thread that locks its pipeline, too,
//! locks that first.

use crate::numbers::MAX_PORTS;
use crate::queue::{Queue, QueueLimits};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The queues of ports.
#[derive(Debug)]
pub(crate) struct Queues {
    /// By number of the port.
    all: Box<[Option<Queue>]>,
    /// Numbers of the ports that have one, ascending.
    ports: Vec<u16>,
}

impl Queues {
    fn new() -> Self {
        let all = std::iter::repeat_with(|| None).take(MAX_PORTS).collect();
        Self { all, ports: Vec::with_capacity(MAX_PORTS) }
    }

    /// Returns the queue of a port.
    pub(crate) fn get(&self, port: u16) -> Option<&Queue> {
        self.all.get(usize::from(port))?.as_ref()
    }

    /// Returns the queue of a port.
    #[inline]
    pub(crate) fn get_mut(&mut self, port: u16) -> Option<&mut Queue> {
        self.all.get_mut(usize::from(port))?.as_mut()
    }

    /// Replaces the queue of a port.
    pub(crate) fn set(&mut self, port: u16, queue: Option<Queue>) {
        let Some(place) = self.all.get_mut(usize::from(port)) else { return };
        self.ports.retain(|number| *number != port);
        self.ports.extend(queue.as_ref().map(|_| port));
        self.ports.sort_unstable();
        *place = queue;
    }

    /// Returns whether a port has a queue.
    pub(crate) const fn exist(&self) -> bool {
        !self.ports.is_empty()
    }

    /// Returns the numbers of the ports that have a queue.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the limits of a port's queue.
    pub(crate) fn limits(&self, port: u16) -> Option<QueueLimits> {
        self.get(port).map(|queue| queue.limits)
    }
}

/// The queues behind their lock.
#[derive(Debug)]
pub(crate) struct QueueLock {
    queues: Mutex<Queues>,
    /// True if there is one: a thread looks here first, and locks nothing if not.
    exist: AtomicBool,
}

impl QueueLock {
    pub(crate) fn new() -> Self {
        Self { queues: Mutex::new(Queues::new()), exist: AtomicBool::new(false) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the queues if there are any.
    #[inline]
    pub(crate) fn lock_any(&self) -> Option<MutexGuard<'_, Queues>> {
        self.exist().then(|| self.lock())
    }

    #[inline]
    pub(crate) fn exist(&self) -> bool {
        self.exist.load(Ordering::Relaxed)
    }

    /// Notes whether there is a queue, after a change.
    pub(crate) fn note(&self, queues: &Queues) {
        self.exist.store(queues.exist(), Ordering::Relaxed);
    }
}
