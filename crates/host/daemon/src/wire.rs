//! The attachment `wire`, as the daemon runs it: one loop for all wires.

use crate::attachment::{Attachment, ChannelEnd, LaneKey, SideStatus, WireStatus};
use crate::config::Config;
use crate::text::chain;
use crate::totals::Totals;
use p4shield_attach_wire::{Error, Guard, LoopConfig, Side, WireConfig, WireLoop};

/// The one lane: the loop.
const LOOP: LaneKey = LaneKey(0);

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
    fn lanes(&self) -> Vec<LaneKey> {
        vec![LOOP]
    }

    /// The loop stays, and its keeper asks for faults anyway.
    fn on_change(&self, _wake: Box<dyn Fn() + Send + Sync>) {}

    fn attach(&self, _lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        let link = end.into_link().map_err(|e| chain(&e))?;
        self.0.replace_channel(tenant, Some(link)).map_err(|e| e.to_string())
    }

    fn detach(&self, tenant: usize) {
        // An error means that the loop has ended, and its channels with it.
        let _ = self.0.replace_channel(tenant, None);
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        self.0.mediate(move |m| m.fault(tenant)).ok().flatten().map(|fault| chain(&fault))
    }

    fn totals(&self) -> Totals {
        Totals::of(self.0.counters())
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
