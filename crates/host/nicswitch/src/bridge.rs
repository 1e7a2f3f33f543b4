//! The back end of the kernel's own bridge, one that filters VLANs, with rules of nftables at its ports.
//!
//! Each port has the bridge's settings and rules. Either holds without the other:
//!
//! | rule | by the bridge | by nftables |
//! |---|---|---|
//! | a port's frames stay in its VLAN | the port's only VLAN | a mark of role and VLAN, checked on leaving |
//! | VMs reach their gateway only, compartments the uplink only | `isolated` | the same mark, destinations |
//! | a port's frames have its MAC address as the source | `locked`, one static station | yes |
//! | source IP addresses, ARP and neighbour discovery are the port's own | no | yes |
//! | only IPv4, IPv6 and ARP pass, and no frame with a tag | no | yes |
//! | no flooding: nothing is learned | `learning`, `flood`, `mcast_flood`, `bcast_flood` | yes |
//! | what the outside asks for reaches the compartment that has it | no | yes, where frames leave |
//! | a port sends no more than its rate | no | yes |
//! | the host's stack gets no frame of a port, and sends none into it | the bridge has no VLAN itself | yes |
//!
//! It differs from [`crate::Software`]:
//!
//! - Frames need no other end that takes redirected ones, and no complete checksums.
//! - Neighbour discovery passes with the options that hosts use: a link-layer address, a nonce, or both.
//! - Packets with an authentication header in front of another extension header or of ICMPv6 are dropped.
//! - An IPv6 packet whose extension headers end behind its own end, but in the frame, is taken for complete.
//! - Frames to addresses of bridges' own control packets (01:80:c2:00:00:0x) are dropped.
//! - A frame that is up to 4 bytes longer than the target's MTU passes, as bridges leave room for a tag.
//!   Longer ones are not counted, nor are those for an interface that went after the last `apply`.
//! - Packets that the kernel merged or did not divide yet are one in the counters.
//! - Another program that empties nftables (`nft flush ruleset`, as a restart of its service does) leaves
//!   what the bridge does: tenants stay apart. The next `apply` brings the rules back.
//!
//! [`NicSwitch::apply`] replaces all rules in one transaction, then sets the bridge's ports, which only ever
//! narrows what passes. A new port has its rules before it is a port, and its VLAN last. All state is in the
//! kernel: the bridge, known by its group, and a table of nftables, whose comments tell whether rules are as
//! wanted. Chains and counters are named after an interface and its index, so another interface that gets the
//! name never has them.
//!
//! It needs Linux 5.18 (`locked`), `CONFIG_BRIDGE_VLAN_FILTERING`, nftables whose rules see frames that leave
//! (1.0.6 does), and a network namespace in which packets of bridges do not pass the host's iptables
//! (`net.bridge.bridge-nf-call-*` is 0): those would track all tenants' connections in one table.

mod chain;
mod expression;
mod incoming;
mod lock;
mod settings;
mod table;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::PathBuf;

use macaddr::MacAddr6;
use p4shield_links::{BridgeMember, LinkError, add_bridge, bridge_ports, leave_bridge, set_bridge};
use p4shield_topology::Port;
use p4shield_xdp::{Interface, InterfaceMonitor};
use rustix::io::Errno;

use crate::check::{check, mac, vlan};
use crate::nft::Nft;
use crate::{Changes, NicError, NicSwitch, PortCounters};
use lock::Lock;
use settings::Settings;
use table::{PortRules, Table};
use ways::Scene;

/// The group of our bridges' interfaces, by which they are known: `P4N` in ASCII.
const GROUP: u32 = 0x0050_344e;
/// The VLAN of compartments' sides to the outside and of the uplink.
const OUTSIDE: u16 = 4094;

/// The NIC switch of a network namespace: that of the thread which calls its functions.
#[derive(Debug)]
pub struct Bridge {
    name: String,
    outside_vlan: u16,
    folder: PathBuf,
}

impl Bridge {
    /// The folder of a host's lock.
    pub const FOLDER: &str = "/run/p4shield-bridge";

    /// Returns the switch that is the bridge of a name, which the first [`NicSwitch::apply`] makes. `folder`
    /// is there while a call changes the switch, so that only one does.
    #[must_use]
    pub fn new(name: impl Into<String>, folder: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), outside_vlan: OUTSIDE, folder: folder.into() }
    }

    /// Sets the VLAN that compartments and uplink have inside the bridge, 4094 if it is not set. No tenant
    /// may have it; it is on no wire.
    #[must_use]
    pub const fn outside_vlan(mut self, vlan: u16) -> Self {
        self.outside_vlan = vlan;
        self
    }

    fn refusal(&self, reason: impl Display) -> NicError {
        NicError::Bridge { bridge: self.name.clone(), reason: reason.to_string() }
    }

    fn failed(&self) -> impl Fn(LinkError) -> NicError {
        |source| NicError::BridgeRefused { bridge: self.name.clone(), source }
    }

    fn port_refusal(&self, port: &str, reason: impl Display) -> NicError {
        NicError::BridgePort { bridge: self.name.clone(), port: port.to_owned(), reason: reason.to_string() }
    }

    /// Checks what is no contradiction of the ports', but nothing that a bridge can do.
    fn check(&self, ports: &[Port]) -> Result<(), NicError> {
        let names = ports.iter().map(|port| port.interface.as_str()).chain([self.name.as_str()]);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if let Some(name) = names.into_iter().find(|name| !name.chars().all(is_plain) || name.is_empty()) {
            return Err(self.refusal(format_args!(
                "the name {name:?} has other characters than letters, digits, '-', '_' and '.'; rename the \
                 interface"
            )));
        }
        let own = self.outside_vlan;
        if !(1..=4094).contains(&own) {
            return Err(self.refusal(format_args!("the VLAN {own} outside is none; VLANs are 1 to 4094")));
        }
        match ports.iter().find(|port| vlan(port) == Some(own)) {
            Some(port) => Err(self.refusal(format_args!(
                "the VLAN {own} is that of compartments and uplink inside the bridge, and the one of {}; \
                 choose another with `outside_vlan`",
                port.interface
            ))),
            None => Ok(()),
        }
    }

    /// Checks that the host's own rules and its table of connections, which all tenants would share, do not
    /// see packets of bridges.
    fn check_host(&self) -> Result<(), NicError> {
        for kind in ["iptables", "ip6tables", "arptables"] {
            let setting = format!("bridge-nf-call-{kind}");
            let value = std::fs::read_to_string(format!("/proc/sys/net/bridge/{setting}"));
            if value.is_ok_and(|value| value.trim() != "0") {
                return Err(self.refusal(format_args!(
                    "packets of bridges pass this host's {kind}; set net.bridge.{setting} to 0 (sysctl), or \
                     have the NIC switch in a network namespace where it is 0"
                )));
            }
        }
        Ok(())
    }

    /// Returns the bridge if there is one of ours.
    fn find(&self) -> Result<Option<p4shield_links::Bridge>, NicError> {
        match p4shield_links::bridge(&self.name).map_err(self.failed())? {
            Some(found) if found.group != GROUP => Err(self.refusal(format_args!(
                "another program made it: its group is not {GROUP}; choose another name, or delete it"
            ))),
            found => Ok(found),
        }
    }

    /// Returns whether there is a bridge or a rule of ours. Where rules cannot be listed, there are none.
    fn exists(&self) -> Result<bool, NicError> {
        let has_rules = || Nft::find(&self.name).and_then(|nft| Table::read(&nft, &self.name));
        Ok(self.find()?.is_some() || has_rules().is_ok_and(|table| table != Table::default()))
    }

    /// Returns the bridge, which is made if there is none.
    fn ready(&self) -> Result<p4shield_links::Bridge, NicError> {
        let lacking = "the kernel has no bridge that filters VLANs (CONFIG_BRIDGE_VLAN_FILTERING); use the \
                       back end in XDP, or another kernel";
        let found = match self.find()? {
            Some(found) => found,
            None => {
                match add_bridge(&self.name, GROUP) {
                    Err(error) if is(&error, Errno::OPNOTSUPP) => return Err(self.refusal(lacking)),
                    made => made.map_err(self.failed())?,
                }
                self.find()?.ok_or_else(|| self.refusal("it is gone; apply again"))?
            }
        };
        if found.is_as_made {
            return Ok(found);
        }
        if found.filters_vlans {
            set_bridge(&self.name).map_err(self.failed())?;
            return Ok(found);
        }
        // Some kernels make a bridge and leave the setting out.
        if bridge_ports(found.index).map_err(self.failed())?.is_empty() {
            p4shield_links::delete(&self.name).map_err(self.failed())?;
        }
        Err(self.refusal(lacking))
    }

    /// Returns the indexes of the interfaces that can be ports, and the error of the first one that cannot.
    fn present<'a>(
        &self,
        ports: &'a [Port],
        interfaces: &BTreeMap<String, Interface>,
        bridge: u32,
    ) -> (BTreeMap<&'a str, u32>, Option<NicError>) {
        let (mut indexes, mut failure) = (BTreeMap::new(), None);
        for port in ports {
            let name = port.interface.as_str();
            let Some(found) = interfaces.get(name) else { continue };
            if found.master.is_some_and(|master| master != bridge) {
                let reason = "it is another bridge's or switch's; take it off (ip link set X nomaster)";
                failure = failure.or_else(|| Some(self.port_refusal(name, reason)));
            } else {
                indexes.insert(name, found.index);
            }
        }
        (indexes, failure)
    }

    /// Brings the bridge's ports to these settings. Returns those that were not so, and the first error.
    fn serve(
        &self,
        bridge: u32,
        wanted: &[Settings<'_>],
        names: &BTreeMap<u32, String>,
    ) -> Result<(BTreeSet<u32>, Option<NicError>), NicError> {
        let members = bridge_ports(bridge).map_err(self.failed())?;
        let found = |index: u32| members.iter().find(|member| member.index == index);
        for member in members.iter().filter(|port| wanted.iter().all(|to| to.member.index != port.index)) {
            let name = names.get(&member.index).map_or("a port", String::as_str);
            leave_bridge(BridgeMember { name, index: member.index }).map_err(self.failed())?;
        }
        let other = |to: &&Settings<'_>| !found(to.member.index).is_some_and(|port| to.are_of(port));
        let other: Vec<_> = wanted.iter().filter(other).collect();
        let mut failures = BTreeMap::new();
        // A station that moved has left its old port before it is added to the new one.
        for restrict in [true, false] {
            for to in &other {
                let port = found(to.member.index);
                let done = match (restrict, port) {
                    (true, None) => Ok(()),
                    (true, Some(port)) => to.restrict(port),
                    (false, port) => to.complete(bridge, port),
                };
                if let Err(error) = done {
                    failures.entry(to.member.index).or_insert(error.to_string() + &cause(&error));
                }
            }
        }
        let now = if other.is_empty() { members } else { bridge_ports(bridge).map_err(self.failed())? };
        let mut failure = None;
        for to in wanted {
            if !now.iter().any(|port| port.index == to.member.index && to.are_of(port)) {
                // A port that is not as it should be forwards nothing.
                let _ = leave_bridge(to.member);
                let reason = failures.remove(&to.member.index).unwrap_or_else(|| NOT_KEPT.to_owned());
                failure = failure.or(Some(self.port_refusal(to.member.name, reason)));
            }
        }
        Ok((other.iter().map(|to| to.member.index).collect(), failure))
    }
}

const NOT_KEPT: &str = "the kernel does not keep its settings, of which `locked` takes Linux 5.18";

impl NicSwitch for Bridge {
    fn apply(&mut self, ports: &[Port]) -> Result<Changes, NicError> {
        check(ports)?;
        self.check(ports)?;
        let _lock = Lock::take(&self.folder)?;
        self.check_host()?;
        let nft = Nft::find(&self.name)?;
        let bridge = self.ready()?;
        let interfaces = interfaces()?;
        let (indexes, failure) = self.present(ports, &interfaces, bridge.index);
        let scene = Scene { ports, indexes: &indexes };
        let present = || ports.iter().filter_map(|port| Some((port, *indexes.get(port.interface.as_str())?)));
        let wanted: Vec<_> = present().map(|(port, index)| PortRules::of(port, index, scene)).collect();
        let table = Table::read(&nft, &self.name)?;
        let labels = table.labels();
        let stale: BTreeSet<&str> =
            labels.iter().filter(|l| !wanted.iter().any(|p| p.label == **l)).copied().collect();
        let other: Vec<_> = wanted.iter().filter(|port| !table.has(port)).collect();
        let macs: BTreeSet<MacAddr6> = ports.iter().filter_map(mac).collect();
        // The rules come first: from here on, the new ones judge a packet, wherever the bridge sends it.
        let mut commands = table.set(&self.name, &other, &macs);
        commands.extend(table.close(&self.name, &stale));
        let mut changes = Changes { policy: !commands.is_empty(), ..Changes::default() };
        nft.execute(commands)?;
        let settings: Vec<_> =
            present().map(|(port, index)| Settings::of(port, index, self.outside_vlan)).collect();
        let names = interfaces.values().map(|found| (found.index, found.name.clone())).collect();
        let (reset, refused) = self.serve(bridge.index, &settings, &names)?;
        nft.execute(table.remove(&self.name, &stale))?;
        if !bridge.is_up {
            p4shield_links::start(&self.name).map_err(self.failed())?;
        }
        let is_changed = |port: &PortRules<'_>| {
            other.iter().any(|other| other.label == port.label)
                || reset.contains(&indexes[port.port.interface.as_str()])
        };
        for port in &wanted {
            let name = port.port.interface.clone();
            if !labels.contains(port.label.as_str()) {
                changes.added.push(name);
            } else if is_changed(port) {
                changes.changed.push(name);
            }
        }
        changes.removed = stale.iter().map(|label| table::interface(label).to_owned()).collect();
        changes.removed.retain(|name| !indexes.contains_key(name.as_str()));
        let is_absent = |port: &&Port| !interfaces.contains_key(&port.interface);
        changes.absent = ports.iter().filter(is_absent).map(|port| port.interface.clone()).collect();
        changes.added.sort();
        changes.changed.sort();
        changes.absent.sort();
        failure.or(refused).map_or(Ok(changes), Err)
    }

    fn counters(&self) -> Result<Vec<PortCounters>, NicError> {
        if self.find()?.is_none() {
            return Ok(Vec::new());
        }
        let interfaces = interfaces()?;
        let labels: BTreeSet<_> = interfaces.values().map(|it| table::label(&it.name, it.index)).collect();
        table::counters(&Nft::find(&self.name)?, &self.name, |label| labels.contains(label))
    }

    fn delete(&mut self) -> Result<(), NicError> {
        if !self.exists()? {
            return Ok(());
        }
        let nft = Nft::find(&self.name)?;
        let _lock = Lock::take(&self.folder)?;
        let (bridge, table) = (self.find()?, Table::read(&nft, &self.name)?);
        nft.execute(table.close(&self.name, &table.labels()))?;
        if let Some(bridge) = bridge {
            self.serve(bridge.index, &[], &BTreeMap::new())?;
            p4shield_links::delete(&self.name).map_err(self.failed())?;
        }
        nft.execute(table.delete(&self.name))
    }
}

/// Returns the interfaces of this network namespace by name.
fn interfaces() -> Result<BTreeMap<String, Interface>, NicError> {
    let list =
        InterfaceMonitor::open().and_then(|mut monitor| monitor.list()).map_err(NicError::Interfaces)?;
    Ok(list.into_iter().map(|interface| (interface.name.clone(), interface)).collect())
}

fn is(error: &LinkError, errno: Errno) -> bool {
    error.source.raw_os_error() == Some(errno.raw_os_error())
}

fn cause(error: &LinkError) -> String {
    format!(": {}", error.source)
}

#[cfg(test)]
mod tests;
