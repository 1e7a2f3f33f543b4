//! What `p4shield program counters`, `registers` and `tables` show, and the metrics of marked counters.
//!
//! The daemon asks what runs a program, a P4 VM or with placement `inline` a switch, through the tenant's
//! supervisor. It trusts no answer: `remote` bounds and checks them, `decode` shows what fits the program's
//! schema, `objects` joins both, and `metrics` exports the counters that a program marks with `@metric`.
//!
//! Reading disturbs no packet: the P4 VM's worker copies a few kilobytes at a time between two batches
//! (`p4shield_runtime`).

mod decode;
mod metrics;
mod objects;
mod remote;
#[cfg(test)]
mod tests;
pub mod view;

use crate::config::{Config, Tenant};
use crate::lifecycle::state::DaemonState;
use crate::supervisor::Supervisor;
use crate::text::hex;
use objects::{Object, objects};
use p4shield_abi::Direction;
use p4shield_control::{Envelope, ProgramSlot, Reply, Request};
use remote::{Ask, Described, Extent, describe};
use std::time::{Duration, Instant};
use view::{DirectionView, Inspection, ObjectView, ProgramView};

/// Longest time for an answer; less than a client waits.
const LONGEST: Duration = Duration::from_secs(40);
/// The most rows, and bytes of them, of one answer.
const MAX_ROWS: usize = 20_000;
const MAX_BYTES: usize = 8 << 20;
/// Names that an error lists.
const MAX_NAMES: usize = 20;

impl DaemonState {
    /// Shows the state of a VM's programs.
    pub(crate) fn inspect(&self, inspection: &Inspection) -> Result<ProgramView, String> {
        let running = self.running();
        let (t, v) = find_vm(&running.config, inspection)?;
        let supervisor = running.supervisor(t).ok_or("the daemon is stopping")?;
        let tenant = &running.config.tenants[t];
        let mut view = ProgramView {
            tenant: tenant.name.clone(),
            vm: tenant.vms[v].name.clone(),
            directions: Vec::new(),
        };
        let end = Instant::now() + LONGEST;
        let mut ask = |request| supervisor.ask(request, end);
        let slots = wanted_slots(supervisor, v, inspection)?;
        for slot in &slots {
            view.directions.push(show(&mut ask, *slot, inspection)?);
        }
        let found = view.directions.iter().any(|d| !d.objects.is_empty());
        match &inspection.name {
            Some(name) if !found => Err(unknown_name(&mut ask, &slots, inspection, name)),
            _ => Ok(view),
        }
    }
}

/// Returns the numbers of the tenant and of its VM.
fn find_vm(config: &Config, inspection: &Inspection) -> Result<(usize, usize), String> {
    let Inspection { vm, tenant, .. } = inspection;
    let vm_of = |tenant: &Tenant| tenant.numbered_vms().find(|(_, v)| v.name == *vm).map(|(v, _)| v);
    if let Some(tenant) = tenant {
        let (t, found) = config.tenant(tenant).ok_or_else(|| format!("there is no tenant {tenant:?}"))?;
        return vm_of(found).map(|v| (t, v)).ok_or_else(|| format!("tenant {tenant:?} has no VM {vm:?}"));
    }
    let tenants = config.numbered_tenants();
    let found: Vec<_> = tenants.filter_map(|(t, tenant)| vm_of(tenant).map(|v| (t, v))).collect();
    match found.as_slice() {
        [] => Err(format!("there is no VM {vm:?}; `p4shield status` lists all VMs")),
        [one] => Ok(*one),
        several => {
            let names: Vec<_> = several.iter().map(|(t, _)| &*config.tenants[*t].name).collect();
            let names = names.join(", ");
            Err(format!("several tenants have a VM {vm:?} ({names}); name one with --tenant"))
        }
    }
}

/// Returns the places with a program among those that are asked for.
fn wanted_slots(
    supervisor: &Supervisor,
    v: usize,
    inspection: &Inspection,
) -> Result<Vec<ProgramSlot>, String> {
    let wanted = match &inspection.direction {
        None => Direction::ALL.to_vec(),
        Some(word) => {
            let direction = Direction::ALL.into_iter().find(|d| d.name() == word);
            vec![direction.ok_or("a direction is ingress or egress")?]
        }
    };
    let running = running_slots(supervisor);
    let slots: Vec<_> = wanted.iter().map(|d| ProgramSlot::new(v as u16, *d)).collect();
    let slots: Vec<_> = slots.into_iter().filter(|s| running.contains(s)).collect();
    if slots.is_empty() {
        let words: Vec<_> = wanted.iter().map(|d| d.name()).collect();
        let words = words.join(" or ");
        return Err(format!("no {words} program of the VM runs; see `p4shield status`"));
    }
    Ok(slots)
}

/// Returns the places of a tenant where a program runs.
fn running_slots(supervisor: &Supervisor) -> Vec<ProgramSlot> {
    let report = supervisor.report();
    let vms = report.p4vm.iter().flat_map(|p| &p.vms);
    let slots = vms.flat_map(|vm| {
        let runs = |d: &Direction| vm.directions[*d as usize].program.is_some();
        Direction::ALL.into_iter().filter(runs).map(|d| ProgramSlot::new(vm.vm, d))
    });
    slots.collect()
}

/// Shows the program that any bytes describe: pieces with a `u16` length, each a reply. Entry point for
/// fuzzing.
///
/// # Panics
/// An object has more rows than were asked for.
pub fn fuzz(bytes: &[u8]) {
    for what in [view::What::Counters, view::What::Registers, view::What::Tables] {
        let mut rest = bytes;
        let mut ask = |_: Request| {
            let (len, tail) = rest.split_first_chunk().ok_or("no reply")?;
            let (reply, tail) = tail.split_at_checked(u16::from_le_bytes(*len).into()).ok_or("no reply")?;
            rest = tail;
            decode_reply(reply)
        };
        let inspection = Inspection { what, limit: Some(100), ..Inspection::default() };
        let shown = show(&mut ask, ProgramSlot::new(0, Direction::Ingress), &inspection);
        let objects = shown.iter().flat_map(|view| &view.objects);
        assert!(objects.filter(|o| o.map.is_some()).all(|o| o.rows.len() <= 100), "more rows than the limit");
    }
}

fn decode_reply(bytes: &[u8]) -> Result<Reply, String> {
    p4shield_control::decode(bytes).map(|envelope: Envelope<Reply>| envelope.body).map_err(|e| e.to_string())
}

/// Shows the state of one program.
fn show(ask: &mut Ask<'_>, slot: ProgramSlot, inspection: &Inspection) -> Result<DirectionView, String> {
    let described = describe(ask, slot)?;
    let all = objects(&described, inspection.what);
    let chosen = chosen(&all, &described, inspection.name.as_deref());
    let (mut rows, mut bytes) = (MAX_ROWS, MAX_BYTES);
    let mut shown: Vec<ObjectView> = Vec::with_capacity(chosen.len());
    for object in chosen {
        if inspection.limit.is_none() && rows == 0 {
            // The next page has the rows of this object.
            shown.push(ObjectView { next: Some(inspection.from), ..object.outline(&described) });
            continue;
        }
        let limit = inspection.limit.map(|limit| (limit as usize).min(rows));
        let extent = Extent { from: inspection.from, limit, bytes, zeros: inspection.zeros };
        let view = object.view(ask, (slot, &described), extent)?;
        rows = rows.saturating_sub(view.rows.len());
        bytes = bytes.saturating_sub(view.rows.len().saturating_mul(object.row_bytes(&described)));
        shown.push(view);
    }
    let direction = Direction::from_u8(slot.direction).map_or("", Direction::name);
    Ok(DirectionView {
        direction: direction.to_owned(),
        program: hex(&described.program),
        notes: notes(&described, &all),
        objects: shown,
    })
}

/// Returns the objects of a name: those with exactly this name, else those whose last parts it is.
fn chosen<'o, 'a>(all: &'o [Object<'a>], described: &Described, name: Option<&str>) -> Vec<&'o Object<'a>> {
    let Some(name) = name else { return all.iter().collect() };
    let exact: Vec<_> = all.iter().filter(|o| o.name(described) == name).collect();
    if !exact.is_empty() {
        return exact;
    }
    let suffix = format!(".{name}");
    all.iter().filter(|o| o.name(described).ends_with(&suffix)).collect()
}

/// Explains what is shown without names.
fn notes(described: &Described, all: &[Object<'_>]) -> Vec<String> {
    match &described.schema {
        Some(Err(why)) => vec![format!("maps are shown raw, since {why}")],
        None if !described.maps.is_empty() => vec![
            "maps are shown raw, since the object has no names and types; compile the P4 program again with \
             this version of p4shield (objects of C code alone have none)"
                .to_owned(),
        ],
        Some(Ok(_)) if all.iter().any(|o| matches!(o, Object::Raw(_))) => {
            vec!["maps of C code are shown raw".to_owned()]
        }
        _ => Vec::new(),
    }
}

fn unknown_name(ask: &mut Ask<'_>, slots: &[ProgramSlot], inspection: &Inspection, name: &str) -> String {
    let mut names = Vec::new();
    for slot in slots {
        let Ok(described) = describe(ask, *slot) else { continue };
        names.extend(objects(&described, inspection.what).iter().map(|o| o.name(&described)));
    }
    names.sort();
    names.dedup();
    names.truncate(MAX_NAMES);
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("the program has no object {name:?} of this kind; it has: {names}")
}
