//! The state that a program keeps of the one that it replaces.
//!
//! A map is kept if both programs declare it alike: its definition, and what its bytes mean. So entries,
//! registers and counters survive a change of other parts of the program.

use crate::Described;
use crate::decode::name;
use p4shield_abi::digest::DIGEST_MAP;
use p4shield_abi::map::MapDefinition;
use p4shield_abi::schema::{ArraySchema, DirectSchema, Schema, TableSchema};

/// The state that survives a replacement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Symbols of the maps whose entries the new program takes.
    pub maps: Vec<String>,
    /// Names of what the new program keeps: tables, registers, counters, meters, and maps without a
    /// description.
    pub kept: Vec<String>,
    /// Names of what loses its state: the new program lacks it, or declares it otherwise.
    pub lost: Vec<String>,
}

impl Kept {
    /// Compares two programs.
    #[must_use]
    pub fn between(old: &Described, new: &Described) -> Self {
        let mut kept = Self::default();
        let (before, after) = (schema(old), schema(new));
        let alike =
            |symbol: &str| definition(old, symbol).is_some_and(|d| definition(new, symbol) == Some(d));
        for array in &before.arrays {
            let same = after.arrays.iter().any(|a| same_array(a, array)) && alike(&array.map);
            kept.note(&array.name, same, [&array.map]);
        }
        for table in &before.tables {
            let Some(map) = table.map.as_ref().filter(|_| !table.constant) else { continue };
            let same = after.tables.iter().any(|t| same_table(t, table));
            let groups = table.groups.iter().flat_map(|g| [&g.groups, &g.members]);
            let maps: Vec<_> = std::iter::once(map).chain(groups).collect();
            kept.note(&table.name, same && maps.iter().all(|m| alike(m)), maps);
        }
        for table in &before.tables {
            let Some(map) = &table.default_map else { continue };
            let same = after.tables.iter().any(|t| same_default(t, table)) && alike(map);
            kept.maps.extend(Some(map.clone()).filter(|_| same));
        }
        // Messages that the control plane has not read yet, if they read alike.
        if before.messages == after.messages && alike(DIGEST_MAP) {
            kept.maps.push(DIGEST_MAP.to_owned());
        }
        let described = [symbols(&before), symbols(&after)].concat();
        for (symbol, _) in old.maps.iter().filter(|(symbol, _)| !described.contains(symbol)) {
            kept.note(symbol, alike(symbol), [symbol]);
        }
        kept
    }

    fn note<'a>(&mut self, of: &str, same: bool, maps: impl IntoIterator<Item = &'a String>) {
        if same {
            self.maps.extend(maps.into_iter().cloned());
            self.kept.push(name(of));
        } else {
            self.lost.push(name(of));
        }
    }
}

fn schema(described: &Described) -> Schema {
    described.schema.as_ref().and_then(|s| s.as_ref().ok()).cloned().unwrap_or_default()
}

fn definition<'d>(described: &'d Described, symbol: &str) -> Option<&'d MapDefinition> {
    described.maps.iter().find(|(name, _)| name == symbol).map(|(_, definition)| definition)
}

/// Returns the symbols that a schema describes.
fn symbols(schema: &Schema) -> Vec<String> {
    let of_table = |t: &TableSchema| {
        let groups = t.groups.iter().flat_map(|g| [g.groups.clone(), g.members.clone()]);
        t.map.iter().chain(&t.default_map).cloned().chain(groups).collect::<Vec<_>>()
    };
    let arrays = schema.arrays.iter().map(|a| a.map.clone());
    arrays.chain(schema.tables.iter().flat_map(of_table)).chain(schema.internal.iter().cloned()).collect()
}

/// Names among the metrics are no part of the state.
fn same_array(a: &ArraySchema, b: &ArraySchema) -> bool {
    ArraySchema { metric: None, ..a.clone() } == ArraySchema { metric: None, ..b.clone() }
}

/// Compares what the bytes of entries mean. Initial entries are those of a program's start.
fn same_table(a: &TableSchema, b: &TableSchema) -> bool {
    !a.constant && shape(a) == shape(b)
}

/// A changed default action of the program replaces the one that was set.
fn same_default(a: &TableSchema, b: &TableSchema) -> bool {
    let of = |t: &TableSchema| {
        (t.name.clone(), t.default_map.clone(), t.actions.clone(), t.default_action.clone())
    };
    of(a) == of(b)
}

fn shape(t: &TableSchema) -> TableSchema {
    let direct = |d: &Option<DirectSchema>| d.clone().map(|d| DirectSchema { metric: None, ..d });
    TableSchema {
        default_map: None,
        default_action: None,
        entries: Vec::new(),
        counter: direct(&t.counter),
        meter: direct(&t.meter),
        ..t.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use p4shield_abi::map::{TYPE_ARRAY, TYPE_HASH};
    use p4shield_abi::schema::{ActionSchema, Element, Unit};

    fn table(name: &str) -> TableSchema {
        let action = ActionSchema { name: "a".into(), params: Vec::new(), default_only: false };
        TableSchema {
            name: name.into(),
            map: Some(format!("{name}_map")),
            constant: false,
            default_map: Some(format!("{name}_default")),
            groups: None,
            keys: Vec::new(),
            key_size: 4,
            actions: vec![action],
            counter: None,
            meter: None,
            default_action: Some(vec![0; 8]),
            entries: Vec::new(),
        }
    }

    fn array(name: &str, width: u32) -> ArraySchema {
        let (map, element, unit) = (format!("{name}_map"), Element::Register, Unit::Packets);
        ArraySchema { name: name.into(), map, element, unit, width, metric: None }
    }

    /// A program with these, whose maps have this many entries, and one map of C code.
    fn program(tables: Vec<TableSchema>, arrays: Vec<ArraySchema>, max_entries: u32) -> Described {
        let definition =
            |map_type| MapDefinition { map_type, key_size: 4, value_size: 8, max_entries, flags: 0 };
        let mut maps = vec![("c_map".to_owned(), definition(TYPE_HASH))];
        for t in &tables {
            maps.extend(t.map.iter().map(|m| (m.clone(), definition(TYPE_HASH))));
            maps.extend(t.default_map.iter().map(|m| (m.clone(), definition(TYPE_ARRAY))));
        }
        maps.extend(arrays.iter().map(|a| (a.map.clone(), definition(TYPE_ARRAY))));
        let schema = Schema { tables, arrays, ..Schema::default() };
        Described { program: [0; 32], maps, schema: Some(Ok(schema)) }
    }

    #[test]
    fn what_is_declared_alike_is_kept() {
        let old = program(vec![table("t"), table("u")], vec![array("r", 8), array("s", 8)], 16);
        let mut other = table("u");
        other.actions.push(ActionSchema { name: "b".into(), params: Vec::new(), default_only: false });
        let new = program(vec![other, table("t")], vec![array("r", 8), array("s", 9)], 16);
        let kept = Kept::between(&old, &new);
        assert_eq!(kept.kept, ["r", "t", "c_map"]);
        assert_eq!(kept.lost, ["s", "u"]);
        assert_eq!(kept.maps, ["r_map", "t_map", "t_default", "c_map"]);
    }

    #[test]
    fn the_same_program_keeps_everything() {
        let old = program(vec![table("t")], vec![array("r", 8)], 16);
        let kept = Kept::between(&old, &old);
        assert_eq!((kept.maps.len(), kept.lost.len()), (4, 0));
    }

    #[test]
    fn another_size_or_default_action_is_the_new_programs() {
        let old = program(vec![table("t")], vec![array("r", 8)], 16);
        let larger = program(vec![table("t")], vec![array("r", 8)], 32);
        assert_eq!(Kept::between(&old, &larger).maps, Vec::<String>::new());
        let other = TableSchema { default_action: Some(vec![1; 8]), ..table("t") };
        let kept = Kept::between(&old, &program(vec![other], vec![array("r", 8)], 16));
        assert_eq!(kept.maps, ["r_map", "t_map", "c_map"]);
        let constant = TableSchema { constant: true, ..table("t") };
        let kept = Kept::between(&old, &program(vec![constant], vec![], 16));
        assert_eq!(kept.lost, ["r", "t"]);
    }
}
