//! P4Info: what a P4Runtime controller has to know of a program.
//!
//! Messages and numbers are those of `p4/config/v1/p4info.proto` (P4Runtime 1.4). An object's id is its type in the
//! upper byte, as the specification prescribes, and below it 24 bits of a hash of its full name, so that ids stay
//! when other parts of a program change; of two with one hash the one that comes later takes the next free number.

mod message;

use crate::Facts;
use crate::control::{ActionFacts, ArrayKind, KeyFacts, TableFacts, Unit};
use message::{Message, Value};
use num_bigint::BigUint;
use std::collections::{BTreeMap, BTreeSet};

/// `P4Ids.Prefix`
mod prefix {
    pub(super) const ACTION: u32 = 0x01;
    pub(super) const TABLE: u32 = 0x02;
    pub(super) const ACTION_PROFILE: u32 = 0x11;
    pub(super) const COUNTER: u32 = 0x12;
    pub(super) const DIRECT_COUNTER: u32 = 0x13;
    pub(super) const METER: u32 = 0x14;
    pub(super) const DIRECT_METER: u32 = 0x15;
    pub(super) const REGISTER: u32 = 0x16;
}

/// A program's P4Info.
#[derive(Clone, Debug)]
pub struct P4Info(Message);

impl P4Info {
    /// As text, the form that people and most controllers read.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out =
            String::from("# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n");
        self.0.print(0, &mut out);
        out
    }

    /// As a protocol buffer message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode()
    }
}

/// Ids by type and name.
struct Ids(BTreeMap<(u32, String), u32>);

impl Ids {
    /// Gives every object of the program its id.
    fn new(facts: &Facts) -> Self {
        let mut named: Vec<(u32, &str)> = Vec::new();
        for t in &facts.tables {
            named.push((prefix::TABLE, &t.name));
            named.extend(t.actions.iter().map(|a| (prefix::ACTION, a.name.as_str())));
            named.extend(t.counter.iter().map(|c| (prefix::DIRECT_COUNTER, c.name.as_str())));
            named.extend(t.meter.iter().map(|m| (prefix::DIRECT_METER, m.name.as_str())));
            named.extend(t.profile.iter().map(|p| (prefix::ACTION_PROFILE, p.name.as_str())));
        }
        named.extend(facts.arrays.iter().map(|a| (array_prefix(a.kind), a.name.as_str())));
        let (mut ids, mut taken) = (BTreeMap::new(), BTreeSet::new());
        for (prefix, name) in named {
            ids.entry((prefix, name.to_owned())).or_insert_with(|| {
                let mut suffix = one_at_a_time(name.as_bytes()) & 0x00ff_ffff;
                while !taken.insert(prefix << 24 | suffix) {
                    suffix = (suffix + 1) & 0x00ff_ffff;
                }
                prefix << 24 | suffix
            });
        }
        Self(ids)
    }

    fn of(&self, prefix: u32, name: &str) -> u32 {
        self.0.get(&(prefix, name.to_owned())).copied().unwrap_or(0)
    }

    /// Id, name and the shortest suffix of the name that no other object of the type has.
    fn preamble(&self, prefix: u32, name: &str) -> Message {
        let others = || self.0.keys().filter(|(p, n)| *p == prefix && n != name);
        let starts = std::iter::once(0).chain(name.match_indices('.').map(|(i, _)| i + 1));
        let suffixes: Vec<&str> = starts.map(|i| &name[i..]).collect();
        let unique = |s: &&&str| {
            let dotted = format!(".{s}");
            !others().any(|(_, n)| n == **s || n.ends_with(&dotted))
        };
        let alias = suffixes.iter().rev().find(unique).copied().unwrap_or(name);
        Message::default()
            .number(1, "id", self.of(prefix, name))
            .text(2, "name", name)
            .text(3, "alias", alias)
    }
}

const fn array_prefix(kind: ArrayKind) -> u32 {
    match kind {
        ArrayKind::Register => prefix::REGISTER,
        ArrayKind::Counter { .. } => prefix::COUNTER,
        ArrayKind::Meter { .. } => prefix::METER,
    }
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

/// The P4Info of a compiled program.
#[must_use]
pub fn p4info(facts: &Facts) -> P4Info {
    let ids = Ids::new(facts);
    let mut actions: Vec<&ActionFacts> = Vec::new();
    for a in facts.tables.iter().flat_map(|t| &t.actions) {
        if !actions.iter().any(|known| known.name == a.name) {
            actions.push(a);
        }
    }
    let package = Message::default().text(5, "arch", facts.architecture.as_str());
    let mut info = Message::default()
        .message(1, "pkg_info", package)
        .repeated(2, "tables", facts.tables.iter().map(|t| table(t, &ids)))
        .repeated(3, "actions", actions.iter().map(|a| action(a, &ids)))
        .repeated(4, "action_profiles", profiles(facts, &ids));
    info = arrays(facts, &ids, info);
    P4Info(info.message(200, "type_info", Message::default()))
}

fn table(t: &TableFacts, ids: &Ids) -> Message {
    let default = t.default_action.as_ref().map(|(i, data)| (&t.actions[*i], data));
    let default_id = default.map_or(0, |(a, _)| ids.of(prefix::ACTION, &a.name));
    let counter = t.counter.iter().map(|c| ids.of(prefix::DIRECT_COUNTER, &c.name));
    let meter = t.meter.iter().map(|m| ids.of(prefix::DIRECT_METER, &m.name));
    let profile = t.profile.as_ref().map_or(0, |p| ids.of(prefix::ACTION_PROFILE, &p.name));
    let mut m = Message::default()
        .message(1, "preamble", ids.preamble(prefix::TABLE, &t.name))
        .repeated(2, "match_fields", (1u32..).zip(&t.keys).map(|(i, k)| match_field(i, k)))
        .repeated(3, "action_refs", t.actions.iter().map(|a| action_ref(a, ids)));
    if t.default_is_const {
        m = m.number(4, "const_default_action_id", default_id);
    }
    if let Some((a, data)) = default {
        m = m.message(5, "initial_default_action", default_call(a, data, default_id));
    }
    m.number(6, "implementation_id", profile)
        .numbers(7, "direct_resource_ids", counter.chain(meter))
        .number(8, "size", t.size)
        .with(10, "is_const_table", Value::Bool(t.entries_are_const))
        .with(11, "has_initial_entries", Value::Bool(t.initial_entries > 0))
}

fn match_field(id: u32, k: &KeyFacts) -> Message {
    let kind = match k.kind {
        "exact" => Value::Enum("EXACT", 2),
        "lpm" => Value::Enum("LPM", 3),
        "ternary" => Value::Enum("TERNARY", 4),
        "range" => Value::Enum("RANGE", 5),
        _ => Value::Enum("OPTIONAL", 6),
    };
    Message::default().number(1, "id", id).text(2, "name", &k.name).number(4, "bitwidth", k.width).with(
        5,
        "match_type",
        kind,
    )
}

fn action_ref(a: &ActionFacts, ids: &Ids) -> Message {
    let m = Message::default().number(1, "id", ids.of(prefix::ACTION, &a.name));
    if a.default_only {
        m.text(2, "annotations", "@defaultonly").with(3, "scope", Value::Enum("DEFAULT_ONLY", 2))
    } else {
        m
    }
}

fn default_call(a: &ActionFacts, data: &[BigUint], id: u32) -> Message {
    let argument = |(i, (p, v)): (u32, (&crate::ParamFacts, &BigUint))| {
        let digits = v.to_bytes_be();
        let mut value = vec![0; (p.width.div_ceil(8) as usize).saturating_sub(digits.len())];
        value.extend(digits);
        Message::default().number(2, "param_id", i).with(3, "value", Value::Bytes(value))
    };
    let arguments = (1u32..).zip(a.params.iter().zip(data)).map(argument);
    Message::default().number(1, "action_id", id).repeated(4, "arguments", arguments)
}

fn action(a: &ActionFacts, ids: &Ids) -> Message {
    let param = |(i, p): (u32, &crate::ParamFacts)| {
        Message::default().number(1, "id", i).text(2, "name", &p.name).number(4, "bitwidth", p.width)
    };
    Message::default().message(1, "preamble", ids.preamble(prefix::ACTION, &a.name)).repeated(
        2,
        "params",
        (1u32..).zip(&a.params).map(param),
    )
}

fn profiles(facts: &Facts, ids: &Ids) -> Vec<Message> {
    let mut seen: Vec<&str> = Vec::new();
    let mut out = Vec::new();
    for p in facts.tables.iter().filter_map(|t| t.profile.as_ref()) {
        if seen.contains(&p.name.as_str()) {
            continue;
        }
        seen.push(&p.name);
        let users = facts.tables.iter().filter(|t| t.profile.as_ref().is_some_and(|o| o.name == p.name));
        let m = Message::default()
            .message(1, "preamble", ids.preamble(prefix::ACTION_PROFILE, &p.name))
            .numbers(2, "table_ids", users.map(|t| ids.of(prefix::TABLE, &t.name)))
            .with(3, "with_selector", Value::Bool(p.selector))
            .number(4, "size", p.size);
        out.push(m);
    }
    out
}

fn unit(unit: Unit) -> Message {
    let value = match unit {
        Unit::Bytes => Value::Enum("BYTES", 1),
        Unit::Packets => Value::Enum("PACKETS", 2),
        Unit::Both => Value::Enum("BOTH", 3),
    };
    Message::default().with(1, "unit", value)
}

/// Counters, meters and registers, in the order of their fields.
fn arrays(facts: &Facts, ids: &Ids, info: Message) -> Message {
    let of = |wanted: u32| {
        facts.arrays.iter().filter(move |a| array_prefix(a.kind) == wanted).map(move |a| {
            let m = Message::default().message(1, "preamble", ids.preamble(wanted, &a.name));
            match a.kind {
                ArrayKind::Counter { unit: u } | ArrayKind::Meter { unit: u } => {
                    m.message(2, "spec", unit(u)).number(3, "size", a.size)
                }
                ArrayKind::Register => {
                    let bit = Message::default().number(1, "bitwidth", a.width);
                    let bitstring = Message::default().message(1, "bit", bit);
                    let spec = Message::default().message(1, "bitstring", bitstring);
                    m.message(2, "type_spec", spec).number(3, "size", a.size)
                }
            }
        })
    };
    let direct = |prefix: u32, counter: bool| {
        facts.tables.iter().filter_map(move |t| {
            let d = if counter { t.counter.as_ref() } else { t.meter.as_ref() }?;
            let table = ids.of(prefix::TABLE, &t.name);
            let m = Message::default().message(1, "preamble", ids.preamble(prefix, &d.name));
            Some(m.message(2, "spec", unit(d.unit)).number(3, "direct_table_id", table))
        })
    };
    info.repeated(5, "counters", of(prefix::COUNTER))
        .repeated(6, "direct_counters", direct(prefix::DIRECT_COUNTER, true))
        .repeated(7, "meters", of(prefix::METER))
        .repeated(8, "direct_meters", direct(prefix::DIRECT_METER, false))
        .repeated(11, "registers", of(prefix::REGISTER))
}
