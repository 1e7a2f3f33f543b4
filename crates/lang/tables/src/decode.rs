//! Decoding of map entries by a program's schema. Both come from a tenant: whatever does not fit is left out.

use crate::view::{ActionView, KeyView, MatchView, MeterView, Number, RawEntry, Row};
use p4shield_abi::map::{MapDefinition, TYPE_CLASSIFIER, TYPE_LPM_TRIE};
use p4shield_abi::meter::{METER_CELL_SIZE, MeterCell};
use p4shield_abi::schema::{
    ActionSchema, ArraySchema, Element, GROUP_ACTION, KeyKind, KeySchema, TableSchema, Unit,
};
use p4shield_text::printable;

/// The most characters of a name that are shown.
const MAX_SHOWN: usize = 256;

/// Returns a tenant's name fit for people and metrics.
pub(crate) fn name(text: &str) -> String {
    printable(text).chars().take(MAX_SHOWN).collect()
}

/// Returns the name of a unit.
pub(crate) const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Packets => "packets",
        Unit::Bytes => "bytes",
        Unit::Both => "packets and bytes",
    }
}

/// Returns a number in network byte order as hexadecimal, with the digits of its width.
fn number(bytes: &[u8], width: u32) -> String {
    let digits = hex::encode(bytes);
    let wanted = (width.max(1).div_ceil(4) as usize).min(digits.len());
    format!("0x{}", &digits[digits.len() - wanted..])
}

/// Returns little-endian bytes as hexadecimal.
pub(crate) fn little(bytes: &[u8], width: u32) -> String {
    let used = bytes.len().min(width.max(1).div_ceil(8) as usize);
    let reversed: Vec<u8> = bytes[..used].iter().rev().copied().collect();
    number(&reversed, width)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns up to eight little-endian bytes as a number.
fn short(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Returns whether an array's schema fits its map.
pub(crate) fn fits_array(a: &ArraySchema, definition: &MapDefinition) -> bool {
    let size = definition.value_size as usize;
    match a.element {
        Element::Meter => size == METER_CELL_SIZE,
        Element::Counter => matches!(size, 1..=8 | 16),
        _ => a.width > 0 && a.width.div_ceil(8) as usize <= size,
    }
}

/// Decodes an element of an array.
pub(crate) fn element(a: &ArraySchema, index: u32, value: &[u8]) -> Row {
    let mut row = Row { index: Some(index), ..Row::default() };
    match a.element {
        Element::Counter => (row.packets, row.bytes) = counts(value, 0, a.unit),
        Element::Register => row.value = Some(register(value, a.width, false)),
        Element::SignedRegister => row.value = Some(register(value, a.width, true)),
        Element::Meter => row.meter = meter(value, 0),
    }
    row
}

/// Returns packets and bytes of the counter at `at`.
fn counts(value: &[u8], at: usize, unit: Unit) -> (Option<u64>, Option<u64>) {
    let packets = long(value, at).or_else(|| value.get(at..).map(short));
    (packets.filter(|_| unit != Unit::Bytes), long(value, at + 8).filter(|_| unit != Unit::Packets))
}

fn register(value: &[u8], width: u32, signed: bool) -> Number {
    if width > 64 {
        return Number::Wide(little(value, width));
    }
    let unused = 64 - width.max(1);
    let raw = short(value) << unused;
    match raw.cast_signed() >> unused {
        n @ ..0 if signed => Number::Negative(n),
        _ => Number::Unsigned(raw >> unused),
    }
}

fn meter(value: &[u8], at: usize) -> Option<MeterView> {
    let cell = MeterCell::decode(value.get(at..)?.first_chunk()?);
    let MeterCell { committed_rate, committed_burst, peak_rate, peak_burst, .. } = cell;
    Some(MeterView { committed_rate, committed_burst, peak_rate, peak_burst })
}

/// Shows an entry without a schema.
pub(crate) fn raw(definition: &MapDefinition, key: &[u8], value: &[u8]) -> Row {
    let index = word(key, 0).filter(|_| definition.map_type == p4shield_abi::map::TYPE_ARRAY);
    Row { index, raw: Some(RawEntry { key: hex::encode(key), value: hex::encode(value) }), ..Row::default() }
}

/// Returns the keys of a table.
pub(crate) fn keys(t: &TableSchema) -> Vec<KeyView> {
    let view =
        |k: &KeySchema| KeyView { name: name(&k.name), kind: k.kind.name().to_owned(), width: k.width };
    t.keys.iter().map(view).collect()
}

/// Decodes an entry of a table's map.
pub(crate) fn entry(t: &TableSchema, definition: &MapDefinition, key: &[u8], value: &[u8]) -> Option<Row> {
    let mut row = match definition.map_type {
        TYPE_CLASSIFIER => rule(t, key)?,
        map_type => {
            let prefix = word(key, 0).filter(|_| map_type == TYPE_LPM_TRIE);
            let keys = t.keys.iter().map(|k| plain(k, key, prefix)).collect::<Option<_>>()?;
            Row { keys, ..Row::default() }
        }
    };
    row.action = action(&t.actions, value);
    if let Some(c) = &t.counter {
        (row.packets, row.bytes) = counts(value, c.offset as usize, c.unit);
    }
    row.meter = t.meter.as_ref().and_then(|m| meter(value, m.offset as usize));
    Some(row)
}

/// Decodes an entry that is code.
pub(crate) fn code_entry(t: &TableSchema, rule_bytes: &[u8], value: &[u8]) -> Option<Row> {
    let mut row = rule(t, rule_bytes)?;
    row.action = action(&t.actions, value);
    // Without overlapping entries there is no priority.
    let overlaps = |k: &KeySchema| !matches!(k.kind, KeyKind::Exact | KeyKind::Lpm);
    row.priority = row.priority.filter(|_| t.keys.iter().any(overlaps));
    Some(row)
}

fn field<'a>(k: &KeySchema, key: &'a [u8]) -> Option<&'a [u8]> {
    let start = k.offset as usize;
    key.get(start..start.checked_add(k.width.div_ceil(8) as usize)?)
}

/// Decodes the key of an entry that is one value, or a prefix in a trie.
fn plain(k: &KeySchema, key: &[u8], prefix: Option<u32>) -> Option<MatchView> {
    let bytes = field(k, key)?;
    let Some(bits) = prefix.filter(|_| k.kind == KeyKind::Lpm) else {
        return Some(MatchView::Exact(number(bytes, k.width)));
    };
    // The field begins with its first bit, behind the length and the other fields.
    let len = bits.saturating_sub(k.offset.saturating_sub(4).saturating_mul(8)).min(k.width);
    let pad = bytes.len() as u32 * 8 - k.width;
    Some(prefixed(number(&shifted(bytes, pad), k.width), len))
}

fn prefixed(value: String, len: u32) -> MatchView {
    if len == 0 { MatchView::Any } else { MatchView::Prefix(value, len) }
}

/// Returns a number shifted to the right by less than eight bits.
fn shifted(bytes: &[u8], by: u32) -> Vec<u8> {
    let mut carry = 0;
    let shift = |b: &u8| {
        let both = carry << 8 | u16::from(*b);
        carry = u16::from(*b);
        (both >> by) as u8
    };
    bytes.iter().map(shift).collect()
}

/// Decodes a rule: priority, values and masks, or ranges.
fn rule(t: &TableSchema, rule: &[u8]) -> Option<Row> {
    let (a, b) = rule.get(4..)?.split_at_checked(t.key_size as usize)?;
    let decoded = |k: &KeySchema| {
        let (low, high) = (field(k, a)?, field(k, b)?);
        let (low_text, high_text) = (number(low, k.width), number(high, k.width));
        let ones: u32 = high.iter().map(|b| b.count_ones()).sum();
        Some(match k.kind {
            KeyKind::Range if low == high => MatchView::Exact(low_text),
            KeyKind::Range if low.iter().all(|b| *b == 0) && ones == k.width => MatchView::Any,
            KeyKind::Range => MatchView::Range(low_text, high_text),
            KeyKind::Lpm => prefixed(low_text, ones.min(k.width)),
            _ if ones == 0 => MatchView::Any,
            _ if ones == k.width => MatchView::Exact(low_text),
            _ => MatchView::Ternary(low_text, high_text),
        })
    };
    let keys = t.keys.iter().map(decoded).collect::<Option<_>>()?;
    Some(Row { keys, priority: word(rule, 0), ..Row::default() })
}

/// Decodes an action with its parameters; `None` for a value set, which has no actions.
pub(crate) fn action(actions: &[ActionSchema], value: &[u8]) -> Option<ActionView> {
    let chosen = word(value, 0).filter(|_| !actions.is_empty())?;
    if chosen == GROUP_ACTION {
        let group = word(value, 4)?;
        return Some(ActionView { name: format!("group {group}"), params: Vec::new() });
    }
    let Some(action) = actions.get(chosen as usize) else {
        return Some(ActionView { name: format!("unknown action {chosen}"), params: Vec::new() });
    };
    let params = action.params.iter().map_while(|p| {
        let start = p.offset as usize;
        let bytes = value.get(start..start.checked_add(p.width.div_ceil(8) as usize)?)?;
        Some((name(&p.name), little(bytes, p.width)))
    });
    Some(ActionView { name: name(&action.name), params: params.collect() })
}
