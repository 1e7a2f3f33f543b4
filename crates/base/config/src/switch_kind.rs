//! The switch of a compartment: the key `switch` of `[topology]`.

use super::check::Checker;
use super::file;
use super::levels::{NicSwitchKind, SwitchKind};
use super::quantity::SizeLimits;
use toml::Spanned;

/// Default memory of a P4 switch, and the least that it starts in: each port has packet buffers of 2 MiB.
pub(super) const MEMORY: SizeLimits = SizeLimits { default: 192 << 20, least: 96 << 20, example: "192MiB" };

impl Checker<'_> {
    /// Checks which switch compartments have.
    pub(super) fn switch_kind(
        &mut self,
        file: &file::File,
        t: &file::Topology,
        nic_switch: NicSwitchKind,
    ) -> SwitchKind {
        let words = [SwitchKind::Ovs, SwitchKind::P4].map(|kind| (kind.name(), kind));
        let kind = self.word("switch", t.switch.as_ref(), &words);
        let Some(value) = t.switch.as_ref().filter(|_| kind == SwitchKind::P4) else { return kind };
        self.keys_of_ovs(file, t);
        if t.compartment.as_ref().is_some_and(|compartment| compartment.as_ref() == "vm") {
            let message = "switch: \"p4\" does not go with compartment = \"vm\" in this version: the image \
                           of tenants' switches has Open vSwitch; write compartment = \"process\"";
            self.problem(value.span(), message.to_owned());
        }
        if nic_switch == NicSwitchKind::Sriov {
            let message = "switch: \"p4\" does not go with nic_switch = \"sriov\" in this version: its \
                           AF_XDP sockets are at pairs of interfaces; write another nic_switch";
            self.problem(value.span(), message.to_owned());
        }
        kind
    }

    /// Refuses keys that only Open vSwitch has a meaning for.
    fn keys_of_ovs(&mut self, file: &file::File, t: &file::Topology) {
        if let Some(datapath) = &t.datapath {
            let message = "datapath: a P4 switch always receives and sends by AF_XDP; remove the key, or \
                           write switch = \"ovs\"";
            self.problem(datapath.span(), message.to_owned());
        }
        for table in file.tenant.iter().filter_map(|t| t.controllers.as_ref()) {
            let message = "controllers: a P4 switch has neither OVSDB nor OpenFlow; remove \
                           [tenant.controllers], or write switch = \"ovs\" in [topology]";
            self.problem(table.private_key.span(), message.to_owned());
        }
        let ids = file.tenant.iter().flat_map(|t| &t.vm).filter_map(|vm| vm.iface_id.as_ref());
        for span in ids.map(Spanned::span) {
            let message = "iface_id: only Open vSwitch's database has it; remove the key, or write switch = \
                           \"ovs\" in [topology]";
            self.problem(span, message.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::topology::tests::{TOPOLOGY, errors, parse};
    use crate::{Datapath, SwitchKind};

    /// Returns the topology with these keys more.
    fn with(keys: &str) -> String {
        TOPOLOGY.replacen("uplink", &format!("{keys}\nuplink"), 1)
    }

    #[test]
    fn p4_switches_go_with_each_level() {
        for level in ["baseline", "1", "2", "3"] {
            let text = with("switch = \"p4\"").replacen("\"2\"", &format!("{level:?}"), 1);
            let config = parse(&text).unwrap();
            let topology = config.topology.unwrap();
            assert_eq!((topology.switch, topology.datapath), (SwitchKind::P4, Datapath::Afxdp), "{level}");
            assert_eq!((config.level.name(), topology.memory), (level, 192 << 20));
        }
    }

    #[test]
    fn what_only_open_vswitch_has_is_refused_with_p4_switches() {
        for (keys, problem) in [
            ("datapath = \"dpdk\"", "datapath: a P4 switch always receives and sends by AF_XDP"),
            ("compartment = \"vm\"", "switch: \"p4\" does not go with compartment = \"vm\""),
            (
                "nic_switch = \"sriov\"\noutside_vlan = 9",
                "switch: \"p4\" does not go with nic_switch = \"sriov\"",
            ),
            ("memory = \"64MiB\"", "memory"),
        ] {
            let error = errors(&with(&format!("switch = \"p4\"\n{keys}")));
            assert!(error.contains(problem), "{error}");
        }
        assert!(errors(&with("switch = \"vpp\"")).ends_with("write \"ovs\" or \"p4\""));
    }
}
