//! What tables look like in memory: keys, values, entries.
//!
//! A key is its fields one after the other, each in whole bytes and network byte order; a field matched by longest
//! prefix comes last, behind a native-endian `u32` prefix length. A value is the action's number (`u32`, its index in
//! the table's list), then the action's data, each parameter aligned to its size of 1, 2, 4 or 8 bytes and
//! little-endian. Values of one table have one size, a multiple of 8.

use super::Lower;
use crate::ast::Direction;
use crate::constant::limbs;
use crate::diagnostics::Code;
use crate::hir::{BoundAction, Keyset, MatchKind, Table};
use crate::ir::{Map, MapId};
use crate::lexer::Name;
use num_bigint::BigInt;
use num_traits::Zero;
use p4shield_abi::map::{MapDefinition, TYPE_ARRAY, TYPE_HASH, TYPE_LPM_TRIE};
use std::rc::Rc;

/// A constant table of at most this many entries becomes comparisons.
const MAX_INLINE: usize = 16;
/// Entries of a table that does not say how many it needs.
const DEFAULT_SIZE: u32 = 1024;

/// What a table looks like to whoever fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Full name, such as `pipe.filter`.
    pub name: String,
    /// The map that holds the entries; none if the entries are compiled into code.
    pub map: Option<String>,
    /// The one-entry array that holds the default action; none if it is constant.
    pub default_map: Option<String>,
    /// The keys, in the order of the program.
    pub keys: Vec<KeyFacts>,
    /// The actions; the index is the action's number in values.
    pub actions: Vec<ActionFacts>,
    /// Bytes of a key in the map.
    pub key_size: u32,
    /// Bytes of a value in the map.
    pub value_size: u32,
    /// The most entries.
    pub size: u32,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFacts {
    /// Name, as in `@name` or as written.
    pub name: String,
    /// `exact` or `lpm`.
    pub kind: &'static str,
    /// Bits.
    pub width: u32,
    /// First byte in the map's key.
    pub offset: u32,
    /// Bytes in the map's key, in network byte order.
    pub bytes: u32,
}

/// An action of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFacts {
    /// Name.
    pub name: String,
    /// Its data.
    pub params: Vec<ParamFacts>,
}

/// A parameter of an action that the entry supplies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamFacts {
    /// Name.
    pub name: String,
    /// Bits.
    pub width: u32,
    /// First byte in the map's value.
    pub offset: u32,
    /// Bytes in the map's value, little-endian.
    pub bytes: u32,
}

/// The longest key and value, in bytes.
const MAX_VALUE: u32 = 4096;

/// How a table is implemented.
pub(super) struct TablePlan {
    pub(super) facts: TableFacts,
    /// `None`: as code.
    pub(super) map: Option<MapId>,
    /// `None`: the default action is constant.
    pub(super) default_map: Option<MapId>,
}

impl Lower<'_> {
    /// Plans a table and makes its maps. Applied more than once, it is planned once.
    pub(super) fn plan_table(&mut self, t: &Table, path: &Rc<[Name]>) -> Option<TablePlan> {
        let name = path.iter().map(|p| &**p).collect::<Vec<_>>().join(".");
        let lpm = t.keys.iter().filter(|k| k.kind == MatchKind::Lpm).count();
        if lpm > 1 || t.keys.iter().any(|k| k.kind == MatchKind::Other) {
            if lpm > 1 {
                self.unsupported(t.span, "a table with more than one lpm key");
            }
            return None;
        }
        let mut facts = self.table_facts(t, name, lpm == 1);
        if facts.value_size > MAX_VALUE || facts.key_size > MAX_VALUE {
            self.unsupported(
                t.span,
                &format!("a table with keys or action data of more than {MAX_VALUE} bytes"),
            );
            return None;
        }
        // A table without keys always misses, one whose entries never change may be code.
        let const_entries = t.entries_are_const || t.keys.is_empty();
        let inline = const_entries && lpm == 0 && t.entries.len() <= MAX_INLINE;
        if !inline
            && t.entries.iter().any(|e| e.keys.iter().any(|k| !matches!(k, Keyset::Value(_))))
            && lpm == 0
        {
            self.unsupported(t.span, "masks and `_` in entries of a table of this size");
            return None;
        }
        let map = if inline { None } else { Some(self.table_map(t, &mut facts, path, lpm == 1)?) };
        let default_map = self.default_map(t, &mut facts, path, inline)?;
        self.tables.push(facts.clone());
        Some(TablePlan { facts, map, default_map })
    }

    fn table_facts(&self, t: &Table, name: String, lpm: bool) -> TableFacts {
        let mut offset = if lpm { 4 } else { 0 };
        let mut keys: Vec<KeyFacts> = Vec::new();
        let mut at = vec![0; t.keys.len()];
        // The lpm key comes last in memory.
        let order = (0..t.keys.len()).filter(|i| t.keys[*i].kind != MatchKind::Lpm);
        for i in order.chain((0..t.keys.len()).filter(|i| t.keys[*i].kind == MatchKind::Lpm)) {
            at[i] = offset;
            offset += t.keys[i].value.ty.scalar_width().unwrap_or(0).div_ceil(8);
        }
        for (k, at) in t.keys.iter().zip(at) {
            let width = k.value.ty.scalar_width().unwrap_or(0);
            let kind = if k.kind == MatchKind::Lpm { "lpm" } else { "exact" };
            keys.push(KeyFacts { name: k.name.clone(), kind, width, offset: at, bytes: width.div_ceil(8) });
        }
        let actions: Vec<ActionFacts> = t.actions.iter().map(|a| self.action_facts(a.action)).collect();
        let end = |a: &ActionFacts| a.params.iter().map(|p| p.offset + p.bytes).max().unwrap_or(4);
        let value_size = actions.iter().map(end).max().unwrap_or(4).next_multiple_of(8);
        let size = t.size.unwrap_or(DEFAULT_SIZE).max(t.entries.len() as u32);
        TableFacts { name, map: None, default_map: None, keys, actions, key_size: offset, value_size, size }
    }

    fn action_facts(&self, id: crate::hir::ActionId) -> ActionFacts {
        let a = &self.hir.actions[id.0 as usize];
        let mut offset = 4u32;
        let mut params = Vec::new();
        for p in a.params.iter().filter(|p| p.direction == Direction::None) {
            let width = p.ty.scalar_width().unwrap_or(0);
            let bytes =
                if width > 64 { width.div_ceil(64) * 8 } else { width.div_ceil(8).next_power_of_two() };
            offset = offset.next_multiple_of(bytes.clamp(1, 8));
            params.push(ParamFacts { name: p.name.to_string(), width, offset, bytes });
            offset += bytes;
        }
        ActionFacts { name: a.name.to_string(), params }
    }

    fn table_map(
        &mut self,
        t: &Table,
        facts: &mut TableFacts,
        path: &Rc<[Name]>,
        lpm: bool,
    ) -> Option<MapId> {
        let (last, outer) = path.split_last()?;
        let name = self.map_name(outer, last);
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for e in &t.entries {
            let key = self.entry_key(t, facts, &e.keys, e.span)?;
            if entries.iter().any(|(k, _)| *k == key) {
                self.error(
                    Code::BadTable,
                    e.span,
                    "an entry with the same key stands above",
                    "remove one of them",
                );
            }
            entries.push((key, entry_value(facts, &e.action)));
        }
        let map_type = if lpm { TYPE_LPM_TRIE } else { TYPE_HASH };
        let definition = MapDefinition {
            map_type,
            key_size: facts.key_size,
            value_size: facts.value_size,
            max_entries: facts.size,
            flags: 0,
        };
        facts.map = Some(name.clone());
        Some(self.add_map(Map { name, definition, entries }))
    }

    /// The bytes of an entry's key.
    fn entry_key(
        &mut self,
        t: &Table,
        facts: &TableFacts,
        keys: &[Keyset],
        span: crate::source::Span,
    ) -> Option<Vec<u8>> {
        let mut bytes = vec![0; facts.key_size as usize];
        let mut prefix = 0;
        for ((k, f), set) in t.keys.iter().zip(&facts.keys).zip(keys) {
            let (value, len) = match set {
                Keyset::Value(e) => (e.as_const().cloned().unwrap_or_default(), f.width),
                Keyset::Any if k.kind == MatchKind::Lpm => (BigInt::zero(), 0),
                Keyset::Mask(e, m) if k.kind == MatchKind::Lpm => {
                    let mask = limb_bits(m.as_const(), f.width);
                    let Some(len) = prefix_length(&mask, f.width) else {
                        let hint = "a prefix has all its ones on the left";
                        self.error(Code::BadTable, span, "this mask is not a prefix", hint);
                        return None;
                    };
                    (e.as_const().cloned().unwrap_or_default() & mask, len)
                }
                _ => {
                    self.error(Code::BadTable, span, "this key matches exactly", "give it one value");
                    return None;
                }
            };
            // A prefix counts from the first bit of its bytes, so a width that fills no whole byte is moved left.
            let pad = if k.kind == MatchKind::Lpm { f.bytes * 8 - f.width } else { 0 };
            prefix = if k.kind == MatchKind::Lpm { len } else { prefix };
            let number = limb_bits(Some(&value), f.width) << pad;
            let (_, digits) = number.to_bytes_be();
            let at = (f.offset + f.bytes) as usize - digits.len().min(f.bytes as usize);
            let end = (f.offset + f.bytes) as usize;
            bytes[at..end].copy_from_slice(&digits[digits.len() - (end - at)..]);
        }
        if let Some(f) = facts.keys.iter().find(|f| f.kind == "lpm") {
            let bits = (f.offset - 4) * 8 + prefix;
            bytes[..4].copy_from_slice(&bits.to_le_bytes());
        }
        Some(bytes)
    }

    /// `Some(None)` if the default action never changes.
    #[expect(clippy::option_option, reason = "outer: planned; inner: there is a map")]
    fn default_map(
        &mut self,
        t: &Table,
        facts: &mut TableFacts,
        path: &Rc<[Name]>,
        inline: bool,
    ) -> Option<Option<MapId>> {
        let default = t.default.as_ref()?;
        // A default action that the program does not name, of a table that nobody fills, stays NoAction.
        let unnamed = default.data.is_empty() && facts.actions[default.index].name == "NoAction";
        if t.default_is_const || inline && unnamed {
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
        let entries = vec![(vec![0; 4], entry_value(facts, default))];
        facts.default_map = Some(name.clone());
        Some(Some(self.add_map(Map { name, definition, entries })))
    }
}

/// The bytes of an entry's value.
fn entry_value(facts: &TableFacts, action: &BoundAction) -> Vec<u8> {
    let mut bytes = vec![0; facts.value_size as usize];
    bytes[..4].copy_from_slice(&(action.index as u32).to_le_bytes());
    for (p, v) in facts.actions[action.index].params.iter().zip(&action.data) {
        let number = limb_bits(v.as_const(), p.width);
        let (_, digits) = number.to_bytes_le();
        let n = digits.len().min(p.bytes as usize);
        bytes[p.offset as usize..p.offset as usize + n].copy_from_slice(&digits[..n]);
    }
    bytes
}

/// A number as the unsigned value of its lowest `width` bits.
fn limb_bits(v: Option<&BigInt>, width: u32) -> BigInt {
    let limbs = limbs(v.unwrap_or(&BigInt::zero()), width);
    limbs.iter().rev().fold(BigInt::zero(), |n, l| (n << 64) + *l)
}

/// How many ones a prefix mask has on its left.
fn prefix_length(mask: &BigInt, width: u32) -> Option<u32> {
    let ones = (0..width).filter(|i| mask.bit(u64::from(*i))).count() as u32;
    let prefix = (0..width).all(|i| mask.bit(u64::from(i)) == (i >= width - ones));
    prefix.then_some(ones)
}
