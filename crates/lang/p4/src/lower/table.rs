//! The plan of a table: code or a map, and its initial entries. [`super::table_code`] applies the plan.

use super::Lowering;
use crate::ast::Direction;
use crate::constant::{limbs, small};
use crate::control_names::joined;
use crate::diagnostics::Code;
use crate::hir::{BoundAction, CtorArg, Entry, Expr, InstId, Keyset, MatchKind, Table};
use crate::ir::{Map, MapId};
use crate::lexer::Name;
use crate::types::Type;
use num_bigint::{BigInt, BigUint};
use num_traits::Zero;
use p4shield_abi::map::{
    MAX_RANGE_BYTES, MAX_RANGES, MapDefinition, TYPE_ARRAY, TYPE_CLASSIFIER, TYPE_HASH, TYPE_LPM_TRIE,
};
use p4shield_abi::meter::METER_CELL_SIZE;
use p4shield_tables::model::{
    ActionFacts, DirectFacts, EntryError, KeyFacts, LookupKind, Match, ParamFacts, ProfileFacts, TableFacts,
    Unit,
};
use std::rc::Rc;

/// Maximum number of entries of a constant table that is lowered to comparisons.
const MAX_INLINE: usize = 16;
/// Default capacity of a table in entries.
const DEFAULT_SIZE: u32 = 1024;
/// Maximum capacity of a table in entries.
const MAX_ENTRIES: u32 = 1 << 24;
/// Size of a direct counter in bytes: packets and bytes.
pub(super) const COUNTER_SIZE: u32 = 16;
/// Maximum size of keys and values in bytes.
const MAX_VALUE: u32 = 4096;
/// Maximum size of a trie's key in bytes, without its prefix length.
const MAX_TRIE_KEY: u32 = 32;

/// How a table is implemented.
pub(super) struct TablePlan {
    pub(super) facts: TableFacts,
    /// The map of the entries; `None` if the table is code.
    pub(super) map: Option<MapId>,
    /// The map of the default action; `None` if the default action is constant.
    pub(super) default_map: Option<MapId>,
    /// The entries in the order in which code compares them; the first match wins.
    pub(super) order: Vec<usize>,
    /// The selector, if entries may refer to groups of actions.
    pub(super) selector: Option<super::selector::ActionSelector>,
}

impl Lowering<'_> {
    /// Plans a table and creates its maps. A table that is applied more than once is planned once.
    pub(super) fn plan_table(&mut self, t: &Table, path: &Rc<[Name]>) -> Option<TablePlan> {
        if let Some(k) = t.keys.iter().find(|k| k.kind == MatchKind::Other) {
            self.unsupported(k.kind_span, "this match kind");
            return None;
        }
        // A table without keys always misses; a table with constant entries may become code.
        let mutable = !t.entries_are_const && t.keys.iter().any(|k| k.kind != MatchKind::Selector);
        // Code has no memory in which an entry could count or measure.
        let stateful = !t.entries.is_empty()
            && ["counters", "meters"].into_iter().any(|p| t.instance_property(p).is_some());
        let is_code = !mutable && !stateful && t.entries.len() <= MAX_INLINE;
        let lookup = if is_code { LookupKind::Code } else { map_lookup(t) };
        let mut facts = self.table_facts(t, path, lookup);
        facts.mutable = mutable;
        if facts.value_size > MAX_VALUE || facts.key_size > MAX_VALUE {
            let what = format!("a table with keys or action data of more than {MAX_VALUE} bytes");
            self.unsupported(t.span, &what);
            return None;
        }
        let map = if lookup == LookupKind::Code { None } else { Some(self.table_map(t, &mut facts, path)?) };
        let default_map = self.default_map(t, &mut facts, path)?;
        let selector = map.and_then(|_| self.plan_selector(t, &mut facts, path));
        self.tables.push(facts.clone());
        self.code_entries.push(if map.is_none() { self.code_entries(t, &facts) } else { Vec::new() });
        Some(TablePlan { facts, map, default_map, order: order_of(t), selector })
    }

    fn table_facts(&self, t: &Table, path: &Rc<[Name]>, lookup: LookupKind) -> TableFacts {
        let outer = path.split_last().map(|(_, outer)| outer).unwrap_or_default();
        let name = self.full_name(outer, t.span, &t.declared);
        let (keys, key_size) = self.key_facts(t, lookup);
        let mut actions: Vec<ActionFacts> =
            t.actions.iter().map(|a| self.action_facts(a.action, outer)).collect();
        // The location of an action that the checker added is that of the table.
        actions.iter_mut().zip(&t.actions).for_each(|(f, a)| f.default_only = a.span == t.span);
        let end = |a: &ActionFacts| a.params.iter().map(|p| p.offset + p.bytes).max().unwrap_or(4);
        let value_size = actions.iter().map(end).max().unwrap_or(4).next_multiple_of(8);
        let (counter_offset, meter_offset, value_size) = direct_offsets(t, value_size);
        let size = t.size.or_else(|| self.implementation_size(t)).unwrap_or(DEFAULT_SIZE);
        let size = size.clamp(1, MAX_ENTRIES).max(t.entries.len() as u32);
        TableFacts {
            counter_offset,
            meter_offset,
            counter: self.direct_facts(t, "counters", outer),
            meter: self.direct_facts(t, "meters", outer),
            profile: self.profile_facts(t, outer),
            groups: None,
            default_action: t.default.as_ref().map(|d| {
                let params = &actions[d.index].params;
                (d.index, d.data.iter().zip(params).map(|(v, p)| number(v, p.width)).collect())
            }),
            default_is_const: t.default_is_const,
            initial_entries: t.entries.len(),
            entries_are_const: t.entries_are_const,
            name,
            map: None,
            default_map: None,
            lookup,
            mutable: false,
            keys,
            actions,
            key_size,
            value_size,
            size,
        }
    }

    /// Returns the full name of an instance that a table property names.
    fn instance_name(&self, id: InstId, path: &[Name]) -> String {
        let inst = &self.hir.instances[id.0 as usize];
        let path = if self.is_global(id) { &[] } else { path };
        self.full_name(path, inst.span, &inst.name)
    }

    fn direct_facts(&self, t: &Table, of: &str, path: &[Name]) -> Option<DirectFacts> {
        let id = t.instance_property(of)?;
        let unit = self.hir.instances[id.0 as usize].args.first().map_or(Unit::Both, super::objects::unit);
        let (inst, name) = (&self.hir.instances[id.0 as usize], self.instance_name(id, path));
        let metric = self.hir.control_names.metric(inst.span, &inst.name, &name);
        Some(DirectFacts { metric: metric.filter(|_| of == "counters"), name, unit })
    }

    fn profile_facts(&self, t: &Table, path: &[Name]) -> Option<ProfileFacts> {
        let id = t.instance_property("implementation")?;
        let inst = &self.hir.instances[id.0 as usize];
        let Type::Extern(e) = &inst.ty else { return None };
        let (selector, size) = match &*e.name {
            "action_profile" => (false, inst.args.first()),
            "action_selector" => (true, inst.args.get(1)),
            _ => return None,
        };
        let size = size.and_then(constant).unwrap_or(0);
        Some(ProfileFacts { name: self.instance_name(id, path), size, selector })
    }

    /// Returns the size in an `implementation` of `ebpf_model`.
    fn implementation_size(&self, t: &Table) -> Option<u32> {
        let inst = self.hir.instances[t.instance_property("implementation")?.0 as usize].clone();
        let Type::Extern(e) = &inst.ty else { return None };
        let counts = matches!(&*e.name, "hash_table" | "array_table");
        inst.args.first().filter(|_| counts).and_then(constant)
    }

    fn action_facts(&self, id: crate::hir::ActionId, path: &[Name]) -> ActionFacts {
        let a = &self.hir.actions[id.0 as usize];
        let mut offset = 4u32;
        let mut params = Vec::new();
        for p in a.params.iter().filter(|p| p.direction == Direction::None) {
            let width = p.ty.scalar_width().unwrap_or(0);
            let bytes =
                if width > 64 { width.div_ceil(64) * 8 } else { width.div_ceil(8).next_power_of_two() };
            offset = offset.next_multiple_of(bytes.clamp(1, 8));
            let name = self.hir.control_names.full("", p.span, &p.name);
            params.push(ParamFacts { name, width, offset, bytes });
            offset += bytes;
        }
        ActionFacts { name: self.action_name(id, path), params, default_only: false }
    }

    /// Returns the full name of an action of the instance at this path.
    pub(super) fn action_name(&self, id: crate::hir::ActionId, path: &[Name]) -> String {
        let a = &self.hir.actions[id.0 as usize];
        joined(if a.local { self.control_path(path) } else { "" }, &a.control_name)
    }

    /// Returns the facts of the keys that entries match, and their total size in bytes.
    fn key_facts(&self, t: &Table, lookup: LookupKind) -> (Vec<KeyFacts>, u32) {
        let keys: Vec<_> = t.keys.iter().filter(|k| k.kind != MatchKind::Selector).collect();
        // Keys with a special role in a trie or a classifier come last.
        let is_last = |i: &usize| match lookup {
            LookupKind::Rules => keys[*i].kind == MatchKind::Range,
            _ => keys[*i].kind == MatchKind::Lpm,
        };
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(is_last);
        let mut size = if lookup == LookupKind::Lpm { 4 } else { 0 };
        let mut at = vec![0; keys.len()];
        for i in order {
            at[i] = size;
            size += keys[i].value.ty.scalar_width().unwrap_or(0).div_ceil(8);
        }
        let facts = |(k, offset): (&&crate::hir::Key, u32)| {
            let width = k.value.ty.scalar_width().unwrap_or(0);
            let name = self.hir.key_name(k);
            KeyFacts { name, kind: kind_name(k.kind), width, offset, bytes: width.div_ceil(8) }
        };
        (keys.iter().zip(at).map(facts).collect(), size)
    }

    fn table_map(&mut self, t: &Table, facts: &mut TableFacts, path: &Rc<[Name]>) -> Option<MapId> {
        let (last, outer) = path.split_last()?;
        let name = self.map_name(outer, last);
        let (map_type, flags) = match facts.lookup {
            LookupKind::Rules => (
                TYPE_CLASSIFIER,
                range_flags(&facts.keys).map_err(|what| self.unsupported(t.span, &what)).ok()?,
            ),
            LookupKind::Lpm => (TYPE_LPM_TRIE, 0),
            LookupKind::Code | LookupKind::Exact => (TYPE_HASH, 0),
        };
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (e, priority) in t.entries.iter().zip(priorities(t)) {
            let key = self.entry_key(t, facts, e, priority)?;
            if entries.iter().any(|(k, _)| *k == key) {
                let message = "duplicate key: an earlier entry has the same one";
                self.error(Code::BadTable, e.span, message, "remove one of them");
            }
            entries.push((key, self.entry_value(facts, &e.action, e.span)?));
        }
        let (key_size, value_size) = (facts.key_size, facts.value_size);
        let definition = MapDefinition { map_type, key_size, value_size, max_entries: facts.size, flags };
        facts.map = Some(name.clone());
        Some(self.add_map(Map { name, definition, entries }))
    }

    /// Returns the entries of a table that becomes code, for the object's schema. One that matches a range
    /// where the key's kind is another has no encoding and is left out.
    fn code_entries(&self, t: &Table, facts: &TableFacts) -> Vec<(Vec<u8>, Vec<u8>)> {
        let keys: Vec<_> = t.keys.iter().filter(|k| k.kind != MatchKind::Selector).collect();
        let encoded = |(e, priority): (&Entry, u32)| {
            let matches: Vec<Match> = keys
                .iter()
                .zip(&facts.keys)
                .zip(&e.keys)
                .map(|((k, f), set)| match_of(k.kind, f.width, set))
                .collect();
            let params = &facts.actions.get(e.action.index)?.params;
            let data: Vec<_> = e.action.data.iter().zip(params).map(|(v, p)| number(v, p.width)).collect();
            let priority = if only_prefixes(t) { prefix_bits(&matches) } else { priority };
            Some((facts.code_rule(&matches, priority)?, facts.action_value(e.action.index, &data).ok()?))
        };
        t.entries.iter().zip(priorities(t)).filter_map(encoded).collect()
    }

    /// Encodes the key of an entry.
    fn entry_key(&mut self, t: &Table, facts: &TableFacts, e: &Entry, priority: u32) -> Option<Vec<u8>> {
        let keys = t.keys.iter().filter(|k| k.kind != MatchKind::Selector);
        let matches: Vec<Match> =
            keys.zip(&facts.keys).zip(&e.keys).map(|((k, f), set)| match_of(k.kind, f.width, set)).collect();
        let priority = if only_prefixes(t) { prefix_bits(&matches) } else { priority };
        facts.entry_key(&matches, priority).map_err(|error| self.bad_entry(&error, e.span)).ok()
    }

    fn entry_value(
        &mut self,
        facts: &TableFacts,
        action: &BoundAction,
        span: crate::source::Span,
    ) -> Option<Vec<u8>> {
        let params = &facts.actions[action.index].params;
        let data: Vec<BigUint> = action.data.iter().zip(params).map(|(v, p)| number(v, p.width)).collect();
        facts.action_value(action.index, &data).map_err(|error| self.bad_entry(&error, span)).ok()
    }

    fn bad_entry(&mut self, error: &EntryError, span: crate::source::Span) {
        let hint = match error {
            EntryError::Kind { kind: "lpm", .. } => {
                "the ones of a prefix mask must be contiguous from the left"
            }
            EntryError::Kind { kind: "exact", .. } => "write a single value",
            EntryError::Kind { kind: "optional", .. } => "write a single value or `_`",
            _ => "compare with the table's keys",
        };
        self.error(Code::BadTable, span, error.to_string(), hint);
    }

    /// Creates the map of the default action; `Some(None)` if the default action never changes.
    #[expect(clippy::option_option, reason = "outer: planned; inner: there is a map")]
    fn default_map(&mut self, t: &Table, facts: &mut TableFacts, path: &Rc<[Name]>) -> Option<Option<MapId>> {
        let default = t.default.as_ref()?;
        // The control plane may replace a default action that is not const, also the NoAction of a table
        // that names none, if there is another action to choose.
        let choices = t.actions.iter().filter(|a| !a.table_only).count();
        if t.default_is_const || choices < 2 && default.data.is_empty() {
            return Some(None);
        }
        let (last, outer) = path.split_last()?;
        let name = self.map_name(outer, &format!("{last}_default"));
        let definition = MapDefinition {
            map_type: TYPE_ARRAY,
            key_size: 4,
            value_size: facts.value_size,
            max_entries: 1,
            flags: 0,
        };
        let entries = vec![(vec![0; 4], self.entry_value(facts, default, t.span)?)];
        facts.default_map = Some(name.clone());
        Some(Some(self.add_map(Map { name, definition, entries })))
    }
}

/// Encodes the widths of the range fields as a classifier's flags, or describes the exceeded limit.
pub(super) fn range_flags(keys: &[KeyFacts]) -> Result<u32, String> {
    let mut ranges: Vec<&KeyFacts> = keys.iter().filter(|k| k.kind == "range").collect();
    ranges.sort_by_key(|k| k.offset);
    if ranges.len() > MAX_RANGES || ranges.iter().any(|k| k.bytes > MAX_RANGE_BYTES) {
        let bits = 8 * MAX_RANGE_BYTES;
        return Err(format!("more than {MAX_RANGES} range keys, or one of more than {bits} bits,"));
    }
    Ok(ranges.iter().enumerate().fold(0, |flags, (i, k)| flags | k.bytes << (4 * i)))
}

/// Returns the offsets of a value's direct counter and meter, and the size of the value with both.
fn direct_offsets(t: &Table, value_size: u32) -> (Option<u32>, Option<u32>, u32) {
    let mut end = value_size;
    let mut take = |there: bool, bytes: u32| {
        there.then(|| {
            end += bytes;
            end - bytes
        })
    };
    let counter = take(t.instance_property("counters").is_some(), COUNTER_SIZE);
    let meter = take(t.instance_property("meters").is_some(), METER_CELL_SIZE as u32);
    (counter, meter, end)
}

/// Returns the map type for the keys of a table.
fn map_lookup(t: &Table) -> LookupKind {
    let count = |kind| t.keys.iter().filter(|k| k.kind == kind).count();
    let overlapping = [MatchKind::Ternary, MatchKind::Range, MatchKind::Optional].map(count);
    let bytes: u32 = t.keys.iter().map(|k| k.value.ty.scalar_width().unwrap_or(0).div_ceil(8)).sum();
    match count(MatchKind::Lpm) {
        _ if overlapping.iter().any(|n| *n > 0) => LookupKind::Rules,
        0 => LookupKind::Exact,
        1 if bytes <= MAX_TRIE_KEY => LookupKind::Lpm,
        _ => LookupKind::Rules,
    }
}

/// Whether the longest prefix, not a priority, decides among matching entries.
fn only_prefixes(t: &Table) -> bool {
    t.keys.iter().all(|k| matches!(k.kind, MatchKind::Exact | MatchKind::Lpm | MatchKind::Selector))
}

/// Returns the indices of the entries in the order of the comparisons.
fn order_of(t: &Table) -> Vec<usize> {
    let mut order: Vec<usize> = (0..t.entries.len()).collect();
    let keys: Vec<_> = t.keys.iter().filter(|k| k.kind != MatchKind::Selector).collect();
    if only_prefixes(t) {
        let bits = |e: &Entry| -> u32 {
            let matches: Vec<Match> = keys
                .iter()
                .zip(&e.keys)
                .map(|(k, set)| match_of(k.kind, k.value.ty.scalar_width().unwrap_or(0), set))
                .collect();
            prefix_bits(&matches)
        };
        if keys.iter().any(|k| k.kind == MatchKind::Lpm) {
            order.sort_by_key(|i| std::cmp::Reverse(bits(&t.entries[*i])));
        }
    } else {
        let priorities = priorities(t);
        order.sort_by_key(|i| std::cmp::Reverse(priorities[*i]));
    }
    order
}

/// Returns the priorities of the entries: as written, or derived from the entry before, as the
/// language specifies. Here the greatest always wins.
fn priorities(t: &Table) -> Vec<u32> {
    if t.entries.iter().any(|e| e.rank.is_some()) {
        // An entry without the annotation ranks by its position.
        return (1..).zip(&t.entries).map(|(i, e)| u32::MAX - e.rank.unwrap_or(i)).collect();
    }
    let property =
        |name: &str| t.properties.iter().find(|p| &*p.name == name).and_then(|p| constant(&p.value));
    let largest_wins = property("largest_priority_wins").is_none_or(|v| v != 0);
    let step = property("priority_delta").unwrap_or(1);
    let steps = (t.entries.len() as u32).saturating_sub(1).saturating_mul(step);
    let mut next = if largest_wins { steps.saturating_add(1) } else { 1 };
    let mut out = Vec::new();
    for (i, e) in t.entries.iter().enumerate() {
        match e.priority.as_ref().and_then(small) {
            Some(n) => next = n,
            None if i > 0 && largest_wins => next = next.saturating_sub(step),
            None if i > 0 => next = next.saturating_add(step),
            None => {}
        }
        out.push(if largest_wins { next } else { u32::MAX - next });
    }
    out
}

/// Returns the number of a constructor argument.
fn constant(a: &CtorArg) -> Option<u32> {
    if let CtorArg::Value(e) = a { e.as_const().and_then(small) } else { None }
}

/// Returns the name of a match kind.
pub(super) const fn kind_name(kind: MatchKind) -> &'static str {
    match kind {
        MatchKind::Exact => "exact",
        MatchKind::Lpm => "lpm",
        MatchKind::Ternary => "ternary",
        MatchKind::Range => "range",
        MatchKind::Optional => "optional",
        MatchKind::Selector => "selector",
        MatchKind::Other => "other",
    }
}

/// Returns the number of bits that an entry of exact and lpm keys fixes: the more, the more specific.
fn prefix_bits(matches: &[Match]) -> u32 {
    let bits = |m: &Match| match m {
        Match::Ternary(_, mask) => mask.count_ones() as u32,
        Match::Prefix(_, len) => *len,
        _ => 0,
    };
    matches.iter().map(bits).sum()
}

fn match_of(kind: MatchKind, width: u32, set: &Keyset) -> Match {
    match set {
        Keyset::Any => Match::Any,
        Keyset::Value(e) if kind == MatchKind::Lpm => Match::Prefix(number(e, width), width),
        Keyset::Value(e) => Match::Exact(number(e, width)),
        Keyset::Mask(e, m) => {
            let mask = number(m, width);
            Match::Ternary(number(e, width) & &mask, mask)
        }
        Keyset::Range(a, b) => Match::Range(number(a, width), number(b, width)),
        // Only parsers have value sets.
        Keyset::Set(_) => Match::Any,
    }
}

/// Returns a constant as the unsigned value of its lowest `width` bits.
fn number(e: &Expr, width: u32) -> BigUint {
    let limbs = limbs(e.as_const().unwrap_or(&BigInt::zero()), width);
    limbs.iter().rev().fold(BigUint::default(), |n, l| (n << 64) + *l)
}
