//! Orders of the host to a switch compartment: lines of JSON over a socket that the host made.

use p4shield_topology::TableEntry;
use serde::{Deserialize, Serialize};

/// Longest line of an order.
pub(crate) const MAX_ORDER: u64 = 16 << 20;
/// Longest line of an answer.
pub(crate) const MAX_ANSWER: u64 = 16 << 10;

/// Most bytes that a command may print on each of its outputs.
pub(crate) const MAX_PRINTED: usize = 2 << 20;
/// Longest line of an answer about a command, in which two digits are a byte.
pub(crate) const MAX_RAN: u64 = 4 * MAX_PRINTED as u64 + MAX_ANSWER;

/// The port of the switch's database, over TLS (RFC 7047, and IANA's registry).
pub(crate) const OVSDB: u16 = 6640;
/// The port for OpenFlow controllers, over TLS (IANA's registry).
pub(crate) const OPENFLOW: u16 = 6653;

/// An order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Have these ports and rules, and none of an earlier order.
    Configure(Settings),
    /// Listen for controllers.
    Controllers(Controllers),
    /// Tell the outside network where the VMs' addresses are.
    Announce,
    /// End the switch, which gives the host's interfaces back as they were.
    Stop,
    /// Say how the switch is.
    Report,
    /// Run a command of the operator's.
    Run(Run),
}

/// A command beside a switch in a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Its input, in hexadecimal digits.
    pub input: String,
}

/// The end of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Its exit code, or 128 and the number of its signal.
    pub code: u8,
    /// Its standard output, in hexadecimal digits: at most 2 MiB.
    pub output: String,
    /// Its standard error, in the same way.
    pub errors: String,
}

/// The host's settings of a switch. Whatever else its controllers configure stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The name of its bridge.
    pub bridge: String,
    /// Its ports.
    pub ports: Vec<PortSettings>,
    /// True if they are DPDK's.
    pub dpdk: bool,
    /// True if other switches have its core, too.
    pub is_core_shared: bool,
    /// The rules of Open vSwitch, as a bundle for `ovs-ofctl add-flows`.
    pub rules: String,
    /// The entries of a P4 switch's tables.
    #[serde(default)]
    pub entries: Vec<TableEntry>,
    /// The port to the outside, in OpenFlow.
    pub outside: u16,
    /// The frames that announce the VMs' addresses there, in hexadecimal digits.
    pub announcements: Vec<String>,
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortSettings {
    /// The interface.
    pub interface: String,
    /// Its number in OpenFlow.
    pub number: u16,
    /// Its name in OpenStack's or OVN's database. `None`: it keeps the one that it has.
    pub iface_id: Option<String>,
}

/// Where a switch listens for controllers, at the loopback interface of its network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controllers {
    /// The name of its bridge.
    pub bridge: String,
    /// True if it listens for OVSDB, at port 6640.
    pub ovsdb: bool,
    /// True if it listens for OpenFlow, at port 6653.
    pub openflow: bool,
    /// Its side of TLS, if it listens.
    pub tls: Option<Tls>,
}

/// A switch's side of TLS, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// Its private key.
    pub private_key: String,
    /// Its certificate.
    pub certificate: String,
    /// The certificates by which the controllers' are signed.
    pub ca_certificate: String,
}

/// No key gets into a log.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The answer of a compartment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The reason why the order was not executed; `None`: it was.
    pub(crate) error: Option<String>,
    /// How often one of its programs ended and was started again.
    pub(crate) restarts: u64,
    /// The end of the command that was to be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ran: Option<Ran>,
}
