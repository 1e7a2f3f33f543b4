//! Ids and aliases.
//!
//! The upper byte of an id is the object's type. The lower 24 bits are the value of `@id`, or a
//! hash of the full name, so that ids remain stable when other parts of a program change. If two
//! names have the same hash, the one that sorts later gets the next free number.

use crate::diagnostics::{Code, Sink};
use crate::source::Span;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// `P4Ids.Prefix`
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Prefix {
    Action = 0x01,
    Table = 0x02,
    ValueSet = 0x03,
    ControllerHeader = 0x04,
    ActionProfile = 0x11,
    Counter = 0x12,
    DirectCounter = 0x13,
    Meter = 0x14,
    DirectMeter = 0x15,
    Register = 0x16,
    Digest = 0x17,
}

/// The objects of a program, before they have ids.
#[derive(Default)]
pub(super) struct Symbols {
    /// The value of `@id`, by type and full name.
    wanted: BTreeMap<(Prefix, String), Option<u32>>,
    taken: BTreeSet<u32>,
}

impl Symbols {
    /// Adds an object; `id` is the value of its `@id`. An object that was added before stays unchanged.
    pub(super) fn add(&mut self, prefix: Prefix, name: &str, id: Option<u32>, at: Span, sink: &mut Sink) {
        let key = (prefix, name.to_owned());
        if self.wanted.contains_key(&key) {
            return;
        }
        let upper = (prefix as u32) << 24;
        let id = id.and_then(|id| match id >> 24 {
            0 => Some(id | upper),
            other if other == prefix as u32 => Some(id),
            _ => {
                let message =
                    format!("the upper byte of the @id of `{name}` belongs to another kind of object");
                let hint = format!("the upper byte must be {:#04x} or 0", prefix as u32);
                sink.report(Code::BadAnnotation, at, message, hint);
                None
            }
        });
        if let Some(id) = id
            && !self.taken.insert(id)
        {
            let message = format!("the id of `{name}` is already in use");
            sink.report(Code::BadAnnotation, at, message, "give each object its own @id");
        }
        self.wanted.insert(key, id);
    }

    /// Assigns an id to every object.
    pub(super) fn finish(self) -> Ids {
        let Self { wanted, mut taken } = self;
        let mut names: Vec<&str> = wanted.keys().map(|(_, n)| n.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let mut suffixes: HashMap<String, u32> = HashMap::new();
        for suffix in names.iter().flat_map(|n| suffixes_of(n)) {
            *suffixes.entry(suffix.to_owned()).or_default() += 1;
        }
        let mut by_name = BTreeMap::new();
        for ((prefix, name), id) in wanted {
            let id = id.unwrap_or_else(|| {
                let upper = (prefix as u32) << 24;
                let mut low = one_at_a_time(name.as_bytes());
                while !taken.insert(upper | low & 0x00ff_ffff) {
                    low = low.wrapping_add(1);
                }
                upper | low & 0x00ff_ffff
            });
            by_name.insert((prefix, name), id);
        }
        Ids { by_name, suffixes }
    }
}

/// The ids of a program's objects.
pub(super) struct Ids {
    by_name: BTreeMap<(Prefix, String), u32>,
    /// The number of names with each suffix.
    suffixes: HashMap<String, u32>,
}

impl Ids {
    /// Returns the id of an object; 0, which is never an id, if there is no such name.
    pub(super) fn of(&self, prefix: Prefix, name: &str) -> u32 {
        self.by_name.get(&(prefix, name.to_owned())).copied().unwrap_or(0)
    }

    /// Returns the shortest suffix that no other name of the program has.
    pub(super) fn alias<'n>(&self, name: &'n str) -> &'n str {
        let alone = |s: &&str| self.suffixes.get(*s) == Some(&1);
        suffixes_of(name).find(alone).unwrap_or(name)
    }
}

/// Returns the suffixes of a name, from the last component to the whole name.
fn suffixes_of(name: &str) -> impl Iterator<Item = &str> {
    name.rmatch_indices('.').map(|(i, _)| &name[i + 1..]).chain([name])
}

/// Bob Jenkins' one-at-a-time hash.
fn one_at_a_time(bytes: &[u8]) -> u32 {
    let mut hash = 0u32;
    for b in bytes {
        hash = hash.wrapping_add((*b).into());
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Numbers the parts of an object from 1, except those with an `@id`; also returns the first
/// duplicate number.
pub(super) fn number_parts(wanted: &[Option<u32>]) -> (Vec<u32>, Option<u32>) {
    let mut taken = BTreeSet::new();
    let mut twice = None;
    for id in wanted.iter().flatten() {
        if *id == 0 || !taken.insert(*id) {
            twice = twice.or(Some(*id));
        }
    }
    let mut next = 1;
    let mut out = Vec::with_capacity(wanted.len());
    for id in wanted {
        if let Some(id) = id {
            out.push(*id);
            next += 1;
            continue;
        }
        while !taken.insert(next) {
            next += 1;
        }
        out.push(next);
    }
    (out, twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(objects: &[(Prefix, &str, Option<u32>)]) -> (Ids, Vec<&'static str>) {
        let (mut symbols, mut sink) = (Symbols::default(), Sink::default());
        for (prefix, name, id) in objects {
            symbols.add(*prefix, name, *id, Span::default(), &mut sink);
        }
        (symbols.finish(), sink.into_items().iter().map(|d| d.code.as_str()).collect())
    }

    #[test]
    fn an_alias_is_the_shortest_unique_suffix() {
        let (ids, _) = ids(&[
            (Prefix::Table, "c.a.t", None),
            (Prefix::Table, "c.b.t", None),
            (Prefix::Action, "c.b.a", None),
            (Prefix::Action, "t", None),
        ]);
        assert_eq!(ids.alias("c.a.t"), "a.t");
        assert_eq!(ids.alias("c.b.a"), "a");
        assert_eq!(ids.alias("t"), "t", "the whole name remains");
    }

    #[test]
    fn ids_are_hashes_unless_the_author_sets_them() {
        let objects = [
            (Prefix::Table, "ingress.t", None),
            (Prefix::Table, "u", Some(5)),
            (Prefix::Action, "a", Some(0x0100_0005)),
        ];
        let (ids, wrong) = ids(&objects);
        assert_eq!(ids.of(Prefix::Table, "ingress.t") >> 24, 2);
        assert_eq!(ids.of(Prefix::Table, "u"), 0x0200_0005);
        assert_eq!(ids.of(Prefix::Action, "a"), 0x0100_0005);
        assert!(wrong.is_empty());
    }

    #[test]
    fn a_hash_collision_takes_the_next_number() {
        let hash = one_at_a_time(b"x") & 0x00ff_ffff;
        let (ids, _) = ids(&[(Prefix::Table, "x", None), (Prefix::Table, "y", Some(hash))]);
        assert_eq!(ids.of(Prefix::Table, "x"), 0x0200_0000 | (hash + 1));
    }

    #[test]
    fn ids_of_another_kind_and_duplicate_ids_are_refused() {
        let (_, wrong) = ids(&[(Prefix::Table, "t", Some(0x0100_0001))]);
        assert_eq!(wrong, ["E0607"]);
        let (_, wrong) = ids(&[(Prefix::Table, "t", Some(1)), (Prefix::Table, "u", Some(0x0200_0001))]);
        assert_eq!(wrong, ["E0607"]);
    }

    #[test]
    fn parts_count_from_one_around_those_with_an_id() {
        assert_eq!(number_parts(&[None, Some(1), None]), (vec![2, 1, 3], None));
        assert_eq!(number_parts(&[None, None]), (vec![1, 2], None));
        assert_eq!(number_parts(&[Some(7), Some(7)]).1, Some(7));
        assert_eq!(number_parts(&[Some(0)]).1, Some(0));
    }
}
