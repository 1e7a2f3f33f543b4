//! Any text as a file of each format. Entry point for fuzzing.

use crate::{Format, read};
use p4shield_tables::Control;
use p4shield_tables::model::{ActionFacts, KeyFacts, LookupKind, ParamFacts, TableFacts};

/// Reads a text in each format, for a program with two tables.
///
/// # Panics
/// A line is named that the text does not have.
pub fn fuzz(text: &str) {
    let program = program();
    let formats = [Format::Commands, Format::Runtime, Format::Csv { table: "acl".into() }];
    // The end of the text counts as a line.
    let last = text.lines().count() + 1;
    for format in formats {
        match read(&program, &format, text) {
            Ok(writes) => assert!(writes.iter().all(|w| (1..=last).contains(&w.line))),
            Err(error) => assert!((1..=last).contains(&error.line), "{error}"),
        }
    }
}

/// `ingress.routes` with a prefix, and `ingress.acl` with a mask and a range.
pub(crate) fn program() -> Control {
    let key = |name: &str, kind, width: u32, offset| KeyFacts {
        name: name.into(),
        kind,
        width,
        offset,
        bytes: width.div_ceil(8),
    };
    let param = |name: &str, width: u32, offset| ParamFacts {
        name: name.into(),
        width,
        offset,
        bytes: width.div_ceil(8),
    };
    let action = |name: &str, params| ActionFacts { name: name.into(), params, default_only: false };
    let params = vec![param("next_hop", 48, 8), param("port", 9, 4)];
    let actions = vec![action("ingress.forward", params), action("ingress.drop", Vec::new())];
    let table = |name: &str, lookup, keys: Vec<KeyFacts>, key_size| TableFacts {
        name: name.into(),
        map: Some(name.into()),
        default_map: Some(format!("{name}_default")),
        lookup,
        mutable: true,
        keys,
        actions: actions.clone(),
        key_size,
        value_size: 16,
        size: 16,
        counter_offset: None,
        meter_offset: None,
        counter: None,
        meter: None,
        profile: None,
        groups: None,
        default_action: None,
        default_is_const: false,
        initial_entries: 0,
        entries_are_const: false,
    };
    let routes = table("ingress.routes", LookupKind::Lpm, vec![key("hdr.ipv4.dst", "lpm", 32, 4)], 8);
    let keys = vec![key("proto", "ternary", 8, 0), key("dst_port", "range", 16, 1)];
    let acl = table("ingress.acl", LookupKind::Rules, keys, 3);
    Control { tables: vec![routes, acl], ..Control::default() }
}
