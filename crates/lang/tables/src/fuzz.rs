//! Any bytes as the schema of a program, and entries for its tables. Entry point for fuzzing.

use crate::decode;
use crate::model::KeyFacts;
use crate::value::key_match;
use crate::{Control, Described, trace};
use p4shield_abi::map::{MapDefinition, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
use p4shield_abi::schema::{Schema, TableSchema};

/// Decodes trace points and an event of each. Decodes a schema, gives each table a map whose kind and value
/// size are the first two bytes, and encodes entries.
///
/// # Panics
/// An encoded entry does not have the size that its map needs, or is shown as another one.
pub fn fuzz(bytes: &[u8]) {
    let [kind, size, rest @ ..] = bytes else { return };
    if let Ok(points) = trace::points(rest) {
        let word = u64::from(*kind);
        (0..=points.len() as u64).for_each(|n| drop(trace::event(&points, &[n, word, 0, 1, 2, 3, 4, 5])));
    }
    let Ok(schema) = Schema::decode(rest) else { return };
    let map_type = [TYPE_HASH, TYPE_LPM_TRIE, TYPE_CLASSIFIER][usize::from(*kind) % 3];
    let definition = |t: &TableSchema| MapDefinition {
        map_type,
        key_size: t.key_size.min(4096),
        value_size: u32::from(*size),
        max_entries: 16,
        flags: 0,
    };
    let tables = schema.tables.clone();
    let symbols = |t: &TableSchema| t.map.iter().chain(&t.default_map).cloned().collect::<Vec<_>>();
    let maps = tables.iter().flat_map(|t| symbols(t).into_iter().map(move |s| (s, definition(t)))).collect();
    let described = Described { program: [0; 32], maps, schema: Some(Ok(schema)) };
    let Ok(control) = Control::of(&described) else { return };
    let with_actions = tables.iter().filter(|t| !t.actions.is_empty());
    for (facts, t) in control.tables.iter().zip(with_actions) {
        let matches =
            facts.keys.iter().map(|k| key_match(k, some_match(k)).expect("a value")).collect::<Vec<_>>();
        for (number, action) in facts.actions.iter().enumerate() {
            let data = vec![1u8.into(); action.params.len()];
            let value = facts.action_value(number, &data).expect("one bit fits");
            assert_eq!(value.len(), facts.value_size as usize);
            if facts.map.is_some()
                && let Ok(key) = facts.entry_key(&matches, 1)
            {
                assert_eq!(key.len(), definition(t).entry_key_size() as usize);
                // Fields of a hostile schema may lie upon each other: the entry is shown, whatever it says.
                let _ = decode::entry(t, &definition(t), &key, &value);
            }
        }
    }
}

/// Returns a match that fits the kind of a key.
fn some_match(key: &KeyFacts) -> &'static str {
    match key.kind {
        "lpm" => "1/1",
        "range" => "0..1",
        "ternary" => "1/0x1",
        _ => "1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LookupKind, TableFacts};
    use crate::view::Row;
    use p4shield_abi::schema::{ActionSchema, Architecture, KeyKind, KeySchema, ParamSchema};
    use proptest::prelude::*;

    /// A table with keys of these kinds and widths, one behind the other.
    fn table(keys: &[(KeyKind, u32)], first: u32) -> TableSchema {
        let mut offset = first;
        let keys = keys.iter().enumerate().map(|(n, (kind, width))| {
            let key = KeySchema { name: format!("k{n}"), kind: *kind, width: *width, offset };
            offset += width.div_ceil(8);
            key
        });
        let keys: Vec<_> = keys.collect();
        let param = |name: &str, width, offset| ParamSchema { name: name.into(), width, offset };
        let params = vec![param("port", 9, 4), param("wide", 100, 8)];
        TableSchema {
            name: "pipe.t".into(),
            map: Some("t".into()),
            constant: false,
            default_map: None,
            groups: None,
            keys,
            key_size: offset,
            actions: vec![ActionSchema { name: "forward".into(), params, default_only: false }],
            counter: None,
            meter: None,
            default_action: Some(vec![0; 24]),
            entries: Vec::new(),
        }
    }

    fn control(t: &TableSchema, map_type: u32) -> (TableFacts, MapDefinition) {
        let definition =
            MapDefinition { map_type, key_size: t.key_size, value_size: 24, max_entries: 16, flags: 0 };
        let schema =
            Schema { architecture: Architecture::V1model, tables: vec![t.clone()], ..Schema::default() };
        let maps = vec![("t".to_owned(), definition)];
        let described = Described { program: [0; 32], maps, schema: Some(Ok(schema)) };
        (Control::of(&described).unwrap().tables.remove(0), definition)
    }

    /// Returns the key of an entry that is written as it is shown.
    fn written(facts: &TableFacts, row: &Row) -> Vec<u8> {
        let texts = row.keys.iter().map(ToString::to_string);
        let matches = facts.keys.iter().zip(texts).map(|(k, text)| key_match(k, &text).unwrap());
        facts.entry_key(&matches.collect::<Vec<_>>(), row.priority.unwrap_or(0)).unwrap()
    }

    /// Checks that an entry, shown and written again, is the same.
    fn round_trip(t: &TableSchema, map_type: u32, texts: &[String], priority: u32) {
        let (facts, definition) = control(t, map_type);
        let matches = facts.keys.iter().zip(texts).map(|(k, text)| key_match(k, text).unwrap());
        let priority = if facts.lookup == LookupKind::Rules { priority } else { 0 };
        let key = facts.entry_key(&matches.collect::<Vec<_>>(), priority).unwrap();
        let value = facts.action_value(0, &[9u8.into(), 77u8.into()]).unwrap();
        let row = decode::entry(t, &definition, &key, &value).unwrap();
        assert_eq!(written(&facts, &row), key, "{row:?}");
    }

    proptest! {
        #[test]
        fn a_shown_entry_can_be_written_again(
            a in 0..1u32 << 20, len in 0..21u32, b in 0..512u32, mask in 0..512u32, low: u16, high: u16,
            priority: u32,
        ) {
            let prefix = table(&[(KeyKind::Lpm, 20)], 4);
            round_trip(&prefix, TYPE_LPM_TRIE, &[format!("{a}/{len}")], 0);
            let exact = table(&[(KeyKind::Exact, 20), (KeyKind::Exact, 9)], 0);
            round_trip(&exact, TYPE_HASH, &[a.to_string(), b.to_string()], 0);
            let kinds = [KeyKind::Ternary, KeyKind::Optional, KeyKind::Lpm, KeyKind::Range];
            let widths = [9, 9, 20, 16];
            let rules = table(&kinds.into_iter().zip(widths).collect::<Vec<_>>(), 0);
            let texts = [
                format!("{b:#x}/{mask:#x}"),
                if mask & 1 == 0 { "_".to_owned() } else { b.to_string() },
                format!("{a}/{len}"),
                format!("{}..{}", low.min(high), low.max(high)),
            ];
            round_trip(&rules, TYPE_CLASSIFIER, &texts, priority);
        }
    }

    #[test]
    fn damaged_schemas_give_no_entry_of_a_wrong_size() {
        let kinds = [(KeyKind::Lpm, 20), (KeyKind::Exact, 9)];
        let schema = Schema { tables: vec![table(&kinds, 4)], ..Schema::default() };
        let value = trace::PointValue { name: "a".into(), width: 9, names: vec!["b".into()] };
        let point = trace::TracePoint {
            kind: trace::PointKind::Table,
            name: "t".into(),
            place: "r.p4:1".into(),
            values: vec![value],
        };
        let traced = [vec![0, 24], trace::to_bytes(&[point])].concat();
        let seeds = (0..3).map(|n| [vec![n, 24], schema.encode()].concat()).chain([traced]);
        let seeds: Vec<_> = seeds.collect();
        seeds.iter().for_each(|seed| fuzz(seed));
        p4shield_testbed::campaign(&seeds, fuzz);
    }
}
