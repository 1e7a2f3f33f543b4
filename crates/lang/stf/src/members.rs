//! Members of action selector groups and of parser value sets.

use p4shield_bpf::maps::Map;
use p4shield_tables::model::{EntryError, Match};

use crate::device::Device;
use crate::error::StateError;
use crate::resolve::{action_value, c_names, find_table, key_match};
use crate::script::{ActionCall, MatchValue};
use p4shield_tables::names;

/// Sets the members of a group of a table's action selector.
///
/// # Errors
/// [`StateError`].
pub fn set_group(
    device: &mut Device,
    table: &str,
    number: u32,
    members: &[ActionCall],
) -> Result<(), StateError> {
    let facts = device.facts();
    let c = c_names(facts.architecture);
    let t = &facts.tables[find_table(device, table)?];
    let maps = t.groups.as_ref().ok_or_else(|| StateError::NoGroups(t.name.clone()))?;
    let failed = |source| StateError::Map { what: format!("group {number} of {}", t.name), source };
    for (i, member) in (0u32..).zip(members) {
        let key = [number.to_le_bytes(), i.to_le_bytes()].concat();
        device.update(&maps.members, &key, &action_value(t, member, c)?).map_err(failed)?;
    }
    let count = (members.len() as u64).to_le_bytes();
    device.update(&maps.groups, &number.to_le_bytes(), &count).map_err(failed)
}

/// Adds a member to a parser value set.
///
/// # Errors
/// [`StateError`].
pub fn add_value(device: &mut Device, set: &str, values: &[MatchValue]) -> Result<(), StateError> {
    let facts = device.facts();
    let s = &facts.value_sets[value_set(device, set)?];
    let c = c_names(facts.architecture);
    if s.keys.len() != values.len() {
        return Err(EntryError::Keys { expected: s.keys.len(), got: values.len() }.into());
    }
    let matches: Vec<Match> = s.keys.iter().zip(values).map(|(k, v)| key_match(k, v, c)).collect();
    let (key, value) = s.member(&matches)?;
    let failed = |source| StateError::Map { what: s.name.clone(), source };
    device.update(&s.map, &key, &value).map_err(failed)
}

/// Removes all members of a parser value set.
///
/// # Errors
/// [`StateError`].
pub fn clear_values(device: &mut Device, set: &str) -> Result<(), StateError> {
    let facts = device.facts();
    let s = &facts.value_sets[value_set(device, set)?];
    let members: Vec<_> = device.map(&s.map).into_iter().flat_map(Map::iter).collect();
    let failed = |source| StateError::Map { what: s.name.clone(), source };
    members.iter().try_for_each(|(key, _)| device.delete(&s.map, key)).map_err(failed)
}

fn value_set(device: &Device, name: &str) -> Result<usize, StateError> {
    let facts = device.facts();
    Ok(names::find("value set", name, false, facts.value_sets.iter().map(|s| s.name.as_str()))?)
}
