//! From the names and values of a script to those of the program's tables.

use num_bigint::BigUint;
use p4shield_tables::model::{Architecture, EntryError, KeyFacts, LookupKind, Match, TableFacts};

use crate::device::Device;
use crate::error::StateError;
use crate::script::{ActionCall, KeyMatch, MatchValue};
use p4shield_tables::names;

/// Returns whether names are C identifiers, as in p4c's eBPF and uBPF tests.
pub(crate) fn c_names(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Ebpf | Architecture::Ubpf)
}

pub(crate) fn find_table(device: &Device, name: &str) -> Result<usize, StateError> {
    let facts = device.facts();
    let c = c_names(facts.architecture);
    Ok(names::find("table", name, c, facts.tables.iter().map(|t| t.name.as_str()))?)
}

/// Returns the matches of all keys of the table; keys without a match in the script accept everything.
pub(crate) fn keys(t: &TableFacts, given: &[KeyMatch], c: bool) -> Result<Vec<Match>, StateError> {
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
pub(crate) fn specificity(t: &TableFacts, matches: &[Match]) -> u32 {
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

/// Returns the value of an entry: an action, or the group that `$group(id: NUMBER)` names.
pub(crate) fn entry_value(t: &TableFacts, action: &ActionCall, c: bool) -> Result<Vec<u8>, StateError> {
    match (action.name.as_str(), action.args.as_slice()) {
        ("$group", [(id, number)]) if id == "id" => {
            let number = u32::try_from(number).ok().filter(|_| t.groups.is_some());
            number.map(|n| t.group_value(n)).ok_or_else(|| StateError::NoGroups(t.name.clone()))
        }
        _ => action_value(t, action, c),
    }
}
