//! The state that `p4shield program counters`, `registers` and `tables` show, and the metrics of marked
//! counters.
//!
//! The daemon asks what runs a program, a P4 VM or with placement `inline` a switch, through the tenant's
//! supervisor. It trusts no answer: `remote` bounds and checks them, and `p4shield_tables` decodes them.
//! `metrics` exports the counters that a program marks with `@metric`.
//!
//! Reading disturbs no packet: the P4 VM's worker copies a few kilobytes at a time between two batches
//! (`p4shield_runtime`).

mod metrics;
mod remote;
#[cfg(test)]
mod tests;

use crate::config::{Config, Tenant};
use crate::lifecycle::state::DaemonState;
use crate::supervisor::Supervisor;
use p4shield_abi::Direction;
use p4shield_control::{Envelope, ProgramSlot, Reply, Request};
use p4shield_tables::view::{DirectionView, Inspection, ProgramView, What};
use remote::{Ask, Remote, describe};
use std::time::{Duration, Instant};

/// Longest time for an answer; less than a client waits.
const LONGEST: Duration = Duration::from_secs(40);
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

/// Shows the state of the program of a slot.
fn show(ask: &mut Ask<'_>, slot: ProgramSlot, inspection: &Inspection) -> Result<DirectionView, String> {
    let described = describe(ask, slot)?;
    let view = p4shield_tables::show(&mut Remote { ask, slot }, &described, inspection)?;
    let direction = Direction::from_u8(slot.direction).map_or("", Direction::name);
    Ok(DirectionView { direction: direction.to_owned(), ..view })
}

/// Explains that no object has a name, and lists those that have one.
fn unknown_name(ask: &mut Ask<'_>, slots: &[ProgramSlot], inspection: &Inspection, name: &str) -> String {
    let mut names = Vec::new();
    for slot in slots {
        let Ok(described) = describe(ask, *slot) else { continue };
        names.extend(p4shield_tables::object_names(&described, inspection.what));
    }
    names.sort();
    names.dedup();
    names.truncate(MAX_NAMES);
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("the program has no object {name:?} of this kind; it has: {names}")
}

/// Shows the program that any bytes describe: pieces with a `u16` length, each a reply. Entry point for
/// fuzzing.
///
/// # Panics
/// An object has more rows than were asked for.
pub fn fuzz(bytes: &[u8]) {
    for what in [What::Counters, What::Registers, What::Tables] {
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

/// A view with each kind of row, for tests of the encoding.
#[cfg(test)]
pub(crate) fn sample() -> ProgramView {
    use p4shield_tables::view::{
        ActionView, DirectionView, KeyView, MatchView, MeterView, Number, ObjectKind, ObjectView, RawEntry,
        Row,
    };

    let action = ActionView { name: "forward".into(), params: vec![("port".into(), "0x1ff".into())] };
    let matches = vec![
        MatchView::Exact("0x08".into()),
        MatchView::Prefix("0x0a000000".into(), 8),
        MatchView::Ternary("0x1".into(), "0x3".into()),
        MatchView::Range("0x1".into(), "0x3".into()),
        MatchView::Any,
    ];
    let key = KeyView { name: "hdr.ip.dst".into(), kind: "lpm".into(), width: 32 };
    let row = |index| Row { index: Some(index), ..Row::default() };
    let numbers = [Number::Unsigned(5), Number::Negative(-5), Number::Wide("0x05".into())];
    let mut rows: Vec<_> = numbers.map(|n| Row { value: Some(n), ..row(1) }).into();
    rows.push(Row { keys: matches, priority: Some(1), action: Some(action.clone()), ..Row::default() });
    rows.push(Row { packets: Some(3), bytes: Some(180), meter: Some(MeterView::default()), ..row(2) });
    rows.push(Row { raw: Some(RawEntry { key: "00".into(), value: "01".into() }), ..Row::default() });
    let object = ObjectView {
        name: "pipe.t".into(),
        kind: ObjectKind::Table,
        map: Some("pipe_t".into()),
        keys: vec![key],
        default_action: Some(action),
        rows,
        more: 7,
        next: Some(4096),
        ..ObjectView::default()
    };
    let direction = DirectionView {
        direction: "ingress".into(),
        notes: vec!["a".into()],
        objects: vec![object],
        ..DirectionView::default()
    };
    ProgramView { tenant: "alice".into(), vm: "web".into(), directions: vec![direction] }
}
