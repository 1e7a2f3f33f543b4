//! The channels of a P4 VM, one to each lane of the attachment; lanes come and go.

use super::ANSWER_TIMEOUT;
use super::SupervisorConfig;
use crate::attachment::{ChannelEnd, LaneKey, PacketMemoryFile};
use p4shield_channel::{Doorbell, create_channel};
use p4shield_compartment::{Compartment, is_recoverable};
use p4shield_control::{ClientError, Request, Resources, Status};
use p4shield_text::chain;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

/// The channels of the running P4 VM.
#[derive(Debug)]
pub(super) struct Channels {
    /// By lane: the channel's number; none if the P4 VM refused the channel.
    lanes: BTreeMap<LaneKey, Option<u32>>,
    /// Number of the newest channel. Numbers are never used twice, so that a late fault is attributed to its
    /// channel.
    newest: u32,
    /// Reason why the P4 VM last refused a channel.
    refusal: String,
    /// Channels that an adopted P4 VM serves and whose lanes have not connected yet.
    unclaimed: BTreeSet<u32>,
    /// When the P4 VM was adopted.
    adopted: Option<Instant>,
}

/// Time within which the switches of an adopted P4 VM connect.
const CLAIM_TIME: Duration = Duration::from_secs(10);

impl Default for Channels {
    fn default() -> Self {
        // Other daemons used other numbers: a lane may still have a channel that one of them made.
        let newest = RandomState::new().build_hasher().finish() as u32;
        let (lanes, unclaimed) = (BTreeMap::new(), BTreeSet::new());
        Self { lanes, newest, refusal: String::new(), unclaimed, adopted: None }
    }
}

impl Channels {
    /// Forgets all channels: a new P4 VM has none.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.unclaimed.clear();
    }

    /// Takes over the channels that an adopted P4 VM serves.
    pub(super) fn adopt(&mut self, status: &Status) {
        self.clear();
        let served = status.channels.iter().filter(|c| c.fault.is_none()).map(|c| c.channel);
        self.unclaimed = served.collect();
        self.adopted = Some(Instant::now());
    }

    /// Detaches the channels whose lanes have not connected in time.
    fn detach_unclaimed(&mut self, process: &mut dyn Compartment) -> Result<(), ClientError> {
        if self.adopted.is_some_and(|since| since.elapsed() > CLAIM_TIME) {
            self.adopted = None;
            for channel in std::mem::take(&mut self.unclaimed) {
                detach(process, channel)?;
            }
        }
        Ok(())
    }

    /// Detaches all channels at the P4 VM. The mediators keep their ends until they get others, so that no
    /// packet is lost.
    ///
    /// # Errors
    /// The control socket is unusable and the P4 VM must be replaced.
    pub(super) fn detach_all(&mut self, process: &mut dyn Compartment) -> Result<(), ClientError> {
        for channel in std::mem::take(&mut self.lanes).into_values().flatten() {
            detach(process, channel)?;
        }
        Ok(())
    }

    /// Connects new lanes and removes the channels of lanes that are gone. Returns why the P4 VM refused
    /// channels, if it did; the tenant's policy applies to the packets of those lanes.
    ///
    /// # Errors
    /// The control socket is unusable and the P4 VM must be replaced, or a channel cannot be created.
    pub(super) fn update(
        &mut self,
        config: &SupervisorConfig,
        process: &mut dyn Compartment,
    ) -> Result<Option<String>, ClientError> {
        self.detach_unclaimed(process)?;
        let lanes = if config.connected { config.attachment.lanes() } else { Vec::new() };
        let gone: Vec<_> = self.lanes.keys().copied().filter(|l| !lanes.contains(l)).collect();
        for lane in &gone {
            if let Some(channel) = self.lanes.remove(lane).flatten() {
                detach(process, channel)?;
            }
        }
        // The P4 VM may now have room for channels that it refused.
        if !gone.is_empty() {
            self.lanes.retain(|_, channel| channel.is_some());
        }
        for lane in lanes {
            if self.lanes.contains_key(&lane) {
                continue;
            }
            let served = |channel| self.unclaimed.contains(&channel);
            if let Some(channel) = config.attachment.keep_channel(lane, config.index, &served) {
                self.unclaimed.remove(&channel);
                self.lanes.insert(lane, Some(channel));
                continue;
            }
            match self.connect(config, process, lane) {
                Ok(channel) => drop(self.lanes.insert(lane, Some(channel))),
                Err(e) if is_recoverable(&e) => {
                    self.refusal = e.to_string();
                    self.lanes.insert(lane, None);
                }
                Err(e) => return Err(e),
            }
        }
        let refused = self.lanes.values().filter(|c| c.is_none()).count();
        Ok((refused > 0).then(|| format!("{refused} lanes have no channel to the P4 VM: {}", self.refusal)))
    }

    /// Creates a channel between the P4 VM and the lane's mediator, and returns its number. If the P4 VM
    /// cannot map the lane's packet memory, the mediator copies headers.
    fn connect(
        &mut self,
        config: &SupervisorConfig,
        process: &mut dyn Compartment,
        lane: LaneKey,
    ) -> Result<u32, ClientError> {
        let Some(packets) = config.attachment.packet_memory(lane, config.index) else {
            return self.connect_with(config, process, lane, None);
        };
        match self.connect_with(config, process, lane, Some(&packets)) {
            Err(e) if is_recoverable(&e) => {
                let tenant = &config.tenant.name;
                tracing::warn!(
                    event = "packet_memory_refused",
                    tenant,
                    error = %e,
                    "the P4 VM cannot map the packet memory; it receives \
                     header copies"
                );
                self.connect_with(config, process, lane, None)
            }
            result => result,
        }
    }

    fn connect_with(
        &mut self,
        config: &SupervisorConfig,
        process: &mut dyn Compartment,
        lane: LaneKey,
        packets: Option<&PacketMemoryFile>,
    ) -> Result<u32, ClientError> {
        let geometry = config.tenant.geometry;
        let failed = |e: &dyn std::error::Error| ClientError::Failed(chain(e));
        let memory = create_channel(&config.tenant.name, geometry).map_err(|e| failed(&e))?;
        let (doorbell, theirs) = Doorbell::pair().map_err(|e| failed(&e))?;
        let file = memory.fd().ok_or(ClientError::Unexpected)?;
        self.newest = self.newest.wrapping_add(1);
        let number = self.newest;
        let mut resources = Resources::none();
        let request = Request::AttachChannel {
            channel: number,
            geometry: geometry.into(),
            memory: resources.add(&file),
            doorbell: resources.add(&theirs),
            packets: packets.map(|p| (resources.add(&p.memory), p.len)),
        };
        process.call(request, &resources, ANSWER_TIMEOUT)?;
        let end = ChannelEnd { number, memory, geometry, doorbell, zero_copy: packets.is_some() };
        config.attachment.attach_channel(lane, config.index, end).map_err(ClientError::Failed)?;
        Ok(number)
    }
}

/// Detaches a channel at the P4 VM, which may have given it up already.
fn detach(process: &mut dyn Compartment, channel: u32) -> Result<(), ClientError> {
    match process.call(Request::DetachChannel { channel }, &Resources::none(), ANSWER_TIMEOUT) {
        Err(e) if !is_recoverable(&e) => Err(e),
        _ => Ok(()),
    }
}
