//! The loop of all wires, in the process that serves them.

use super::message::{PART, WireSetup, WiresSetup};
use crate::status::{SideStatus, WireStatus};
use p4shield_attach::{Count, UnownedCounts};
use p4shield_attach_wire::{Error, Guard, LoopConfig, WireId, WireLoop, WireSide};
use p4shield_mediator::{Config, P4VmChannel};
use p4shield_text::chain;
use std::collections::BTreeMap;

/// The running loop, with its wires and channels.
pub(super) struct WireHost {
    wires: WireLoop,
    setup: WiresSetup,
    configured: Vec<(WireSetup, WireId)>,
    /// By tenant: the daemon's number of its channel.
    channels: BTreeMap<usize, u32>,
}

/// Returns the tenants for the mediator.
fn tenants(setup: &WiresSetup) -> Result<Config, String> {
    setup.tenants.mediator().map_err(|e| chain(&e))
}

fn text<T>(result: Result<T, Error>) -> Result<T, String> {
    result.map_err(|e| chain(&e))
}

impl WireHost {
    /// Starts the loop and adds the wires. A missing interface is attached as soon as it exists.
    pub(super) fn start(setup: WiresSetup) -> Result<Self, String> {
        let mut options = LoopConfig::new("p4shield", tenants(&setup)?).for_wires(setup.wires.len());
        options.guard = if setup.guard { Guard::Required } else { Guard::Off };
        let wires = text(WireLoop::spawn(options))?;
        let add = |w: &WireSetup| Ok((w.clone(), wires.add_wire(w.config())?));
        let configured = text(setup.wires.iter().map(add).collect::<Result<_, Error>>())?;
        Ok(Self { wires, setup, configured, channels: BTreeMap::new() })
    }

    /// Checks whether a setup can be applied.
    pub(super) fn check(&self, setup: &WiresSetup) -> Result<(), String> {
        text(self.wires.check_tenants(tenants(setup)?))
    }

    /// Applies a setup.
    pub(super) fn apply(&mut self, setup: WiresSetup) -> Result<(), String> {
        if setup == self.setup {
            return Ok(());
        }
        let tenants = tenants(&setup)?;
        text(self.change(&setup, tenants))?;
        self.setup = setup;
        Ok(())
    }

    fn change(&mut self, setup: &WiresSetup, tenants: Config) -> Result<(), Error> {
        for (old, id) in std::mem::take(&mut self.configured) {
            if setup.wires.iter().any(|w| w.ends() == old.ends()) {
                self.configured.push((old, id));
            } else {
                // The operator gives the interfaces back to the host.
                self.wires.remove_wire(id, true)?;
            }
        }
        self.wires.change_tenants(tenants)?;
        for wire in &setup.wires {
            match self.configured.iter_mut().find(|(old, _)| old.ends() == wire.ends()) {
                Some((old, id)) => {
                    if old != wire {
                        self.wires.change_wire(*id, wire.config())?;
                        *old = wire.clone();
                    }
                }
                None => self.configured.push((wire.clone(), self.wires.add_wire(wire.config())?)),
            }
        }
        Ok(())
    }

    /// Gives the loop a channel to a tenant's P4 VM.
    pub(super) fn attach(&mut self, tenant: usize, number: u32, link: P4VmChannel) -> Result<(), String> {
        text(self.wires.replace_channel(tenant, Some(link)))?;
        self.channels.insert(tenant, number);
        Ok(())
    }

    /// Removes the channel to a tenant's P4 VM, and its fault.
    pub(super) fn detach(&mut self, tenant: usize) {
        self.channels.remove(&tenant);
        // An error means that the loop and its channels have ended.
        let _ = self.wires.replace_channel(tenant, None);
    }

    /// Returns why the mediator gave up the channel to a tenant's P4 VM.
    pub(super) fn fault(&self, tenant: usize) -> Option<String> {
        self.wires.mediate(move |m| m.fault(tenant)).ok().flatten().map(|fault| chain(&fault))
    }

    /// Returns the channels that work, by tenant.
    pub(super) fn channels(&self) -> Vec<(u32, u32)> {
        let works = |(tenant, _): &(&usize, &u32)| self.fault(**tenant).is_none();
        // Tenants are fewer than 65536.
        self.channels.iter().filter(works).map(|(tenant, number)| (*tenant as u32, *number)).collect()
    }

    /// Returns counters of VMs and directions, after the first `skip`.
    pub(super) fn counts(&self, skip: usize) -> (Vec<Count>, UnownedCounts) {
        let counters = self.wires.counters();
        let counts = Count::all(&counters).skip(skip).take(PART).collect();
        (counts, (&counters.unowned).into())
    }

    /// Returns the status of wires, after the first `skip`.
    pub(super) fn wires(&self, skip: usize) -> Vec<WireStatus> {
        let (Ok(status), Ok(counters)) = (self.wires.status(), self.wires.snapshot()) else {
            return Vec::new();
        };
        let wire = |s: &p4shield_attach_wire::WireStatus| {
            let counted = counters.wires.iter().find(|c| c.id == s.id).map(|c| c.sides).unwrap_or_default();
            let side = |side: WireSide| {
                let (status, counted) = (&s.sides[side as usize], counted[side as usize]);
                SideStatus {
                    interface: status.interface.clone(),
                    up: status.attached.is_some(),
                    remark: status.notice.clone(),
                    rx_packets: counted.rx_packets,
                    tx_packets: counted.tx_packets,
                    tx_dropped: counted.dropped_full + counted.dropped_no_interface,
                }
            };
            WireStatus { name: s.name.clone(), vm: side(WireSide::Vm), switch: side(WireSide::Switch) }
        };
        status.iter().skip(skip).take(PART).map(wire).collect()
    }
}
