//! One model of a program's state: tables, value sets, counters, registers and meters, as its P4 program
//! declares them.
//!
//! | module | contents |
//! |---|---|
//! | [`model`] | the control plane's view of a program, which the compiler emits; encoding of entries |
//! | `described` | [`Control`], the same view of a program that runs, from the schema in its object |
//! | [`direct`] | counters and meters by name, also those in the entries of tables |
//! | [`element`] | encoding of the elements of registers, counters and meters |
//! | [`entry`] | entries as people write them, with [`names`] and [`value`]s |
//! | `kept` | what a program keeps of the state of the one that it replaces |
//! | `source` | the trait by which the maps of a running program are read; its users bound what they read |
//! | `decode` | shows what fits the program's schema |
//! | `marked` | the counters that a program marks with `@metric` |
//! | [`message`] | digests, and the headers of packets to and from a controller |
//! | [`trace`] | trace points, and what the events of a traced run mean |
//! | `objects` | the objects of a schema, with their maps |
//! | [`view`] | the types of what is shown |
//! | [`write`](mod@write) | the types of what is changed |
//! | `fuzz` | any bytes as a schema, for fuzzing |

#![forbid(unsafe_code)]

mod decode;
mod described;
pub mod direct;
pub mod element;
pub mod entry;
mod fuzz;
mod kept;
mod marked;
pub mod message;
pub mod model;
pub mod names;
mod objects;
mod source;
pub mod trace;
pub mod value;
pub mod view;
pub mod write;

pub use described::{Control, DescribedError};
pub use fuzz::fuzz;
pub use kept::Kept;
pub use marked::{MarkedCounters, MarkedCounts, MarkedIndex};
pub use objects::{Object, objects};
pub use source::{Described, Extent, ReadMap, Rows};

use view::{DirectionView, Inspection, ObjectView, What};

/// The most rows, and bytes of them, of one answer.
const MAX_ROWS: usize = 20_000;
const MAX_BYTES: usize = 8 << 20;

/// Shows the state of one program, whose direction the caller knows.
///
/// # Errors
/// The P4 VM or switch does not answer, or gives an answer that no program gives.
pub fn show(
    reader: &mut dyn ReadMap,
    described: &Described,
    inspection: &Inspection,
) -> Result<DirectionView, String> {
    let all = objects(described, inspection.what);
    let chosen = chosen(&all, described, inspection.name.as_deref());
    let (mut rows, mut bytes) = (MAX_ROWS, MAX_BYTES);
    let mut shown: Vec<ObjectView> = Vec::with_capacity(chosen.len());
    for object in chosen {
        if inspection.limit.is_none() && rows == 0 {
            // The next page has the rows of this object.
            shown.push(ObjectView { next: Some(inspection.from), ..object.outline(described) });
            continue;
        }
        let limit = inspection.limit.map(|limit| (limit as usize).min(rows));
        let extent = Extent { from: inspection.from, limit, bytes, zeros: inspection.zeros };
        let view = object.view(reader, described, extent)?;
        rows = rows.saturating_sub(view.rows.len());
        bytes = bytes.saturating_sub(view.rows.len().saturating_mul(object.row_bytes(described)));
        shown.push(view);
    }
    Ok(DirectionView {
        program: hex::encode(described.program),
        notes: notes(described, &all),
        objects: shown,
        ..DirectionView::default()
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

/// Returns the names of a program's objects of a kind.
#[must_use]
pub fn object_names(described: &Described, what: What) -> Vec<String> {
    objects(described, what).iter().map(|object| object.name(described)).collect()
}
