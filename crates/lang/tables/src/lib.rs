//! The state of programs by name: tables, value sets, counters, registers and meters, as their P4 program
//! declares them.
//!
//! A P4 VM, or with placement `inline` a switch, answers requests for the description and the maps of the
//! program that it runs. No answer is trusted: `remote` bounds and checks them, `decode` shows what fits the
//! program's schema, and `objects` joins both. [`view`] has the types of what is shown.
//!
//! Reading disturbs no packet: the P4 VM's worker copies a few kilobytes at a time between two batches
//! (`p4shield_runtime`).

#![forbid(unsafe_code)]

mod decode;
mod objects;
mod remote;
#[cfg(test)]
mod tests;
pub mod view;

pub use objects::{Object, objects};
pub use remote::{Ask, Described, Extent, describe};

use p4shield_abi::Direction;
use p4shield_control::{Envelope, ProgramSlot, Reply, Request};
use view::{DirectionView, Inspection, ObjectView};

/// The most rows, and bytes of them, of one answer.
const MAX_ROWS: usize = 20_000;
const MAX_BYTES: usize = 8 << 20;
/// Names that an error lists.
const MAX_NAMES: usize = 20;

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
///
/// # Errors
/// The P4 VM or switch does not answer, or gives an answer that no program gives.
pub fn show(ask: &mut Ask<'_>, slot: ProgramSlot, inspection: &Inspection) -> Result<DirectionView, String> {
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
        program: hex::encode(described.program),
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

/// Explains that no object has a name, and lists those that have one.
pub fn unknown_name(ask: &mut Ask<'_>, slots: &[ProgramSlot], inspection: &Inspection, name: &str) -> String {
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
