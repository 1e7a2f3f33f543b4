//! Who decides about the packets of one direction of one socket.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use p4shield_attach::Lane;
use p4shield_channel::Sleeper;
use p4shield_mediator::{Outcome, Released};
use p4shield_xsk_relay::relay::{JudgedPacket, PassAll, RelayedPacket, VerdictSource};

use crate::packet::{Memory, UmemPacket};
use crate::rest::Rest;

/// A lane, or nobody.
#[derive(Debug)]
pub(crate) enum Verdicts {
    /// Everything passes.
    Nobody,
    /// The lane's tenants.
    Lane(Box<Asked>),
}

/// A lane, and the memory that its packets are in.
#[derive(Debug)]
pub(crate) struct Asked {
    lane: Lane<UmemPacket>,
    memory: Arc<Memory>,
    /// Whether its P4 VMs ring for a thread that sleeps.
    announced: bool,
}

impl Verdicts {
    /// Those of a lane about packets in this memory.
    pub(crate) fn of(lane: Lane<UmemPacket>, memory: &Arc<Memory>) -> Self {
        Self::Lane(Box::new(Asked { lane, memory: Arc::clone(memory), announced: false }))
    }

    /// The kernel has sent what passed.
    pub(crate) fn sent(&mut self) {
        if let Self::Lane(asked) = self {
            asked.lane.sent();
        }
    }

    /// Has P4 VMs ring for a thread that is about to sleep, and says for how long it may. False if it is to look once
    /// more instead.
    pub(crate) fn announce(&mut self, now: u64, rest: &mut Rest) -> bool {
        let Self::Lane(asked) = self else { return true };
        // A judge that holds nothing is not polled, and its news would keep the thread awake.
        asked.lane.look(now);
        if asked.lane.held() == 0 {
            return true;
        }
        if !asked.lane.announce() {
            return false;
        }
        asked.announced = true;
        asked.lane.doorbells().for_each(|bell| rest.watch(bell.as_raw_fd(), libc::POLLIN));
        if let Some(due) = asked.lane.next_deadline(now) {
            rest.at_most(due.saturating_sub(now));
        }
        true
    }

    /// A thread that slept is awake: silences what `rang` for it, and if `nobody` else sleeps has P4 VMs ring no more.
    pub(crate) fn awake(&mut self, rang: bool, nobody: bool) {
        let Self::Lane(asked) = self else { return };
        if !asked.announced {
            return;
        }
        if rang {
            asked.lane.silence();
        }
        if nobody {
            asked.announced = false;
            asked.lane.retract();
        }
    }
}

fn judged(released: Released<UmemPacket>) -> JudgedPacket {
    JudgedPacket { packet: released.packet.into_relayed(), pass: released.outcome == Outcome::Pass }
}

impl VerdictSource for Verdicts {
    #[inline]
    fn submit(&mut self, now: u64, packet: RelayedPacket) -> Option<JudgedPacket> {
        match self {
            Self::Nobody => PassAll.submit(now, packet),
            Self::Lane(asked) => {
                // SAFETY: the packet is of the socket's memory, which is kept beside the lane; the pump that owns both
                // drains the lane before it is dropped.
                let packet = unsafe { UmemPacket::new(packet, &asked.memory) };
                asked.lane.submit(now, packet).map(judged)
            }
        }
    }

    #[inline]
    fn poll(&mut self, now: u64, mut sink: impl FnMut(JudgedPacket)) {
        if let Self::Lane(asked) = self {
            asked.lane.poll(now, usize::MAX, |released| sink(judged(released)));
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Nobody => 0,
            Self::Lane(asked) => asked.lane.held(),
        }
    }

    fn drain(&mut self, mut sink: impl FnMut(JudgedPacket)) {
        if let Self::Lane(asked) = self {
            asked.lane.drain(|released| sink(judged(released)));
        }
    }
}
