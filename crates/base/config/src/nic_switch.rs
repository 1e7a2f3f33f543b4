//! The NIC switch: the keys `nic_switch` and `outside_vlan` of `[topology]`.

use super::check::Checker;
use super::file;
use super::inner_wires::is_judged;
use super::levels::{Level, NicSwitchKind};
use toml::Spanned;

/// Highest VLAN identifier that IEEE 802.1Q leaves to users.
pub(super) const MAX_VLAN: u16 = 4094;

/// Returns the highest VLAN that a tenant may have.
pub(super) const fn last_vlan(nic_switch: NicSwitchKind) -> u16 {
    match nic_switch {
        NicSwitchKind::Tc | NicSwitchKind::Xdp | NicSwitchKind::Sriov => MAX_VLAN,
        // Inside a bridge, compartments' sides to the outside and the uplink have the last one.
        NicSwitchKind::Bridge => MAX_VLAN - 1,
    }
}

impl Checker<'_> {
    /// Checks the back end of the NIC switch, which the baseline does not have.
    pub(super) fn nic_switch(
        &mut self,
        file: &file::File,
        t: &file::Topology,
        level: Level,
    ) -> NicSwitchKind {
        let words = NicSwitchKind::ALL.map(|kind| (kind.name(), kind));
        let kind = self.word("nic_switch", t.nic_switch.as_ref(), &words);
        let Some(value) = &t.nic_switch else { return kind };
        if level == Level::Baseline {
            let message = "nic_switch: level = \"baseline\" has no NIC switch; write another level, or \
                           remove the key";
            self.problem(value.span(), message.to_owned());
        }
        if kind == NicSwitchKind::Sriov {
            self.card(file, t, value.span());
        }
        kind
    }

    /// Refuses what a network card does not do.
    fn card(&mut self, file: &file::File, t: &file::Topology, span: std::ops::Range<usize>) {
        if t.compartment.as_ref().is_some_and(|value| value.as_ref() == "vm") {
            let message = "nic_switch: \"sriov\" does not go with compartment = \"vm\" in this version: \
                           virtual functions go into processes' namespaces; write compartment = \"process\"";
            self.problem(span, message.to_owned());
        }
        for tenant in &file.tenant {
            for vm in &tenant.vm {
                if let Some(rate) = &vm.packet_rate {
                    let message = "packet_rate: a network card limits bits, not packets; remove the key, or \
                                   write another nic_switch";
                    self.problem(rate.span(), message.to_owned());
                }
                if is_judged(tenant, vm) {
                    let message = format!(
                        "VM {:?} has a virtual function with nic_switch = \"sriov\", so its packets pass no \
                         interface of the host where a program could judge them; remove its programs, \
                         pages and the tenant's socket, bundle_key and no_program, or write another \
                         nic_switch",
                        vm.name.as_ref()
                    );
                    self.problem(vm.name.span(), message);
                }
            }
        }
    }

    /// Checks the VLAN of compartments' sides to the outside, 0 for none, which only a card puts on a wire.
    /// Tenants have those from `first` on.
    pub(super) fn outside_vlan(&mut self, t: &file::Topology, kind: NicSwitchKind, first: u16) -> u16 {
        match (&t.outside_vlan, kind) {
            (None, NicSwitchKind::Sriov) => {
                let span = t.nic_switch.as_ref().map_or(0..0, Spanned::span);
                let message = "nic_switch: \"sriov\" needs outside_vlan, the VLAN in which switches and the \
                               outside's router are; 0 is none, and then a switch that was taken over may \
                               ask the card for tenants' VLANs";
                self.problem(span, message.to_owned());
                0
            }
            (None, _) => 0,
            (Some(value), NicSwitchKind::Sriov) => {
                let vlan = self.number("outside_vlan", Some(value), 0, 0, MAX_VLAN);
                if vlan >= first {
                    let message = format!(
                        "outside_vlan: {vlan} may be a tenant's: they have the VLANs from {first} on; write \
                         a lower one, or a higher first_vlan"
                    );
                    self.problem(value.span(), message);
                }
                vlan
            }
            (Some(value), _) => {
                let message = "outside_vlan: only a network card puts switches into a VLAN; write nic_switch \
                               = \"sriov\", or remove the key";
                self.problem(value.span(), message.to_owned());
                0
            }
        }
    }
}

#[cfg(test)]
mod tests;
