//! The objects of a program: the counters, registers and tables of its schema with their maps, and the maps
//! that the schema does not describe.

use crate::decode::{self, name};
use crate::source::{Described, Extent, ReadMap, Rows};
use crate::view::{ActionView, ObjectKind, ObjectView, Row, What};
use p4shield_abi::map::{TYPE_ARRAY, TYPE_CLASSIFIER};
use p4shield_abi::schema::{ArraySchema, Element, Schema, TableSchema};

/// Elements up to which an array is small: it is shown with its zeros.
pub(crate) const SMALL: u32 = 16;

/// An object, with the index of its map.
pub enum Object<'a> {
    /// An array of counters, registers or meters.
    Array(&'a ArraySchema, usize),
    /// The counter in the entries of a table.
    Direct(&'a TableSchema, usize),
    /// The meter in the entries of a table.
    DirectMeter(&'a TableSchema, usize),
    /// `None`: the entries are code.
    Table(&'a TableSchema, Option<usize>),
    /// A map without a description.
    Raw(usize),
}

/// Returns the objects of a kind. Those whose schema does not fit their map are maps without a description.
pub fn objects(described: &Described, what: What) -> Vec<Object<'_>> {
    let empty = Schema::default();
    let schema = described.schema.as_ref().and_then(|s| s.as_ref().ok());
    let map_of = |symbol: &str| described.maps.iter().position(|(name, _)| name == symbol);
    let mut known = vec![false; described.maps.len()];
    let mut note = |map: Option<usize>| map.into_iter().for_each(|m| known[m] = true);
    schema.unwrap_or(&empty).internal.iter().for_each(|symbol| note(map_of(symbol)));
    let mut found = Vec::new();
    for a in schema.into_iter().flat_map(|s| &s.arrays) {
        let map = map_of(&a.map).filter(|m| {
            let definition = described.maps[*m].1;
            definition.map_type == TYPE_ARRAY && decode::fits_array(a, &definition)
        });
        note(map);
        let wanted = if a.element == Element::Counter { What::Counters } else { What::Registers };
        found.extend(map.filter(|_| wanted == what).map(|m| Object::Array(a, m)));
    }
    for t in schema.into_iter().flat_map(|s| &s.tables) {
        let map = t.map.as_deref().map(map_of);
        note(map.flatten());
        note(t.default_map.as_deref().and_then(map_of));
        match (what, map) {
            (What::Tables, None) => found.push(Object::Table(t, None)),
            (What::Tables, Some(Some(m))) => found.push(Object::Table(t, Some(m))),
            (What::Counters, Some(Some(m))) if t.counter.is_some() => found.push(Object::Direct(t, m)),
            (What::Registers, Some(Some(m))) if t.meter.is_some() => found.push(Object::DirectMeter(t, m)),
            _ => {}
        }
    }
    let is_array = |m: &usize| described.maps[*m].1.map_type == TYPE_ARRAY;
    let raw = (0..described.maps.len()).filter(|m| !known[*m]);
    match what {
        What::Counters => {}
        What::Registers => found.extend(raw.filter(is_array).map(Object::Raw)),
        What::Tables => found.extend(raw.filter(|m| !is_array(m)).map(Object::Raw)),
    }
    found
}

impl Object<'_> {
    /// Returns its name, from a tenant.
    pub fn name(&self, described: &Described) -> String {
        match self {
            Self::Array(a, _) => name(&a.name),
            Self::Direct(t, _) => name(t.counter.as_ref().map_or(&t.name, |c| &c.name)),
            Self::DirectMeter(t, _) => name(t.meter.as_ref().map_or(&t.name, |m| &m.name)),
            Self::Table(t, _) => name(&t.name),
            Self::Raw(m) => name(&described.maps[*m].0),
        }
    }

    /// Returns its name among the metrics, if the program marks it.
    pub fn metric(&self) -> Option<String> {
        let metric = match self {
            Self::Array(a, _) => a.metric.as_deref().filter(|_| a.element == Element::Counter),
            Self::Direct(t, _) => t.counter.as_ref().and_then(|c| c.metric.as_deref()),
            Self::DirectMeter(..) | Self::Table(..) | Self::Raw(_) => None,
        };
        metric.map(name)
    }

    /// Returns the number of its elements, or of the most entries.
    pub fn size(&self, described: &Described) -> u32 {
        self.map().map_or(0, |m| described.maps[m].1.max_entries)
    }

    /// Returns the bytes of a row.
    pub(crate) fn row_bytes(&self, described: &Described) -> usize {
        let definition = self.map().map(|m| described.maps[m].1);
        definition.map_or(0, |d| d.entry_key_size() as usize + d.value_size as usize)
    }

    const fn map(&self) -> Option<usize> {
        match self {
            Self::Array(_, m) | Self::Direct(_, m) | Self::DirectMeter(_, m) | Self::Raw(m) => Some(*m),
            Self::Table(_, m) => *m,
        }
    }

    /// Returns the object without its rows.
    pub(crate) fn outline(&self, described: &Described) -> ObjectView {
        let map = self.map().map(|m| &described.maps[m]);
        let mut view = ObjectView {
            name: self.name(described),
            map: map.map(|(symbol, _)| name(symbol)),
            size: map.map_or(0, |(_, definition)| definition.max_entries),
            ..ObjectView::default()
        };
        match self {
            Self::Array(a, _) => {
                view.kind = match a.element {
                    Element::Counter => ObjectKind::Counter,
                    Element::Meter => ObjectKind::Meter,
                    Element::Register | Element::SignedRegister => ObjectKind::Register,
                };
                match view.kind {
                    ObjectKind::Register => view.width = Some(a.width),
                    _ => view.unit = Some(decode::unit(a.unit).to_owned()),
                }
                view.metric = a.metric.as_deref().map(name);
            }
            Self::Direct(t, _) => {
                view.kind = ObjectKind::DirectCounter;
                view.keys = decode::keys(t);
                view.unit = t.counter.as_ref().map(|c| decode::unit(c.unit).to_owned());
                view.metric = t.counter.as_ref().and_then(|c| c.metric.as_deref()).map(name);
            }
            Self::DirectMeter(t, _) => {
                view.kind = ObjectKind::DirectMeter;
                view.keys = decode::keys(t);
                view.unit = t.meter.as_ref().map(|m| decode::unit(m.unit).to_owned());
            }
            Self::Table(t, map) => {
                view.kind = if t.actions.is_empty() { ObjectKind::ValueSet } else { ObjectKind::Table };
                view.keys = decode::keys(t);
                if map.is_none() {
                    view.size = t.entries.len() as u32;
                }
            }
            Self::Raw(_) => view.kind = ObjectKind::Map,
        }
        view
    }

    /// Shows the object with its rows.
    ///
    /// # Errors
    /// The P4 VM or switch does not answer, or gives an answer that no program gives.
    pub fn view(
        &self,
        reader: &mut dyn ReadMap,
        described: &Described,
        mut extent: Extent,
    ) -> Result<ObjectView, String> {
        let mut view = self.outline(described);
        if let Self::Table(t, _) = self {
            view.default_action = default_action(reader, described, t)?;
        }
        let Some(map) = self.map() else {
            self.code_entries(&mut view, extent);
            return Ok(view);
        };
        let definition = described.maps[map].1;
        extent.zeros |= definition.max_entries <= SMALL;
        let Rows { entries, more, next } = reader.read(described, map, extent)?;
        let row = |(key, value): &(Vec<u8>, Vec<u8>)| match self {
            Self::Array(a, _) => {
                let index = key.first_chunk().map_or(0, |k| u32::from_ne_bytes(*k));
                decode::element(a, index, value)
            }
            Self::Direct(t, _) | Self::DirectMeter(t, _) | Self::Table(t, _) => {
                let entry = decode::entry(t, &definition, key, value);
                let entry = entry.unwrap_or_else(|| decode::raw(&definition, key, value));
                match self {
                    Self::Direct(..) => Row { action: None, meter: None, ..entry },
                    Self::DirectMeter(..) => Row { action: None, packets: None, bytes: None, ..entry },
                    _ => entry,
                }
            }
            Self::Raw(_) => decode::raw(&definition, key, value),
        };
        view.rows = entries.iter().map(row).collect();
        if definition.map_type == TYPE_CLASSIFIER && more == 0 && next.is_none() && extent.from == 0 {
            // The first match comes first.
            view.rows.sort_by_key(|r| std::cmp::Reverse(r.priority));
        }
        (view.more, view.next) = (more, next);
        Ok(view)
    }

    /// Fills in the rows of a table whose entries are code.
    fn code_entries(&self, view: &mut ObjectView, extent: Extent) {
        let Self::Table(t, None) = self else { return };
        let rest = t.entries.iter().skip(extent.from as usize);
        let decoded = |(rule, value): &(Vec<u8>, Vec<u8>)| decode::code_entry(t, rule, value);
        let limit = extent.limit.unwrap_or(usize::MAX);
        view.more = rest.clone().skip(limit).count() as u64;
        view.rows = rest.take(limit).filter_map(decoded).collect();
    }
}

/// Returns the default action of a table: the present one if it may change, else the one of its schema.
fn default_action(
    reader: &mut dyn ReadMap,
    described: &Described,
    t: &TableSchema,
) -> Result<Option<ActionView>, String> {
    let symbol = t.default_map.as_deref();
    let map = symbol.and_then(|symbol| described.maps.iter().position(|(name, _)| name == symbol));
    let value = match map {
        Some(map) => {
            let extent = Extent { from: 0, limit: Some(1), bytes: usize::MAX, zeros: true };
            let rows = reader.read(described, map, extent)?;
            rows.entries.into_iter().next().map(|(_, value)| value)
        }
        None => t.default_action.clone(),
    };
    Ok(value.and_then(|value| decode::action(&t.actions, &value)))
}
