//! The channels of a P4 VM: one to each lane of the attachment, which come and go.

use super::Charge;
use super::process::{ANSWER, Process, in_step};
use crate::attachment::{ChannelEnd, LaneKey, Packets};
use crate::text::chain;
use p4shield_channel::{Doorbell, create_channel};
use p4shield_control::{ClientError, Request};
use std::collections::BTreeMap;
use std::os::fd::AsFd;

/// The channels of the P4 VM that runs.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// By lane: the channel's number, or none if the P4 VM would not serve one more.
    lanes: BTreeMap<LaneKey, Option<u32>>,
    /// Number of the newest one. Never used twice, so that word of an old one is known for what it is.
    newest: u32,
    /// What the P4 VM said when it last refused one.
    refusal: String,
}

impl Channels {
    /// Another P4 VM, which has none.
    pub(super) fn forget(&mut self) {
        self.lanes.clear();
    }

    /// Makes channels for lanes that have come and removes those of lanes that are gone. Why the P4 VM refused some, if it
    /// did: their packets get the tenant's policy.
    ///
    /// # Errors
    /// The P4 VM is out of step and has to be replaced, or channels cannot be made.
    pub(super) fn follow(
        &mut self,
        charge: &Charge,
        process: &mut Process,
    ) -> Result<Option<String>, ClientError> {
        let lanes = charge.attachment.lanes();
        let gone: Vec<_> = self.lanes.keys().copied().filter(|l| !lanes.contains(l)).collect();
        for lane in &gone {
            if let Some(channel) = self.lanes.remove(lane).flatten() {
                process.ask(Request::DetachChannel { channel }, &[], ANSWER).map(drop).or_else(tolerate)?;
            }
        }
        // Where some are gone there is room for those that were refused.
        if !gone.is_empty() {
            self.lanes.retain(|_, channel| channel.is_some());
        }
        for lane in lanes {
            if self.lanes.contains_key(&lane) {
                continue;
            }
            match self.make(charge, process, lane) {
                Ok(channel) => drop(self.lanes.insert(lane, Some(channel))),
                Err(e) if in_step(&e) => {
                    self.refusal = e.to_string();
                    self.lanes.insert(lane, None);
                }
                Err(e) => return Err(e),
            }
        }
        let refused = self.lanes.values().filter(|c| c.is_none()).count();
        Ok((refused > 0).then(|| format!("{refused} lanes have no channel to its P4 VM: {}", self.refusal)))
    }

    /// Gives P4 VM and mediator the two ends of a fresh channel. A P4 VM that cannot map the lane's packet memory has headers
    /// copied.
    fn make(&mut self, charge: &Charge, process: &mut Process, lane: LaneKey) -> Result<u32, ClientError> {
        let Some(packets) = charge.attachment.packets(lane, charge.index) else {
            return self.make_over(charge, process, lane, None);
        };
        match self.make_over(charge, process, lane, Some(&packets)) {
            Err(e) if in_step(&e) => {
                let tenant = &charge.tenant.name;
                tracing::warn!(tenant, error = %e, "its P4 VM does not map packet memory, so it gets header copies");
                self.make_over(charge, process, lane, None)
            }
            result => result,
        }
    }

    fn make_over(
        &mut self,
        charge: &Charge,
        process: &mut Process,
        lane: LaneKey,
        packets: Option<&Packets>,
    ) -> Result<u32, ClientError> {
        let geometry = charge.tenant.geometry;
        let failed = |e: &dyn std::error::Error| ClientError::Failed(chain(e));
        let memory = create_channel(&charge.tenant.name, geometry).map_err(|e| failed(&e))?;
        let (doorbell, theirs) = Doorbell::pair().map_err(|e| failed(&e))?;
        let fd = memory.fd().ok_or(ClientError::Unexpected)?;
        self.newest = self.newest.wrapping_add(1);
        let number = self.newest;
        let packet_bytes = packets.map(|p| p.len);
        let request =
            Request::AttachChannel { channel: number, geometry: geometry.into(), packets: packet_bytes };
        let mut descriptors = vec![fd, theirs.fd()];
        descriptors.extend(packets.map(|p| p.memory.as_fd()));
        process.ask(request, &descriptors, ANSWER)?;
        let end = ChannelEnd { number, memory, geometry, doorbell, zero_copy: packets.is_some() };
        charge.attachment.attach(lane, charge.index, end).map_err(ClientError::Failed)?;
        Ok(number)
    }
}

/// A P4 VM that has forgotten a channel by itself is in step.
fn tolerate(error: ClientError) -> Result<(), ClientError> {
    if in_step(&error) { Ok(()) } else { Err(error) }
}
