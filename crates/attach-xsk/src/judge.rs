//! Who decides about the packets of one direction of one socket.

use std::sync::Arc;

use p4shield_afxdp::relay::{Judge, Judged, Parcel, PassAll};
use p4shield_attach::Lane;
use p4shield_mediator::{Outcome, Released};

use crate::packet::{Memory, UmemPacket};

/// A lane, or nobody.
#[derive(Debug)]
pub(crate) enum Verdicts {
    /// Everything passes.
    Nobody,
    /// The lane's tenants.
    Lane(Box<Lane<UmemPacket>>, Arc<Memory>),
}

fn judged(released: Released<UmemPacket>) -> Judged {
    Judged { parcel: released.packet.into_parcel(), pass: released.outcome == Outcome::Pass }
}

impl Judge for Verdicts {
    #[inline]
    fn submit(&mut self, now: u64, parcel: Parcel) -> Option<Judged> {
        match self {
            Self::Nobody => PassAll.submit(now, parcel),
            Self::Lane(lane, memory) => {
                // SAFETY: the parcel is of the socket's memory, which is kept beside the lane; the pump that owns both
                // drains the lane before it is dropped.
                let packet = unsafe { UmemPacket::new(parcel, memory) };
                lane.submit(now, packet).map(judged)
            }
        }
    }

    #[inline]
    fn poll(&mut self, now: u64, mut sink: impl FnMut(Judged)) {
        if let Self::Lane(lane, _) = self {
            lane.poll(now, usize::MAX, |released| sink(judged(released)));
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Nobody => 0,
            Self::Lane(lane, _) => lane.held(),
        }
    }

    fn drain(&mut self, mut sink: impl FnMut(Judged)) {
        if let Self::Lane(lane, _) = self {
            lane.drain(|released| sink(judged(released)));
        }
    }
}
