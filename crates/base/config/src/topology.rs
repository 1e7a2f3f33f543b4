//! The tenants' switches: the key `level`, the table `[topology]`, and what VMs need with it.

use super::Attachment;
use super::check::Checker;
use super::compartment::Machine;
use super::file::{self, Text};
use super::inner_wires::PREFIX;
use super::levels::{Cores, Datapath, Level, NicSwitchKind, SwitchKind};
use super::nic_switch::last_vlan;
use super::quantity::SizeLimits;
use super::switch_kind;
use super::switch_machine::{self, SwitchMachine};
use macaddr::MacAddr6;
use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// First half of the Ethernet addresses that P4 Shield gives to switch compartments; no VM may have one.
/// Locally administered; the rest is "P4" in ASCII.
pub const MAC_PREFIX: [u8; 3] = [0x02, 0x50, 0x34];

/// Highest number of a host. One more stands for networks that no other host is in.
pub const MAX_HOST: u16 = 4094;

/// Default of `first_vlan`.
const FIRST_VLAN: u16 = 100;
/// Highest rate of a VM in packets a second.
pub(super) const MAX_PACKET_RATE: u32 = 10_000_000;
/// Default memory of a switch compartment, and the least that Open vSwitch starts in.
const MEMORY: SizeLimits = SizeLimits { default: 128 << 20, least: 32 << 20, example: "128MiB" };
/// The same of one with DPDK, whose packet buffers are 96 MiB.
const DPDK_MEMORY: SizeLimits = SizeLimits { default: 256 << 20, least: 192 << 20, example: "256MiB" };
/// Default folder of the state.
const STATE: &str = "/var/lib/p4shield/topology";
/// Default folder of the sockets.
const RUN: &str = "/run/p4shield/topology";

/// The tenants' switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The host's interface to the outside network.
    pub uplink: String,
    /// The Ethernet address of the outside network's router.
    pub gateway_mac: MacAddr6,
    /// The host's number in the outside network, which the switches' addresses contain.
    pub host: u16,
    /// The switches' cores.
    pub cores: Cores,
    /// The switch of each compartment.
    pub switch: SwitchKind,
    /// How the switches receive and send.
    pub datapath: Datapath,
    /// The back end of the NIC switch; `None`: [`NicSwitchKind::Xdp`] with P4 switches and on kernels that
    /// cannot do [`NicSwitchKind::Tc`], which it is otherwise.
    pub nic_switch: Option<NicSwitchKind>,
    /// The VLAN in which a network card puts switches' sides to the outside; 0: none.
    pub outside_vlan: u16,
    /// Their virtual machines; `None`: their compartments are processes.
    pub machine: Option<SwitchMachine>,
    /// The VLAN of the first tenant.
    pub first_vlan: u16,
    /// The memory of each switch compartment in bytes.
    pub memory: u64,
    /// The huge pages of each switch in bytes, beside its memory; 0: none.
    pub huge_pages: u64,
    /// The folder of what was applied.
    pub state: PathBuf,
    /// The folder of the compartments' sockets.
    pub run: PathBuf,
}

impl Topology {
    /// Returns the highest VLAN that a tenant may have.
    #[must_use]
    pub fn last_vlan(&self) -> u16 {
        last_vlan(self.nic_switch.unwrap_or_default())
    }
}

impl Checker<'_> {
    pub(super) fn level(&mut self, file: &file::File) -> Level {
        let Some(value) = &file.level else { return Level::Baseline };
        let words = [Level::Baseline, Level::One, Level::Two, Level::Three];
        let words = words.map(|level| (level.name(), level));
        let level = self.word("level", Some(value), &words);
        if level == Level::Baseline {
            return level;
        }
        if file.topology.is_none() {
            let message = format!(
                "level: {:?} needs the table [topology]; write it with uplink and gateway_mac",
                level.name()
            );
            self.problem(value.span(), message);
        }
        level
    }

    /// Refuses the attachments to switches that P4 Shield does not start.
    fn attachment_of_topology(&mut self, t: &file::Topology, attachment: Attachment) {
        let reason = match attachment {
            Attachment::Wire => return,
            Attachment::Dpdk | Attachment::Xsk => {
                "its library judges inside the switch's process, and the compartment of a tenant's switch \
                 reaches neither the daemon nor the memory of P4 VMs"
            }
        };
        let message = format!(
            "[topology] does not go with attachment = \"{}\": {reason}; remove the key attachment, and \
             each VM with a program gets a wire between its interface and the switch",
            attachment.name()
        );
        self.problem(t.uplink.span(), message);
    }

    pub(super) fn topology(
        &mut self,
        file: &file::File,
        level: Level,
        attachment: Attachment,
        machine: &Machine,
    ) -> Option<Topology> {
        self.end_points(file);
        let Some(t) = &file.topology else {
            // Above the baseline, it is the table that is missing.
            if level == Level::Baseline {
                self.no_topology(file);
            }
            return None;
        };
        self.attachment_of_topology(t, attachment);
        let uplink = self.host_interface("uplink", &t.uplink);
        let gateway_mac = self.mac("gateway_mac", &t.gateway_mac);
        let host = self.number("host", t.host.as_ref(), 0, 0, MAX_HOST);
        let nic_switch = self.nic_switch(file, t, level);
        let first_vlan = self.vlans(t, last_vlan(nic_switch), file.tenant.len());
        let outside_vlan = self.outside_vlan(t, nic_switch, first_vlan);
        let cores =
            self.word("cores", t.cores.as_ref(), &[Cores::Shared, Cores::Isolated].map(|c| (c.name(), c)));
        let switch = self.switch_kind(file, t, nic_switch);
        let datapath = match switch {
            SwitchKind::Ovs => self.datapath(t, level),
            SwitchKind::P4 => Datapath::Afxdp,
        };
        let machine = self.switch_machine(file, t, level, datapath, machine);
        let limits = match (datapath, &machine) {
            (Datapath::Dpdk, _) => &DPDK_MEMORY,
            (_, Some(_)) => &switch_machine::MEMORY,
            (Datapath::Afxdp, None) => &switch_kind::MEMORY,
            (Datapath::Sockets, None) => &MEMORY,
        };
        let memory = self.size("memory", t.memory.as_ref(), limits);
        let huge_pages = self.huge_pages(t, switch, datapath);
        self.vms_of_topology(file, t);
        self.zones(file);
        self.rates(file, level);
        self.wires_of_topology(file);
        let state = self.path(t.state.as_deref().unwrap_or(Path::new(STATE)));
        let run = self.path(t.run.as_deref().unwrap_or(Path::new(RUN)));
        // Without an address there is a problem already, and no configuration.
        let gateway_mac = gateway_mac?;
        Some(Topology {
            uplink,
            gateway_mac,
            host,
            cores,
            switch,
            datapath,
            nic_switch: t.nic_switch.as_ref().map(|_| nic_switch),
            outside_vlan,
            machine,
            first_vlan,
            memory,
            huge_pages,
            state,
            run,
        })
    }

    /// Checks how switches receive and send. Level 3 says it, and the key combines it with other levels.
    fn datapath(&mut self, t: &file::Topology, level: Level) -> Datapath {
        let words = [Datapath::Sockets, Datapath::Dpdk].map(|d| (d.name(), d));
        let Some(value) = &t.datapath else {
            return if level == Level::Three { Datapath::Dpdk } else { Datapath::Sockets };
        };
        let datapath = self.word("datapath", Some(value), &words);
        if level == Level::Three && datapath == Datapath::Sockets {
            let message = "datapath: level = \"3\" means \"dpdk\"; remove the key, or write level = \"2\"";
            self.problem(value.span(), message.to_owned());
        }
        datapath
    }

    /// Refuses keys that say nothing without the table.
    fn no_topology(&mut self, file: &file::File) {
        let zones = file.tenant.iter().map(|t| ("zone", t.zone.as_ref()));
        let vms = file.tenant.iter().flat_map(|t| &t.vm);
        let of_vms = vms.clone().flat_map(|v| [("interface", v.interface.as_ref()), ("mac", v.mac.as_ref())]);
        let spans = zones.chain(of_vms).filter_map(|(key, value)| Some((key, value?.span())));
        let rates = vms.filter_map(|v| Some(("packet_rate", v.packet_rate.as_ref()?.span())));
        for (key, span) in spans.chain(rates) {
            let message = format!(
                "{key}: only tenants' switches need it, and there is no table [topology]; write the table, \
                 or remove the key"
            );
            self.problem(span, message);
        }
    }

    /// Checks that each tenant has a VLAN up to the last. Returns the first.
    fn vlans(&mut self, t: &file::Topology, last: u16, tenants: usize) -> u16 {
        let first = self.number("first_vlan", t.first_vlan.as_ref(), FIRST_VLAN, 1, last);
        let available = usize::from(last.saturating_sub(first)) + 1;
        if tenants > available {
            let span = t.first_vlan.as_ref().map_or_else(|| t.uplink.span(), Spanned::span);
            let remedy = match usize::from(last).checked_sub(tenants) {
                Some(most) => format!("write first_vlan = {} or less", most + 1),
                None => format!("divide the tenants among hosts: one has at most {last}"),
            };
            let message = format!(
                "first_vlan: the VLANs from {first} to {last} are fewer than the {tenants} tenants; \
                 {remedy}"
            );
            self.problem(span, message);
        }
        first
    }

    /// Checks that each VM has what the tenants' switches need, and that nothing is two parties'.
    fn vms_of_topology(&mut self, file: &file::File, t: &file::Topology) {
        let vms = || file.tenant.iter().flat_map(|t| &t.vm);
        for vm in vms() {
            let missing = [
                ("interface", vm.interface.is_none(), "the host's side of its veth pair or tap"),
                ("mac", vm.mac.is_none(), "the Ethernet address of its network interface"),
            ];
            for (key, _, meaning) in missing.into_iter().filter(|(_, missing, _)| *missing) {
                let message = format!(
                    "VM {:?} has no {key}, which [topology] needs: write {key} = \"...\", {meaning}",
                    vm.name.as_ref()
                );
                self.problem(vm.name.span(), message);
            }
            if let Some(vni) = &vm.vni {
                let message = "vni: with [topology], addresses are unique over all tenants in this version, \
                               so there is one network; remove the key";
                self.problem(vni.span(), message.to_owned());
            }
            if let Some(interface) = &vm.interface {
                self.host_interface("interface", interface);
            }
        }
        // The uplink comes first: a VM that has it is what is wrong.
        let interfaces = vms().filter_map(|v| v.interface.as_ref());
        self.unique("interface", std::iter::once(&t.uplink).chain(interfaces));
        self.unique_macs(std::iter::once(&t.gateway_mac).chain(vms().filter_map(|v| v.mac.as_ref())));
        self.one_form_of_addresses(vms().flat_map(|v| &v.addresses));
    }

    /// Refuses IPv6 forms of IPv4 addresses, which no packet has and which would hide that two are equal.
    fn one_form_of_addresses<'f>(&mut self, addresses: impl Iterator<Item = &'f Text>) {
        for text in addresses {
            let Ok(address) = text.as_ref().parse::<IpAddr>() else { continue };
            let canonical = address.to_canonical();
            if canonical != address {
                let message =
                    format!("addresses: {address} is an IPv4 address in the form of IPv6; write {canonical}");
                self.problem(text.span(), message);
            }
        }
    }

    /// Compares parsed addresses: one has several forms.
    fn unique_macs<'f>(&mut self, macs: impl Iterator<Item = &'f Text>) {
        let mut seen = HashMap::new();
        for text in macs {
            let Ok(mac) = text.as_ref().parse::<MacAddr6>() else { continue };
            if mac.as_bytes().starts_with(&MAC_PREFIX) {
                let message = format!(
                    "mac: {mac} begins like the addresses of P4 Shield's own switches; write another"
                );
                self.problem(text.span(), message);
            }
            let line = self.line(text.span());
            if let Some(first) = seen.get(&mac) {
                let message = format!("mac: {mac} exists already, in line {first}; write another");
                self.problem(text.span(), message);
            } else {
                seen.insert(mac, line);
            }
        }
    }

    /// Checks a rate in packets a second.
    pub(super) fn packet_rate(&mut self, rate: Option<&Spanned<u32>>) -> Option<NonZero<u32>> {
        rate.and_then(|rate| NonZero::new(self.number("packet_rate", Some(rate), 1, 1, MAX_PACKET_RATE)))
    }

    /// Refuses rates where there is no NIC switch, which limits them.
    fn rates(&mut self, file: &file::File, level: Level) {
        let rates = file.tenant.iter().flat_map(|t| &t.vm).filter_map(|vm| vm.packet_rate.as_ref());
        for rate in rates.filter(|_| level == Level::Baseline) {
            let message = "packet_rate: the NIC switch limits it, and level = \"baseline\" has none; \
                           write another level, or remove the key";
            self.problem(rate.span(), message.to_owned());
        }
    }

    /// Checks that a zone's name is not that of a tenant elsewhere: both name switch compartments.
    fn zones(&mut self, file: &file::File) {
        for zone in file.tenant.iter().filter_map(|t| t.zone.as_ref()) {
            let same = |t: &&file::Tenant| {
                let its_zone = t.zone.as_ref().map(|z| z.as_ref());
                t.name.as_ref() == zone.as_ref() && its_zone != Some(zone.as_ref())
            };
            if let Some(tenant) = file.tenant.iter().find(same) {
                let line = self.line(tenant.name.span());
                let message = format!(
                    "zone: {:?} is the name of a tenant outside the zone, in line {line}, and both would \
                     name a switch compartment; write another",
                    zone.as_ref()
                );
                self.problem(zone.span(), message);
            }
        }
    }

    /// Refuses wires at interfaces that are ports of the topology: both would take the packets.
    fn wires_of_topology(&mut self, file: &file::File) {
        let vms = || file.tenant.iter().flat_map(|t| &t.vm).filter_map(|v| v.interface.as_ref());
        for interface in file.wire.iter().flat_map(|w| [&w.vm_interface, &w.switch_interface]) {
            if !vms().any(|i| i.as_ref() == interface.as_ref()) {
                continue;
            }
            let message = format!(
                "interface {:?} is a port of [topology], and both would take the packets; remove the wire: a \
                 VM with a program gets one of P4 Shield's own",
                interface.as_ref()
            );
            self.problem(interface.span(), message);
        }
    }

    /// Checks the name of an interface on the host that becomes a port of a switch.
    fn host_interface(&mut self, key: &str, name: &Text) -> String {
        let text = name.as_ref();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let begins = |prefix: &str| {
            text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if !text.chars().all(plain) || text.starts_with('-') {
            let message = format!(
                "{key}: {text:?} is not a name that switches take; write letters, digits, '.', '_' or '-'"
            );
            self.problem(name.span(), message);
        } else if begins("p4s") || text.starts_with(PREFIX) {
            let message = format!(
                "{key}: {text:?} is like the names of interfaces that P4 Shield makes; write another"
            );
            self.problem(name.span(), message);
        }
        self.interface(key, name)
    }

    /// Parses a unicast Ethernet address.
    pub(super) fn mac(&mut self, key: &str, text: &Text) -> Option<MacAddr6> {
        let parsed = text.as_ref().parse::<MacAddr6>().ok().filter(|_| text.as_ref().len() == 17);
        let problem = match parsed {
            Some(mac) if mac.is_nil() || mac.is_broadcast() || mac.is_multicast() => {
                "is no address of one machine; write a unicast address"
            }
            Some(mac) => return Some(mac),
            None => "is not an Ethernet address; write one such as 02:00:00:00:00:01",
        };
        self.problem(text.span(), format!("{key}: {:?} {problem}", text.as_ref()));
        None
    }
}

#[cfg(test)]
mod cells;
#[cfg(test)]
pub(crate) mod tests;
