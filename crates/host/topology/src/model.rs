//! The plan: which switches there are, what connects them, and with which addresses.

use super::mac;
use macaddr::MacAddr6;
use p4shield_config::{Cores, Datapath, Level, NicSwitchKind, SwitchKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;

/// Version of [`Plan`] as a file. A plan of another version is of another release.
pub const VERSION: u32 = 1;

/// The tenants' switches on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`VERSION`].
    pub version: u32,
    /// How switches are divided among tenants.
    pub level: Level,
    /// The host's interface to the outside network.
    pub uplink: String,
    /// The Ethernet address of the outside network's router.
    #[serde(with = "mac")]
    pub gateway_mac: MacAddr6,
    /// How the switches share cores.
    pub cores: Cores,
    /// The switch of each compartment.
    #[serde(default)]
    pub switch: SwitchKind,
    /// How they receive and send.
    #[serde(default)]
    pub datapath: Datapath,
    /// The back end of the NIC switch.
    #[serde(default)]
    pub nic_switch: NicSwitchKind,
    /// The VLAN in which a network card puts switches' sides to the outside; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outside_vlan: u16,
    /// The virtual functions of the uplink's card, from 0, by port ([`crate::Port::interface`]), which
    /// is no interface of the host then. Empty if no card is the NIC switch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub functions: BTreeMap<String, u16>,
    /// The virtual machines that the compartments are; `None`: they are processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// The folder of the compartments' sockets.
    pub run: PathBuf,
    /// The switches, by number. At the baseline, one that runs on the host and in no compartment.
    pub compartments: Vec<Compartment>,
}

/// The parts of the virtual machines of compartments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The folder of the image.
    pub image: PathBuf,
    /// QEMU's program, searched in `PATH` if it has no slash.
    pub qemu: PathBuf,
    /// QEMU's name of the accelerator; `None`: the best that works.
    pub accelerator: Option<String>,
}

/// A switch, and what isolates it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compartment {
    /// The name of the tenant or the zone that it is for, `all`, or `host` at the baseline. Unique in the
    /// plan.
    pub name: String,
    /// Its number, from 1. Unique in the plan.
    pub number: u16,
    /// The switch's address in the outside network.
    #[serde(with = "mac")]
    pub mac: MacAddr6,
    /// Its memory in bytes.
    pub memory: u64,
    /// Its huge pages in bytes, beside its memory; 0: none.
    #[serde(default, skip_serializing_if = "has_none")]
    pub huge_pages: u64,
    /// Its processor core.
    pub core: u32,
    /// Its side to the outside. `None`: the switch is on the host, and its port 1 is the uplink.
    pub in_out: Option<Link>,
    /// The tenants whose packets it carries, by number.
    pub tenants: Vec<Tenant>,
    /// Where controllers reach the switch. `None`: nowhere, as if it serves several tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controllers: Option<Controllers>,
}

/// The end points of a switch for its tenant's controllers, over TLS, which ends in the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controllers {
    /// Where the host accepts connections to the database (OVSDB).
    pub ovsdb: Option<SocketAddr>,
    /// Where it accepts connections of OpenFlow controllers.
    pub openflow: Option<SocketAddr>,
    /// The file of the switch's private key, in PEM.
    pub private_key: PathBuf,
    /// The file of its certificate, in PEM.
    pub certificate: PathBuf,
    /// The file of the certificates by which the controllers' are signed, in PEM.
    pub ca_certificate: PathBuf,
}

/// A tenant, as its switch knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its number, from 1. Unique in the plan.
    pub number: u16,
    /// Its VLAN in the NIC switch. At the baseline there is no such switch, and the VLAN is not used.
    pub vlan: u16,
    /// The address to which its VMs send, at each level: they keep it in their ARP tables.
    #[serde(with = "mac")]
    pub mac: MacAddr6,
    /// Its switch's side to its VMs. `None`: the VMs' interfaces are the switch's ports.
    pub gateway: Option<Link>,
    /// Its VMs, by number.
    pub vms: Vec<Vm>,
}

/// A user VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// Its name, unique among the tenant's.
    pub name: String,
    /// Its number, from 1. Unique in the plan.
    pub number: u16,
    /// The host's side of its network interface.
    pub interface: String,
    /// The pair of interfaces between its wire, where a program judges its packets, and its switch. `None`:
    /// its interface is the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Link>,
    /// Its Ethernet address.
    #[serde(with = "mac")]
    pub mac: MacAddr6,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Packets that it may send in a second at most; `None`: there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_rate: Option<NonZero<u32>>,
    /// The name of its port in OpenStack's or OVN's database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iface_id: Option<String>,
}

/// A pair of interfaces that connects a switch compartment or a wire with the NIC switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The end at the NIC switch; of a wire at the baseline, the port of the switch.
    pub outer: String,
    /// The end in the compartment, a port of its switch, with the address of compartment or tenant; or the
    /// wire's end.
    pub inner: String,
}

/// A port of a switch, in OpenFlow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SwitchPort {
    /// The network interface, where the switch runs.
    pub interface: String,
    /// The port's number in OpenFlow (`ofport_request`).
    pub number: u16,
    /// The interface's address, if it is P4 Shield's to set.
    #[serde(serialize_with = "optional_mac")]
    pub mac: Option<MacAddr6>,
    /// The port's name in OpenStack's or OVN's database (`external_ids:iface-id`). A gateway has that of its
    /// only VM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface_id: Option<String>,
}

const fn has_none(huge_pages: &u64) -> bool {
    *huge_pages == 0
}

const fn is_zero(vlan: &u16) -> bool {
    *vlan == 0
}

fn optional_mac<S: serde::Serializer>(mac: &Option<MacAddr6>, serializer: S) -> Result<S::Ok, S::Error> {
    match mac {
        Some(mac) => mac::serialize(mac, serializer),
        None => serializer.serialize_none(),
    }
}

/// The numbers and cores that a plan gave to names, which the next one keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// Of compartments, by name.
    pub compartments: BTreeMap<String, u16>,
    /// Of tenants, by name.
    pub tenants: BTreeMap<String, u16>,
    /// Of VMs, by `TENANT/VM`.
    pub vms: BTreeMap<String, u16>,
    /// The cores of compartments, by name.
    pub cores: BTreeMap<String, u32>,
    /// The virtual functions of ports, from 0.
    #[serde(default)]
    pub functions: BTreeMap<String, u16>,
}

impl Plan {
    /// Returns the numbers that it gave, for the next plan.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let mut numbers = Numbers { functions: self.functions.clone(), ..Numbers::default() };
        for c in &self.compartments {
            numbers.compartments.insert(c.name.clone(), c.number);
            numbers.cores.insert(c.name.clone(), c.core);
            for t in &c.tenants {
                numbers.tenants.insert(t.name.clone(), t.number);
                let names = t.vms.iter().map(|vm| (format!("{}/{}", t.name, vm.name), vm.number));
                numbers.vms.extend(names);
            }
        }
        numbers
    }

    /// Returns how many virtual functions of SR-IOV the plan needs, as the MTS paper counts them: one for
    /// each compartment's side to the outside, each gateway and each VM. None at the baseline.
    #[must_use]
    pub fn vfs(&self) -> usize {
        let of_tenant = |t: &Tenant| usize::from(t.gateway.is_some()) + t.vms.len();
        let of = |c: &Compartment| 1 + c.tenants.iter().map(of_tenant).sum::<usize>();
        self.compartments.iter().filter(|c| c.in_out.is_some()).map(of).sum()
    }
}

impl Compartment {
    /// Number in OpenFlow of the port to the outside.
    pub const OUTSIDE: u16 = 1;
    /// The name of the baseline's switch.
    pub const ON_HOST: &str = "host";

    /// Returns the name of its switch's bridge, which is an interface, too: on the host, or of its own.
    #[must_use]
    pub fn bridge(&self) -> String {
        if self.in_out.is_some() { "br0".to_owned() } else { format!("p4s{}br", self.number) }
    }

    /// Returns the ports of its switch.
    #[must_use]
    pub fn switch_ports(&self, uplink: &str) -> Vec<SwitchPort> {
        let outside = match &self.in_out {
            Some(link) => (&*link.inner, Some(self.mac)),
            None => (uplink, None),
        };
        let port = |interface: &str, number: u16, mac| SwitchPort {
            interface: interface.to_owned(),
            number,
            mac,
            iface_id: None,
        };
        let mut ports = vec![port(outside.0, Self::OUTSIDE, outside.1)];
        for t in &self.tenants {
            match &t.gateway {
                Some(link) => {
                    let iface_id = if let [vm] = &*t.vms { vm.iface_id.clone() } else { None };
                    ports.push(SwitchPort { iface_id, ..port(&link.inner, t.port(), Some(t.mac)) });
                }
                None => ports.extend(t.vms.iter().map(|vm| SwitchPort {
                    iface_id: vm.iface_id.clone(),
                    ..port(vm.port_interface(), vm.port(), None)
                })),
            }
        }
        ports
    }
}

impl Tenant {
    /// Returns the number in OpenFlow of its gateway's port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        Compartment::OUTSIDE + self.number
    }
}

impl Vm {
    /// Returns the interface that is its port.
    #[must_use]
    pub fn port_interface(&self) -> &str {
        self.wire.as_ref().map_or(&self.interface, |link| &link.outer)
    }

    /// Returns the number in OpenFlow of its port, at the baseline.
    #[must_use]
    pub const fn port(&self) -> u16 {
        Compartment::OUTSIDE + self.number
    }
}
