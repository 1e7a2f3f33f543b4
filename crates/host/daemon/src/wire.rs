//! The attachment `wire` in the daemon: one loop, which is one lane, serves all wires.

use crate::attachment::{Attachment, ChannelEnd, LaneKey};
use crate::config::{Config, Wire};
use crate::problem::Problem;
use crate::problems;
use crate::status::{SideStatus, WireStatus};
use crate::text::chain;
use crate::totals::Totals;
use p4shield_attach_wire::{Error, Guard, LoopConfig, WireConfig, WireId, WireLoop, WireSide};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The only lane.
const LOOP: LaneKey = LaneKey(0);

/// The running loop, with the configured wires.
pub(crate) struct WireAttachment {
    wires: WireLoop,
    configured: Mutex<Vec<(Wire, WireId)>>,
}

fn wire_config(w: &Wire) -> WireConfig {
    let mut wire = WireConfig::new(&w.vm_interface, &w.switch_interface, w.vm);
    wire.others = w.others;
    wire.own_addresses_only = w.own_addresses_only;
    wire
}

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
        let add = |w: &Wire| Ok((w.clone(), wires.add_wire(wire_config(w))?));
        let configured = config.wires.iter().map(add).collect::<Result<_, Error>>()?;
        Ok(Self { wires, configured: Mutex::new(configured) })
    }

    fn apply(&self, config: &Config) -> Result<(), Error> {
        let mut configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = |w: &Wire| (w.vm_interface.clone(), w.switch_interface.clone());
        for (old, id) in std::mem::take(&mut *configured) {
            if config.wires.iter().any(|w| ends(w) == ends(&old)) {
                configured.push((old, id));
            } else {
                // The operator gives the interfaces back to the host.
                self.wires.remove_wire(id, true)?;
            }
        }
        self.wires.change_tenants(p4shield_attach::mediator_config(config))?;
        for wire in &config.wires {
            match configured.iter_mut().find(|(old, _)| ends(old) == ends(wire)) {
                Some((old, id)) => {
                    if old != wire {
                        self.wires.change_wire(*id, wire_config(wire))?;
                        *old = wire.clone();
                    }
                }
                None => configured.push((wire.clone(), self.wires.add_wire(wire_config(wire))?)),
            }
        }
        Ok(())
    }
}

impl Attachment for WireAttachment {
    fn check(&self, config: &Config) -> Result<(), String> {
        let checked = self.wires.check_tenants(p4shield_attach::mediator_config(config));
        checked.map_err(|e| chain(&e))
    }

    fn preview(&self, config: &Config) -> Vec<Problem> {
        let running = self.wires();
        let side = |interface: &str| {
            let up = Path::new("/sys/class/net").join(interface).exists();
            let remark = (!up).then(|| format!("there is no interface {interface}"));
            SideStatus { interface: interface.to_owned(), up, remark, ..SideStatus::default() }
        };
        let wire = |w: &Wire| {
            let (vm, switch) = (&w.vm_interface, &w.switch_interface);
            let same = |s: &&WireStatus| (&s.vm.interface, &s.switch.interface) == (vm, switch);
            let new = || WireStatus { name: vm.clone(), vm: side(vm), switch: side(switch) };
            running.iter().find(same).cloned().unwrap_or_else(new)
        };
        problems::of_wires(config, &config.wires.iter().map(wire).collect::<Vec<_>>())
    }

    fn reconfigure(&self, config: &Config) -> Result<(), String> {
        self.apply(config).map_err(|e| chain(&e))
    }

    fn lanes(&self) -> Vec<LaneKey> {
        vec![LOOP]
    }

    /// The lane never changes, and supervisors poll for faults.
    fn on_change(&self, _wake: Box<dyn Fn() + Send + Sync>) {}

    fn attach_channel(&self, _lane: LaneKey, tenant: usize, end: ChannelEnd) -> Result<(), String> {
        let link = end.into_channel().map_err(|e| chain(&e))?;
        self.wires.replace_channel(tenant, Some(link)).map_err(|e| e.to_string())
    }

    fn detach_channels(&self, tenant: usize) {
        // An error means that the loop and its channels have ended.
        let _ = self.wires.replace_channel(tenant, None);
    }

    fn fault(&self, tenant: usize) -> Option<String> {
        self.wires.mediate(move |m| m.fault(tenant)).ok().flatten().map(|fault| chain(&fault))
    }

    fn totals(&self) -> Totals {
        Totals::of(&self.wires.counters())
    }

    fn wires(&self) -> Vec<WireStatus> {
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
        status.iter().map(wire).collect()
    }
}
