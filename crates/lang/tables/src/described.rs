//! The model of a program that runs, from the schema in its object and the definitions of its maps.
//!
//! Both come from a tenant: what would place a value outside a map's key or value is refused here, so that
//! encoding an entry never has to. Names are made printable: errors show them.

use crate::Described;
use crate::decode::{fits_array, name};
use crate::model::{
    ActionFacts, Architecture, ArrayFacts, ArrayKind, DirectFacts, GroupFacts, KeyFacts, LookupKind,
    ParamFacts, TableFacts, ValueSetFacts,
};
use num_bigint::BigUint;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE};
use p4shield_abi::schema::{
    ActionSchema, ArraySchema, DirectSchema, Element, KeySchema, ParamSchema, Schema, SchemaError,
    TableSchema,
};

/// The tables, arrays and value sets of a program that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The architecture of the program.
    pub architecture: Architecture,
    /// Its tables.
    pub tables: Vec<TableFacts>,
    /// Its registers, counters and meters that are arrays.
    pub arrays: Vec<ArrayFacts>,
    /// Its parser value sets.
    pub value_sets: Vec<ValueSetFacts>,
}

/// The reason why a program has no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescribedError {
    /// The objects have no schema.
    #[error(
        "the object has no names and types; compile the P4 program again with this version of p4shield \
         (objects of C code alone have none)"
    )]
    NoSchema,
    /// The schema cannot be read.
    #[error("{0}; compile the P4 program again with this version of p4shield")]
    Schema(SchemaError),
    /// The schema does not fit the maps.
    #[error("the schema of {0} does not fit its map; compile the P4 program again")]
    Unfit(String),
}

impl Control {
    /// Returns the model of a program.
    ///
    /// # Errors
    /// [`DescribedError`].
    pub fn of(described: &Described) -> Result<Self, DescribedError> {
        let schema = match &described.schema {
            None => return Err(DescribedError::NoSchema),
            Some(Err(error)) => return Err(DescribedError::Schema(*error)),
            Some(Ok(schema)) => schema,
        };
        let Schema { architecture, arrays, tables, .. } = schema;
        let mut control = Self { architecture: *architecture, ..Self::default() };
        control.arrays = arrays.iter().filter_map(|a| array(a, described)).collect();
        for t in tables {
            let unfit = || DescribedError::Unfit(name(&t.name));
            let find = |symbol: &String| {
                described.maps.iter().find(|(name, _)| name == symbol).map(|(_, definition)| *definition)
            };
            let map = t.map.as_ref().map(|symbol| find(symbol).ok_or_else(unfit)).transpose()?;
            let default = t.default_map.as_ref().map(|symbol| find(symbol).ok_or_else(unfit)).transpose()?;
            if t.actions.is_empty() {
                control.value_sets.push(value_set(t, map).ok_or_else(unfit)?);
            } else {
                control.tables.push(table(t, map, default).ok_or_else(unfit)?);
            }
        }
        Ok(control)
    }
}

/// Returns an array, if its elements fit its map.
fn array(a: &ArraySchema, described: &Described) -> Option<ArrayFacts> {
    let (_, definition) = described.maps.iter().find(|(symbol, _)| *symbol == a.map)?;
    if definition.map_type != TYPE_ARRAY || !fits_array(a, definition) {
        return None;
    }
    let kind = match a.element {
        Element::Register | Element::SignedRegister => ArrayKind::Register,
        Element::Counter => ArrayKind::Counter { unit: a.unit },
        Element::Meter => ArrayKind::Meter { unit: a.unit },
    };
    Some(ArrayFacts {
        name: name(&a.name),
        map: a.map.clone(),
        kind,
        width: a.width,
        signed: a.element == Element::SignedRegister,
        size: definition.max_entries,
        metric: a.metric.clone(),
    })
}

/// Returns the data structure of a map's entries, if its keys have the size of a packet's key.
fn lookup(definition: &MapDefinition, key_size: u32) -> Option<LookupKind> {
    let kind = match definition.map_type {
        TYPE_HASH => LookupKind::Exact,
        TYPE_LPM_TRIE => LookupKind::Lpm,
        TYPE_CLASSIFIER => LookupKind::Rules,
        _ => return None,
    };
    (definition.key_size == key_size).then_some(kind)
}

fn table(t: &TableSchema, map: Option<MapDefinition>, default: Option<MapDefinition>) -> Option<TableFacts> {
    let lookup = map.map_or(Some(LookupKind::Code), |m| lookup(&m, t.key_size))?;
    let initial = t.default_action.as_ref().map(Vec::len);
    let sizes = [map.map(|m| m.value_size), default.map(|d| d.value_size), initial.map(|n| n as u32)];
    let value_size = sizes.into_iter().flatten().next().unwrap_or(0);
    // Action and group take eight bytes.
    if sizes.iter().flatten().any(|n| *n != value_size) || value_size < 8 {
        return None;
    }
    let actions = t.actions.iter().map(|a| action(a, value_size)).collect::<Option<Vec<_>>>()?;
    let direct = |d: &Option<DirectSchema>| {
        let d = d.as_ref()?;
        Some(DirectFacts { name: name(&d.name), unit: d.unit, metric: d.metric.clone() })
    };
    let default_action = t.default_action.as_ref().and_then(|value| default_action(&actions, value));
    Some(TableFacts {
        name: name(&t.name),
        map: t.map.clone(),
        default_map: t.default_map.clone(),
        lookup,
        mutable: !t.constant && map.is_some(),
        keys: keys(t, lookup)?,
        actions,
        key_size: t.key_size,
        value_size,
        size: map.map_or(t.entries.len() as u32, |m| m.max_entries),
        counter_offset: t.counter.as_ref().map(|c| c.offset),
        meter_offset: t.meter.as_ref().map(|m| m.offset),
        counter: direct(&t.counter),
        meter: direct(&t.meter),
        profile: None,
        groups: t
            .groups
            .as_ref()
            .map(|g| GroupFacts { groups: g.groups.clone(), members: g.members.clone() }),
        default_action,
        default_is_const: t.default_map.is_none(),
        initial_entries: t.entries.len(),
        entries_are_const: t.constant,
    })
}

fn value_set(t: &TableSchema, map: Option<MapDefinition>) -> Option<ValueSetFacts> {
    let map = map?;
    let lookup = lookup(&map, t.key_size).filter(|_| map.value_size == 8)?;
    Some(ValueSetFacts {
        name: name(&t.name),
        map: t.map.clone()?,
        lookup,
        keys: keys(t, lookup)?,
        key_size: t.key_size,
        size: map.max_entries,
    })
}

/// Returns the keys, if each lies within a packet's key, and behind the length of a trie's prefixes.
fn keys(t: &TableSchema, lookup: LookupKind) -> Option<Vec<KeyFacts>> {
    let first = if lookup == LookupKind::Lpm { 4 } else { 0 };
    let key = |k: &KeySchema| {
        let bytes = within(k.offset, k.width, t.key_size).filter(|_| k.offset >= first)?;
        Some(KeyFacts { name: name(&k.name), kind: k.kind.name(), width: k.width, offset: k.offset, bytes })
    };
    t.keys.iter().map(key).collect()
}

fn action(a: &ActionSchema, value_size: u32) -> Option<ActionFacts> {
    let param = |p: &ParamSchema| {
        let bytes = within(p.offset, p.width, value_size).filter(|_| p.offset >= 4)?;
        Some(ParamFacts { name: name(&p.name), width: p.width, offset: p.offset, bytes })
    };
    let params = a.params.iter().map(param).collect::<Option<_>>()?;
    Some(ActionFacts { name: name(&a.name), params, default_only: a.default_only })
}

/// Returns the bytes of a field of `width` bits, if they lie within `size` bytes.
fn within(offset: u32, width: u32, size: u32) -> Option<u32> {
    let bytes = width.div_ceil(8);
    offset.checked_add(bytes).is_some_and(|end| end <= size && width > 0).then_some(bytes)
}

/// Decodes the action of a value, and its data.
fn default_action(actions: &[ActionFacts], value: &[u8]) -> Option<(usize, Vec<BigUint>)> {
    let number = u32::from_le_bytes(*value.first_chunk()?) as usize;
    let data = |p: &ParamFacts| {
        let start = p.offset as usize;
        Some(BigUint::from_bytes_le(value.get(start..start + p.bytes as usize)?))
    };
    Some((number, actions.get(number)?.params.iter().map(data).collect::<Option<_>>()?))
}
