//! Programs that each packet thread can have for itself: packets change nothing but counters, whose values
//! add up.

use p4shield_abi::digest::DIGEST_MAP;
use p4shield_abi::division::BLOCK_MAP;
use p4shield_switch::Traits;
use p4shield_tables::model::ArrayKind;
use p4shield_tables::{Control, Described, DescribedError};
use std::collections::BTreeMap;
use std::ops::Range;

/// The places of counters, each of 8 bytes, in the values of a map; an empty range for a map that packets do
/// not change. By symbol of the map.
pub(crate) type Counters = BTreeMap<String, Range<usize>>;

/// Bytes of a counter in an entry's value.
const DIRECT: usize = 16;

/// Returns the places of a program's counters.
///
/// # Errors
/// Packets change something else, so that threads have to share the program: what that is.
pub(crate) fn counters(
    described: &Described,
    control: &Result<Control, DescribedError>,
    traits: Traits,
) -> Result<Counters, String> {
    let control = control.as_ref().map_err(|_| "what its maps mean is unknown".to_owned())?;
    if traits.reads_queues {
        return Err("it reads how long packets waited".to_owned());
    }
    let mut all = Counters::new();
    for a in &control.arrays {
        let kind = match a.kind {
            ArrayKind::Counter { .. } => {
                let size = described.maps.iter().find(|(map, _)| *map == a.map).map(|(_, d)| d.value_size);
                all.insert(a.map.clone(), 0..size.unwrap_or_default() as usize);
                continue;
            }
            ArrayKind::Register => "register",
            ArrayKind::Meter { .. } => "meter",
        };
        return Err(format!("{kind} {}", a.name));
    }
    for t in &control.tables {
        if let (Some(_), Some(meter)) = (t.meter_offset, &t.meter) {
            return Err(format!("meter {}", meter.name));
        }
        let counter = t.counter_offset.map_or(0..0, |at| at as usize..at as usize + DIRECT);
        all.extend(t.map.iter().map(|map| (map.clone(), counter.clone())));
        all.extend(t.default_map.iter().map(|map| (map.clone(), 0..0)));
        let groups = t.groups.iter().flat_map(|g| [&g.groups, &g.members]);
        all.extend(groups.map(|map| (map.clone(), 0..0)));
    }
    // What the parts of a divided program pass on: each run writes it before it is read.
    all.extend(traits.divided.then(|| (BLOCK_MAP.to_owned(), 0..0)));
    all.extend(control.value_sets.iter().map(|set| (set.map.clone(), 0..0)));
    match described.maps.iter().map(|(map, _)| map).find(|map| !all.contains_key(*map)) {
        Some(map) if map == DIGEST_MAP => Err("it sends digests".to_owned()),
        Some(map) => Err(format!("map {map}")),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_abi::map::{MapDefinition, TYPE_ARRAY};
    use p4shield_abi::meter::METER_CELL_SIZE;
    use p4shield_abi::schema::{ArraySchema, Element, Schema, Unit};

    /// A program with an array of this kind, and a map that nothing describes if it has a name.
    fn program(element: Element, other: Option<&str>) -> Described {
        let (name, map, unit) = ("pipe.cells".to_owned(), "cells_map".to_owned(), Unit::Packets);
        let array = ArraySchema { name, map: map.clone(), element, unit, width: 128, metric: None };
        let value_size = if element == Element::Meter { METER_CELL_SIZE as u32 } else { 16 };
        let definition =
            MapDefinition { map_type: TYPE_ARRAY, key_size: 4, value_size, max_entries: 8, flags: 0 };
        let maps = std::iter::once(map).chain(other.map(str::to_owned)).map(|m| (m, definition)).collect();
        let schema = Schema { arrays: vec![array], ..Schema::default() };
        Described { program: [0; 32], maps, schema: Some(Ok(schema)) }
    }

    fn of(described: &Described, reads_queues: bool) -> Result<Counters, String> {
        let traits = Traits { reads_queues, divided: true, ..Traits::default() };
        counters(described, &Control::of(described), traits)
    }

    #[test]
    fn threads_share_a_program_that_changes_more_than_counters() {
        let counting = program(Element::Counter, None);
        let places = |range| Counters::from([("cells_map".to_owned(), range), (BLOCK_MAP.to_owned(), 0..0)]);
        assert_eq!(of(&counting, false), Ok(places(0..16)));
        let shared = |described: &Described| of(described, false).unwrap_err();
        assert_eq!(shared(&program(Element::Register, None)), "register pipe.cells");
        assert_eq!(shared(&program(Element::Meter, None)), "meter pipe.cells");
        assert_eq!(shared(&program(Element::Counter, Some("c_map"))), "map c_map");
        assert_eq!(shared(&program(Element::Counter, Some(DIGEST_MAP))), "it sends digests");
        assert_eq!(of(&counting, true).unwrap_err(), "it reads how long packets waited");
        let unknown = Described { schema: None, ..counting };
        assert_eq!(shared(&unknown), "what its maps mean is unknown");
    }
}
