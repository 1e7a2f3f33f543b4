//! The roles of ports, from the configuration's `[[port]]` tables or else from Open vSwitch's database, and
//! the problems of ports, whose remedies are part of what the switch library reports.

use crate::config::{Attachment, Config, MAX_TUNNELS, Role, Tunnel, TunnelKind};
use crate::status::SwitchStatus;
use crate::status::problem::{Problem, ProblemKind};
use p4shield_abi::VmRef;
use p4shield_attach::PortInfo;
use p4shield_ovsdb::{Interface, Kind, State, Switch};
use p4shield_text::printable;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Name of Open vSwitch's daemon. Its database describes the ports of no other switch.
const OVS: &str = "ovs-vswitchd";

/// Open vSwitch's types of tunnels, besides those that attachments decapsulate.
const TUNNELS: [&str; 9] = ["gre", "ip6gre", "erspan", "ip6erspan", "lisp", "stt", "bareudp", "gtpu", "srv6"];

/// The address of tunnels that end at every address of the host, which only a switch library knows.
const EVERY_ADDRESS_OF_THE_HOST: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What configuration and database say at one time.
pub(super) struct PortRoles {
    config: Arc<Config>,
    switch: Option<Arc<Switch>>,
    // Indexes: there may be thousands of ports, and the daemon looks at all of them once a second.
    /// By every name that a library may use: positions in the switch's interfaces.
    interfaces: HashMap<String, usize>,
    /// By name: the roles of `[[port]]` entries.
    ports: HashMap<String, Role>,
    /// By iface-id: the VMs' roles.
    iface_ids: HashMap<String, Role>,
}

impl PortRoles {
    pub(super) fn new(config: Arc<Config>, switch: Option<Arc<Switch>>) -> Self {
        let mut interfaces = HashMap::new();
        for (at, interface) in switch.iter().flat_map(|s| s.interfaces.iter().enumerate()) {
            for name in names_of(interface) {
                interfaces.entry(name.to_owned()).or_insert(at);
            }
        }
        let ports = config.ports.iter().map(|p| (p.name.clone(), p.role)).collect();
        let iface_ids = iface_ids(&config).map(|(vm, id)| (id.to_owned(), Role::Vm(vm))).collect();
        Self { config, switch, interfaces, ports, iface_ids }
    }

    /// Returns the role of an application's port, and Open vSwitch's name for the port.
    pub(super) fn of(&self, application: &str, port: &PortInfo) -> (Role, Option<&str>) {
        let interface = self.interface(application, port);
        (self.configured(port, interface).unwrap_or_default(), interface.map(|i| i.name.as_str()))
    }

    /// Returns the role of a port with this interface, if an entry of the configuration names it.
    fn configured(&self, port: &PortInfo, interface: Option<&Interface>) -> Option<Role> {
        let mut names = port.names().chain(interface.map(|i| i.name.as_str()));
        let by_id = || self.iface_ids.get(interface?.iface_id.as_deref()?);
        names.find_map(|n| self.ports.get(n)).or_else(by_id).copied()
    }

    /// Returns the endpoints of tunnels of this application: those of the configuration and of the database.
    pub(super) fn tunnels(&self, application: &str) -> Vec<Tunnel> {
        let mut all = self.config.tunnels.clone();
        if let Some(switch) = self.switch.as_ref().filter(|_| application.starts_with(OVS)) {
            all.extend(switch.interfaces.iter().flat_map(|i| endpoints(i, &switch.encap_ips)));
        }
        all.sort_unstable();
        all.dedup();
        if all.len() > MAX_TUNNELS {
            // Any address matches then: too many tunnels are decapsulated rather than too few.
            all.iter_mut().for_each(|t| t.address = None);
            all.dedup();
        }
        all
    }

    /// Returns the name of a role, and the names of its tenant and VM.
    pub(super) fn names(&self, role: Role) -> (&'static str, Option<String>, Option<String>) {
        match role {
            Role::Uplink => ("uplink", None, None),
            Role::Shared => ("shared", None, None),
            Role::Vm(vm) => {
                let tenant = self.config.tenants.get(usize::from(vm.tenant));
                let name = tenant.and_then(|t| t.vms.get(usize::from(vm.vm))).map(|v| v.name.clone());
                ("vm", tenant.map(|t| t.name.clone()), name)
            }
        }
    }

    /// Returns how this application's packets can bypass the programs, according to its database.
    pub(super) fn bypass(&self, application: &str) -> Option<String> {
        let offloads = self.switch.as_ref().is_some_and(|s| s.hw_offload) && application.starts_with(OVS);
        offloads.then(|| {
            "Open vSwitch may offload flows to the network card (other_config:hw-offload=true), where no \
             library sees \
             the packets; run `ovs-vsctl set Open_vSwitch . other_config:hw-offload=false`, then restart \
             Open vSwitch"
                .to_owned()
        })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the VMs with an `iface_id`.
    pub(super) fn iface_ids(&self) -> impl Iterator<Item = (VmRef, &str)> {
        iface_ids(&self.config)
    }

    /// Returns whether neither an entry of the configuration nor the switch itself has this port.
    pub(super) fn is_unconfigured(&self, application: &str, port: &PortInfo) -> bool {
        let interface = self.interface(application, port);
        self.configured(port, interface).is_none() && !interface.is_some_and(is_switchs_own)
    }

    fn decapsulates_tunnels(&self) -> bool {
        self.config.attachment == Attachment::Dpdk
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        self.switch.as_ref().map_or(&[], |s| &s.interfaces)
    }

    pub(super) fn interface(&self, application: &str, port: &PortInfo) -> Option<&Interface> {
        if !application.starts_with(OVS) {
            return None;
        }
        port.names().find_map(|name| self.interface_called(name))
    }

    /// Returns the interface for which a library may use this name.
    pub(super) fn interface_called(&self, name: &str) -> Option<&Interface> {
        self.interfaces().get(*self.interfaces.get(name)?)
    }

    /// Returns what is wrong with the connected switches.
    pub(super) fn problems(&self, connected: &[SwitchStatus], state: Option<State>) -> Vec<Problem> {
        let mut problems = Vec::new();
        let lost = match state {
            Some(State::Lost(why)) => Some(why),
            Some(State::Connecting) => Some("no answer yet".to_owned()),
            Some(State::Connected) | None => None,
        };
        if let Some(why) = lost {
            let text = format!(
                "the connection is lost ({why}), so the roles of ports may be out of date; check that \
                 daemon.ovsdb names its socket"
            );
            problems.push(Problem::new(ProblemKind::DatabaseLost, "Open vSwitch's database", text));
        }
        for s in connected {
            let switch = format!("switch {} (process {})", s.application, s.pid);
            let bypass = |b: &String| {
                Problem::new(ProblemKind::Bypass, &*switch, format!("packets can bypass the programs: {b}"))
            };
            problems.extend(s.bypasses.iter().map(bypass));
            for p in &s.ports {
                let (tenant, vm) = (p.tenant.as_deref(), p.vm.as_deref());
                let at_port = |problem: Problem| problem.at("port", &p.name).concerning(tenant, vm);
                problems.extend(p.bypasses.iter().map(bypass).map(at_port));
                problems.extend(p.why.as_ref().map(|why| {
                    let text = format!("its packets are not mediated: {why}");
                    at_port(Problem::new(ProblemKind::PortNotMediated, &*switch, text))
                }));
            }
        }
        problems.extend(self.unseen_interfaces(connected));
        problems
    }

    /// Returns the interfaces of Open vSwitch's user-space datapath that the library does not see.
    fn unseen_interfaces(&self, connected: &[SwitchStatus]) -> Vec<Problem> {
        let mut ovs = connected.iter().filter(|s| s.application.starts_with(OVS)).peekable();
        if ovs.peek().is_none() {
            return Vec::new();
        }
        let seen: HashSet<_> = ovs.flat_map(|s| &s.ports).filter_map(|p| p.interface.as_deref()).collect();
        let in_user_space = self.interfaces().iter().filter(|i| i.datapath.as_deref() == Some("netdev"));
        // A patch port leads to another bridge of the same datapath and an internal one to the host. Packets
        // of these tunnels are judged where they enter the switch.
        let decapsulated = |k: &Kind| matches!(k, Kind::Vxlan | Kind::Geneve) && self.decapsulates_tunnels();
        let attached = in_user_space
            .filter(|i| !matches!(i.kind, Kind::Patch | Kind::Internal) && !decapsulated(&i.kind));
        let unseen =
            attached.filter(|i| !seen.contains(i.name.as_str()) && i.error.is_none() && !awaits_guest(i));
        let problem = |i: &Interface| {
            let text = format!(
                "its packets are not mediated because the library does not see an interface of type {}; use \
                 a port of type dpdk, dpdkvhostuser or dpdkvhostuserclient",
                printable(&i.kind.to_string())
            );
            Problem::new(ProblemKind::InterfaceUnseen, "Open vSwitch", text).at("interface", &i.name)
        };
        unseen.map(problem).collect()
    }
}

/// Returns the local endpoints of a tunnel interface. Without an address of its own Open vSwitch decapsulates
/// at every address of the host, OVN's addresses among them.
fn endpoints(interface: &Interface, encap_ips: &[IpAddr]) -> Vec<Tunnel> {
    let kind = match interface.kind {
        Kind::Vxlan => TunnelKind::Vxlan,
        Kind::Geneve => TunnelKind::Geneve,
        _ => return Vec::new(),
    };
    let port = interface.dst_port.unwrap_or(kind.default_port());
    let at = |address| Tunnel { kind, address, port };
    match interface.local_ip {
        None => encap_ips.iter().copied().chain([EVERY_ADDRESS_OF_THE_HOST]).map(|a| at(Some(a))).collect(),
        address => vec![at(address)],
    }
}

/// Returns the VMs of a configuration that have an `iface_id`.
fn iface_ids(config: &Config) -> impl Iterator<Item = (VmRef, &str)> {
    config.numbered_tenants().flat_map(|(t, tenant)| {
        let vm_ref =
            move |v: usize| Some(VmRef { tenant: u16::try_from(t).ok()?, vm: u16::try_from(v).ok()? });
        tenant.numbered_vms().filter_map(move |(v, vm)| Some((vm_ref(v)?, vm.iface_id.as_deref()?)))
    })
}

/// Returns the names that a library may use for the interface.
fn names_of(interface: &Interface) -> impl Iterator<Item = &str> {
    let others = [interface.dpdk_device(), interface.vhost_path.as_deref()];
    std::iter::once(interface.name.as_str()).chain(others.into_iter().flatten())
}

/// Returns whether this is a vhost-user interface without a guest: the library sees it once a guest connects.
pub(super) fn awaits_guest(interface: &Interface) -> bool {
    matches!(interface.kind, Kind::VhostUser | Kind::VhostUserClient) && interface.link_up != Some(true)
}

/// Returns whether Open vSwitch has this interface for itself: a bridge's local port, an internal port, a
/// patch or a tunnel, which no operator configures.
fn is_switchs_own(interface: &Interface) -> bool {
    match &interface.kind {
        Kind::Internal | Kind::Patch | Kind::Vxlan | Kind::Geneve => true,
        Kind::Other(kind) => TUNNELS.contains(&kind.as_str()),
        _ => interface.bridge.as_deref() == Some(interface.name.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::PortStatus;
    use crate::status::problem::lines;
    use std::path::Path;

    const TEXT: &str = r#"
attachment = "dpdk"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.1"]
iface_id = "8d6b"
[[port]]
name = "dpdk0"
role = "uplink"
"#;

    fn switch() -> Arc<Switch> {
        let vhost = Interface {
            name: "vhu0".into(),
            kind: Kind::VhostUserClient,
            vhost_path: Some("/run/vm0.sock".into()),
            iface_id: Some("8d6b".into()),
            datapath: Some("netdev".into()),
            ..Interface::default()
        };
        let dpdk = Interface {
            name: "dpdk0".into(),
            kind: Kind::Dpdk,
            dpdk_devargs: Some("net_af_packet0,iface=eth0".into()),
            datapath: Some("netdev".into()),
            ..Interface::default()
        };
        let tap = Interface { name: "tap0".into(), datapath: Some("netdev".into()), ..Interface::default() };
        Arc::new(Switch { hw_offload: true, interfaces: vec![dpdk, tap, vhost], ..Switch::default() })
    }

    fn port(name: &str) -> PortInfo {
        PortInfo { name: name.into(), ..PortInfo::default() }
    }

    #[test]
    fn ports_are_found_by_name_by_device_and_by_iface_id() {
        let config = Arc::new(Config::parse(Path::new("p4shield.toml"), TEXT).unwrap());
        let roles = PortRoles::new(Arc::clone(&config), Some(switch()));
        let web = Role::Vm(VmRef { tenant: 0, vm: 0 });
        assert_eq!(roles.of("ovs-vswitchd", &port("/run/vm0.sock")), (web, Some("vhu0")));
        assert_eq!(roles.of("ovs-vswitchd", &port("net_af_packet0")), (Role::Uplink, Some("dpdk0")));
        assert_eq!(roles.of("ovs-vswitchd", &port("net_af_packet1")), (Role::Shared, None));
        // The database describes no other switch.
        assert_eq!(roles.of("dpdk-testpmd", &port("/run/vm0.sock")), (Role::Shared, None));
        assert_eq!(roles.of("dpdk-testpmd", &port("dpdk0")), (Role::Uplink, None));
        assert_eq!(roles.names(web), ("vm", Some("alice".into()), Some("web".into())));
        assert_eq!(
            PortRoles::new(Arc::clone(&config), None).of("ovs-vswitchd", &port("x")),
            (Role::Shared, None)
        );
    }

    #[test]
    fn bypasses_are_reported_with_a_remedy() {
        let config = Arc::new(Config::parse(Path::new("p4shield.toml"), TEXT).unwrap());
        let roles = PortRoles::new(Arc::clone(&config), Some(switch()));
        let seen =
            |name: &str| PortStatus { interface: Some(name.into()), mediated: true, ..PortStatus::default() };
        let bypass = PortStatus { bypasses: vec!["rte_flow rule 7".into()], ..seen("dpdk0") };
        let ovs = SwitchStatus {
            application: "ovs-vswitchd".into(),
            ports: vec![bypass, seen("vhu0")],
            bypasses: roles.bypass("ovs-vswitchd").into_iter().collect(),
            ..SwitchStatus::default()
        };
        let advice = lines(&roles.problems(&[ovs], Some(State::Lost("it is gone".into()))));
        for part in ["daemon.ovsdb", "hw-offload=false", "rte_flow rule 7", "interface tap0: "] {
            assert!(advice.iter().any(|a| a.contains(part)), "{part}: {advice:?}");
        }
        assert_eq!(advice.len(), 4, "{advice:?}");
        assert_eq!(roles.bypass("dpdk-testpmd"), None, "the database describes no other switch");
    }

    #[test]
    fn a_vhost_user_port_without_a_guest_is_not_reported() {
        let config = Arc::new(Config::parse(Path::new("p4shield.toml"), TEXT).unwrap());
        let advice = |link_up| {
            let kind = Kind::VhostUserClient;
            let vhost = Interface { name: "vhu0".into(), kind, link_up, ..switch().interfaces[2].clone() };
            let switch = Switch { interfaces: vec![vhost], ..Switch::default() };
            let ovs = SwitchStatus { application: "ovs-vswitchd".into(), ..SwitchStatus::default() };
            PortRoles::new(Arc::clone(&config), Some(Arc::new(switch))).problems(&[ovs], None)
        };
        assert_eq!(advice(Some(false)), []);
        assert_eq!(advice(Some(true)).len(), 1, "the guest's packets are not mediated");
    }

    #[test]
    fn tunnel_endpoints_come_from_database_and_file() {
        let tunnel = |kind, local_ip: Option<[u8; 4]>, dst_port| Interface {
            kind,
            local_ip: local_ip.map(Into::into),
            dst_port,
            ..Interface::default()
        };
        let text = format!("{TEXT}[[tunnel]]\ntype = \"geneve\"\naddress = \"192.0.2.7\"\n");
        let config = Arc::new(Config::parse(Path::new("p4shield.toml"), &text).unwrap());
        let known = |interfaces, encap_ips: Vec<IpAddr>| {
            let switch = Switch { interfaces, encap_ips, ..Switch::default() };
            PortRoles::new(Arc::clone(&config), Some(Arc::new(switch))).tunnels("ovs-vswitchd")
        };
        let at = |kind: TunnelKind, address: Option<[u8; 4]>, port| Tunnel {
            kind,
            address: address.map(Into::into),
            port,
        };
        let here = Some([192, 0, 2, 7]);
        let configured = at(TunnelKind::Geneve, here, 6081);
        let interfaces =
            vec![tunnel(Kind::Vxlan, Some([192, 0, 2, 8]), Some(8472)), tunnel(Kind::Geneve, here, None)];
        assert_eq!(
            known(interfaces, vec![]),
            [at(TunnelKind::Vxlan, Some([192, 0, 2, 8]), 8472), configured]
        );
        let ovn = known(vec![tunnel(Kind::Geneve, None, None)], vec![[192, 0, 2, 9].into()]);
        let every = Some([0, 0, 0, 0]);
        let encap = at(TunnelKind::Geneve, Some([192, 0, 2, 9]), 6081);
        assert_eq!(ovn, [at(TunnelKind::Geneve, every, 6081), configured, encap]);
        let any = known(vec![tunnel(Kind::Vxlan, None, None)], vec![]);
        assert_eq!(any, [at(TunnelKind::Vxlan, every, 4789), configured]);
        let many = (0..200).map(|n| tunnel(Kind::Vxlan, Some([10, 0, 0, n]), None)).collect();
        assert_eq!(
            known(many, vec![]),
            [at(TunnelKind::Vxlan, None, 4789), at(TunnelKind::Geneve, None, 6081)]
        );
        assert_eq!(PortRoles::new(Arc::clone(&config), None).tunnels("dpdk-testpmd"), [configured]);
    }
}
