//! Ports that the configuration names and no connected switch has, VMs without a port, and ports of
//! connected switches that the configuration does not name.

use super::roles::{PortRoles, awaits_guest};
use crate::config::Role;
use crate::status::problem::{Problem, ProblemKind};
use crate::status::{PortStatus, SwitchStatus};
use p4shield_abi::VmRef;
use p4shield_attach::PortInfo;
use p4shield_ovsdb::{Interface, State};
use p4shield_text::printable;
use std::collections::{HashMap, HashSet};

/// What the configuration names and the switches do not have, or the other way round.
#[derive(Debug, Default)]
pub(super) struct Absences {
    /// The configured ports that are absent.
    pub(super) ports: Vec<PortStatus>,
    pub(super) problems: Vec<Problem>,
    /// The VMs of these ports, and VMs whose guest is off; a lack of ports is explained for them.
    explained: HashSet<VmRef>,
}

impl PortRoles {
    /// Compares the configuration with the ports of the connected switches, each with its application's name.
    pub(super) fn absences<'p>(
        &self,
        ports: impl Iterator<Item = (&'p str, &'p PortInfo)>,
        connected: &[SwitchStatus],
        database: Option<&State>,
    ) -> Absences {
        let mut absences = Absences::default();
        let names: HashSet<&str> = ports
            .flat_map(|(application, port)| {
                let interface = self.interface(application, port).map(|i| i.name.as_str());
                port.names().chain(interface)
            })
            .collect();
        self.absent_ports(&names, &mut absences);
        // An empty database has not answered yet; that it does not is a problem of its own.
        if matches!(database, Some(State::Connected)) || !self.interfaces().is_empty() {
            self.absent_iface_ids(&names, &mut absences);
        }
        self.vms_without_port(connected, &mut absences);
        for switch in connected {
            let subject = format!("switch {} (process {})", switch.application, switch.pid);
            for port in switch.ports.iter().filter(|p| p.unconfigured) {
                let text = "no entry of the configuration names it, so it counts as shared; name it in a \
                            [[port]], with tenant and vm or with role = \"uplink\" or \"shared\"";
                let problem = Problem::new(ProblemKind::PortUnconfigured, &*subject, text);
                absences.problems.push(problem.at("port", port.interface.as_ref().unwrap_or(&port.name)));
            }
        }
        absences
    }

    /// Finds the `[[port]]` entries that no connected switch has.
    fn absent_ports(&self, names: &HashSet<&str>, absences: &mut Absences) {
        for port in self.config().ports.iter().filter(|p| !names.contains(p.name.as_str())) {
            if self.interface_called(&port.name).is_some_and(awaits_guest) {
                if let Role::Vm(vm) = port.role {
                    absences.explained.insert(vm);
                }
                continue;
            }
            let text = match port.role {
                Role::Vm(_) => {
                    "no connected switch has this port, so the VM's programs judge no packet there and its \
                     source addresses are not checked; correct the name in [[port]], or add the port to the \
                     switch"
                }
                Role::Uplink | Role::Shared => {
                    "no connected switch has this port; correct the name in [[port]], or add the port to \
                     the switch"
                }
            };
            self.add_absent(absences, ProblemKind::PortAbsent, ("port", &port.name), port.role, text);
        }
    }

    /// Finds the VMs whose `iface_id` no interface or no port of a connected switch has.
    fn absent_iface_ids(&self, names: &HashSet<&str>, absences: &mut Absences) {
        let mut by_id: HashMap<&str, Vec<&Interface>> = HashMap::new();
        for interface in self.interfaces() {
            if let Some(id) = &interface.iface_id {
                by_id.entry(id).or_default().push(interface);
            }
        }
        for (vm, iface_id) in self.iface_ids() {
            let bound = by_id.get(iface_id).map_or(&[][..], Vec::as_slice);
            let role = Role::Vm(vm);
            let subject = ("iface_id", iface_id);
            let Some(first) = bound.first() else {
                let text = "no interface in Open vSwitch's database has this external_ids:iface-id, so the \
                            VM's port is not known and its source addresses are not checked; correct \
                            iface_id, or plug in the VM";
                self.add_absent(absences, ProblemKind::IfaceIdAbsent, subject, role, text);
                continue;
            };
            let mut unbound = true;
            for interface in bound {
                if names.contains(interface.name.as_str()) {
                    unbound = false;
                } else if awaits_guest(interface) {
                    absences.explained.insert(vm);
                    unbound = false;
                }
            }
            if unbound {
                let why = first.error.as_ref().map(|e| format!(" ({})", printable(e))).unwrap_or_default();
                let text = format!(
                    "its interface {}{why} is no port of a connected switch, so the VM's programs judge no \
                     packet there; check that the interface is in a bridge with datapath_type=netdev and of \
                     a type that the attachment mediates",
                    printable(&first.name)
                );
                self.add_absent(absences, ProblemKind::IfaceIdUnbound, subject, role, &text);
            }
        }
    }

    /// Finds the VMs whose packets arrive at shared ports only.
    fn vms_without_port(&self, connected: &[SwitchStatus], absences: &mut Absences) {
        // Without a switch there is nothing to compare with.
        if connected.is_empty() {
            return;
        }
        let ports = connected.iter().flat_map(|s| &s.ports);
        let owned: HashSet<_> =
            ports.filter_map(|p| Some((p.tenant.as_deref()?, p.vm.as_deref()?))).collect();
        let explained: HashSet<_> =
            absences.explained.iter().map(|vm| (usize::from(vm.tenant), usize::from(vm.vm))).collect();
        for (t, tenant) in self.config().numbered_tenants() {
            for (v, vm) in tenant.numbered_vms() {
                let names = (tenant.name.as_str(), vm.name.as_str());
                if owned.contains(&names) || explained.contains(&(t, v)) {
                    continue;
                }
                let text = "no port is its own, so its packets pass through shared ports and its source \
                            addresses are not checked; give it a port by a [[port]] with tenant and vm, or \
                            by iface_id";
                absences.problems.push(Problem::of_vm(ProblemKind::VmWithoutPort, names, text));
            }
        }
    }

    fn add_absent(
        &self,
        absences: &mut Absences,
        kind: ProblemKind,
        (what, name): (&str, &str),
        role: Role,
        text: &str,
    ) {
        if let Role::Vm(vm) = role {
            absences.explained.insert(vm);
        }
        let (word, tenant, vm) = self.names(role);
        let problem = match (&tenant, &vm) {
            (Some(tenant), Some(vm)) => Problem::of_vm(kind, (tenant, vm), text),
            _ => Problem::new(kind, "", text),
        };
        absences.problems.push(problem.at(what, name));
        absences.ports.push(PortStatus {
            name: name.to_owned(),
            role: word.to_owned(),
            tenant,
            vm,
            why: Some(text.to_owned()),
            ..PortStatus::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use p4shield_ovsdb::{Kind, Switch};
    use std::path::Path;
    use std::sync::Arc;

    const TEXT: &str = r#"
attachment = "dpdk"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
iface_id = "8d6b"
[[tenant.vm]]
name = "db"
addresses = ["10.0.0.2"]
[[port]]
name = "dpdk0"
role = "uplink"
[[port]]
name = "/run/db.sock"
tenant = "alice"
vm = "db"
"#;

    fn vhost(name: &str, link_up: bool) -> Interface {
        Interface {
            name: name.into(),
            kind: Kind::VhostUserClient,
            vhost_path: Some("/run/db.sock".into()),
            link_up: Some(link_up),
            ..Interface::default()
        }
    }

    /// Returns the absences of a switch with these ports: kinds, and names of absent ports.
    fn found(
        names: &[&str],
        interfaces: Vec<Interface>,
        state: Option<State>,
    ) -> (Vec<ProblemKind>, Vec<String>) {
        let config = Config::parse(Path::new("p4shield.toml"), TEXT).unwrap();
        let roles =
            PortRoles::new(Arc::new(config), Some(Arc::new(Switch { interfaces, ..Switch::default() })));
        let ports: Vec<_> =
            names.iter().map(|name| PortInfo { name: (*name).into(), ..PortInfo::default() }).collect();
        let status = |port: &PortInfo| {
            let (role, interface) = roles.of("ovs-vswitchd", port);
            let (role, tenant, vm) = roles.names(role);
            PortStatus {
                name: port.name.clone(),
                interface: interface.map(str::to_owned),
                unconfigured: roles.is_unconfigured("ovs-vswitchd", port),
                role: role.to_owned(),
                tenant,
                vm,
                ..PortStatus::default()
            }
        };
        let switch = SwitchStatus {
            application: "ovs-vswitchd".into(),
            ports: ports.iter().map(status).collect(),
            ..SwitchStatus::default()
        };
        let connected = if names.is_empty() { Vec::new() } else { vec![switch] };
        let ports = ports.iter().map(|port| ("ovs-vswitchd", port));
        let absences = roles.absences(ports, &connected, state.as_ref());
        let kinds = absences.problems.iter().map(|p| p.kind).collect();
        (kinds, absences.ports.into_iter().map(|p| p.name).collect())
    }

    #[test]
    fn absent_ports_and_iface_ids_are_found() {
        let (kinds, ports) = found(&["dpdk0"], Vec::new(), Some(State::Connected));
        assert_eq!(kinds, [ProblemKind::PortAbsent, ProblemKind::IfaceIdAbsent]);
        assert_eq!(ports, ["/run/db.sock", "8d6b"]);
        // Without a switch, all are.
        let (kinds, ports) = found(&[], Vec::new(), Some(State::Connected));
        let all = [ProblemKind::PortAbsent, ProblemKind::PortAbsent, ProblemKind::IfaceIdAbsent];
        assert_eq!((kinds.as_slice(), ports.len()), (&all[..], 3));
    }

    #[test]
    fn an_unanswered_database_lacks_no_iface_id() {
        let (kinds, _) = found(&["dpdk0", "/run/db.sock"], Vec::new(), Some(State::Connecting));
        assert_eq!(kinds, [ProblemKind::VmWithoutPort], "alice's VM web has no port yet");
    }

    #[test]
    fn an_interface_of_no_connected_switch_is_unbound() {
        let tap = |name: &str| Interface {
            name: name.into(),
            iface_id: Some("8d6b".into()),
            error: Some("no such device\u{1b}".into()),
            ..Interface::default()
        };
        let (kinds, ports) = found(&["dpdk0", "/run/db.sock"], vec![tap("tap0")], Some(State::Connected));
        assert_eq!((kinds.as_slice(), ports[0].as_str()), (&[ProblemKind::IfaceIdUnbound][..], "8d6b"));
        let (kinds, _) = found(&["dpdk0", "/run/db.sock", "tap0"], vec![tap("tap0")], Some(State::Connected));
        assert_eq!(kinds, []);
    }

    #[test]
    fn a_guest_that_is_off_is_no_problem() {
        let web = Interface { iface_id: Some("8d6b".into()), vhost_path: None, ..vhost("vhu-web", false) };
        let interfaces = |up| vec![vhost("vhu-db", up), web.clone()];
        assert_eq!(found(&["dpdk0"], interfaces(false), Some(State::Connected)), (Vec::new(), Vec::new()));
        let (kinds, _) = found(&["dpdk0"], vec![vhost("vhu-db", true), web], Some(State::Connected));
        assert_eq!(kinds, [ProblemKind::PortAbsent], "a guest that runs past the library");
    }

    #[test]
    fn ports_of_the_switchs_own_need_no_entry() {
        let of = |name: &str, kind| Interface { name: name.into(), kind, ..Interface::default() };
        let local = Interface { bridge: Some("br0".into()), ..of("br0", Kind::System) };
        let web = Interface { iface_id: Some("8d6b".into()), ..of("web", Kind::Afxdp) };
        let own = [of("int0", Kind::Internal), of("p", Kind::Patch), of("gre0", Kind::Other("gre".into()))];
        let interfaces = own.into_iter().chain([local, web]).collect();
        let names = ["dpdk0", "/run/db.sock", "br0", "int0", "p", "gre0", "web", "new"];
        let (kinds, _) = found(&names, interfaces, Some(State::Connected));
        assert_eq!(kinds, [ProblemKind::PortUnconfigured], "the port `new`");
    }
}
