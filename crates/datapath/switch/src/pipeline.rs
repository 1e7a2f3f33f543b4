//! The program with what it needs beside a packet: the traffic manager, and the recording.
//!
//! Several threads share one, or each has its own. A thread locks it for one batch. A shared one never runs
//! twice at a time: its registers, meters and `@atomic` blocks are as those of a switch with one thread, and
//! threads receive and send beside each other. With its own, a thread never waits for another one.

use crate::program::{Traits, Twin};
use crate::record::Recorder;
use p4shield_bpf::Program;
use p4shield_traffic::{Groups, Sessions, Traffic};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The state of a recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) recorder: Recorder,
    /// When it ends unless a client takes records before, in nanoseconds since the start.
    pub(crate) until_ns: u64,
    /// True while the twin runs.
    pub(crate) traced: bool,
}

/// The program with what it needs.
#[derive(Debug)]
pub struct Pipeline {
    pub(crate) program: Program,
    pub(crate) traits: Traits,
    /// Multicast groups and clone sessions.
    pub traffic: Traffic,
    /// The program compiled for tracing, or the plain one while that runs.
    pub(crate) twin: Option<Twin>,
    pub(crate) recording: Option<Recording>,
    /// Number of its program in this process: what one keeps means nothing to another, also of another
    /// pipeline, which threads may exchange while packets wait.
    pub(crate) series: u64,
}

/// Returns a number that no program and no recording had before.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Pipeline {
    pub(crate) fn new(program: Program, traits: Traits) -> Self {
        Self { program, traits, traffic: Traffic::new(), twin: None, recording: None, series: unique() }
    }

    /// Returns the program, whose maps hold the entries of its tables.
    pub const fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Notes whether the packet that is judged now is injected.
    pub(crate) fn injects(&mut self, injects: bool) {
        if let Some(recording) = &mut self.recording {
            recording.recorder.injects = injects;
        }
    }
}

/// A pipeline behind its lock, for the threads that have it.
#[derive(Clone, Debug)]
pub struct PipelineHandle(Arc<Locked>);

#[derive(Debug)]
struct Locked {
    pipeline: Mutex<Pipeline>,
    /// True if packets are recorded: a thread looks here without the lock.
    records: AtomicBool,
}

impl PipelineHandle {
    /// Makes a pipeline with these groups and sessions, for a thread that has it for itself.
    #[must_use]
    pub fn new(program: Program, traits: Traits, groups: Groups, sessions: Sessions) -> Self {
        let mut pipeline = Pipeline::new(program, traits);
        (pipeline.traffic.groups, pipeline.traffic.sessions) = (groups, sessions);
        Self::of(pipeline)
    }

    pub(crate) fn of(pipeline: Pipeline) -> Self {
        Self(Arc::new(Locked { pipeline: Mutex::new(pipeline), records: AtomicBool::new(false) }))
    }

    /// Returns whether both are one pipeline.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Locks it. Other threads that have it wait meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Pipeline> {
        self.0.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether packets are recorded, after a change.
    pub(crate) fn note(&self, pipeline: &Pipeline) {
        self.0.records.store(pipeline.recording.is_some(), Ordering::Relaxed);
    }

    pub(crate) fn records(&self) -> bool {
        self.0.records.load(Ordering::Relaxed)
    }
}
