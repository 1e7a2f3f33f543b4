//! Parser value sets: a lookup of the values of a `select` among the members that the control
//! plane added.
//!
//! Members match exactly, in a hash map, unless the fields of the declared type have other match
//! kinds (`@match(ternary)`); then the members are rules of a classifier.

use super::Lowering;
use super::table::{kind_name, range_flags};
use crate::hir::{MatchKind, ValueSet, ValueSetId};
use crate::ir::{Cc, Map, MapId, Opnd};
use p4shield_abi::map::{MapDefinition, TYPE_CLASSIFIER, TYPE_HASH};
use p4shield_tables::model::{KeyFacts, LookupKind, ValueSetFacts};

/// Size of a member's value in bytes. The value is unused.
const VALUE_SIZE: u32 = 8;
/// Maximum number of members of a set.
const MAX_MEMBERS: u32 = 1 << 20;

/// A set's map, and the index of its facts.
pub(super) type PlacedSet = (MapId, usize);

impl Lowering<'_> {
    /// Returns the number of scalars of a set's members.
    pub(super) fn value_set_keys(&self, id: ValueSetId) -> usize {
        self.hir.value_sets[id.0 as usize].keys.len()
    }

    /// Whether these values are a member of a set.
    pub(super) fn in_value_set(&mut self, id: ValueSetId, values: &[Vec<Opnd>]) -> Opnd {
        let (map, at) = self.value_set(id);
        let keys = self.value_sets[at].keys.clone();
        let mut key = Vec::new();
        for (f, v) in keys.iter().zip(values) {
            let v = self.resize(v, f.width, f.bytes * 8, false);
            self.key_parts(&v, f.offset, f.bytes, &mut key);
        }
        let member = self.b.lookup(map, key);
        self.b.cmp(Cc::Ne, member, Opnd::C(0), 64)
    }

    /// Returns the map of a set, and the index of its facts. Each instance of a parser has its own set.
    fn value_set(&mut self, id: ValueSetId) -> PlacedSet {
        let set = self.hir.value_sets[id.0 as usize].clone();
        self.claim_value_set(&set, &self.path.clone());
        let owner = (id, self.path.clone().into());
        if let Some(known) = self.value_sets_by_path.get(&owner) {
            return *known;
        }
        let name = self.full_name(&self.path, set.span, &set.name);
        let (keys, key_size) = member_keys(&set);
        let map_name = self.map_name(&self.path, &set.name);
        if set.size > MAX_MEMBERS {
            self.unsupported(set.span, &format!("a value set of more than {MAX_MEMBERS} members"));
        }
        if set.kinds.iter().any(|k| matches!(k, MatchKind::Selector | MatchKind::Other)) {
            self.unsupported(set.span, "a value set with this match kind of a field");
        }
        let exact = set.kinds.iter().all(|k| *k == MatchKind::Exact);
        let (lookup, map_type) =
            if exact { (LookupKind::Exact, TYPE_HASH) } else { (LookupKind::Rules, TYPE_CLASSIFIER) };
        let flags = range_flags(&keys).unwrap_or_else(|what| {
            self.unsupported(set.span, &what);
            0
        });
        let size = set.size.clamp(1, MAX_MEMBERS);
        let definition =
            MapDefinition { map_type, key_size, value_size: VALUE_SIZE, max_entries: size, flags };
        let map = self.add_map(Map { name: map_name.clone(), definition, entries: Vec::new() });
        self.value_sets.push(ValueSetFacts { name, map: map_name, lookup, keys, key_size, size });
        let at = self.value_sets.len() - 1;
        self.value_sets_by_path.insert(owner, (map, at));
        (map, at)
    }
}

/// Returns the key facts of a set's members, with ranges last as in a classifier, and their total
/// size in bytes.
fn member_keys(set: &ValueSet) -> (Vec<KeyFacts>, u32) {
    let fact = |(i, (t, kind)): (usize, (&crate::types::Type, &MatchKind))| {
        let width = t.scalar_width().unwrap_or(0);
        let bytes = width.div_ceil(8);
        KeyFacts { name: format!("field{i}"), kind: kind_name(*kind), width, offset: 0, bytes }
    };
    let mut keys: Vec<KeyFacts> = set.keys.iter().zip(&set.kinds).enumerate().map(fact).collect();
    let mut offset = 0;
    for range in [false, true] {
        for k in keys.iter_mut().filter(|k| (k.kind == "range") == range) {
            k.offset = offset;
            offset += k.bytes;
        }
    }
    (keys, offset.max(1))
}
