//! State that a script sets on a device: tables, registers, counters and meters.

use std::collections::HashMap;

use num_bigint::BigUint;
use p4shield_abi::meter::MeterCell;
use p4shield_tables::element::{Rate, meter};
use p4shield_tables::model::{ArrayFacts, ArrayKind, TableFacts};

use crate::device::Device;
use crate::error::StateError;
use crate::resolve::{action_value, c_names, entry_value, find_table, keys, specificity};
use crate::script::{ActionCall, CounterIndex, KeyMatch, Unit};
use p4shield_tables::names::{self, NameError};

/// The entries that a script added.
#[derive(Debug, Default)]
pub struct State {
    /// Name, map and key of each entry.
    entries: Vec<(Option<String>, String, Vec<u8>)>,
    /// Original default actions, by map.
    defaults: HashMap<String, Vec<u8>>,
}

impl State {
    /// Adds an entry.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn add(
        &mut self,
        device: &mut Device,
        table: &str,
        priority: Option<u32>,
        matches: &[KeyMatch],
        action: &ActionCall,
        id: Option<&str>,
    ) -> Result<(), StateError> {
        let facts = device.facts();
        let c = c_names(facts.architecture);
        let t = &facts.tables[find_table(device, table)?];
        let constant = || StateError::Constant(format!("the entries of {}", t.name));
        let map = t.map.as_ref().filter(|_| t.mutable).ok_or_else(constant)?;
        let matches = keys(t, matches, c)?;
        let priority = priority.unwrap_or_else(|| specificity(t, &matches));
        let key = t.entry_key(&matches, priority)?;
        let value = entry_value(t, action, c)?;
        let failed = |source| StateError::Map { what: t.name.clone(), source };
        device.update(map, &key, &value).map_err(failed)?;
        self.entries.push((id.map(str::to_owned), map.clone(), key));
        Ok(())
    }

    /// Sets a table's default action.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn set_default(
        &mut self,
        device: &mut Device,
        table: &str,
        action: &ActionCall,
    ) -> Result<(), StateError> {
        let facts = device.facts();
        let t = &facts.tables[find_table(device, table)?];
        let value = action_value(t, action, c_names(facts.architecture))?;
        let Some(map) = &t.default_map else {
            // Without a map, no other action may be the default; a controller may still name this one.
            let chosen = value.first_chunk().map(|n| u32::from_le_bytes(*n) as usize);
            let current = t.default_action.as_ref().map(|(n, _)| *n);
            let same = !t.default_is_const && chosen.is_some() && chosen == current;
            let constant = || StateError::Constant(format!("the default action of {}", t.name));
            return if same { Ok(()) } else { Err(constant()) };
        };
        if let Some(before) = device.map(map).and_then(|m| m.lookup(&[0; 4]).ok()) {
            self.defaults.entry(map.clone()).or_insert(before);
        }
        let failed = |source| StateError::Map { what: t.name.clone(), source };
        device.update(map, &[0; 4], &value).map_err(failed)
    }

    /// Removes the entry with this name, or all entries of the script; the latter restores default actions.
    ///
    /// # Errors
    /// If no entry has this name.
    pub fn remove(&mut self, device: &mut Device, id: Option<&str>) -> Result<(), StateError> {
        let named = |e: &(Option<String>, String, Vec<u8>)| id.is_none() || e.0.as_deref() == id;
        if let Some(id) = id
            && !self.entries.iter().any(named)
        {
            let known = self.entries.iter().filter_map(|e| e.0.clone()).collect::<Vec<_>>().join(", ");
            return Err(NameError::Unknown { what: "entry", name: id.to_owned(), known }.into());
        }
        for (_, map, key) in self.entries.extract_if(.., |e| named(e)) {
            let failed = |source| StateError::Map { what: map.clone(), source };
            device.delete(&map, &key).map_err(failed)?;
        }
        if id.is_none() {
            for (map, value) in self.defaults.drain() {
                let failed = |source| StateError::Map { what: map.clone(), source };
                device.update(&map, &[0; 4], &value).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Returns an element of a counter, by index or by the name of the entry that contains it.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn counter(
        &self,
        device: &Device,
        name: &str,
        index: &CounterIndex,
        unit: Unit,
    ) -> Result<u64, StateError> {
        let facts = device.facts();
        let bytes = match index {
            CounterIndex::Number(n) => {
                let a = array(device, "counter", name, |k| matches!(k, ArrayKind::Counter { .. }))?;
                let a = &facts.arrays[a];
                element(device, a, *n)?
            }
            CounterIndex::Entry(id) => {
                let element = self.direct_element(device, name, id, "counter", |t| t.counter_offset)?;
                element.value[element.at..element.at + 16].to_vec()
            }
        };
        // Packets come first; narrow counters have no bytes.
        let part = bytes.chunks(8).nth(usize::from(unit == Unit::Bytes)).unwrap_or_default();
        Ok(part.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// Sets a counter: packets, then bytes.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn set_counter(
        device: &mut Device,
        name: &str,
        index: u32,
        values: [u64; 2],
    ) -> Result<(), StateError> {
        let facts = device.facts();
        let a = &facts.arrays[array(device, "counter", name, |k| matches!(k, ArrayKind::Counter { .. }))?];
        let value = ArrayFacts::counter(values[0], values[1], element(device, a, index)?.len());
        set(device, a, index, &value)
    }

    /// Returns an element of a register.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn register(device: &Device, name: &str, index: u32) -> Result<BigUint, StateError> {
        let facts = device.facts();
        let a = &facts.arrays[array(device, "register", name, |k| k == ArrayKind::Register)?];
        Ok(BigUint::from_bytes_le(&element(device, a, index)?))
    }

    /// Sets an element of a register.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn set_register(
        device: &mut Device,
        name: &str,
        index: u32,
        value: &BigUint,
    ) -> Result<(), StateError> {
        let facts = device.facts();
        let a = &facts.arrays[array(device, "register", name, |k| k == ArrayKind::Register)?];
        let size = element(device, a, index)?.len();
        let wide = |_| StateError::Value { name: a.name.clone(), value: value.clone(), width: a.width };
        set(device, a, index, &a.register(value, size).map_err(wide)?)
    }

    /// Sets all elements of a register to zero.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn reset_register(device: &mut Device, name: &str) -> Result<(), StateError> {
        let facts = device.facts();
        let a = &facts.arrays[array(device, "register", name, |k| k == ArrayKind::Register)?];
        let zero = vec![0; element(device, a, 0)?.len()];
        (0..a.size).try_for_each(|i| set(device, a, i, &zero))
    }

    /// Sets the rates of a meter: of one cell, of all cells, or of the direct meter of a named entry.
    /// Rates are in units per microsecond, bursts in units.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn set_meter(
        &self,
        device: &mut Device,
        name: &str,
        index: Option<&CounterIndex>,
        rates: &[(f64, u64)],
    ) -> Result<(), StateError> {
        let cell = cell(rates).encode();
        if let Some(CounterIndex::Entry(id)) = index {
            let mut element = self.direct_element(device, name, id, "meter", |t| t.meter_offset)?;
            element.value[element.at..element.at + cell.len()].copy_from_slice(&cell);
            let failed = |source| StateError::Map { what: name.to_owned(), source };
            return device.update(&element.map, &element.key, &element.value).map_err(failed);
        }
        let facts = device.facts();
        let a = &facts.arrays[array(device, "meter", name, |k| matches!(k, ArrayKind::Meter { .. }))?];
        let cells = match index {
            Some(CounterIndex::Number(i)) => *i..i.saturating_add(1),
            _ => 0..a.size,
        };
        cells.into_iter().try_for_each(|i| set(device, a, i, &cell))
    }

    /// Returns the entry with this name, with the position of its direct counter or meter.
    fn direct_element(
        &self,
        device: &Device,
        name: &str,
        id: &str,
        what: &'static str,
        offset: impl Fn(&TableFacts) -> Option<u32>,
    ) -> Result<DirectElement, StateError> {
        let facts = device.facts();
        let entry = self.entries.iter().find(|e| e.0.as_deref() == Some(id));
        let known = self.entries.iter().filter_map(|e| e.0.clone()).collect::<Vec<_>>().join(", ");
        let unknown = || NameError::Unknown { what: "entry", name: id.to_owned(), known };
        let (_, map, key) = entry.ok_or_else(unknown)?;
        let missing = || StateError::NoDirect { name: name.to_owned(), what };
        let t = facts.tables.iter().find(|t| t.map.as_ref() == Some(map));
        let at = t.and_then(offset).ok_or_else(missing)? as usize;
        let value = device.map(map).and_then(|m| m.entry(key).ok()).ok_or_else(missing)?;
        Ok(DirectElement { map: map.clone(), key: key.clone(), value, at })
    }
}

/// A direct counter or meter of an entry.
struct DirectElement {
    map: String,
    key: Vec<u8>,
    /// Value of the entry.
    value: Vec<u8>,
    /// Offset of the counter or meter in the value.
    at: usize,
}

/// Returns a meter cell with these rates, the lower one first.
fn cell(rates: &[(f64, u64)]) -> MeterCell {
    /// Microseconds in a second.
    const MICROSECONDS: u32 = 1_000_000;
    let rates = rates.iter().map(|(rate, burst)| Rate::of(*rate, MICROSECONDS, *burst).unwrap_or_default());
    meter(&rates.collect::<Vec<_>>())
}

fn array(
    device: &Device,
    what: &'static str,
    name: &str,
    kind: impl Fn(ArrayKind) -> bool,
) -> Result<usize, StateError> {
    let facts = device.facts();
    let c = c_names(facts.architecture);
    let fitting: Vec<usize> = (0..facts.arrays.len()).filter(|i| kind(facts.arrays[*i].kind)).collect();
    let at = names::find(what, name, c, fitting.iter().map(|i| facts.arrays[*i].name.as_str()))?;
    Ok(fitting[at])
}

fn element(device: &Device, a: &ArrayFacts, index: u32) -> Result<Vec<u8>, StateError> {
    let value = device.map(&a.map).and_then(|m| m.lookup(&index.to_ne_bytes()).ok());
    value.ok_or_else(|| StateError::Index { name: a.name.clone(), index })
}

fn set(device: &mut Device, a: &ArrayFacts, index: u32, value: &[u8]) -> Result<(), StateError> {
    let failed = |source| StateError::Map { what: format!("{}[{index}]", a.name), source };
    device.update(&a.map, &index.to_ne_bytes(), value).map_err(failed)
}
