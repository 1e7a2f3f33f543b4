//! The part of a switch that its packet threads share: program, traffic manager, queues and recording.
//!
//! A thread locks all of it for one batch, so that a program never runs twice at a time: its registers,
//! meters and `@atomic` blocks are as those of a switch with one thread. Threads receive and send beside each
//! other.

use crate::numbers::MAX_PORTS;
use crate::program::{Traits, Twin};
use crate::queue::{Queue, QueueLimits};
use crate::record::Recorder;
use p4shield_bpf::Program;
use p4shield_traffic::Traffic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state of a recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) recorder: Recorder,
    /// When it ends unless a client takes records before, in nanoseconds since the start.
    pub(crate) until_ns: u64,
    /// True while the twin runs.
    pub(crate) traced: bool,
}

/// The shared part of a switch.
#[derive(Debug)]
pub struct Shared {
    pub(crate) program: Program,
    pub(crate) traits: Traits,
    /// Multicast groups and clone sessions.
    pub traffic: Traffic,
    pub(crate) queues: Queues,
    /// The program compiled for tracing, or the plain one while that runs.
    pub(crate) twin: Option<Twin>,
    pub(crate) recording: Option<Recording>,
}

impl Shared {
    pub(crate) fn new(program: Program, traits: Traits) -> Self {
        Self { program, traits, traffic: Traffic::new(), queues: Queues::new(), twin: None, recording: None }
    }

    /// Returns the program, whose maps hold the entries of its tables.
    pub const fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Returns true if packets wait between ingress and egress.
    pub(crate) const fn waits_before(&self) -> bool {
        self.traits.reads_queues && !self.queues.ports.is_empty()
    }
}

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

    /// Returns the numbers of the ports that have a queue.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the limits of each queue, by number of the port.
    pub(crate) fn limits(&self, port: u16) -> Option<QueueLimits> {
        self.get(port).map(|queue| queue.limits)
    }
}

/// The shared part behind its lock, and what a thread looks at without locking it.
#[derive(Debug)]
pub(crate) struct Locked {
    shared: Mutex<Shared>,
    /// True if there is a queue.
    has_queues: AtomicBool,
    /// True if packets are recorded.
    records: AtomicBool,
}

impl Locked {
    pub(crate) fn new(shared: Shared) -> Self {
        let (has_queues, records) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { shared: Mutex::new(shared), has_queues, records }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a thread looks at without the lock, after a change.
    pub(crate) fn note(&self, shared: &Shared) {
        self.has_queues.store(!shared.queues.ports.is_empty(), Ordering::Relaxed);
        self.records.store(shared.recording.is_some(), Ordering::Relaxed);
    }

    pub(crate) fn has_queues(&self) -> bool {
        self.has_queues.load(Ordering::Relaxed)
    }

    pub(crate) fn records(&self) -> bool {
        self.records.load(Ordering::Relaxed)
    }
}
