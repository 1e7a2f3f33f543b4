//! The attachment `wire` in the daemon: one loop, which is one lane, serves all wires.

use crate::attachment::{Attachment, ChannelEnd, LaneKey};
use crate::config::Config;
use crate::status::{SideStatus, WireStatus};
use crate::text::chain;
use crate::totals::Totals;
use p4shield_attach_wire::{Error, Guard, LoopConfig, WireConfig, WireLoop, WireSide};

/// The only lane.
const LOOP: LaneKey = LaneKey(0);

/// The running loop.
pub(crate) struct WireAttachment(WireLoop);

impl WireAttachment {
    /// Starts the loop and adds the wires. A missing interface is attached as soon as it exists.
    ///
    /// # Errors
    /// The machine lacks what the loop needs.
    pub(crate) fn start(config: &Config) -> Result<Self, Error> {
        let mut options = LoopConfig::new("p4shield", p4shield_attach::mediator_config(config))
            .for_wires(config.wires.len());
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

impl Attachment for WireAttachment {
    fn lanes(&self) -> Vec<LaneKey> {
        vec![LOOP]
    }

    /// The lane never changes, and supervisors poll for faults.
    fn on_change(&self, _wake: Box<dyn Fn() + Send + Sync>) {}

    fn attach_channel(&self, _lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        let link = end.into_channel().map_err(|e| chain(&e))?;
        self.0.replace_channel(tenant, Some(link)).map_err(|e| e.to_string())
    }

    fn detach_channels(&self, tenant: usize) {
        // An error means that the loop and its channels have ended.
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
        status.iter().map(wire).collect()
    }
}
