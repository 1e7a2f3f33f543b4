//! The attachment `wire`, as the daemon runs it: one loop for all wires.

use crate::attachment::{Attachment, SideStatus, WireStatus};
use crate::config::Config;
use p4shield_attach_wire::{Error, Guard, LoopConfig, Side, WireConfig, WireLoop};
use p4shield_mediator::{Counters, Fault, Link};
use std::sync::Arc;

/// A running wire loop.
pub(crate) struct Wires(WireLoop);

impl Wires {
    /// Starts the loop and adds the wires. Interfaces that are not there yet are attached when they come.
    ///
    /// # Errors
    /// What the machine lacks.
    pub(crate) fn start(config: &Config) -> Result<Self, Error> {
        let mut options = LoopConfig::new("p4shield", config.mediator()).for_wires(config.wires.len());
        options.guard = if config.daemon.guard { Guard::Required } else { Guard::Off };
        let wires = WireLoop::spawn(options)?;
        for w in &config.wires {
            let mut wire = WireConfig::new(&w.vm_interface, &w.switch_interface, w.vm);
            wire.others = w.others;
            wire.own_addresses_only = w.own_addresses_only;
            wires.add_wire(wire)?;
        }
        Ok(Self(wires))
    }
}

impl Attachment for Wires {
    fn replace_channel(&self, tenant: usize, link: Option<Link>) -> Result<(), String> {
        self.0.replace_channel(tenant, link).map_err(|e| e.to_string())
    }

    fn fault(&self, tenant: usize) -> Option<Fault> {
        self.0.mediate(move |m| m.fault(tenant)).ok().flatten()
    }

    fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.0.counters())
    }

    fn wires(&self) -> Vec<WireStatus> {
        let (Ok(status), Ok(counters)) = (self.0.status(), self.0.snapshot()) else { return Vec::new() };
        let wire = |s: &p4shield_attach_wire::WireStatus| {
            let counted = counters.wires.iter().find(|c| c.id == s.id).map(|c| c.sides).unwrap_or_default();
            let side = |side: Side| {
                let (status, counted) = (&s.sides[side as usize], counted[side as usize]);
                SideStatus {
                    interface: status.interface.clone(),
                    up: status.attached.is_some(),
                    remark: status.remark.clone(),
                    rx_packets: counted.rx_packets,
                    tx_packets: counted.tx_packets,
                    tx_dropped: counted.dropped_full + counted.dropped_no_interface,
                }
            };
            WireStatus { name: s.name.clone(), vm: side(Side::Vm), switch: side(Side::Switch) }
        };
        status.iter().map(wire).collect()
    }
}
