//! State that a script sets on a device: tables, registers, counters and meters.

use std::collections::HashMap;

use num_bigint::BigUint;
use p4shield_abi::meter::MeterCell;
use p4shield_bpf::maps::MapError;
use p4shield_p4::control::{
    Architecture, ArrayFacts, ArrayKind, EntryError, KeyFacts, LookupKind, Match, TableFacts,
};

use crate::device::Device;
use crate::members;
use crate::names::{self, NameError};
use crate::script::{ActionCall, CounterIndex, KeyMatch, MatchValue, Unit};

/// Reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A name cannot be resolved.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An entry does not fit its table.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The map refuses the operation.
    #[error("{what}: {source}")]
    Map {
        /// Object that the command changes.
        what: String,
        /// The cause.
        source: MapError,
    },
    /// The entries of the table have no such counter or meter.
    #[error("the entry has no {what} {name}")]
    NoDirect {
        /// Name in the script.
        name: String,
        /// Counter or meter.
        what: &'static str,
    },
    /// The table does not support groups.
    #[error("table {0} has no groups: it has no action selector or no selector keys")]
    NoGroups(String),
    /// The entries of the table, or its default action, are constant.
    #[error("{0} is constant in the program")]
    Constant(String),
    /// A key has two matches.
    #[error("key {0} occurs twice")]
    TwiceKey(String),
    /// A counter differs from the expected value.
    #[error("{name}: expected {unit} {wanted}, got {got}")]
    Counter {
        /// The counter.
        name: String,
        /// Packets or bytes.
        unit: &'static str,
        /// Actual value.
        got: u64,
        /// Expected value with the operator.
        wanted: String,
    },
    /// The array has no element with this index.
    #[error("{name} has no element {index}")]
    Index {
        /// The array.
        name: String,
        /// Index of the element.
        index: u32,
    },
    /// The value does not fit the element.
    #[error("{value} does not fit the {width} bits of {name}")]
    Value {
        /// The array.
        name: String,
        /// The value.
        value: BigUint,
        /// Width of an element in bits.
        width: u32,
    },
}

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
        let value = members::entry_value(t, action, c)?;
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
        let mut value: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        value.resize(element(device, a, index)?.len(), 0);
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
        if value.bits() > u64::from(a.width) {
            return Err(StateError::Value { name: a.name.clone(), value: value.clone(), width: a.width });
        }
        let mut bytes = value.to_bytes_le();
        bytes.resize(element(device, a, index)?.len(), 0);
        set(device, a, index, &bytes)
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
    /// Microseconds in 1000 seconds, the unit of a cell's rates.
    const PERIOD_US: f64 = 1e9;
    let per_period = |rate: f64| (rate * PERIOD_US) as u64;
    let low = rates.first().copied().unwrap_or_default();
    let high = rates.get(1).copied().unwrap_or(low);
    MeterCell {
        committed_rate: per_period(low.0),
        committed_burst: low.1,
        peak_rate: per_period(high.0),
        peak_burst: high.1,
        ..MeterCell::default()
    }
}

/// Returns whether names are C identifiers, as in p4c's eBPF and uBPF tests.
pub(crate) fn c_names(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Ebpf | Architecture::Ubpf)
}

pub(crate) fn find_table(device: &Device, name: &str) -> Result<usize, StateError> {
    let facts = device.facts();
    let c = c_names(facts.architecture);
    Ok(names::find("table", name, c, facts.tables.iter().map(|t| t.name.as_str()))?)
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

/// Returns the matches of all keys of the table; keys without a match in the script accept everything.
fn keys(t: &TableFacts, given: &[KeyMatch], c: bool) -> Result<Vec<Match>, StateError> {
    let mut matches: Vec<Option<Match>> = vec![None; t.keys.len()];
    for g in given {
        let i = key_index(t, &g.key, c)?;
        let slot = &mut matches[i];
        if slot.is_some() {
            return Err(StateError::TwiceKey(g.key.clone()));
        }
        *slot = Some(key_match(&t.keys[i], &g.matched, c));
    }
    Ok(matches.into_iter().map(|m| m.unwrap_or(Match::Any)).collect())
}

fn key_index(t: &TableFacts, name: &str, c: bool) -> Result<usize, StateError> {
    let short = if c { name.strip_prefix("key.").unwrap_or(name) } else { name };
    let by_number = short.strip_prefix("field").filter(|_| c).and_then(|n| n.parse().ok());
    if let Some(n) = by_number.filter(|n| *n < t.keys.len()) {
        return Ok(n);
    }
    Ok(names::find("key", short, c, t.keys.iter().map(|k| k.name.as_str()))?)
}

/// Converts a value of a script to a match of a key.
pub(crate) fn key_match(k: &KeyFacts, g: &MatchValue, c: bool) -> Match {
    let value = &g.value.value;
    if let Some(to) = &g.to {
        return Match::Range(value.clone(), to.clone());
    }
    match (g.prefix, &g.value.mask) {
        (Some(len), _) => {
            // p4c's tries hold integers of the host in network byte order.
            let value = if c { swapped(value, k.bytes) } else { value.clone() };
            match k.kind {
                "ternary" | "optional" | "exact" => {
                    let ones = (BigUint::from(1u8) << len.min(k.width)) - 1u8;
                    Match::Ternary(value, ones << (k.width - len.min(k.width)))
                }
                _ => Match::Prefix(value, len),
            }
        }
        (None, Some(mask)) => Match::Ternary(value.clone(), mask.clone()),
        (None, None) if k.kind == "lpm" => Match::Prefix(value.clone(), k.width),
        (None, None) => Match::Exact(value.clone()),
    }
}

fn swapped(v: &BigUint, bytes: u32) -> BigUint {
    let mut digits = v.to_bytes_le();
    digits.resize((bytes as usize).max(digits.len()), 0);
    BigUint::from_bytes_be(&digits)
}

/// Returns the default priority: in a table with several prefixes, longer ones win.
fn specificity(t: &TableFacts, matches: &[Match]) -> u32 {
    let bits = |m: &Match| if let Match::Prefix(_, len) = m { *len } else { 0 };
    if t.lookup == LookupKind::Rules { matches.iter().map(bits).sum() } else { 0 }
}

pub(crate) fn action_value(t: &TableFacts, action: &ActionCall, c: bool) -> Result<Vec<u8>, StateError> {
    let index = names::find("action", &action.name, c, t.actions.iter().map(|a| a.name.as_str()))?;
    let a = &t.actions[index];
    // With C names, arguments follow the order of the parameters.
    let mut data: Vec<Option<BigUint>> = vec![None; a.params.len()];
    for (i, (name, value)) in action.args.iter().enumerate() {
        let at = match names::find("parameter", name, false, a.params.iter().map(|p| p.name.as_str())) {
            Ok(at) => at,
            Err(_) if c && i < data.len() => i,
            Err(e) => return Err(e.into()),
        };
        data[at] = Some(value.clone());
    }
    let given = data.iter().flatten().count();
    if c {
        // p4c's generated control plane sets missing arguments to zero.
        data.iter_mut().for_each(|d| *d = Some(d.take().unwrap_or_default()));
    }
    let data: Option<Vec<BigUint>> = data.into_iter().collect();
    let missing = || EntryError::Params { action: a.name.clone(), expected: a.params.len(), got: given };
    Ok(t.action_value(index, &data.ok_or_else(missing)?)?)
}
