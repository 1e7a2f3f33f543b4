//! Parser value sets: a look-up of the values that a `select` case has, among those that the control plane put in.

use super::Lower;
use crate::control::{KeyFacts, ValueSetFacts};
use crate::hir::ValueSetId;
use crate::ir::{Cc, Map, MapId, Opnd};
use p4shield_abi::map::{MapDefinition, TYPE_HASH};

/// Bytes of a member's value, which nobody reads.
const VALUE_SIZE: u32 = 8;
/// The most members of any set.
const MAX_MEMBERS: u32 = 1 << 20;

impl Lower<'_> {
    /// How many scalars one member of a set has.
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

    /// The map of a set, and the index of its facts. A set of each instance of its parser is one of its own.
    fn value_set(&mut self, id: ValueSetId) -> (MapId, usize) {
        let set = self.hir.value_sets[id.0 as usize].clone();
        let name = self.path.iter().chain([&set.name]).map(|p| &**p).collect::<Vec<_>>().join(".");
        let known = |f: &ValueSetFacts| f.name == name;
        if let Some(at) = self.value_sets.iter().position(known) {
            let map = self.b.f.maps.iter().position(|m| m.name == self.value_sets[at].map).unwrap_or(0);
            return (MapId(map as u32), at);
        }
        let (mut offset, mut keys) = (0, Vec::new());
        for (i, t) in set.keys.iter().enumerate() {
            let width = t.scalar_width().unwrap_or(0);
            let bytes = width.div_ceil(8);
            keys.push(KeyFacts { name: format!("field{i}"), kind: "exact", width, offset, bytes });
            offset += bytes;
        }
        let map_name = self.map_name(&self.path, &set.name);
        if set.size > MAX_MEMBERS {
            self.unsupported(set.span, &format!("a value set of more than {MAX_MEMBERS} members"));
        }
        let size = set.size.clamp(1, MAX_MEMBERS);
        let definition = MapDefinition {
            map_type: TYPE_HASH,
            key_size: offset.max(1),
            value_size: VALUE_SIZE,
            max_entries: size,
            flags: 0,
        };
        let map = self.add_map(Map { name: map_name.clone(), definition, entries: Vec::new() });
        self.value_sets.push(ValueSetFacts { name, map: map_name, keys, key_size: offset.max(1), size });
        (map, self.value_sets.len() - 1)
    }
}
