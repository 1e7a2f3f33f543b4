//! Differences between two plans.

use super::mac::text;
use super::model::{Compartment, Controllers, Link, Plan, Tenant, Vm};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The differences between two plans, in the order of their parts. Empty if the plans are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// One for each part that differs.
    pub changes: Vec<Change>,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The part of the plan.
    pub part: Part,
    /// The kind of difference.
    pub kind: ChangeKind,
    /// The values that differ. Empty for a part that was added or removed.
    pub fields: Vec<FieldChange>,
}

/// A part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The host: what all switches have in common.
    Host,
    /// The compartment with this name.
    Compartment(String),
    /// The tenant with this name.
    Tenant(String),
    /// A VM.
    Vm {
        /// Its tenant's name.
        tenant: String,
        /// Its name.
        vm: String,
    },
}

/// The kind of a part's difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// Only the new plan has it.
    Added,
    /// Only the old plan has it.
    Removed,
    /// Both have it.
    Changed,
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Its name, as in [`Plan`] or one of its parts.
    pub name: &'static str,
    /// The old value.
    pub before: String,
    /// The new value.
    pub after: String,
}

impl Plan {
    /// Returns what `new` changes.
    #[must_use]
    pub fn diff(&self, new: &Self) -> Diff {
        let (before, after) = (parts(self), parts(new));
        let mut all: Vec<_> = before.keys().chain(after.keys()).collect();
        all.sort();
        all.dedup();
        Diff { changes: all.into_iter().filter_map(|part| change(part, &before, &after)).collect() }
    }
}

impl Diff {
    /// Returns whether the plans are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// One line for each change, each with its line end.
impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.kind {
            ChangeKind::Added => '+',
            ChangeKind::Removed => '-',
            ChangeKind::Changed => '~',
        };
        write!(f, "{sign} {}", self.part)?;
        for (field, separator) in self.fields.iter().zip(std::iter::once(": ").chain(std::iter::repeat(", ")))
        {
            let FieldChange { name, before, after } = field;
            write!(f, "{separator}{name} = {before} -> {after}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host"),
            Self::Compartment(name) => write!(f, "compartment {name}"),
            Self::Tenant(name) => write!(f, "tenant {name}"),
            Self::Vm { tenant, vm } => write!(f, "VM {tenant}/{vm}"),
        }
    }
}

/// A value of a part.
struct Field {
    name: &'static str,
    value: String,
}

type Parts = BTreeMap<Part, Vec<Field>>;

/// Returns what became of a part that one of the two plans has, if it differs.
fn change(part: &Part, before: &Parts, after: &Parts) -> Option<Change> {
    let (kind, fields) = match (before.get(part), after.get(part)) {
        (Some(before), Some(after)) => {
            let differs = before.iter().zip(after).filter(|(before, after)| before.value != after.value);
            let field = |(before, after): (&Field, &Field)| FieldChange {
                name: before.name,
                before: before.value.clone(),
                after: after.value.clone(),
            };
            let fields: Vec<_> = differs.map(field).collect();
            if fields.is_empty() {
                return None;
            }
            (ChangeKind::Changed, fields)
        }
        (None, _) => (ChangeKind::Added, Vec::new()),
        (_, None) => (ChangeKind::Removed, Vec::new()),
    };
    Some(Change { part: part.clone(), kind, fields })
}

fn parts(plan: &Plan) -> Parts {
    let mut parts = Parts::from([(Part::Host, host(plan))]);
    for c in &plan.compartments {
        parts.insert(Part::Compartment(c.name.clone()), compartment(c));
        for t in &c.tenants {
            parts.insert(Part::Tenant(t.name.clone()), tenant(t, c));
            let named = |vm: &Vm| (Part::Vm { tenant: t.name.clone(), vm: vm.name.clone() }, of_vm(vm));
            parts.extend(t.vms.iter().map(named));
        }
    }
    parts
}

fn field(name: &'static str, value: impl fmt::Display) -> Field {
    Field { name, value: value.to_string() }
}

fn host(plan: &Plan) -> Vec<Field> {
    let Plan {
        version,
        level,
        uplink,
        gateway_mac,
        cores,
        switch,
        datapath,
        nic_switch,
        outside_vlan,
        functions: _,
        machine,
        run,
        compartments: _,
    } = plan;
    vec![
        field("version", version),
        field("level", level.name()),
        field("uplink", uplink),
        field("gateway_mac", text(*gateway_mac)),
        field("cores", cores.name()),
        field("switch", switch.name()),
        field("datapath", datapath.name()),
        field("nic_switch", nic_switch.name()),
        field("outside_vlan", outside_vlan),
        field("image", or_none(machine.as_ref().map(|m| m.image.display()))),
        field("qemu", or_none(machine.as_ref().map(|m| m.qemu.display()))),
        field("accelerator", or_none(machine.as_ref().and_then(|m| m.accelerator.as_ref()))),
        field("run", run.display()),
    ]
}

fn compartment(c: &Compartment) -> Vec<Field> {
    let Compartment { name: _, number, mac, memory, huge_pages, core, in_out, tenants: _, controllers } = c;
    let ends = controllers;
    let path = |of: fn(&Controllers) -> &Path| or_none(ends.as_ref().map(|c| of(c).display()));
    vec![
        field("number", number),
        field("mac", text(*mac)),
        field("memory", memory),
        field("huge_pages", huge_pages),
        field("core", core),
        field("in_out", link(in_out.as_ref())),
        field("ovsdb", or_none(ends.as_ref().and_then(|c| c.ovsdb))),
        field("openflow", or_none(ends.as_ref().and_then(|c| c.openflow))),
        field("private_key", path(|c| &c.private_key)),
        field("certificate", path(|c| &c.certificate)),
        field("ca_certificate", path(|c| &c.ca_certificate)),
    ]
}

fn tenant(t: &Tenant, c: &Compartment) -> Vec<Field> {
    let Tenant { name: _, number, vlan, mac, gateway, vms: _ } = t;
    vec![
        field("compartment", &c.name),
        field("number", number),
        field("vlan", vlan),
        field("mac", text(*mac)),
        field("gateway", link(gateway.as_ref())),
    ]
}

fn of_vm(vm: &Vm) -> Vec<Field> {
    let Vm { name: _, number, interface, wire, mac, addresses, packet_rate, iface_id } = vm;
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    vec![
        field("number", number),
        field("interface", interface),
        field("wire", link(wire.as_ref())),
        field("mac", text(*mac)),
        field("addresses", addresses.join(" ")),
        field("packet_rate", or_none(*packet_rate)),
        field("iface_id", or_none(iface_id.as_ref())),
    ]
}

fn link(link: Option<&Link>) -> String {
    or_none(link.map(|Link { outer, inner }| format!("{outer}/{inner}")))
}

fn or_none(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}
