//! Packets that wait for a run, in buffers that are allocated once.

use p4shield_abi::channel::MAX_HEADER_BYTES;
use p4shield_abi::division::MAX_BLOCK_SIZE;
use p4shield_bpf::Entry;
use std::collections::VecDeque;

/// Most packets that wait at a time, all caused by one that arrived.
const MAX_WAITING: usize = 64;

/// A packet that waits, with what its run needs.
#[derive(Debug, Default)]
pub(crate) struct Job {
    /// Where the run starts; port and replication id come from the group, if there is one.
    pub(crate) entry: Entry,
    /// The multicast group, for each member of which there is a run.
    pub(crate) group: Option<u16>,
    /// The packet.
    pub(crate) bytes: Vec<u8>,
    /// The program's block.
    pub(crate) block: Vec<u8>,
}

/// The jobs that wait, first in, first out.
#[derive(Debug)]
pub(crate) struct Jobs {
    waiting: VecDeque<Job>,
    spare: Vec<Job>,
}

impl Jobs {
    pub(crate) fn new() -> Self {
        let job = || Job {
            bytes: Vec::with_capacity(MAX_HEADER_BYTES as usize),
            block: Vec::with_capacity(MAX_BLOCK_SIZE),
            ..Job::default()
        };
        Self {
            waiting: VecDeque::with_capacity(MAX_WAITING),
            spare: std::iter::repeat_with(job).take(MAX_WAITING).collect(),
        }
    }

    /// Appends a job. Returns false if there is no room.
    pub(crate) fn push(&mut self, entry: Entry, group: Option<u16>, bytes: &[u8], block: &[u8]) -> bool {
        let Some(mut job) = self.spare.pop() else { return false };
        (job.entry, job.group) = (entry, group);
        job.bytes.clear();
        job.bytes.extend_from_slice(bytes);
        job.block.clear();
        job.block.extend_from_slice(block);
        self.waiting.push_back(job);
        true
    }

    /// Removes the first job.
    pub(crate) fn pop(&mut self) -> Option<Job> {
        self.waiting.pop_front()
    }

    /// Takes a job's buffers back.
    pub(crate) fn done(&mut self, job: Job) {
        self.spare.push(job);
    }
}
