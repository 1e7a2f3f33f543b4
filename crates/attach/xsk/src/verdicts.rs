//! The source of a socket's verdicts in one direction: an `attach::Lane`, which submits packets to the
//! tenants' P4 VMs.
//!
//! A packet's next step is [`Lane::submit`].

use std::os::fd::AsRawFd;
use std::sync::Arc;

use p4shield_attach::Lane;
use p4shield_channel::Sleeper;
use p4shield_mediator::{Disposition, ReleasedPacket};
use p4shield_xsk_relay::relay::{JudgedPacket, PassAll, RelayedPacket, VerdictSource};

use crate::packet::{ApplicationMemory, UmemPacket};
use crate::poll_set::PollSet;

/// The source of verdicts for one direction of a socket.
#[derive(Debug)]
pub(crate) enum Verdicts {
    /// Passes every packet.
    PassAll,
    /// The P4 VMs of a lane.
    Lane(Box<MediatedLane>),
}

/// A lane, and the memory that its packets are in.
#[derive(Debug)]
pub(crate) struct MediatedLane {
    lane: Lane<UmemPacket>,
    memory: Arc<ApplicationMemory>,
    /// Whether the P4 VMs ring doorbells for a sleeping thread.
    watched: bool,
}

impl Verdicts {
    /// Creates the source of a lane whose packets are in `memory`.
    pub(crate) fn of(lane: Lane<UmemPacket>, memory: &Arc<ApplicationMemory>) -> Self {
        Self::Lane(Box::new(MediatedLane { lane, memory: Arc::clone(memory), watched: false }))
    }

    /// Reports to the P4 VMs that the kernel has sent packets that passed.
    pub(crate) fn sent(&mut self) {
        if let Self::Lane(mediated) = self {
            mediated.lane.sent();
        }
    }

    /// Adds the doorbells of the lane's P4 VMs and its next deadline to `set`, for a thread that is
    /// about to sleep. Returns false if the thread must check again instead.
    pub(crate) fn watch(&mut self, now: u64, set: &mut PollSet) -> bool {
        let Self::Lane(mediated) = self else { return true };
        // The lane of a queue without held packets is not polled; unprocessed events would keep the
        // thread awake.
        mediated.lane.check(now);
        if mediated.lane.held() == 0 {
            return true;
        }
        if !mediated.lane.announce() {
            return false;
        }
        mediated.watched = true;
        mediated.lane.doorbells().for_each(|bell| set.watch(bell.as_raw_fd(), libc::POLLIN));
        if let Some(due) = mediated.lane.next_deadline(now) {
            set.limit(due.saturating_sub(now));
        }
        true
    }

    /// Handles the wake-up of a thread: clears doorbells that `rang`, and if `no_sleeper` is left stops
    /// the P4 VMs from ringing.
    pub(crate) fn end_watch(&mut self, rang: bool, no_sleeper: bool) {
        let Self::Lane(mediated) = self else { return };
        if !mediated.watched {
            return;
        }
        if rang {
            mediated.lane.silence();
        }
        if no_sleeper {
            mediated.watched = false;
            mediated.lane.retract();
        }
    }
}

fn judged(released: ReleasedPacket<UmemPacket>) -> JudgedPacket {
    JudgedPacket { packet: released.packet.into_relayed(), pass: released.disposition == Disposition::Pass }
}

impl VerdictSource for Verdicts {
    #[inline]
    fn submit(&mut self, now: u64, packet: RelayedPacket) -> Option<JudgedPacket> {
        match self {
            Self::PassAll => PassAll.submit(now, packet),
            Self::Lane(mediated) => {
                // SAFETY: the packet is in the socket's UMEM, which is kept beside the lane; the pump
                // that owns both drains the lane before it is dropped.
                let packet = unsafe { UmemPacket::new(packet, &mediated.memory) };
                mediated.lane.submit(now, packet).map(judged)
            }
        }
    }

    #[inline]
    fn poll(&mut self, now: u64, mut sink: impl FnMut(JudgedPacket)) {
        if let Self::Lane(mediated) = self {
            mediated.lane.poll(now, usize::MAX, |released| sink(judged(released)));
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::PassAll => 0,
            Self::Lane(mediated) => mediated.lane.held(),
        }
    }

    fn drain(&mut self, mut sink: impl FnMut(JudgedPacket)) {
        if let Self::Lane(mediated) = self {
            mediated.lane.drain(|released| sink(judged(released)));
        }
    }
}
