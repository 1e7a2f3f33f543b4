//! The object's schema: names and types of its maps, for tools that show them.

use crate::lower::{CodeEntries, Lowered};
use p4shield_abi::digest::DIGEST_MAP;
use p4shield_abi::schema::{
    ActionSchema, ArraySchema, DirectSchema, Element, GroupSchema, KeyKind, KeySchema, MessageKind,
    ParamSchema, Schema, TableSchema,
};
use p4shield_tables::model::{
    ActionFacts, ArrayFacts, ArrayKind, DirectFacts, KeyFacts, TableFacts, Unit, ValueSetFacts,
};

/// Returns the schema of a lowered program.
pub(crate) fn describe(lowered: &Lowered) -> Schema {
    let groups = lowered.tables.iter().filter_map(|t| t.groups.as_ref());
    let groups = groups.flat_map(|g| [g.groups.clone(), g.members.clone()]);
    let arguments = lowered.argument_map.map(|m| lowered.function.maps[m.0 as usize].name.clone());
    let carried = [lowered.block, lowered.calls];
    let carried = carried.into_iter().flatten().map(|m| lowered.function.maps[m.0 as usize].name.clone());
    let digests = lowered.messages.iter().any(|m| m.kind == MessageKind::Digest);
    let digests = digests.then(|| DIGEST_MAP.to_owned());
    let tables = lowered.tables.iter().zip(&lowered.code_entries).map(|(t, entries)| table(t, entries));
    Schema {
        architecture: lowered.architecture,
        arrays: lowered.arrays.iter().map(array).collect(),
        tables: tables.chain(lowered.value_sets.iter().map(value_set)).collect(),
        messages: lowered.messages.clone(),
        internal: groups.chain(arguments).chain(carried).chain(digests).collect(),
    }
}

fn array(a: &ArrayFacts) -> ArraySchema {
    let (element, of) = match a.kind {
        ArrayKind::Register if a.signed => (Element::SignedRegister, Unit::Packets),
        ArrayKind::Register => (Element::Register, Unit::Packets),
        ArrayKind::Counter { unit } => (Element::Counter, unit),
        ArrayKind::Meter { unit } => (Element::Meter, unit),
    };
    ArraySchema {
        name: a.name.clone(),
        map: a.map.clone(),
        element,
        unit: of,
        width: a.width,
        metric: a.metric.clone(),
    }
}

fn keys(keys: &[KeyFacts]) -> Vec<KeySchema> {
    let key = |k: &KeyFacts| {
        // The lowering refuses keys of other kinds.
        let kind = KeyKind::named(k.kind).unwrap_or(KeyKind::Exact);
        KeySchema { name: k.name.clone(), kind, width: k.width, offset: k.offset }
    };
    keys.iter().map(key).collect()
}

fn direct(facts: Option<&DirectFacts>, offset: Option<u32>) -> Option<DirectSchema> {
    let (d, offset) = facts.zip(offset)?;
    Some(DirectSchema { name: d.name.clone(), unit: d.unit, offset, metric: d.metric.clone() })
}

fn table(t: &TableFacts, entries: &CodeEntries) -> TableSchema {
    let default = t.default_action.as_ref().and_then(|(action, data)| t.action_value(*action, data).ok());
    // Only entries in a map have room for a counter.
    let in_map = |d| if t.map.is_some() { d } else { None };
    TableSchema {
        name: t.name.clone(),
        map: t.map.clone(),
        constant: !t.mutable,
        default_map: t.default_map.clone(),
        groups: t
            .groups
            .as_ref()
            .map(|g| GroupSchema { groups: g.groups.clone(), members: g.members.clone() }),
        keys: keys(&t.keys),
        key_size: t.key_size,
        actions: t.actions.iter().map(action).collect(),
        counter: in_map(direct(t.counter.as_ref(), t.counter_offset)),
        meter: in_map(direct(t.meter.as_ref(), t.meter_offset)),
        default_action: default,
        entries: entries.clone(),
    }
}

fn action(a: &ActionFacts) -> ActionSchema {
    let params =
        a.params.iter().map(|p| ParamSchema { name: p.name.clone(), width: p.width, offset: p.offset });
    ActionSchema { name: a.name.clone(), params: params.collect(), default_only: a.default_only }
}

fn value_set(set: &ValueSetFacts) -> TableSchema {
    TableSchema {
        name: set.name.clone(),
        map: Some(set.map.clone()),
        constant: false,
        default_map: None,
        groups: None,
        keys: keys(&set.keys),
        key_size: set.key_size,
        actions: Vec::new(),
        counter: None,
        meter: None,
        default_action: None,
        entries: Vec::new(),
    }
}
