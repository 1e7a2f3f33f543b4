//! Copies of a part of a map, for readers on other threads.
//!
//! The thread that runs the program copies a part between two runs, so each entry is of one moment. A part is
//! small, and the reader allocates its memory: the thread neither allocates nor frees, and its time is
//! bounded.

use super::{Keys, Map};
use p4shield_abi::map::MapDefinition;

/// Most slots that one part visits.
pub const COPY_SLOTS: u32 = 256;
/// Bytes after which a part ends; one entry may be longer.
pub const COPY_BYTES: usize = 4096;

/// A part of a map's entries, with memory for it.
#[derive(Debug)]
pub struct MapCopy {
    definition: MapDefinition,
    /// The next slot to visit.
    next: u32,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl MapCopy {
    /// Allocates memory for parts of a map with this definition, from slot `from` on.
    #[must_use]
    pub fn new(definition: &MapDefinition, from: u32) -> Self {
        let (key, value) = (definition.entry_key_size() as usize, definition.value_size as usize);
        let entries = Self::entries_of_a_part(definition);
        let room = |size: usize| Vec::with_capacity(entries.saturating_mul(size));
        Self { definition: *definition, next: from, keys: room(key), values: room(value) }
    }

    /// Returns the most entries of a part.
    fn entries_of_a_part(definition: &MapDefinition) -> usize {
        let size = definition.entry_key_size() as usize + definition.value_size as usize;
        (COPY_BYTES / size.max(1)).clamp(1, COPY_SLOTS as usize)
    }

    /// Returns the next slot to visit; `None` after the last one.
    #[must_use]
    pub const fn next(&self) -> Option<u32> {
        if self.next < self.definition.max_entries { Some(self.next) } else { None }
    }

    /// Continues with the first slot.
    pub const fn restart(&mut self) {
        self.next = 0;
    }

    /// Returns keys and values of the part. The key of an array's entry is its index.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (key, value) = (self.definition.entry_key_size(), self.definition.value_size);
        self.keys.chunks_exact(key.max(1) as usize).zip(self.values.chunks_exact(value.max(1) as usize))
    }

    fn push(&mut self, key: &[u8]) -> bool {
        self.keys.extend_from_slice(key);
        true
    }

    fn push_bytes(&mut self, key: impl Iterator<Item = u8>) -> bool {
        self.keys.extend(key);
        true
    }
}

impl Map {
    /// Replaces the part in `copy` by the next one. Does nothing, and returns false, if `copy` is of a map
    /// with another definition. Allocates nothing.
    pub fn copy_part(&self, copy: &mut MapCopy) -> bool {
        if copy.definition != self.definition {
            return false;
        }
        copy.keys.clear();
        copy.values.clear();
        let size = self.definition.value_size as usize;
        let room = MapCopy::entries_of_a_part(&self.definition) * size;
        let end = copy.next.saturating_add(COPY_SLOTS).min(self.definition.max_entries);
        while copy.next < end && copy.values.len() < room {
            let slot = copy.next as usize;
            let used = match &self.keys {
                Keys::Array => copy.push(&copy.next.to_ne_bytes()),
                Keys::Hash(keys) => keys.key(slot).is_some_and(|key| copy.push(key)),
                Keys::Lpm(keys) => keys.key(slot).is_some_and(|key| copy.push_bytes(key)),
                Keys::Rules(rules) => rules.rule(slot).is_some_and(|key| copy.push(key)),
            };
            if used {
                let at = copy.values.len();
                copy.values.resize(at + size, 0);
                self.values.read(slot, &mut copy.values[at..]);
            }
            copy.next += 1;
        }
        true
    }
}
