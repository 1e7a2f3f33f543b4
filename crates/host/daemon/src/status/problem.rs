//! The problems that `p4shield status` lists.

use p4shield_text::printable;
use serde::{Deserialize, Serialize};

/// Most subjects that a line of several problems lists.
const LISTED: usize = 3;

/// What is wrong, as scripts and alerts know it. The names are stable; docs/reference/problems.md lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// A tenant's P4 VM does not run.
    P4vmDown,
    /// Lanes of switches have no channel to a P4 VM.
    NoChannel,
    /// A P4 VM shares a core with a switch's polling thread.
    CoreShared,
    /// Something about programs that run in switches.
    Inline,
    /// The sandbox of a P4 VM lacks a measure.
    SandboxMissing,
    /// The configured program of a direction does not run.
    ProgramRefused,
    /// Packets had no verdict at the deadline.
    DeadlineMissed,
    /// Packets found a queue or channel full.
    QueueFull,
    /// A program reads information, and none was ever published.
    InfoMissing,
    /// The information is too old.
    InfoStale,
    /// The information does not authenticate.
    InfoForged,
    /// The information is older than what was published before.
    InfoReplayed,
    /// The file of an info page or log page does not exist.
    PageAbsent,
    /// A tenant's key file does not exist.
    KeyAbsent,
    /// A VM's agent still used the previous key when its window ended.
    KeyNotFollowed,
    /// Agent and P4 VM have not agreed on a VM's keys.
    HandshakeMissing,
    /// An interface of a wire is not attached.
    InterfaceDown,
    /// No switch is connected.
    NoSwitch,
    /// The connection to Open vSwitch's database is lost.
    DatabaseLost,
    /// Packets can bypass the programs.
    Bypass,
    /// The packets of a port are not mediated.
    PortNotMediated,
    /// The switch library does not see an interface of the switch.
    InterfaceUnseen,
    /// No connected switch has a port that the configuration names.
    PortAbsent,
    /// Open vSwitch's database has no interface with a VM's `iface_id`.
    IfaceIdAbsent,
    /// The interface with a VM's `iface_id` is no port of a connected switch.
    IfaceIdUnbound,
    /// A VM has no port or wire of its own.
    VmWithoutPort,
    /// No entry of the configuration names a port of the switch.
    PortUnconfigured,
    /// The socket of a tenant cannot be opened.
    TenantSocket,
    /// The tenants' own switches are not as the configuration says.
    TopologyFailed,
    /// A tenant's own switch does not work.
    SwitchDown,
    /// Controllers cannot connect to a tenant's own switch.
    EndPointDown,
}

impl ProblemKind {
    /// All kinds.
    pub const ALL: [Self; 31] = [
        Self::P4vmDown,
        Self::NoChannel,
        Self::CoreShared,
        Self::Inline,
        Self::SandboxMissing,
        Self::ProgramRefused,
        Self::DeadlineMissed,
        Self::QueueFull,
        Self::InfoMissing,
        Self::InfoStale,
        Self::InfoForged,
        Self::InfoReplayed,
        Self::PageAbsent,
        Self::KeyAbsent,
        Self::KeyNotFollowed,
        Self::HandshakeMissing,
        Self::InterfaceDown,
        Self::NoSwitch,
        Self::DatabaseLost,
        Self::Bypass,
        Self::PortNotMediated,
        Self::InterfaceUnseen,
        Self::PortAbsent,
        Self::IfaceIdAbsent,
        Self::IfaceIdUnbound,
        Self::VmWithoutPort,
        Self::PortUnconfigured,
        Self::TenantSocket,
        Self::TopologyFailed,
        Self::SwitchDown,
        Self::EndPointDown,
    ];

    /// Returns the name in JSON, metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::P4vmDown => "p4vm_down",
            Self::NoChannel => "no_channel",
            Self::CoreShared => "core_shared",
            Self::Inline => "inline",
            Self::SandboxMissing => "sandbox_missing",
            Self::ProgramRefused => "program_refused",
            Self::DeadlineMissed => "deadline_missed",
            Self::QueueFull => "queue_full",
            Self::InfoMissing => "info_missing",
            Self::InfoStale => "info_stale",
            Self::InfoForged => "info_forged",
            Self::InfoReplayed => "info_replayed",
            Self::PageAbsent => "page_absent",
            Self::KeyAbsent => "key_absent",
            Self::KeyNotFollowed => "key_not_followed",
            Self::HandshakeMissing => "handshake_missing",
            Self::InterfaceDown => "interface_down",
            Self::NoSwitch => "no_switch",
            Self::DatabaseLost => "database_lost",
            Self::Bypass => "bypass",
            Self::PortNotMediated => "port_not_mediated",
            Self::InterfaceUnseen => "interface_unseen",
            Self::PortAbsent => "port_absent",
            Self::IfaceIdAbsent => "iface_id_absent",
            Self::IfaceIdUnbound => "iface_id_unbound",
            Self::VmWithoutPort => "vm_without_port",
            Self::PortUnconfigured => "port_unconfigured",
            Self::TenantSocket => "tenant_socket",
            Self::TopologyFailed => "topology_failed",
            Self::SwitchDown => "switch_down",
            Self::EndPointDown => "end_point_down",
        }
    }

    /// Returns whether several problems of this kind may concern the same subject; their texts then differ.
    const fn may_repeat(self) -> bool {
        matches!(self, Self::Bypass | Self::Inline | Self::PageAbsent)
    }
}

/// A problem: what is wrong with what, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// What it concerns, in words.
    pub subject: String,
    /// The tenant that it concerns.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The tenant's VM that it concerns.
    #[serde(default)]
    pub vm: Option<String>,
    /// `ingress` or `egress`, if it concerns one of them.
    #[serde(default)]
    pub direction: Option<String>,
    /// The port, interface or iface-id that it concerns.
    #[serde(default)]
    pub port: Option<String>,
    /// What is wrong, with the remedy.
    pub text: String,
    /// When the daemon noticed it, in seconds since 1970.
    #[serde(default)]
    pub since: u64,
}

/// What distinguishes a problem from others while its text changes: kind, subject and, where problems of the
/// kind may concern the same subject, the text.
pub(crate) type ProblemKey = (ProblemKind, String, String);

impl Problem {
    pub(crate) fn new(kind: ProblemKind, subject: impl Into<String>, text: impl Into<String>) -> Self {
        let (subject, text) = (subject.into(), text.into());
        Self { kind, subject, tenant: None, vm: None, direction: None, port: None, text, since: 0 }
    }

    /// Returns a problem of a tenant.
    pub(crate) fn of_tenant(kind: ProblemKind, tenant: &str, text: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.to_owned()), ..Self::new(kind, format!("tenant {tenant}"), text) }
    }

    /// Returns a problem of a VM.
    pub(crate) fn of_vm(kind: ProblemKind, (tenant, vm): (&str, &str), text: impl Into<String>) -> Self {
        let problem = Self::of_tenant(kind, tenant, text);
        Self { subject: format!("{}, VM {vm}", problem.subject), vm: Some(vm.to_owned()), ..problem }
    }

    /// Adds a direction of the VM.
    pub(crate) fn direction(self, direction: &str) -> Self {
        let subject = format!("{}, {direction}", self.subject);
        Self { subject, direction: Some(direction.to_owned()), ..self }
    }

    /// Adds a port. `what` is its kind.
    pub(crate) fn at(self, what: &str, port: &str) -> Self {
        let separator = if self.subject.is_empty() { "" } else { ", " };
        // The name may come from a switch or its database.
        let port = printable(port);
        let subject = format!("{}{separator}{what} {port}", self.subject);
        Self { subject, port: Some(port), ..self }
    }

    /// Adds the names of tenant and VM, where the subject is in other words.
    pub(crate) fn concerning(self, tenant: Option<&str>, vm: Option<&str>) -> Self {
        Self { tenant: tenant.map(str::to_owned), vm: vm.map(str::to_owned), ..self }
    }

    pub(crate) fn key(&self) -> ProblemKey {
        let text = if self.kind.may_repeat() { self.text.clone() } else { String::new() };
        (self.kind, self.subject.clone(), text)
    }
}

/// Returns a line for each problem; problems of one kind with the same text share a line, which counts them
/// and lists the first.
pub(crate) fn lines(problems: &[Problem]) -> Vec<String> {
    let mut groups: Vec<Vec<&Problem>> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for problem in problems {
        let group = *places.entry((problem.kind, &problem.text)).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(others) => others.push(problem),
            None => groups.push(vec![problem]),
        }
    }
    groups.iter().map(|group| line(group)).collect()
}

/// Returns one line for problems of one kind with the same text.
pub(crate) fn line(group: &[&Problem]) -> String {
    let Some(first) = group.first() else { return String::new() };
    if group.len() == 1 {
        return format!("{}: {}", first.subject, first.text);
    }
    let mut subjects: Vec<_> = group.iter().take(LISTED).map(|p| p.subject.clone()).collect();
    if group.len() > LISTED {
        subjects.push(format!("and {} more", group.len() - LISTED));
    }
    format!("{} × {}: {}: {}", group.len(), first.kind.name(), subjects.join("; "), first.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_name_and_are_documented() {
        let document = include_str!("../../../../../docs/reference/problems.md");
        for kind in ProblemKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
            assert!(document.contains(&format!("| `{}` |", kind.name())), "{} is missing", kind.name());
        }
    }

    #[test]
    fn many_ports_without_an_entry_are_one_line() {
        let port = |n: u32| {
            Problem::new(ProblemKind::PortUnconfigured, "switch ovs", "name it")
                .at("port", &format!("vhu{n}"))
        };
        let mut problems: Vec<_> = (0..500).map(port).collect();
        problems.insert(1, Problem::of_vm(ProblemKind::VmWithoutPort, ("alice", "web"), "give it one"));
        let expected = [
            "500 × port_unconfigured: switch ovs, port vhu0; switch ovs, port vhu1; switch ovs, port vhu2; \
             and 497 more: name it",
            "tenant alice, VM web: give it one",
        ];
        assert_eq!(lines(&problems), expected);
    }

    #[test]
    fn a_problem_is_the_same_while_its_counts_grow() {
        let late = |n: u32| Problem::of_tenant(ProblemKind::DeadlineMissed, "alice", format!("{n} packets"));
        assert_eq!(late(1).key(), late(2).key());
        let bypass = |text: &str| Problem::new(ProblemKind::Bypass, "switch ovs", text);
        assert_ne!(bypass("a").key(), bypass("b").key(), "two bypasses of one switch");
    }
}
