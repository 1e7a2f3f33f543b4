//! Adoption of another setup while packets flow, and what remains while there is no daemon.

use super::{Channel, LaneEntry, Registry};
use crate::message::LaneId;
use crate::setup::{Setup, SetupError};
use crate::sides::Rule;
use p4shield_config::Role;
use p4shield_mediator::VmRef;
use rustix::fd::OwnedFd;
use std::sync::Arc;

impl Registry {
    /// Adopts the daemon's tenants and ports. Returns which tenants are the same as before, by number and
    /// name: they keep their channels, and their lanes all that is held. Returns `None` if nothing differs.
    pub(crate) fn adopt(&mut self, setup: Setup) -> Result<Option<impl Fn(u16) -> bool + use<>>, SetupError> {
        if setup == self.setup {
            return Ok(None);
        }
        let mediator = Arc::new(setup.mediator()?);
        let before = std::mem::replace(&mut self.mediator, Arc::clone(&mediator));
        self.rule = Rule::of(&setup, self.attachment);
        self.setup = setup;
        let is_kept = {
            let (before, mediator) = (Arc::clone(&before), Arc::clone(&mediator));
            move |tenant| mediator.keeps_tenant(&before, tenant)
        };
        let is_kept_vm = |vm: &VmRef| mediator.keeps_vm(&before, *vm);
        for port in self.ports.values_mut() {
            // The daemon sends the new role of a port whose VM is gone.
            if matches!(port.role, Role::Vm(vm) if !is_kept_vm(&vm)) {
                port.role = self.setup.role(&port.info);
            }
            port.transmit = self.setup.may_judge_at_transmit(&port.info);
        }
        self.engines.retain(|tenant, _| is_kept(*tenant));
        // The new mediators inherit these.
        self.elsewhere.retain(is_kept_vm);
        self.bound.retain(is_kept_vm);
        let specs: Vec<_> = self.lanes.values().map(|lane| self.spec(lane.port, lane.facing)).collect();
        for (lane, spec) in self.lanes.values_mut().zip(specs) {
            lane.control.tenants(&before, &mediator, spec);
            lane.keep_channels(mediator.tenants.len(), &is_kept);
        }
        self.rest();
        self.bind();
        self.defer_ingress_elsewhere(self.asked_at_transmit());
        self.describe_transmit(|_| true);
        Ok(Some(is_kept))
    }
}

/// The doorbell of a channel.
pub(crate) struct HeldDoorbell {
    lane: LaneId,
    tenant: usize,
    pub(crate) end: Arc<OwnedFd>,
}

/// Channels while there is no daemon that would detach them.
impl Registry {
    /// Returns the doorbells of all channels.
    pub(crate) fn doorbells(&self) -> Vec<HeldDoorbell> {
        let of_lane = |(lane, entry): (&LaneId, &LaneEntry)| {
            let lane = *lane;
            let bell = |(tenant, channel): (usize, &Channel)| {
                let end = channel.doorbell.clone().filter(|_| channel.number.is_some());
                end.map(|end| HeldDoorbell { lane, tenant, end })
            };
            entry.channels.iter().enumerate().filter_map(bell).collect::<Vec<_>>()
        };
        self.lanes.iter().flat_map(of_lane).collect()
    }

    /// Detaches the channel of a P4 VM that has ended. Another channel since stays.
    pub(crate) fn detach_ended(&mut self, doorbell: &HeldDoorbell) {
        let Some(entry) = self.lanes.get_mut(&doorbell.lane) else { return };
        let Some(channel) = entry.channels.get_mut(doorbell.tenant) else { return };
        if channel.doorbell.as_ref().is_some_and(|end| Arc::ptr_eq(end, &doorbell.end)) {
            *channel = Channel { faults: channel.faults, ..Channel::default() };
            entry.control.channel(doorbell.tenant, None);
        }
    }
}

impl LaneEntry {
    /// Keeps the entries of these tenants' channels; the others have none.
    fn keep_channels(&mut self, tenants: usize, is_kept: impl Fn(u16) -> bool) {
        self.channels.resize_with(tenants, Channel::default);
        for (channel, tenant) in self.channels.iter_mut().zip(0..) {
            if !is_kept(tenant) {
                *channel = Channel::default();
            }
        }
    }
}
